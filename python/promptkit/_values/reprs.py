"""Reprs that stay short, whatever the value holds: for logs, debuggers and tracebacks."""

from __future__ import annotations

from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_REPR = 4_000  # characters of a whole repr, and a little more
MAX_TEXT = 200  # characters of one text in it
MAX_DEPTH = 8  # of what is inside one another
MAX_PAIRS = 50  # of a mapping
ENDS = 4  # items of a long sequence that are shown, first ones and last ones


def bounded_repr(value: Any) -> str:
    """Give a repr as msgspec writes it, long texts and sequences cut, with how long they are."""
    return Writer().written(value)


class Writer:
    """Writes one repr, and stops when it is long enough."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = MAX_REPR

    def written(self, value: Any) -> str:
        """Write a value, and give all of it."""
        self._value(value, 0)
        return "".join(self._pieces)

    def _put(self, piece: str) -> None:
        self._pieces.append(piece)
        self._room -= len(piece)

    def _value(self, value: Any, depth: int) -> None:
        if self._room <= 0 or depth > MAX_DEPTH:
            self._put("…")
        elif isinstance(value, str | bytes):
            self._put(_text(value))
        elif isinstance(value, msgspec.Struct) and type(value).__repr__ in _BY_FIELDS:
            fields = ((f"{name}=", getattr(value, name)) for name in value.__struct_fields__)
            self._all(f"{type(value).__name__}(", fields, ")", depth)
        elif isinstance(value, dict):
            self._mapping(value, depth)
        elif isinstance(value, list | tuple):
            self._sequence(value, depth)
        else:
            self._put(_other(value))

    def _mapping(self, value: dict[Any, Any], depth: int) -> None:
        shown = ((f"{_text(key)}: ", item) for key, item in islice(value.items(), MAX_PAIRS))
        self._all("{", shown, _more(len(value) - MAX_PAIRS) + "}", depth)

    def _sequence(self, value: list[Any] | tuple[Any, ...], depth: int) -> None:
        opened, closed = "()" if isinstance(value, tuple) else "[]"
        if len(value) <= 2 * ENDS:
            end = f",{closed}" if isinstance(value, tuple) and len(value) == 1 else closed
            self._all(opened, (("", item) for item in value), end, depth)
            return
        self._all(opened, (("", item) for item in value[:ENDS]), _more(len(value) - 2 * ENDS), depth)
        self._all(", ", (("", item) for item in value[-ENDS:]), closed, depth)

    def _all(self, opened: str, pairs: Iterable[tuple[str, Any]], closed: str, depth: int) -> None:
        self._put(opened)
        for between, (name, item) in zip(chain([""], repeat(", ")), pairs, strict=False):
            if self._room <= 0:
                self._put(f"{between}…")
                break
            self._put(between + name)
            self._value(item, depth + 1)
        self._put(closed)


def _more(number: int) -> str:
    return f", … {number:,} more" if number > 0 else ""


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        return _other(value)
    if len(value) <= MAX_TEXT:
        return repr(value)
    unit = "bytes" if isinstance(value, bytes) else "characters"
    return f"{value[: MAX_TEXT // 2]!r}… <{len(value):,} {unit}>"


def _other(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # of an integer
        return "<a number of too many digits>"
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT // 2]}…"


_BY_FIELDS = {msgspec.Struct.__repr__, bounded_repr}
