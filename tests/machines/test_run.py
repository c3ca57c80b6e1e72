"""One run: what it sends, when it waits, when it ends, and what it counts."""

from __future__ import annotations

import re
from copy import deepcopy
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._machines import run as machine
from promptkit._machines.run import (
    Answered,
    Broke,
    Command,
    Elapsed,
    Fail,
    Finish,
    Generate,
    Input,
    Phase,
    Repair,
    Retry,
    Run,
    Sent,
    Wait,
    failure_usage,
    step,
)
from promptkit._values.definitions import RetryPolicy
from promptkit._values.usage import NO_USAGE, UNKNOWN_USAGE, ReportedUsage, TokenUsage, contribution
from promptkit.errors import (
    AttemptTimeoutError,
    AuthenticationError,
    BackendStatusError,
    ConnectError,
    DisconnectedError,
    GenerationError,
    MalformedReplyError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMIT = RetryPolicy().max_retry_after
USAGE = contribution(ReportedUsage(input_tokens=7, output_tokens=0))
VALID, INCURABLE = Answered(USAGE, valid=True, curable=False), Answered(USAGE, valid=False, curable=False)
INVALID = Answered(USAGE, valid=False, curable=True)


def broke(*, transient: bool, demand: float | None = None, usage: TokenUsage = UNKNOWN_USAGE) -> Broke:
    return Broke(GenerationError("it broke", transient=transient, retry_after=demand), usage, 0.5)


PERMANENT, TRANSIENT = broke(transient=False), broke(transient=True)
DEMANDED, TOO_LONG = broke(transient=True, demand=LIMIT), broke(transient=True, demand=LIMIT + 1)
INPUTS: tuple[Input, ...] = (
    Sent(),
    *(VALID, INCURABLE, INVALID),
    *(PERMANENT, TRANSIENT, DEMANDED, TOO_LONG),
    Elapsed(),
)
PHASES: tuple[Phase, ...] = ("queued", "in_flight", "waiting", "ended")
COUNTS = tuple(product((0, 2), (0, 1), (0, 2), (0, 1)))


def new(retries: int = 2, repairs: int = 1) -> Run:
    return Run(policy=RetryPolicy(max_retries=retries), max_repairs=repairs)


def state_of(phase: Phase, counts: tuple[int, int, int, int]) -> Run:
    retries, retried, repairs, repaired = counts
    return msgspec.structs.replace(
        new(retries, repairs),
        phase=phase,
        purpose="repair" if repaired else "generate",
        attempts=1 + retried + repaired,
        transient_retries=retried,
        repair_calls=repaired,
    )


def expected(state: Run, event: Input) -> tuple[type[Command], Phase] | None:
    """Write the table once more, by hand; None where it has no row."""
    match state.phase, event:
        case "queued", Sent():
            return Generate, "in_flight"
        case "in_flight", Answered():
            repair = event is INVALID and state.max_repairs > state.repair_calls
            return (Repair, "queued") if repair else (Finish, "ended")
        case "in_flight", Broke():
            retry = event in (TRANSIENT, DEMANDED) and state.policy.max_retries > state.transient_retries
            return (Wait, "waiting") if retry else (Fail, "ended")
        case "waiting", Elapsed():
            return Retry, "queued"
    return None


@pytest.mark.parametrize("event", INPUTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_takes_the_inputs_of_its_table_and_no_others(phase: Phase, event: Input) -> None:
    for counts in COUNTS:
        state = state_of(phase, counts)
        before = deepcopy(state)
        wanted = expected(state, event)
        if wanted is None:
            with pytest.raises(ValueError, match=f"a run that is {phase} takes no {type(event).__name__}"):
                step(state, event)
        else:
            found, command = step(state, event)
            assert (type(command), found.phase) == wanted
        assert state == before


def rows_of(docstring: str) -> list[list[str]]:
    """Read the table; a condition may go on in a second line."""
    text = docstring.partition("next phase\n")[2].partition("\n\n")[0]
    rows: list[list[str]] = []
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if len(cells) == 1:
            rows[-1][2] += " " + cells[0]
        else:
            rows.append(cells)
    return rows


def conditions(state: Run, event: Input) -> Iterator[str]:
    """Give the conditions of the table that hold."""
    yield "-"
    if isinstance(event, Answered):
        curable = event is INVALID and state.repair_calls < state.max_repairs
        yield "curable, repairs left" if curable else "valid, or no repair can help"
    if isinstance(event, Broke):
        budget = event in (TRANSIENT, DEMANDED) and state.transient_retries < state.policy.max_retries
        refused = "not transient, or no budget, or a retry-after above max_retry_after"
        yield "transient, budget left" if budget else refused


def test_the_documented_table_is_what_the_machine_does() -> None:
    assert machine.__doc__ is not None
    rows = rows_of(machine.__doc__)
    used = []
    for phase, counts, event in product(PHASES, COUNTS, INPUTS):
        state = state_of(phase, counts)
        found = [row for row in rows if row[:2] == [phase, type(event).__name__] and row[2] in conditions(state, event)]
        wanted = expected(state, event)
        assert len(found) == (wanted is not None)
        if wanted is not None:
            used += found
            assert found[0][3:] == [wanted[0].__name__, wanted[1]]
    assert all(row in used for row in rows)
    assert len(rows) == 6


# Whole runs


class Story(NamedTuple):
    """A run that was followed to its end: its commands, its states, and the outcomes that it used."""

    state: Run
    commands: list[Command]
    states: list[Run]
    used: list[Answered | Broke]

    @property
    def sent(self) -> int:
        return sum(isinstance(command, Generate) for command in self.commands)

    @property
    def delays(self) -> list[Wait]:
        return [command for command in self.commands if isinstance(command, Wait)]


def follow(state: Run, outcomes: Sequence[Answered | Broke]) -> Story:
    """Drive a run with these outcomes of its attempts, and valid answers after them."""
    story = Story(state, [], [state], [])
    rest = iter(outcomes)
    while state.phase != "ended":
        event: Input
        if state.phase == "queued":
            event = Sent()
        elif state.phase == "waiting":
            event = Elapsed()
        else:
            event = next(rest, VALID)
            story.used.append(event)
        state, command = step(state, event)
        story.states.append(state)
        story.commands.append(command)
    return story._replace(state=state)


usages = st.sampled_from([NO_USAGE, UNKNOWN_USAGE]) | st.builds(
    contribution,
    st.builds(ReportedUsage, input_tokens=st.none() | st.integers(0, 99), output_tokens=st.none() | st.integers(0, 99)),
)
outcomes_of_attempts = st.lists(
    st.builds(Answered, usages, st.booleans(), st.booleans())
    | st.builds(
        broke,
        transient=st.sampled_from([True, True, True, False]),
        demand=st.sampled_from([None, None, 1.0, LIMIT, LIMIT + 1]),
        usage=usages,
    )
    | st.sampled_from([TRANSIENT, INVALID]),
    max_size=20,
)
budgets = st.integers(0, 5)


@given(budgets, budgets, outcomes_of_attempts)
def test_a_run_sends_no_more_than_its_budgets_and_counts_what_it_sends(
    retries: int, repairs: int, outcomes: list[Answered | Broke]
) -> None:
    story = follow(new(retries, repairs), outcomes)
    assert story.sent <= 1 + retries + repairs
    assert story.state.attempts == story.sent == len(story.used)
    assert story.state.transient_retries == len(story.delays) <= retries
    assert story.state.repair_calls == sum(isinstance(command, Repair) for command in story.commands) <= repairs
    assert isinstance(story.commands[-1], Finish | Fail)
    for state in story.states:
        if state.attempts:
            assert state.attempts == 1 + state.transient_retries + state.repair_calls


@given(budgets, budgets, outcomes_of_attempts)
def test_a_run_goes_on_as_a_plain_loop_over_its_two_budgets_would(
    retries: int, repairs: int, outcomes: list[Answered | Broke]
) -> None:
    wanted: list[type[Command]] = [Generate]
    retries_left, repairs_left = retries, repairs
    for outcome in (*outcomes, VALID):
        if isinstance(outcome, Broke):
            demand = outcome.error.retry_after or 0
            if not outcome.error.transient or retries_left == 0 or demand > LIMIT:
                wanted.append(Fail)
                break
            retries_left -= 1
            wanted += [Wait, Retry, Generate]
        elif outcome.valid or not outcome.curable or repairs_left == 0:
            wanted.append(Finish)
            break
        else:
            repairs_left -= 1
            wanted += [Repair, Generate]
    story = follow(new(retries, repairs), outcomes)
    assert [type(command) for command in story.commands] == wanted


@given(budgets, budgets, outcomes_of_attempts)
def test_usage_is_the_sum_over_the_finished_attempts(
    retries: int, repairs: int, outcomes: list[Answered | Broke]
) -> None:
    story = follow(new(retries, repairs), outcomes)
    assert story.state.usage == reduce(TokenUsage.__add__, (outcome.usage for outcome in story.used), NO_USAGE)


@given(budgets, budgets, outcomes_of_attempts)
def test_attempts_are_repairs_once_an_answer_was_rejected(
    retries: int, repairs: int, outcomes: list[Answered | Broke]
) -> None:
    repairing = False
    story = follow(new(retries, repairs), outcomes)
    for state, command in zip(story.states[1:], story.commands, strict=True):
        repairing = repairing or isinstance(command, Repair)
        assert state.purpose == ("repair" if repairing else "generate")


@given(budgets, budgets)
def test_a_backend_that_always_fails_sees_one_request_and_the_retries(retries: int, repairs: int) -> None:
    story = follow(new(retries, repairs), [TRANSIENT] * 20)
    assert story.sent == retries + 1
    assert story.commands[-1] == Fail(f"given up after {retries + 1} attempts" if retries else None)


@given(budgets, budgets)
def test_a_backend_whose_output_is_always_invalid_sees_one_request_and_the_repairs(retries: int, repairs: int) -> None:
    story = follow(new(retries, repairs), [INVALID] * 20)
    assert story.sent == repairs + 1
    assert isinstance(story.commands[-1], Finish)
    assert story.state.transient_retries == 0


def test_retries_of_a_repair_come_out_of_the_one_budget_of_the_run() -> None:
    story = follow(new(retries=2, repairs=2), [TRANSIENT, INVALID, TRANSIENT, INVALID, TRANSIENT])
    assert story.sent == 5
    assert (story.state.transient_retries, story.state.repair_calls) == (2, 2)
    assert story.commands[-1] == Fail("given up after 5 attempts")


def test_a_run_that_was_not_sent_has_counted_nothing() -> None:
    assert (new().attempts, new().transient_retries, new().repair_calls, new().usage) == (0, 0, 0, NO_USAGE)


def test_an_answer_that_no_repair_can_cure_is_not_repaired() -> None:
    assert [type(command) for command in follow(new(repairs=5), [INCURABLE]).commands] == [Generate, Finish]


def test_a_failure_that_waiting_cannot_cure_is_not_retried() -> None:
    assert follow(new(retries=5), [PERMANENT]).commands[-1] == Fail(None)


def test_a_demand_that_is_too_long_ends_the_run_at_once_and_says_both_times() -> None:
    story = follow(new(retries=5), [TOO_LONG])
    assert story.sent == 1
    assert story.commands[-1] == Fail("it demands a wait of 61 s, and max_retry_after is 60 s")


def test_the_newest_demand_replaces_the_backoff() -> None:
    story = follow(new(retries=5), [broke(transient=True, demand=5.0), TRANSIENT, broke(transient=True, demand=1.0)])
    assert [wait.delay for wait in story.delays] == [(5.25, "retry_after"), (1.25, "backoff"), (1.25, "retry_after")]


def test_the_backoff_grows_over_the_run_and_not_over_one_repair() -> None:
    story = follow(new(retries=5, repairs=5), [TRANSIENT, INVALID, TRANSIENT, INVALID, TRANSIENT])
    assert [wait.delay.seconds for wait in story.delays] == [0.75, 1.25, 2.25]


# What a failed attempt contributes

REPORTED = ReportedUsage(input_tokens=12, output_tokens=0)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 413, 422, 425, 429, 498, 503, 529])
def test_a_status_that_refuses_the_request_contributes_nothing(status: int) -> None:
    assert failure_usage(BackendStatusError("no", status=status)) == NO_USAGE


