"""From runs to a drawing of their time: parts of rows, each with an axis, and spans in percent of it.

The rows are cut into parts, so that a long trace has an axis for each stretch. Time in which no run of a part was under
way and that would press the rest together is cut out of its axis.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Literal, NamedTuple

from promptkit._report.figures import elapsed_text, seconds_text, step_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from promptkit._report.runs import Attempt, Run
    from promptkit._report.tree import Place

PART = 100  # rows, after which a part ends: at the next run without a parent, or after twice as many
PARTS = 40  # so many and a few; of a longer trace each has more rows
CUT = 0.15  # of the busy time: a longer idle one is cut out
BREAK, BREAKS = 2.0, 25.0  # percent: of one break, of all
WIDE, NARROW = 1.15, 1.9  # percent of an axis that a character of a label takes, on a wide screen and on a narrow one
TICKS = 7

Shape = Literal["queued", "completed", "failed", "cancelled", "backoff", "retry_after"]


class Span(NamedTuple):
    """Something that took time. ``left`` and ``width`` are in percent of the axis; ``says`` is the same in words."""

    shape: Shape
    repair: bool
    left: float
    width: float
    says: str


class Row(NamedTuple):
    """The time of one run: of all of it, 0 wide where one span is all of it.

    ``open_end`` is where it was last seen, if it was not seen to end.
    """

    place: Place
    left: float
    width: float
    spans: tuple[Span, ...]
    open_end: float | None


class Tick(NamedTuple):
    """A mark of an axis. ``label`` is empty where there is no room; the ``few`` have room on a narrow screen, too.

    The label stands after the mark, or ``before`` it at the end of the axis.
    """

    at: float
    label: str
    few: bool
    before: bool


class Break(NamedTuple):
    """Idle time that was cut out."""

    left: float
    width: float
    seconds: float
    says: str


class Part(NamedTuple):
    """Some consecutive rows, with their axis, which begins at ``started`` and is ``seconds`` long."""

    first: int
    last: int
    started: datetime
    ended: datetime
    seconds: float
    ticks: tuple[Tick, ...]
    breaks: tuple[Break, ...]
    rows: tuple[Row, ...]


class _Stretch(NamedTuple):
    """A stretch of an axis: from ``start``, ``seconds`` long; the same in percent."""

    start: float
    seconds: float
    left: float
    width: float


class _Axis(NamedTuple):
    origin: datetime
    stretches: tuple[_Stretch, ...]

    def position(self, at: datetime) -> float:
        seconds = (at - self.origin).total_seconds()
        index = bisect.bisect_right(self.stretches, seconds, key=lambda stretch: stretch.start) - 1
        stretch = self.stretches[max(0, index)]
        share = (seconds - stretch.start) / stretch.seconds
        return stretch.left + stretch.width * min(1.0, max(0.0, share))


def parts_of(places: Sequence[Place]) -> Iterator[Part]:
    """Draw runs that are in the order of their tree."""
    size = max(PART, len(places) // PARTS)
    rows: list[Place] = []
    for place in places:
        if (len(rows) >= size and place.depth == 0) or len(rows) >= 2 * size:
            yield _part(rows)
            rows = []
        rows.append(place)
    if rows:
        yield _part(rows)


def _part(places: Sequence[Place]) -> Part:
    axis = _axis([place.run for place in places])
    ended = max(place.run.ended for place in places)
    return Part(
        first=places[0].number,
        last=places[-1].number,
        started=axis.origin,
        ended=ended,
        seconds=(ended - axis.origin).total_seconds(),
        ticks=tuple(_ticks(axis)),
        breaks=tuple(_breaks(axis)),
        rows=tuple(_row(place, axis) for place in places),
    )


def _axis(runs: Sequence[Run]) -> _Axis:
    origin = min(run.started for run in runs)
    busy = _merged(
        [((run.started - origin).total_seconds(), (run.ended - origin).total_seconds()) for run in runs], 0.0
    )
    total = sum(end - start for start, end in busy)
    # As lengths: far from the origin the shortest ones are less than what a float can tell apart.
    shown = [(start, max(end - start, total * 0.005 or 1e-6)) for start, end in _merged(busy, total * CUT)]
    cuts = len(shown) - 1
    pause = min(BREAK, BREAKS / cuts) if cuts else 0.0
    scale = (100 - pause * cuts) / sum(seconds for _, seconds in shown)
    stretches: list[_Stretch] = []
    left = 0.0
    for start, seconds in shown:
        stretches.append(_Stretch(start, seconds, left, seconds * scale))
        left += seconds * scale + pause
    return _Axis(origin, tuple(stretches))


def _merged(intervals: list[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Join intervals that overlap, or are not further apart than a gap."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _ticks(axis: _Axis) -> Iterator[Tick]:
    step = step_of(sum(stretch.seconds for stretch in axis.stretches) / TICKS)
    end = few_end = -1.0
    for at, seconds in _marks(axis, step):
        label = elapsed_text(seconds, step)
        wide, narrow = (len(label) + 2) * WIDE, (len(label) + 2) * NARROW
        before = at + narrow > 100
        room = at - wide * before >= end
        few = room and at - narrow * before >= few_end
        end = at + wide * (not before) if room else end
        few_end = at + narrow * (not before) if few else few_end
        yield Tick(round(at, 2), label if room else "", few, before)


def _marks(axis: _Axis, step: float) -> Iterator[tuple[float, float]]:
    """Give the round instants of each stretch, and its beginning if none is near: each in percent and in seconds."""
    for stretch in axis.stretches:
        first = -(-stretch.start // step)
        count = int((stretch.start + stretch.seconds) // step - first) + 1
        instants = [(first + n) * step for n in range(count)]
        if not instants or instants[0] - stretch.start > step / 2:
            instants.insert(0, stretch.start)
        for seconds in instants:
            yield stretch.left + stretch.width * min(1.0, (seconds - stretch.start) / stretch.seconds), seconds


def _breaks(axis: _Axis) -> Iterator[Break]:
    for before, after in zip(axis.stretches, axis.stretches[1:], strict=False):
        left = before.left + before.width
        idle = after.start - before.start - before.seconds
        yield Break(round(left, 2), round(after.left - left, 2), idle, f"no run was under way for {seconds_text(idle)}")


def _row(place: Place, axis: _Axis) -> Row:
    run = place.run
    left, right = axis.position(run.started), axis.position(run.ended)
    spans: list[Span] = []
    for attempt in run.attempts:
        if attempt.queued > 0:
            says = f"queued {seconds_text(attempt.queued)} for attempt {attempt.number}"
            spans.append(_span("queued", attempt.asked, attempt.started, axis, says))
        repair = attempt.purpose == "repair"
        spans.append(_span(attempt.outcome, attempt.started, attempt.ended, axis, _said(attempt), repair=repair))
    for wait in run.waits:
        source = "backoff" if wait.source == "backoff" else "asked for by the backend (retry-after)"
        says = (
            f"waited {seconds_text((wait.ended - wait.started).total_seconds())} after attempt {wait.attempt}: {source}"
        )
        spans.append(_span(wait.source, wait.started, wait.ended, axis, says))
    open_end = round(right, 2) if run.state == "did_not_end" else None
    left, width = round(left, 2), round(right - left, 2)
    if len(spans) == 1 and width - spans[0].width < 0.02:
        width = 0.0
    return Row(place, left, width, tuple(spans), open_end)


def _span(shape: Shape, start: datetime, end: datetime, axis: _Axis, says: str, *, repair: bool = False) -> Span:
    left = axis.position(start)
    return Span(shape, repair, round(left, 2), round(max(0.0, axis.position(end) - left), 2), says)


def _said(attempt: Attempt) -> str:
    words = [f"attempt {attempt.number}", "repair" if attempt.purpose == "repair" else "", attempt.outcome]
    if attempt.retry:
        words.insert(1, "retry")
    if attempt.outcome == "failed":
        words += [attempt.error or "", str(attempt.status or "")]
    return f"{' '.join(word for word in words if word)}, {seconds_text(attempt.duration)}"
