"""Lines of a trace, good and bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from promptkit._report.report import report_of
from promptkit._report.trace import MOST_FAULTS, read_trace
from report.traces import attempted, delayed, finished, lines_of, started, whole

if TYPE_CHECKING:
    from promptkit import ExecutionEvent


def changed(event: ExecutionEvent, **fields: Any) -> bytes:
    """Write an event with other values of fields, or with fields of a later version."""
    return msgspec.json.encode({**msgspec.to_builtins(event), **fields}) + b"\n"


def test_every_event_is_read_as_it_was_written() -> None:
    events: list[ExecutionEvent] = [started(), attempted(), delayed(), finished()]
    trace = read_trace(lines_of(events), "t")
    assert trace == (tuple(events), (), 0, None, {}, {})


def test_a_byte_order_mark_windows_ends_and_empty_lines_change_nothing() -> None:
    first, *others = (line.replace(b"\n", b"\r\n") for line in lines_of(whole()))
    trace = read_trace([b"\xef\xbb\xbf" + first, b"\r\n", b"  \n", *others], "t")
    assert trace.events == tuple(whole())
    assert trace.faults == ()


def test_a_last_line_without_its_end_is_an_event_if_it_is_whole() -> None:
    *others, last = lines_of(whole())
    trace = read_trace([*others, last.rstrip()], "t")
    assert (trace.events, trace.cut_off) == (tuple(whole()), None)


@pytest.mark.parametrize("left", [1, 20, -3])
def test_a_last_line_that_is_cut_off_is_told_and_the_rest_is_read(left: int) -> None:
    *others, last = lines_of(whole())
    trace = read_trace([*others, last[:left]], "t")
    assert (trace.events, trace.faults, trace.cut_off) == (tuple(whole()[:-1]), (), 3)


def test_zeros_at_the_end_that_a_crashed_machine_left_are_a_line_that_is_cut_off() -> None:
    assert read_trace([*lines_of(whole()), b"\0" * 900], "t").cut_off == 4


def test_a_cut_off_line_with_others_after_it_is_a_fault() -> None:
    first, second, third = lines_of(whole())
    trace = read_trace([first, second[:30] + b"\n", third], "t")
    assert [(fault.line, trace.cut_off) for fault in trace.faults] == [(2, None)]


def test_every_fault_is_collected_with_its_line_and_the_other_lines_are_read() -> None:
    lines = [
        b"no json\n",
        *lines_of(whole()),
        b"[]\n",
        b'{"at": 1}\n',
        b'{"kind": 7}\n',
        b"\xff\xfe\n",
        b"[" * 9999 + b"\n",
    ]
    trace = read_trace(lines, "t.jsonl")
    assert trace.events == tuple(whole())
    assert [fault.line for fault in trace.faults] == [1, 5, 6, 7, 8, 9]
    assert str(trace.faults[1]) == 't.jsonl:5: is no event: an event is a JSON object with its "kind"'
    assert "nested too deeply" in trace.faults[-1].message


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (changed(attempted(), attempt="1"), "attempt"),
        (changed(attempted(), attempt=0), "attempt"),
        (changed(attempted(), outcome="eaten"), "outcome"),
        (changed(attempted(), duration=-1), "duration"),
        (changed(attempted(), queued=1e300), "queued"),
        (changed(attempted(), usage={"input_tokens": 3}), "usage.input_tokens"),
        (changed(delayed(), delay=-0.5), "delay"),
        (changed(delayed(), source="whim"), "source"),
        (changed(finished(), attempts=-1), "attempts"),
        (changed(finished(), attempts=2**63), "attempts"),
        (changed(started(), at="2026-03-01T12:00:00"), "at"),
        (changed(started(), at="0001-01-01T00:00:00+14:00"), "at"),
        (changed(started(), at="9999-12-31T23:59:59-14:00"), "at"),
        (changed(started(), run_id=None), "run_id"),
    ],
)
def test_a_value_that_cannot_be_is_a_fault_that_names_its_key(line: bytes, key: str) -> None:
    trace = read_trace([line], "t")
    assert [(fault.line, fault.key) for fault in trace.faults] == [(1, key)]


@pytest.mark.parametrize(
    "count", [{"value": -1, "known": True, "complete": True}, {"value": 4, "known": False, "complete": False}]
)
def test_a_count_of_tokens_that_cannot_be_is_a_fault(count: dict[str, Any]) -> None:
    usage = {**msgspec.to_builtins(finished().usage), "output_tokens": count}
    assert [fault.key for fault in read_trace([changed(finished(), usage=usage)], "t").faults] == [
        "usage.output_tokens"
    ]


def test_a_missing_field_is_a_fault_that_names_it() -> None:
    fault = read_trace([b'{"kind": "run_started"}\n'], "t").faults[0]
    assert "missing required field `at`" in fault.message


def test_kinds_and_fields_of_a_later_version_are_counted_and_are_no_faults() -> None:
    counts = {**msgspec.to_builtins(finished().usage), "audio_tokens": 3}
    lines = [
        changed(started(), region="eu"),
        b'{"kind": "tool_called", "at": "2026-03-01T12:00:00Z"}\n',
        b'{"kind": "tool_called"}\n',
        changed(finished(), region="eu", usage=counts),
    ]
    trace = read_trace(lines, "t")
    assert trace.faults == ()
    assert trace.events == (started(), finished())
    assert trace.other_kinds == {"tool_called": 2}
    assert trace.other_fields == {"region": 2, "usage.audio_tokens": 1}


def test_instants_of_other_time_zones_are_the_same_in_utc() -> None:
    trace = read_trace([changed(started(), at="2026-03-01T14:00:00+02:00")], "t")
    assert trace.events == (started(),)


def test_a_trace_without_events_is_a_fault_that_says_how_to_write_one() -> None:
    (fault,), _ = report_of([], "empty.jsonl").failure()
    assert str(fault).startswith("empty.jsonl: has no events: write a trace with")


def test_a_file_that_is_no_trace_gives_every_fault() -> None:
    unreadable = report_of([b"# Notes\n", b"\n", b"nothing\n"], "notes.md").failure()
    assert ([fault.line for fault in unreadable.faults], unreadable.fault_count) == ([1, 3], 2)


def test_a_trace_of_only_later_kinds_says_that_this_version_is_too_old() -> None:
    (fault,), _ = report_of([b'{"kind": "tool_called"}\n'], "t").failure()
    assert "update" in fault.message


def test_of_very_many_faults_the_first_are_kept_and_all_are_counted() -> None:
    trace = read_trace([b"nonsense\n"] * (MOST_FAULTS + 500) + [b'{"cut'], "t")
    assert (len(trace.faults), trace.fault_count, trace.cut_off) == (MOST_FAULTS, MOST_FAULTS + 500, MOST_FAULTS + 501)
    exact = read_trace([b"nonsense\n"] * (MOST_FAULTS - 1) + [b'{"cut'], "t")
    assert (len(exact.faults), exact.fault_count, exact.cut_off) == (MOST_FAULTS - 1, MOST_FAULTS - 1, MOST_FAULTS)
    assert report_of([b"nonsense\n"] * 2_000, "t").failure().fault_count == 2_000