@pytest.mark.parametrize("status", [None, 200, 302, 408, 499, 500, 501, 502, 504, 505, 520, 524, 599])
def test_a_status_after_which_something_may_have_been_generated_is_unknown(status: int | None) -> None:
    assert failure_usage(BackendStatusError("no", status=status)) == UNKNOWN_USAGE


@pytest.mark.parametrize(
    ("error", "contributes"),
    [
        (ConnectError("no connection", transient=True), NO_USAGE),
        (AttemptTimeoutError("too slow", transient=True), UNKNOWN_USAGE),
        (DisconnectedError("lost", transient=True), UNKNOWN_USAGE),
        (MalformedReplyError("unreadable", status=200), UNKNOWN_USAGE),
        (AuthenticationError("no", status=401), NO_USAGE),
        (RateLimitError("no", status=429), NO_USAGE),
        (QuotaError("no", status=429), NO_USAGE),
        (OverloadedError("no", status=503), NO_USAGE),
        (OverloadedError("no", status=529), NO_USAGE),
        (RejectedRequestError("no", status=400), NO_USAGE),
        (RejectedRequestError("no", status=408), UNKNOWN_USAGE),
        (GenerationError("who knows"), UNKNOWN_USAGE),
    ],
    ids=repr,
)
def test_each_kind_of_failure_contributes_what_it_can_have_used(
    error: GenerationError, contributes: TokenUsage
) -> None:
    assert failure_usage(error) == contributes


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("no", reported=REPORTED),
        OverloadedError("no", status=503, reported=REPORTED),
        BackendStatusError("no", status=500, reported=REPORTED),
        MalformedReplyError("no", status=200, reported=REPORTED),
    ],
    ids=repr,
)
def test_counts_that_came_with_a_failure_are_what_it_contributes(error: GenerationError) -> None:
    usage = failure_usage(error)
    assert usage == contribution(REPORTED)
    assert str(usage.input_tokens) == "12"
    assert str(usage.output_tokens) == "0"
    assert str(usage.reasoning_tokens) == "unknown"
