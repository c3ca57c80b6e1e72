"""The coordinator's machine does what its table says, and what the text of the progression says."""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import coordination
from promptkit._machines import coordination as machine
from promptkit.coordination import (
    Call,
    Cancelled,
    Check,
    Checking,
    Choosing,
    Chose,
    Clear,
    Command,
    Completed,
    Deciding,
    Ended,
    Execute,
    Finish,
    Input,
    NotInTableError,
    Propagate,
    Raised,
    Running,
    State,
    Step,
    Withhold,
    start,
    step,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

CLEAR, CANCELLED, RAISED, COMPLETED = Clear(), Cancelled(), Raised(), Completed()
STOP, REQUEST = Chose(stop=True), Chose(stop=False)
INPUTS: tuple[Input, ...] = (CLEAR, CANCELLED, STOP, REQUEST, RAISED, COMPLETED)

STATES: tuple[State, ...] = (
    *(Checking(remaining=left, pending=pending) for left in (0, 1, 7) for pending in (False, True)),
    *(Choosing(remaining=left) for left in (0, 1, 7)),
    *(Deciding(remaining=left, choice=choice) for left in (0, 1, 7) for choice in ("request", "stop", "raised")),
    *(Running(remaining=left) for left in (0, 1, 7)),
    *(Ended(end=end, undelivered=lost) for end in ("stopped", "exhausted", "failed") for lost in (False,)),
    *(Ended(end="cancelled", undelivered=lost) for lost in (False, True)),
)


def expected(state: State, event: Input) -> Step | None:
    """Write the table once more, by hand; None where it has no row."""
    rows: dict[Input, Step] = {}
    match state:
        case Checking(remaining=left, pending=pending):
            rows = {
                CLEAR: Step(Choosing(remaining=left), Call(left)),
                CANCELLED: Step(Ended(end="cancelled", undelivered=pending), Withhold(pending)),
            }
        case Choosing(remaining=left):
            rows = {
                STOP: Step(Deciding(remaining=left, choice="stop"), Check()),
                REQUEST: Step(Deciding(remaining=left, choice="request"), Check()),
                RAISED: Step(Deciding(remaining=left, choice="raised"), Check()),
            }
        case Deciding(remaining=left, choice=choice):
            rows = {CANCELLED: Step(Ended(end="cancelled"), Withhold(undelivered=False))}
            if choice == "raised":
                rows[CLEAR] = Step(Ended(end="failed"), Propagate())
            elif choice == "stop":
                rows[CLEAR] = Step(Ended(end="stopped"), Finish("stopped"))
            elif left == 0:
                rows[CLEAR] = Step(Ended(end="exhausted"), Finish("exhausted"))
            else:
                rows[CLEAR] = Step(Running(remaining=left - 1), Execute())
        case Running(remaining=left):
            rows = {
                COMPLETED: Step(Checking(remaining=left, pending=True), Check()),
                RAISED: Step(Ended(end="failed"), Propagate()),
            }
    return rows.get(event)


@pytest.mark.parametrize("event", INPUTS, ids=repr)
@pytest.mark.parametrize("state", STATES, ids=repr)
def test_a_state_takes_the_inputs_of_its_table_and_no_others(state: State, event: Input) -> None:
    before = deepcopy(state)
    wanted = expected(state, event)
    if wanted is None:
        with pytest.raises(NotInTableError, match=f"{type(state).__name__} takes no {type(event).__name__}"):
            step(state, event)
    else:
        assert step(state, event) == wanted
    assert state == before


def test_inputs_and_commands_are_equal_only_to_their_like() -> None:
    values = (*INPUTS, Check(), Call(0), Execute(), Finish("stopped"), Propagate(), Withhold(undelivered=False))
    assert len(set(values)) == len(values)
    assert deepcopy(values) == values


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="additional_turns is -1: 0 or more"):
        start(-1)


@pytest.mark.parametrize("budget", [0, 1, 10**9])
def test_the_first_thing_to_do_is_to_check(budget: int) -> None:
    assert start(budget) == Step(Checking(remaining=budget, pending=False), Check())


# The table in the docstring, from which the documentation is made


def rows_of(docstring: str) -> Iterator[list[str]]:
    lines = iter(docstring.splitlines())
    for line in lines:
        if line.split()[:1] == ["state"]:
            break
    for line in lines:
        if not line.strip():
            return
        yield re.split(r" {2,}", line.strip())


def written(state: State) -> Iterator[str]:
    """Give the ways in which the table may name a state."""
    match state:
        case Checking():
            yield "Checking(pending)"
        case Deciding(choice=choice):
            yield from (f"Deciding({choice})", "Deciding(any)")
        case Ended(end=end):
            yield f"Ended({end})"
        case _:
            yield type(state).__name__


def row_for(rows: list[list[str]], state: State, event: Input) -> list[str] | None:
    name = type(event).__name__
    if isinstance(event, Chose):
        name = "Chose(stop)" if event.stop else "Chose(request)"
    left = getattr(state, "remaining", 0)
    conditions = ("-", "turns left" if left else "no turns left")
    found = [row for row in rows if row[0] in written(state) and row[1] == name and row[2] in conditions]
    assert len(found) <= 1
    return found[0] if found else None


def test_the_documented_table_is_what_the_machine_does() -> None:
    assert machine.__doc__ is not None
    rows = list(rows_of(machine.__doc__))
    used = []
    for state, event in product(STATES, INPUTS):
        row = row_for(rows, state, event)
        wanted = expected(state, event)
        assert (row is None) == (wanted is None)
        if row is not None and wanted is not None:
            used.append(row)
            assert row[3] == type(wanted.command).__name__
            assert re.split(r"[,:]", row[4])[0] in written(wanted.state)
    assert all(row in used for row in rows)
    assert len(rows) == 12


