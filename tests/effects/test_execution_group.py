"""What a group of runs amounts to, whatever is told in whatever order, by whichever thread."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from promptkit import (
    ExecutionEvent,
    ExecutionGroup,
    ExecutionGroupMember,
    RetryDelayed,
    RunFinished,
    RunStarted,
    TokenCount,
    TokenUsage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

AT = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 2**64 - 1


def count(value: int, *, known: bool = True, complete: bool = True) -> TokenCount:
    return TokenCount(value=value, known=known, complete=complete)


def usage(*counts: TokenCount) -> TokenUsage:
    """Give the counts to the five fields in their order, the last one to what is left."""
    fields = (*counts, *(counts[-1:] * 5))[:5]
    return TokenUsage(**dict(zip(TokenUsage.__struct_fields__, fields, strict=True)))


def started(run_id: str) -> RunStarted:
    return RunStarted(at=AT, run_id=run_id, parent_run_id=None, prompt_id="p")


def finished(run_id: str, spent: TokenUsage, attempts: int = 1, retries: int = 0, repairs: int = 0) -> RunFinished:
    return RunFinished(
        at=AT,
        run_id=run_id,
        parent_run_id=None,
        prompt_id="p",
        profile=None,
        backend=None,
        model=None,
        definition_hash=None,
        outcome="completed",
        error=None,
        validation=None,
        attempts=attempts,
        transient_retries=retries,
        repair_calls=repairs,
        usage=spent,
        duration=0.5,
    )


ONE = usage(count(1))
ZERO = usage(count(0))
UNKNOWN = usage(count(0, known=False, complete=False))


def told(*events: ExecutionEvent) -> ExecutionGroup:
    group = ExecutionGroup()
    for event in events:
        group.observe(event)
    return group


# ---------------------------------------------------------------- what counts


def test_an_empty_group_is_complete_and_a_known_zero() -> None:
    summary = ExecutionGroup().snapshot()
    assert summary.members == ()
    assert summary.terminal_coverage_complete
    assert (summary.attempts, summary.transient_retries, summary.repair_calls) == (0, 0, 0)
    assert summary.usage == ZERO


def test_members_without_any_terminal_have_unknown_usage() -> None:
    summary = told(started("a"), started("b"), started("a")).snapshot()
    assert [(member.run_id, member.terminal_observed) for member in summary.members] == [("a", False), ("b", False)]
    assert not summary.terminal_coverage_complete
    assert summary.usage == UNKNOWN


def test_the_totals_are_those_of_the_terminals_alone() -> None:
    summary = told(started("a"), finished("b", usage(count(7)), 3, 2, 1), started("c")).snapshot()
    assert (summary.attempts, summary.transient_retries, summary.repair_calls) == (3, 2, 1)
    assert summary.usage == usage(count(7))
    assert not summary.terminal_coverage_complete


def test_values_add_known_is_or_and_complete_is_and() -> None:
    one = usage(count(3), count(4), count(0), count(0), count(5, complete=False))
    other = usage(count(2), UNKNOWN.input_tokens, count(0), UNKNOWN.input_tokens, count(1))
    assert told(finished("a", one), finished("b", other)).snapshot().usage == usage(
        count(5), count(4, complete=False), count(0), count(0, complete=False), count(6, complete=False)
    )


@pytest.mark.parametrize(
    "unused",
    [
        pytest.param({"attempts": 0, "outcome": "failed"}, id="sent nothing"),
        pytest.param({"attempts": 0, "outcome": "cancelled"}, id="cancelled before its first attempt"),
        pytest.param({"attempts": 3, "transient_retries": 2, "outcome": "failed"}, id="no attempt can have generated"),
        pytest.param({"attempts": 1, "outcome": "cancelled"}, id="cancelled between two attempts"),
    ],
)
def test_a_run_that_used_nothing_leaves_the_sum_as_it_is(unused: dict[str, Any]) -> None:
    """Its event says known zero, as every fold is shown; in a sum it is no report of zero."""
    nothing = msgspec.structs.replace(finished("a", ZERO), **unused)
    assert told(nothing).snapshot().usage == ZERO
    assert told(nothing, finished("b", UNKNOWN)).snapshot().usage == UNKNOWN
    assert told(finished("b", UNKNOWN), nothing).snapshot().usage == UNKNOWN
    assert told(nothing, finished("b", usage(count(7)))).snapshot().usage == usage(count(7))


@pytest.mark.parametrize(
    "reporting",
    [
        pytest.param(finished("a", ZERO), id="completed"),
        pytest.param(
            msgspec.structs.replace(finished("a", ZERO, 2, 0, 1), outcome="failed"), id="failed in its repair"
        ),
        pytest.param(
            msgspec.structs.replace(finished("a", usage(count(0), count(1))), outcome="failed"), id="failed with counts"
        ),
    ],
)
def test_a_reported_zero_is_known_in_a_sum(reporting: RunFinished) -> None:
    summed = told(reporting, finished("b", UNKNOWN)).snapshot().usage.input_tokens
    assert summed == count(0, complete=False)


def test_the_first_terminal_wins_and_no_later_event_takes_it_back() -> None:
    first = told(finished("a", usage(count(1)), 1), finished("a", usage(count(50)), 9), started("a"))
    assert first.snapshot() == told(started("a"), started("a"), finished("a", usage(count(1)), 1)).snapshot()
    assert first.snapshot().attempts == 1
    assert first.snapshot().terminal_coverage_complete


def test_a_snapshot_is_detached() -> None:
    group = told(started("a"))
    before = group.snapshot()
    group.observe(finished("a", ONE))
    group.observe(started("b"))
    assert before.members == (ExecutionGroupMember(run_id="a", terminal_observed=False),)
    assert before.usage == UNKNOWN


def test_any_text_is_a_run_id() -> None:
    names = ["", "\0", "é", "e\u0301", "\U0001f600", "x" * 100_000]
    assert [member.run_id for member in told(*map(started, names)).snapshot().members] == names


def test_every_kind_of_ordinary_event_makes_a_member() -> None:
    delayed = RetryDelayed(at=AT, run_id="a", parent_run_id=None, attempt=1, delay=0.1, source="backoff")
    assert told(delayed).snapshot().members == (ExecutionGroupMember(run_id="a", terminal_observed=False),)


# ---------------------------------------------------------------- numbers of any size


@pytest.mark.parametrize("value", [MOST, MOST + 1, 2**64 + 5, 10**400])
def test_a_count_beyond_64_bits_is_a_lower_bound(value: int) -> None:
    summary = told(finished("a", usage(count(value)), value)).snapshot()
    assert summary.usage == usage(count(MOST, complete=value == MOST))
    assert summary.attempts == MOST


def test_a_sum_beyond_64_bits_is_a_lower_bound() -> None:
    summary = told(finished("a", usage(count(MOST)), MOST, MOST, MOST), finished("b", ONE, 1, 1, 1)).snapshot()
    assert summary.usage == usage(count(MOST, complete=False))
    assert str(summary.usage.input_tokens) == f"at least {MOST}"
    assert (summary.attempts, summary.transient_retries, summary.repair_calls) == (MOST, MOST, MOST)


# ---------------------------------------------------------------- what is no event


@pytest.mark.parametrize("wrong", [None, "run", {"kind": "run_started", "run_id": "a"}, ONE, RunStarted, object()])
def test_what_is_no_event_is_refused_by_name(wrong: Any) -> None:
    group = told(started("a"))
    with pytest.raises(TypeError, match=rf"takes an execution event, not {type(wrong).__name__}: give it as observer="):
        group.observe(wrong)
    assert len(group.snapshot().members) == 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"run_id": 7}, TypeError, "run_id must be a str, not int"),
        ({"run_id": "\ud800"}, ValueError, "run_id contains a lone surrogate"),
        ({"attempts": -1}, ValueError, "attempts must be a number that is not negative"),
        ({"attempts": -(10**30)}, ValueError, "attempts must be a number that is not negative"),
        ({"transient_retries": 1.0}, TypeError, "transient_retries must be a number that is not negative, not float"),
        ({"repair_calls": None}, TypeError, "repair_calls must be a number that is not negative, not NoneType"),
        ({"usage": None}, TypeError, "must be a TokenUsage of five TokenCounts: 'NoneType'"),
        ({"usage": msgspec.structs.replace(ONE, input_tokens=3)}, TypeError, "TokenUsage of five TokenCounts: 'int'"),
        ({"usage": usage(count(-1))}, ValueError, "value of usage must be a number that is not negative"),
        ({"usage": usage(TokenCount(value=1, known=1, complete=True))}, TypeError, "known of usage must be True or"),  # type: ignore[arg-type]
    ],
)
def test_an_event_with_wrong_fields_is_refused_and_changes_nothing(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    group = ExecutionGroup()
    with pytest.raises(error, match=message):
        group.observe(msgspec.structs.replace(finished("a", ONE), **changes))
    assert group.snapshot() == ExecutionGroup().snapshot()
    group.observe(finished("a", ONE))
    assert group.snapshot().attempts == 1


def test_a_group_is_not_copied_pickled_or_subclassed() -> None:
    group = ExecutionGroup()
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled: take a snapshot\(\)"):
            refused(group)
    snapshot = told(finished("a", ONE)).snapshot()
    assert pickle.loads(pickle.dumps(snapshot)) == copy.deepcopy(snapshot) == snapshot  # noqa: S301


def test_a_group_shows_how_many_runs_it_has_and_how_many_have_not_ended() -> None:
    assert repr(ExecutionGroup()) == "<promptkit.ExecutionGroup: 0 runs>"
    assert repr(told(finished("a", ONE))) == "<promptkit.ExecutionGroup: 1 run>"
    group = told(started("a"), finished("b", ONE), finished("c", ONE))
    assert repr(group) == str(group) == "<promptkit.ExecutionGroup: 3 runs, 1 not ended>"


# ---------------------------------------------------------------- many at once


def test_sums_are_exact_and_every_snapshot_consistent_under_eight_threads() -> None:
    group = ExecutionGroup()
    faults: list[str] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        last = 0
        for step in range(2000):
            run_id = f"{step}-{number % 4}"  # each run is told by two threads, and by both twice
            group.observe(started(run_id))
            group.observe(finished(run_id, usage(count(3)), 2))
            if step % 100 == 0:
                summary = group.snapshot()
                seen = sum(member.terminal_observed for member in summary.members)
                if summary.attempts != 2 * seen or summary.usage.reasoning_tokens.value != 3 * seen:
                    faults.append(f"{seen} runs, {summary.attempts} attempts")
                if summary.terminal_coverage_complete != (seen == len(summary.members)) or seen < last:
                    faults.append("coverage")
                last = seen

    run_threads(8, work)
    assert faults == []
    summary = group.snapshot()
    assert len(summary.members) == len({member.run_id for member in summary.members}) == 8000
    assert summary.terminal_coverage_complete
    assert (summary.attempts, summary.usage) == (16_000, usage(count(24_000)))


def run_threads(number: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_hundred_thousand_members() -> None:
    group = ExecutionGroup()
    for number in range(100_000):
        group.observe(finished(str(number), ONE) if number % 2 else started(str(number)))
    summary = group.snapshot()
    assert [member.run_id for member in summary.members] == [str(number) for number in range(100_000)]
    assert sum(member.terminal_observed for member in summary.members) == summary.attempts == 50_000
    assert summary.usage == usage(count(50_000))


def test_an_event_may_use_the_group_while_it_is_read() -> None:
    group = ExecutionGroup()

    class Asking(RunFinished, frozen=True):
        def __getattribute__(self, name: str) -> Any:
            group.snapshot()
            group.observe(started("asked"))
            return super().__getattribute__(name)

    group.observe(msgspec.convert(finished("a", ONE), Asking, from_attributes=True))
    assert [member.run_id for member in group.snapshot().members] == ["asked", "a"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_signal_handler_may_use_the_group_that_it_interrupts() -> None:
    group = ExecutionGroup()
    calls = 0

    def handler(*_: object) -> None:
        nonlocal calls
        calls += 1
        group.observe(started(f"signal {calls}"))
        group.snapshot()

    before = signal.signal(signal.SIGVTALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005, 0.0005)
        while calls < 50:
            group.observe(finished("a", ONE))
            group.snapshot()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert len(group.snapshot().members) == calls + 1


def test_a_finaliser_may_use_the_group_whatever_it_interrupts() -> None:
    group = ExecutionGroup()

    def collected(phase: str, _: object) -> None:
        group.observe(started(phase))
        group.snapshot()

    gc.callbacks.append(collected)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(200):
            group.observe(finished(str(number), ONE))
            group.snapshot()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    assert len(group.snapshot().members) == 202


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_uses_the_group_although_threads_were_using_it() -> None:
    group = ExecutionGroup()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            group.observe(finished("a", ONE))
            group.snapshot()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a deadlock ends the child, and nothing leaves it
                signal.alarm(5)
                try:
                    group.observe(finished("child", usage(count(41))))
                    os._exit(group.snapshot().usage.input_tokens.value)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (41, 42)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [member.run_id for member in group.snapshot().members] == ["a"]
