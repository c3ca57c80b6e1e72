"""From the lines of a trace to its events, or to every fault in them.

A trace has one JSON object a line, each an event of a run, encoded by msgspec. A line that cannot be read is a fault,
and the others are read all the same; of very many faults the first are kept, and all are counted. What a later version
may write is no fault: kinds of events and fields that are unknown here are counted. The last line may be cut off,
because the program that wrote it was ended.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from promptkit._values.events import AttemptFinished, RetryDelayed, RunFinished, RunStarted
from promptkit._values.usage import MAX_COUNT, TokenCount, TokenUsage
from promptkit.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptkit._values.events import ExecutionEvent

KINDS: dict[str, type[ExecutionEvent]] = {
    "run_started": RunStarted,
    "attempt_finished": AttemptFinished,
    "retry_delayed": RetryDelayed,
    "run_finished": RunFinished,
}
FIELDS = {kind: frozenset({"kind", *fields.__struct_fields__}) for kind, fields in KINDS.items()}
SECONDS = ("queued", "duration", "delay")
COUNTS = ("attempt", "attempts", "transient_retries", "repair_calls")
MAX_SECONDS = 1e9  # thirty years; with the years below, no sum of instants and seconds leaves the calendar
YEARS = range(1970, 9900)
MOST_FAULTS = 1_000  # that are kept: a file that is no trace has one in each line
MARK = b"\xef\xbb\xbf"  # what some editors put before UTF-8


class Trace(NamedTuple):
    """What a trace says.

    ``events`` are in the order of the lines, ``faults`` the first of ``fault_count``. ``cut_off`` is the number of the
    last line if only its beginning was written. ``other_kinds`` and ``other_fields`` count what a later version wrote
    and is not shown.
    """

    events: tuple[ExecutionEvent, ...]
    faults: tuple[Fault, ...]
    fault_count: int
    cut_off: int | None
    other_kinds: Mapping[str, int]
    other_fields: Mapping[str, int]


class _Wrong(NamedTuple):
    """Why a line is no event: the key, if it is one, and what is wrong."""

    key: str | None
    message: str


def read_trace(lines: Iterable[bytes], file: str) -> Trace:
    """Read every line. ``file`` is the name of the trace in faults. Lines keep their ends; empty ones are skipped."""
    events: list[ExecutionEvent] = []
    faults: list[Fault] = []
    fault_count = faulty = 0  # how many there are, and the line of the last one
    kinds: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    last: tuple[int, bytes] = (0, b"")
    for number, line in enumerate(lines, 1):
        text = (line.removeprefix(MARK) if number == 1 else line).strip()
        if not text:
            continue
        last = (number, line)
        match _read(text):
            case _Wrong(key, message):
                fault_count, faulty = fault_count + 1, number
                if fault_count <= MOST_FAULTS:
                    faults.append(Fault(message=message, key=key, file=file, line=number))
            case str(kind):
                kinds[kind] += 1
            case event, others:
                events.append(event)
                fields.update(others)
    number, line = last
    cut_off = bool(faulty) and faulty == number and not line.endswith(b"\n") and not _whole(line)
    if cut_off:
        fault_count -= 1
        del faults[fault_count:]
    return Trace(tuple(events), tuple(faults), fault_count, number if cut_off else None, dict(kinds), dict(fields))


def _read(text: bytes) -> tuple[ExecutionEvent, list[str]] | str | _Wrong:
    """Read one line: an event and its unknown fields, or a kind that is unknown here."""
    written = _object(text)
    if isinstance(written, _Wrong):
        return written
    kind: str = written["kind"]
    if kind not in KINDS:
        return kind
    event = _event(written, kind)
    return event if isinstance(event, _Wrong) else (event, _unknown_fields(written, kind))


def _whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line.strip().removeprefix(MARK))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _object(text: bytes) -> dict[str, Any] | _Wrong:
    try:
        written = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _Wrong(None, f"is not JSON ({error}): a trace has one event a line")
    except RecursionError:
        return _Wrong(None, "is nested too deeply to be an event: a trace has one event a line")
    if not isinstance(written, dict) or not isinstance(written.get("kind"), str):
        return _Wrong(None, 'is no event: an event is a JSON object with its "kind"')
    return written


def _event(written: dict[str, Any], kind: str) -> ExecutionEvent | _Wrong:
    try:
        event: ExecutionEvent = msgspec.convert(written, KINDS[kind])
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        return _Wrong(path.strip("`.") or None, f"{message}: this is no {kind} event")
    return _unlikely(event) or msgspec.structs.replace(event, at=event.at.astimezone(UTC))


def _unlikely(event: ExecutionEvent) -> _Wrong | None:
    """Find what has the right type and still cannot be."""
    if event.at.tzinfo is None:
        return _Wrong("at", "has no time zone: an event is written in UTC, with a Z at the end")
    if event.at.year not in YEARS:
        return _Wrong("at", f"is in the year {event.at.year}: no event can be")
    for name in SECONDS:
        seconds = getattr(event, name, 0.0)
        if not (math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS):
            return _Wrong(name, f"is {seconds}: expected seconds, from 0 to {MAX_SECONDS:g}")
    for name in COUNTS:
        count = getattr(event, name, 1)
        if not (name == "attempt") <= count <= MAX_COUNT:
            return _Wrong(name, f"is {count}: expected a count")
    usage: TokenUsage | None = getattr(event, "usage", None)
    for name in TokenUsage.__struct_fields__ if usage else ():
        tokens: TokenCount = getattr(usage, name)
        if not 0 <= tokens.value <= MAX_COUNT or (tokens.value and not tokens.known):
            return _Wrong(f"usage.{name}", f"is {tokens.value}, known: {tokens.known}: expected a count of tokens")
    return None


def _unknown_fields(written: dict[str, Any], kind: str) -> list[str]:
    others = [name for name in written if name not in FIELDS[kind]]
    usage = written.get("usage")
    if isinstance(usage, dict):
        others += [f"usage.{name}" for name in usage if name not in TokenUsage.__struct_fields__]
    return others