def test_the_public_module_has_the_machine_and_its_table() -> None:
    assert machine.__doc__ is not None
    assert coordination.__doc__ is not None
    for row in rows_of(machine.__doc__):
        assert row[4] in coordination.__doc__
    for name in coordination.__all__:
        assert getattr(coordination, name) is getattr(machine, name)
    assert sorted(coordination.__all__) == coordination.__all__


# The progression once more, as a plain loop


class NotAskedError(Exception):
    """The progression does not ask that at this point."""


def progression(budget: int) -> Generator[Command, Input, None]:
    """Follow the text of the progression: each yield says what to do, and receives what came of it."""
    pending, remaining = False, budget
    while True:
        # 1. Check. With a cancellation, a completed response that was not delivered is kept.
        if cancelled((yield Check())):
            yield Withhold(pending)
            return
        # 2. Call next: being called is delivery.
        pending = False
        answer = yield Call(remaining)
        if not isinstance(answer, Chose | Raised):
            raise NotAskedError
        # 3. Check again: cancellation wins. Then an error propagates, None stops, a request continues.
        if cancelled((yield Check())):
            yield Withhold(undelivered=False)
            return
        if isinstance(answer, Raised):
            yield Propagate()
            return
        if answer.stop:
            yield Finish("stopped")
            return
        # 4. No turns left: exhausted, and nothing is prepared. Else a turn is spent, whatever comes of it.
        if remaining == 0:
            yield Finish("exhausted")
            return
        remaining -= 1
        outcome = yield Execute()
        # 5. An error propagates; a result becomes pending.
        if isinstance(outcome, Raised):
            yield Propagate()
            return
        if not isinstance(outcome, Completed):
            raise NotAskedError
        pending = True


def cancelled(answer: Input) -> bool:
    if not isinstance(answer, Clear | Cancelled):
        raise NotAskedError
    return isinstance(answer, Cancelled)


def by_the_text(budget: int, inputs: tuple[Input, ...]) -> Command | None:
    """Give what the text says to do after these inputs, None when it has no place for the last one."""
    steps = progression(budget)
    command = next(steps)
    try:
        for event in inputs:
            command = steps.send(event)
    except (NotAskedError, StopIteration):
        return None
    return command


def by_the_machine(budget: int, inputs: tuple[Input, ...]) -> Command | None:
    state, command = start(budget)
    try:
        for event in inputs:
            state, command = step(state, event)
    except NotInTableError:
        return None
    return command


@pytest.mark.parametrize("budget", range(4))
def test_every_sequence_of_inputs_leads_where_the_progression_says(budget: int) -> None:
    reached: set[tuple[Input, ...]] = set()
    ends = []
    open_sequences: list[tuple[Input, ...]] = [()]
    while open_sequences:
        inputs = open_sequences.pop()
        command = by_the_machine(budget, inputs)
        assert command == by_the_text(budget, inputs)
        if command is None:
            continue
        reached.add(inputs)
        if isinstance(command, Finish | Propagate | Withhold):
            ends.append(command)
        open_sequences.extend((*inputs, event) for event in INPUTS)
    # Each of the turns has 6 ways to end before its run and 1 in it; then comes one more callback, with 7 ways to end.
    assert len(ends) == 7 * (budget + 1)
    assert max(map(len, reached)) == 4 * budget + 3
    assert ends.count(Finish("exhausted")) == 1
    assert ends.count(Withhold(undelivered=True)) == budget


A_STATE = "Checking, Choosing, Deciding, Running or Ended"
AN_INPUT = "Clear, Cancelled, Chose, Raised or Completed"


@pytest.mark.parametrize(
    ("state", "event", "says"),
    [
        (start(2).state, Clear, f"event: Expected {AN_INPUT}, got the class `Clear`: give an instance of it, Clear()"),
        (start(2).state, Chose, "got the class `Chose`: give an instance of it, Chose(stop=...)"),
        (start(2).state, None, f"event: Expected {AN_INPUT}, got `NoneType`"),
        (start(2).state, Check(), f"event: Expected {AN_INPUT}, got `Check`"),
        (start(2), Clear(), "state: Expected a state, got a `Step`: give its .state, or unpack it, state, command"),
        (Checking, Clear(), f"state: Expected {A_STATE}, got the class `Checking`: give an instance of it, Checking("),
        (2, Clear(), f"state: Expected {A_STATE}, got `int`"),
    ],
)
def test_what_is_no_state_or_no_input_says_what_to_give(state: Any, event: Any, says: str) -> None:
    with pytest.raises(TypeError) as refused:
        step(state, event)
    assert str(refused.value).startswith("step: ")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("state", "event", "says"),
    [
        (start(2).state, Completed(), "Checking takes no Completed: it takes Clear or Cancelled"),
        (Choosing(remaining=1), Clear(), "Choosing takes no Clear: it takes Chose or Raised"),
        (Running(remaining=1), Cancelled(), "Running takes no Cancelled: it takes Completed or Raised"),
        (Ended(end="stopped"), Clear(), "Ended takes no Clear: the coordination has ended"),
    ],
)
def test_an_input_that_a_state_does_not_take_says_what_it_takes(state: Any, event: Any, says: str) -> None:
    with pytest.raises(NotInTableError) as refused:
        step(state, event)
    assert str(refused.value) == says


@pytest.mark.parametrize("turns", ["2", True, 2.0, None])
def test_a_budget_that_is_no_number_is_refused(turns: Any) -> None:
    with pytest.raises(TypeError) as refused:
        start(turns)
    assert str(refused.value) == f"additional_turns: Expected an int, got `{type(turns).__name__}`"
