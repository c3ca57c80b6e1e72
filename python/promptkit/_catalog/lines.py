"""Where things stand in the text of a file: the line of each key path of a TOML or JSON document.

The readers of the standard library give values without their places. These scanners read the text a second time, after
it was parsed, so they meet only documents that are right, and what they find is compared with what was parsed: when the
two differ in any path, no line is given rather than a wrong one.

A path is a tuple of keys and indexes, and () is the document. Lines are 1-based.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

Path = tuple[str | int, ...]

BLANK = re.compile(r"[ \t\n\r]*(?:#[^\n]*[ \t\n\r]*)*")  # also comments
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
SCALAR = re.compile(r"[^,\]}#\n]+")
# One way through each text, so that a text that does not match is not tried many times. Possessive repeats would say it
# shorter, but those of groups match wrongly before Python 3.11.5.
ONE_LINE = re.compile(r""""[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\n]*'""")
MANY_LINES = re.compile(
    r'"""[^"\\]*(?:(?:\\[\s\S]|"{1,2}(?!"))[^"\\]*)*"{3,5}|' + r"'''[^']*(?:'{1,2}(?!')[^']*)*'{3,5}"
)
# An escape that makes a line of its own, or a backslash that takes a line end away.
MOVED_LINES = re.compile(r"\\(?:[nr]|x0[aAdD]|u000[aAdD]|U0000000[aAdD]|[ \t]*\n)")
JSON_BLANK = re.compile(r"[ \t\n\r]*")
JSON_SCALAR = re.compile(r"[^,\]}\s]+")


class Lines:
    """The lines of one document, found when the first is asked for; ``Lines()`` knows none."""

    def __init__(self, find: Callable[[], _Places] | None = None) -> None:
        self._find = find

    @cached_property
    def _places(self) -> _Places:
        return _Places({}, {}) if self._find is None else self._find()

    def of(self, path: Path) -> int | None:
        """Give the line of a path, or of the closest table around it when it is not there: of what is missing."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._places.lines:
                return self._places.lines[path[:end]]
        return None

    def inside(self, path: Path, line: int) -> int | None:
        """Give the line on which the given line of a text stands, where its lines are those of the document."""
        first = self._places.texts.get(path)
        return None if first is None else first + line - 1


class _Places(NamedTuple):
    """The line of each path, and the first line of texts whose lines are those of the document."""

    lines: Mapping[Path, int]
    texts: Mapping[Path, int]


class _Scan(NamedTuple):
    """What a scanner finds: the offset of each path, and for texts the offset of their first line."""

    places: dict[Path, int]
    texts: dict[Path, int]
    twice: list[tuple[Path, int]]


def toml_lines(text: str, document: Mapping[str, Any]) -> Lines:
    """Give the lines of a TOML text that was parsed to ``document``."""
    return Lines(lambda: _places(text, _scanned(_toml_document, text), document))


def json_lines(text: str, document: Any) -> Lines:
    """Give the lines of a JSON text that was parsed to ``document``."""
    return Lines(lambda: _places(text, _scanned(_json_document, text), document))


def repeated_key(text: str) -> tuple[str, int] | None:
    """Give the first key that stands twice in one object of a JSON text, and the line of its second place."""
    scan = _scanned(_json_document, text)
    if scan is None or not scan.twice:
        return None
    path, offset = scan.twice[0]
    return str(path[-1]), text.count("\n", 0, offset) + 1


def _scanned(scanner: Callable[[str, _Scan], None], text: str) -> _Scan | None:
    scan = _Scan({(): 0}, {}, [])
    try:
        scanner(text, scan)
    except (RecursionError, _LostError):
        return None
    return scan


def _places(text: str, scan: _Scan | None, document: Any) -> _Places:
    if scan is None or scan.places.keys() != set(_paths(document)):
        return _Places({}, {})
    ends = [found.start() for found in re.finditer("\n", text)]
    return _Places(
        {path: bisect_right(ends, offset - 1) + 1 for path, offset in scan.places.items()},
        {path: bisect_right(ends, offset - 1) + 1 for path, offset in scan.texts.items()},
    )


def _paths(document: Any) -> list[Path]:
    found: list[Path] = []
    left: list[tuple[Path, Any]] = [((), document)]
    while left:
        path, value = left.pop()
        found.append(path)
        if isinstance(value, Mapping):
            left.extend(((*path, key), item) for key, item in value.items())
        elif isinstance(value, list | tuple):
            left.extend(((*path, index), item) for index, item in enumerate(value))
    return found


class _LostError(Exception):
    """The text is not what the scanner takes it for. Stays inside this module."""


# ------------------------------------------------------------------ TOML


def _toml_document(text: str, scan: _Scan) -> None:
    lengths: dict[Path, int] = {}  # of the arrays of tables
    table: Path = ()
    at = _blank(text, 0)
    while at < len(text):
        if text[at] == "[":
            many = text.startswith("[[", at)
            keys, end = _keys(text, at + 2 if many else at + 1)
            table = _header(keys, at, scan, lengths, many=many)
            at = _blank(text, _after(text, end, "]]" if many else "]"))
        else:
            at = _blank(text, _pair(text, at, table, scan))


def _header(keys: list[str], at: int, scan: _Scan, lengths: dict[Path, int], *, many: bool) -> Path:
    path: Path = ()
    for key in keys[:-1]:
        path = (*path, key)
        scan.places.setdefault(path, at)
        if path in lengths:
            path = (*path, lengths[path] - 1)
    path = (*path, keys[-1])
    if not many:
        scan.places[path] = at  # the table's own header, also after those of tables inside it
        return path
    scan.places.setdefault(path, at)
    index = lengths.get(path, 0)
    lengths[path] = index + 1
    scan.places[(*path, index)] = at
    return (*path, index)


def _pair(text: str, at: int, table: Path, scan: _Scan) -> int:
    """Read ``key = value`` and give the offset after it."""
    keys, end = _keys(text, at)
    path = table
    for key in keys:
        path = (*path, key)
        scan.places.setdefault(path, at)
    return _value(text, _blank(text, _after(text, end, "=")), path, scan)


def _keys(text: str, at: int) -> tuple[list[str], int]:
    """Read a key with its dots."""
    keys: list[str] = []
    while True:
        at = _blank(text, at)
        found = BARE_KEY.match(text, at) or ONE_LINE.match(text, at)
        if found is None:
            raise _LostError
        keys.append(_unquoted(found[0]))
        at = _blank(text, found.end())
        if not text.startswith(".", at):
            return keys, at
        at += 1


def _unquoted(key: str) -> str:
    if key[0] not in {'"', "'"}:
        return key
    return next(iter(tomllib.loads(f"{key} = 0"))) if "\\" in key else key[1:-1]


def _value(text: str, at: int, path: Path, scan: _Scan) -> int:
    opening = text[at : at + 1]
    if opening == "[":
        return _array(text, at, path, scan)
    if opening == "{":
        return _inline(text, at, path, scan)
    if opening not in {'"', "'"}:
        found = SCALAR.match(text, at)
    elif text.startswith(('"""', "'''"), at):
        found = MANY_LINES.match(text, at)
        if found is not None and (opening == "'" or not MOVED_LINES.search(found[0].replace("\\\\", ""))):
            scan.texts[path] = at + 4 if text.startswith("\n", at + 3) else at + 3
    else:
        found = ONE_LINE.match(text, at)
    if found is None:
        raise _LostError
    return found.end()


