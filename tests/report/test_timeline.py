"""The drawing of time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._report.figures import bounded_name, elapsed_text, seconds_text, step_of
from promptkit._report.runs import runs_of
from promptkit._report.timeline import Part, parts_of
from promptkit._report.tree import in_tree_order
from report.traces import after, attempted, delayed, eventful, failed, finished, started, whole

if TYPE_CHECKING:
    from promptkit import ExecutionEvent


def parts(*events: ExecutionEvent) -> list[Part]:
    return list(parts_of(in_tree_order(runs_of(events).runs)))


def test_spans_are_where_their_time_was() -> None:
    (part,) = parts(
        started(),
        failed(at=4.0, duration=2.0, queued=1.0),
        delayed(at=4.0, delay=2.0, source="retry_after"),
        attempted(at=10.0, attempt=2, duration=4.0, purpose="repair"),
        finished(at=10.0, duration=10.0),
    )
    assert (part.started, part.seconds) == (after(0), 10.0)
    assert [(span.shape, span.left, span.width, span.repair) for span in part.rows[0].spans] == [
        ("queued", 10.0, 10.0, False),
        ("failed", 20.0, 20.0, False),
        ("completed", 60.0, 40.0, True),
        ("retry_after", 40.0, 20.0, False),
    ]


def test_what_a_span_is_stands_in_words_beside_its_colour() -> None:
    (part,) = parts(
        started(), failed(queued=0.1), delayed(), attempted(at=2, attempt=2, purpose="repair"), finished(at=2)
    )
    assert [span.says for span in part.rows[0].spans] == [
        "queued 0.100 s for attempt 1",
        "attempt 1 failed OverloadedError 503, 0.500 s",
        "attempt 2 retry repair completed, 0.500 s",
        "waited 0.500 s after attempt 1: backoff",
    ]


def test_idle_time_that_would_press_the_rest_together_is_cut_out_and_told() -> None:
    (part,) = parts(*whole("a", 0), *whole("b", 3600), *whole("c", 7200))
    assert [row.spans[0].width for row in part.rows] == pytest.approx([16.0] * 3, abs=0.1)  # half of a third of 96 %
    assert [(cut.width, cut.seconds) for cut in part.breaks] == [(2.0, 3599.0), (2.0, 3599.0)]


def test_a_short_pause_is_not_cut_out() -> None:
    (part,) = parts(*whole("a", 0), *whole("b", 1.2))
    assert part.breaks == ()
    assert part.rows[1].left == pytest.approx(54.55, abs=0.1)


def test_many_cuts_leave_most_of_the_axis_to_the_runs() -> None:
    (part,) = parts(*(event for n in range(90) for event in whole(str(n), n * 1000.0)))
    assert sum(cut.width for cut in part.breaks) < 26
    assert len([tick for tick in part.ticks if tick.label]) <= 12


def test_a_run_that_did_not_end_is_marked_where_it_was_last_seen() -> None:
    (part,) = parts(*whole("a", 0), started("b", 0.0), attempted("b", 0.5, duration=0.25))
    assert [row.open_end for row in part.rows] == [None, 50.0]


def test_a_trace_of_one_instant_has_an_axis() -> None:
    (part,) = parts(started())
    assert (part.seconds, part.rows[0].left, part.rows[0].width, part.rows[0].spans) == (0.0, 0.0, 0.0, ())
    assert [tick.label for tick in part.ticks][:1] == ["0"]


def test_a_long_trace_is_cut_into_parts_each_with_its_own_axis_and_no_row_is_lost() -> None:
    made = parts(*(event for n in range(350) for event in whole(str(n), float(n))))
    assert [(part.first, part.last) for part in made] == [(1, 100), (101, 200), (201, 300), (301, 350)]
    assert made[1].started == after(100)


def test_a_part_ends_between_conversations_unless_one_is_too_long() -> None:
    conversation = [
        event for n in range(60) for event in whole(f"{n}", float(n), parent_run_id=str(n - 1) if n else None)
    ]
    other = [
        event for n in range(60, 120) for event in whole(f"{n}", float(n), parent_run_id=str(n - 1) if n > 60 else None)
    ]
    assert [(part.first, part.last) for part in parts(*conversation, *other, *whole("x", 500))] == [
        (1, 120),
        (121, 121),
    ]
    chain = (event for n in range(500) for event in whole(f"{n}", float(n), parent_run_id=str(n - 1)))
    assert [part.last for part in parts(*chain)] == [200, 400, 500]


@given(st.lists(st.tuples(st.floats(0, 1e8), st.floats(0, 1e6)), min_size=1, max_size=12))
def test_nothing_is_drawn_outside_its_axis(runs: list[tuple[float, float]]) -> None:
    events = [
        event
        for n, (at, seconds) in enumerate(runs)
        for event in (
            started(str(n), at),
            attempted(str(n), at + seconds, duration=seconds / 2, queued=seconds / 4),
            finished(str(n), at + seconds, duration=seconds),
        )
    ]
    for part in parts(*events):
        assert 2 <= len(part.ticks) + len(part.breaks) <= 60
        for tick in part.ticks:
            assert 0 <= tick.at <= 100
        for row in part.rows:
            for left, width in [(row.left, row.width), *((span.left, span.width) for span in row.spans)]:
                assert 0 <= left <= 100
                assert width >= 0
                assert left + width <= 100.02


def test_every_trace_has_ticks_that_rise() -> None:
    (part,) = parts(*eventful())
    places = [tick.at for tick in part.ticks]
    assert places == sorted(places)
    assert part.ended - part.started == timedelta(seconds=3603)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.000 s"),
        (1.2345, "1.234 s"),
        (42.0, "42.00 s"),
        (65.2, "1 min 05 s"),
        (3599.9, "1 h 00 min"),
        (86399.0, "24 h 00 min"),
        (90000.0, "1 d 1 h"),
        (1e9, "11,574 d 2 h"),
    ],
)
def test_a_duration_is_as_precise_as_it_is_short(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "step", "text"),
    [
        (0.0, 0.5, "0"),
        (1.5, 0.5, "1.5 s"),
        (0.002, 0.001, "0.002 s"),
        (20.0, 10.0, "20 s"),
        (90.0, 30.0, "1 m 30 s"),
        (120.0, 60.0, "2 m"),
        (3600.0, 0.2, "1 h"),
        (3600.4, 0.2, "1 h 0.4 s"),
        (90000.0, 3600.0, "1 d 1 h"),
    ],
)
def test_a_tick_is_labelled_as_precisely_as_ticks_are_close(seconds: float, step: float, text: str) -> None:
    assert elapsed_text(seconds, step) == text


@given(st.floats(1e-7, 1e9))
def test_the_distance_of_ticks_is_round_and_not_below_what_was_asked_for(seconds: float) -> None:
    assert seconds <= step_of(seconds) <= max(1e-6, seconds * 3)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – “é”", "plain – “é”"),
        ("a\nb\x1b[31m\0", "a\\nb\\x1b[31m\\x00"),
        ("ab\u202egnp.exe", "ab\\u202egnp.exe"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f467"),
        ("x" * 300, "x" * 200 + " … and 100 more characters"),
    ],
)
def test_nothing_hides_in_a_name(text: str, shown: str) -> None:
    assert bounded_name(text) == shown
