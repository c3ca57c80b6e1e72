"""What runs used together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from promptkit import ExecutionGroup, ReportedUsage, RunFinished
from promptkit._report.runs import runs_of
from promptkit._report.totals import Totals, by_profile, by_prompt, totals_of
from promptkit._values.group import contributed
from promptkit._values.usage import NO_USAGE, UNKNOWN_USAGE, contribution, shown
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


COUNT = st.none() | st.integers(0, 9)
USAGE = st.builds(
    ReportedUsage,
    **dict.fromkeys(ReportedUsage.__struct_fields__, COUNT),
).map(contribution)


@st.composite
def ended_run(draw: st.DrawFn, number: int) -> RunFinished:
    """Give the end of a run as an engine writes it: the sum of its attempts, as it is shown."""
    used = draw(st.lists(USAGE | st.just(UNKNOWN_USAGE) | st.just(NO_USAGE), max_size=3))
    outcome = draw(st.sampled_from(["completed", "failed", "cancelled"])) if used else "failed"
    return finished(
        f"r{number}",
        outcome=outcome,
        error=None if outcome == "completed" else "ConnectError",
        validation="not_requested" if outcome == "completed" else None,
        attempts=len(used),
        usage=shown(sum(used, start=NO_USAGE)),
    )


@st.composite
def traces(draw: st.DrawFn) -> list[ExecutionEvent]:
    ends = [draw(ended_run(number)) for number in range(draw(st.integers(0, 5)))]
    return [event for each in ends for event in (started(each.run_id), each)]


@given(traces(), st.integers(0, 2))
def test_the_page_and_a_group_add_the_same_runs_to_the_same_totals(
    events: list[ExecutionEvent], open_runs: int
) -> None:
    group = ExecutionGroup()
    for event in events:
        group.observe(event)
    summary, added = group.snapshot(), totals(*events)
    assert added.usage == summary.usage
    assert (added.runs, added.attempts) == (len(summary.members), summary.attempts)
    assert (added.retries, added.repairs) == (summary.transient_retries, summary.repair_calls)
    unended = totals(*events, *(started(f"open{number}") for number in range(open_runs)))
    if open_runs:
        for name in unended.usage.__struct_fields__:
            count, of_group = getattr(unended.usage, name), getattr(summary.usage, name)
            assert not count.complete
            # The zero of no runs at all is not a zero of runs.
            assert (count.value, count.known) == (of_group.value, of_group.known and bool(_known(events, name)))


def _known(events: list[ExecutionEvent], name: str) -> list[str]:
    return [each.run_id for each in events if isinstance(each, RunFinished) and getattr(contributed(each), name).known]


def test_runs_that_cannot_have_used_anything_leave_the_sum_as_it_is() -> None:
    answered = finished("a", usage=usage(input_tokens=11, output_tokens=7))
    refused = finished("b", outcome="failed", error="RejectedRequestError", usage=shown(NO_USAGE))
    unreached = finished("c", outcome="failed", error="ConnectError", usage=shown(NO_USAGE))
    summed = totals(answered, refused, unreached).usage
    assert [str(count) for count in (summed.input_tokens, summed.cache_read_tokens)] == ["11", "unknown"]
