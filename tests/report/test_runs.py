"""From events to runs, whatever the order of the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._report.runs import Run, runs_of
from promptkit._values.usage import UNKNOWN_USAGE
from report.traces import KNOWN, after, attempted, delayed, eventful, failed, finished, started, whole

if TYPE_CHECKING:
    from promptkit import ExecutionEvent


def only(events: list[ExecutionEvent]) -> Run:
    (run,) = runs_of(events).runs
    return run


def test_a_run_is_what_its_events_say() -> None:
    run = only(whole())
    assert (run.state, run.started, run.ended, run.duration) == ("completed", after(0), after(1), 1.0)
    assert (run.prompt_id, run.profile, run.backend, run.model) == ("ask", "fast", "local", "small")
    assert (run.attempts_made, run.transient_retries, run.repair_calls, run.usage) == (1, 0, 0, KNOWN)


def test_an_attempt_began_its_duration_before_its_end_and_was_queued_before_that() -> None:
    run = only([started(), attempted(at=3.0, duration=1.0, queued=1.5), finished(at=3.0, duration=3.0)])
    (attempt,) = run.attempts
    assert (attempt.asked, attempt.started, attempt.ended) == (after(0.5), after(2), after(3))
    assert run.queued == 1.5


@given(st.permutations(eventful()))
def test_the_order_of_the_lines_does_not_matter(events: list[ExecutionEvent]) -> None:
    assert sorted(runs_of(events).runs, key=lambda run: run.run_id) == sorted(
        runs_of(eventful()).runs, key=lambda run: run.run_id
    )


def test_events_that_are_there_twice_count_once_and_are_told() -> None:
    assert runs_of([*eventful(), *eventful()]) == runs_of(eventful())._replace(repeated=len(eventful()))


def test_of_two_ends_of_a_run_the_first_counts() -> None:
    runs = runs_of([*whole(), finished(outcome="failed", at=9)])
    assert [(run.state, run.ended) for run in runs.runs] == [("completed", after(1))]
    assert runs.repeated == 1


def test_a_run_without_a_start_began_its_duration_before_its_end() -> None:
    run = only([finished(at=5, duration=3.0)])
    assert (run.started, run.start_seen, run.prompt_id) == (after(2), False, "ask")


def test_a_run_without_an_end_did_not_end_and_its_counts_are_lower_bounds() -> None:
    run = only([started(), attempted()])
    assert (run.state, run.duration, run.ended) == ("did_not_end", None, after(1))
    assert run.usage == KNOWN + UNKNOWN_USAGE
    assert str(run.usage.input_tokens) == "at least 11"


def test_a_run_of_which_only_the_start_was_seen_has_unknown_usage() -> None:
    run = only([started()])
    assert (run.usage, run.attempts_made, run.profile) == (UNKNOWN_USAGE, 0, None)


def test_of_a_run_without_an_end_retries_follow_failures_and_repairs_follow_answers() -> None:
    run = only(
        [
            started(),
            failed(at=1),
            attempted(at=2, attempt=2),
            failed(at=3, attempt=3, purpose="repair"),
            attempted(at=4, attempt=4, purpose="repair"),
        ]
    )
    assert (run.attempts_made, run.transient_retries, run.repair_calls) == (4, 2, 1)
    assert [attempt.retry for attempt in run.attempts] == [False, True, False, True]


def test_attempts_that_are_not_in_the_trace_are_counted() -> None:
    assert only([started(), attempted(attempt=3), finished(attempts=3)]).missing_attempts == 2
    assert only([started(), attempted(attempt=3)]).missing_attempts == 2


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        ([attempted(at=1.7, attempt=2, duration=0.2), finished(at=1.7)], 1.5),  # as long as was meant
        ([attempted(at=1.7, attempt=2, duration=0.4), finished(at=1.7)], 1.3),  # the next attempt says so
        ([finished(at=1.2, outcome="cancelled")], 1.2),
        ([started("other", 1.1)], 1.1),  # nobody knows more
    ],
)
def test_a_wait_ends_with_what_ended_it(events: list[ExecutionEvent], ended: float) -> None:
    run = next(run for run in runs_of([started(), failed(), delayed(), *events]).runs if run.run_id == "r")
    assert [(wait.started, wait.ended, wait.delay) for wait in run.waits] == [(after(1), after(ended), 0.5)]


def test_a_wait_whose_attempt_is_not_in_the_trace_is_kept() -> None:
    assert [wait.attempt for wait in only([started(), delayed(attempt=4), finished(at=9)]).waits] == [4]


def test_runs_are_in_the_order_of_their_starts() -> None:
    events = [*whole("late", 5), *whole("early", 1), *whole("middle", 3)]
    assert [run.run_id for run in runs_of(events).runs] == ["early", "middle", "late"]