def _array(text: str, at: int, path: Path, scan: _Scan) -> int:
    at = _blank(text, at + 1)
    index = 0
    while not text.startswith("]", at):
        scan.places[(*path, index)] = at
        at = _blank(text, _value(text, at, (*path, index), scan))
        if not text.startswith("]", at):
            at = _blank(text, _after(text, at, ","))
        index += 1
    return at + 1


def _inline(text: str, at: int, path: Path, scan: _Scan) -> int:
    at = _blank(text, at + 1)
    while not text.startswith("}", at):
        at = _blank(text, _pair(text, at, path, scan))
        if not text.startswith("}", at):
            at = _blank(text, _after(text, at, ","))
    return at + 1


def _blank(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _after(text: str, at: int, sign: str) -> int:
    if not text.startswith(sign, at):
        raise _LostError
    return at + len(sign)


# ------------------------------------------------------------------ JSON


def _json_document(text: str, scan: _Scan) -> None:
    at = _json_blank(text, 0)
    scan.places[()] = at
    _json_value(text, at, (), scan)


def _json_value(text: str, at: int, path: Path, scan: _Scan) -> int:
    scan.places.setdefault(path, at)
    opening = text[at : at + 1]
    if opening == "{":
        return _json_object(text, at, path, scan)
    if opening == "[":
        return _json_array(text, at, path, scan)
    found = ONE_LINE.match(text, at) if opening == '"' else JSON_SCALAR.match(text, at)
    if found is None:
        raise _LostError
    return found.end()


def _json_object(text: str, at: int, path: Path, scan: _Scan) -> int:
    at = _json_blank(text, at + 1)
    while not text.startswith("}", at):
        found = ONE_LINE.match(text, at)
        if found is None:
            raise _LostError
        inner = (*path, json.loads(found[0]))
        if inner in scan.places:
            scan.twice.append((inner, at))
        scan.places[inner] = at
        at = _json_blank(text, _after(text, _json_blank(text, found.end()), ":"))
        at = _json_blank(text, _json_value(text, at, inner, scan))
        if not text.startswith("}", at):
            at = _json_blank(text, _after(text, at, ","))
    return at + 1


def _json_array(text: str, at: int, path: Path, scan: _Scan) -> int:
    at = _json_blank(text, at + 1)
    index = 0
    while not text.startswith("]", at):
        at = _json_blank(text, _json_value(text, at, (*path, index), scan))
        if not text.startswith("]", at):
            at = _json_blank(text, _after(text, at, ","))
        index += 1
    return at + 1


def _json_blank(text: str, at: int) -> int:
    found = JSON_BLANK.match(text, at)
    return at if found is None else found.end()
