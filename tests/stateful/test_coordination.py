"""The coordinator's machine under any application, any run and any cancellation."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkit.coordination import (
    Call,
    Cancelled,
    Check,
    Checking,
    Chose,
    Clear,
    Command,
    Completed,
    Ended,
    Execute,
    Finish,
    Input,
    NotInTableError,
    Propagate,
    Raised,
    State,
    Withhold,
    start,
    step,
)

# What can come of each thing that a driver does.
ANSWERS: dict[type[Command], tuple[Input, ...]] = {
    Check: (Clear(), Cancelled()),
    Call: (Chose(stop=False), Chose(stop=True), Raised()),
    Execute: (Completed(), Raised()),
    Finish: (),
    Propagate: (),
    Withhold: (),
}
INPUTS = tuple(dict.fromkeys(answer for answers in ANSWERS.values() for answer in answers))


class CoordinationMachine(RuleBasedStateMachine):
    """Drives a branch, and keeps what a person who watched it would know."""

    state: State
    command: Command

    @initialize(budget=st.integers(0, 5))
    def begin(self, budget: int) -> None:
        self.budget = budget
        self.started = self.completed = self.calls = self.delivered = 0
        self.asked_with_none_left = False
        self.last: Input | None = None
        self.state, self.command = start(budget)

    def _take(self, answer: Input) -> None:
        waiting = self.completed - self.delivered
        self.last = answer
        self.state, self.command = step(self.state, answer)
        if isinstance(answer, Completed):
            self.completed += 1
        match self.command:
            case Call(remaining=remaining):
                assert remaining == self.budget - self.started
                self.calls += 1
                self.delivered += waiting
            case Execute():
                self.started += 1
            case Withhold(undelivered=undelivered):
                assert undelivered == (waiting == 1)

    @precondition(lambda self: isinstance(self.command, Check))
    @rule()
    def there_is_no_cancellation(self) -> None:
        self._take(Clear())

    @precondition(lambda self: isinstance(self.command, Check))
    @rule(really=st.sampled_from([False] * 7 + [True]))
    def there_is_a_cancellation(self, really: bool) -> None:  # noqa: FBT001  # hypothesis passes names
        if really:
            self._take(Cancelled())

    @precondition(lambda self: isinstance(self.command, Call))
    @rule(answer=st.sampled_from([Chose(stop=False)] * 6 + [Chose(stop=True), Raised()]))
    def the_application_answers(self, answer: Chose | Raised) -> None:
        self.asked_with_none_left = answer == Chose(stop=False) and self.started == self.budget
        self._take(answer)

    @precondition(lambda self: isinstance(self.command, Execute))
    @rule(answer=st.sampled_from([Completed()] * 4 + [Raised()]))
    def the_run_ends(self, answer: Completed | Raised) -> None:
        self._take(answer)

    @rule(answer=st.sampled_from(INPUTS))
    def nothing_else_is_taken(self, answer: Input) -> None:
        if answer in ANSWERS[type(self.command)]:
            return
        before = deepcopy(self.state)
        with pytest.raises(NotInTableError):
            step(self.state, answer)
        assert self.state == before

    @invariant()
    def no_more_runs_are_started_than_the_budget_has(self) -> None:
        assert self.completed <= self.started <= self.budget

    @invariant()
    def at_most_one_response_is_pending(self) -> None:
        assert 0 <= self.completed - self.delivered <= 1
        if isinstance(self.state, Checking):
            assert self.state.pending == (self.completed > self.delivered)

    @invariant()
    def the_application_is_called_once_more_than_runs_have_started_and_no_more(self) -> None:
        assert self.started <= self.calls <= self.started + 1

    @invariant()
    def an_end_has_its_reason(self) -> None:
        ended = isinstance(self.command, Finish | Propagate | Withhold)
        assert ended == isinstance(self.state, Ended)
        if not isinstance(self.state, Ended):
            return
        event(f"{self.state.end}, undelivered: {self.state.undelivered}")
        if self.state.end == "cancelled":
            assert self.last == Cancelled()
            assert self.state.undelivered == (self.completed > self.delivered)
            assert self.command == Withhold(self.state.undelivered)
        else:
            assert not self.state.undelivered
            assert self.completed == self.delivered
            assert self.calls == self.started + (self.last == Clear())  # a failed run is not followed by a call
        if self.state.end == "exhausted":
            assert self.asked_with_none_left
            assert self.started == self.budget
        assert (self.state.end == "failed") == (self.command == Propagate())
        if isinstance(self.command, Finish):
            assert self.command.outcome == self.state.end
            assert self.calls >= 1


CoordinationMachine.TestCase.settings = settings(deadline=None, max_examples=200)
TestCoordination = CoordinationMachine.TestCase


@pytest.mark.parametrize("answer", [Chose(stop=True), Chose(stop=False), Raised()], ids=repr)
def test_zero_turns_call_the_application_once_and_start_nothing(answer: Input) -> None:
    state, command = start(0)
    commands: list[Command] = []
    for given in (Clear(), answer, Clear()):
        state, command = step(state, given)
        commands.append(command)
    assert commands[:2] == [Call(0), Check()]
    assert isinstance(state, Ended)
    assert commands[2] == (
        Propagate() if answer == Raised() else Finish("stopped" if answer == Chose(stop=True) else "exhausted")
    )


@pytest.mark.parametrize("end", ["stopped", "exhausted", "failed", "cancelled"])
@pytest.mark.parametrize("answer", INPUTS, ids=repr)
def test_an_end_takes_nothing(end: str, answer: Input) -> None:
    with pytest.raises(NotInTableError, match="Ended takes no"):
        step(Ended(end=end), answer)  # type: ignore[arg-type]  # mypy does not narrow the parameters
