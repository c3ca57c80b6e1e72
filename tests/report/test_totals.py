"""What runs used together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._report.runs import runs_of
from promptkit._report.totals import Totals, by_profile, by_prompt, totals_of
from report.traces import attempted, eventful, finished, started, usage, whole

if TYPE_CHECKING:
    from promptkit import ExecutionEvent


def totals(*events: ExecutionEvent) -> Totals:
    return totals_of(runs_of(events).runs)


def test_counts_that_all_runs_reported_add_up() -> None:
    assert str(totals(*whole("a"), *whole("b")).usage.input_tokens) == "22"


def test_an_unknown_count_makes_the_sum_a_lower_bound_and_never_zero() -> None:
    summed = totals(*whole("a"), finished("b", usage=usage(input_tokens=5))).usage
    assert (str(summed.input_tokens), str(summed.output_tokens)) == ("16", "at least 7")


def test_a_count_that_nobody_reported_is_unknown() -> None:
    summed = totals(finished("a", usage=usage(input_tokens=5)), finished("b", usage=usage(input_tokens=0))).usage
    assert (str(summed.input_tokens), str(summed.reasoning_tokens)) == ("5", "unknown")


def test_a_run_that_did_not_end_makes_every_count_a_lower_bound() -> None:
    summed = totals(*whole("a"), started("b"), attempted("b"))
    assert str(summed.usage.input_tokens) == "at least 22"
    assert (summed.runs, summed.did_not_end, summed.attempts) == (2, 1, 2)


def test_no_run_used_a_known_nothing() -> None:
    assert str(totals().usage.input_tokens) == "0"


def test_outcomes_and_attempts_are_counted() -> None:
    summed = totals(*eventful())
    assert (summed.runs, summed.completed, summed.failed, summed.cancelled, summed.did_not_end) == (8, 3, 2, 2, 1)
    assert (summed.invalid, summed.attempts, summed.retries, summed.repairs) == (1, 9, 1, 1)


def test_runs_are_grouped_by_prompt_and_what_is_not_known_comes_last() -> None:
    runs = runs_of([*eventful(), attempted("of no known prompt", 3600)]).runs
    assert [(group.names, group.totals.runs) for group in by_prompt(runs)] == [
        (("ask",), 6),
        (("extract/figures",), 1),
        (("slow",), 1),
        ((None,), 1),
    ]


def test_runs_are_grouped_by_profile_backend_and_model() -> None:
    events = [*whole("a"), finished("b", model="large"), finished("c", profile=None, backend=None, model=None)]
    assert [(group.names, group.totals.runs) for group in by_profile(runs_of(events).runs)] == [
        (("fast", "local", "large"), 1),
        (("fast", "local", "small"), 1),
        ((None, None, None), 1),
    ]


def test_every_run_is_in_one_group_of_each_kind() -> None:
    runs = runs_of(eventful()).runs
    for groups in (by_prompt(runs), by_profile(runs)):
        assert sum(group.totals.runs for group in groups) == len(runs)
