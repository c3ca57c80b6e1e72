"""The report of a trace: its page, and what the page says as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from returns.result import Failure, Result, Success

from promptkit._report.page import page_of
from promptkit._report.runs import runs_of
from promptkit._report.summary import Summary
from promptkit._report.totals import by_profile, by_prompt, totals_of
from promptkit._report.trace import read_trace
from promptkit._report.tree import in_tree_order
from promptkit.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a trace: ``html`` is one page that needs nothing else, ``summary`` the same as values."""

    html: str
    summary: Summary


class Unreadable(NamedTuple):
    """No line of a file is an event: the first faults, and how many there are."""

    faults: tuple[Fault, ...]
    fault_count: int


def report_of(lines: Iterable[bytes], file: str) -> Result[Report, Unreadable]:
    """Make the report of a trace.

    Args:
        lines: The lines of the trace as they are in the file, with their ends.
        file: The name of the trace, for the heading and for faults.

    Returns:
        The report if the trace has an event that can be read: what cannot be read is then told in it. Else the first
        faults, and one if the trace is empty.
    """
    # A name of a file may have what UTF-8 cannot carry.
    file = file.encode("utf-8", "backslashreplace").decode()
    trace = read_trace(lines, file)
    if not trace.events:
        if trace.faults:
            return Failure(Unreadable(trace.faults, trace.fault_count))
        return Failure(Unreadable((Fault(message=_nothing(trace.other_kinds), file=file),), 1))
    runs, repeated = runs_of(trace.events)
    places = in_tree_order(runs)
    summary = Summary(
        file=file,
        started=min(run.started for run in runs),
        ended=max(run.ended for run in runs),
        totals=totals_of(runs),
        by_prompt=by_prompt(runs),
        by_profile=by_profile(runs),
        runs=tuple(place.run for place in places),
        faults=trace.faults,
        fault_count=trace.fault_count,
        cut_off=trace.cut_off,
        repeated=repeated,
        other_kinds=dict(trace.other_kinds),
        other_fields=dict(trace.other_fields),
    )
    return Success(Report(html=page_of(summary, places), summary=summary))


def _nothing(other_kinds: object) -> str:
    if other_kinds:
        return "has only kinds of events that this version does not know: update promptkit-engine"
    return "has no events: write a trace with `promptkit run ID --trace FILE`, or with an observer"
