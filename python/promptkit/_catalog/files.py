"""From the text of a catalog's files to tables, or to the fault that says why not."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from returns.result import Failure, Result, Success

from promptkit._catalog.lines import Lines, json_lines, repeated_key, toml_lines
from promptkit._catalog.places import located, written, written_pointer
from promptkit._values.frozen import UnfitError, frozen_json
from promptkit._values.templates import with_plain_newlines
from promptkit.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
MANY_DIGITS = re.compile(r"\d[\d_]{4299,}")
UNQUOTED = re.compile(r"""\s*\[\s*((?:backends|profiles)[^][ "'#]*)\s*\]""")  # a header with an id
NESTED = "is nested too deeply."
DIGITS = "has an integer of more digits than Python reads."


class SourceFile(NamedTuple):
    """A file as it was read: its name for people, its id below its folder, and its bytes."""

    name: str
    identifier: str
    content: bytes


class Document(NamedTuple):
    """A file that was parsed, and where things stand in it."""

    source: SourceFile
    value: Any
    lines: Lines


def as_text(content: bytes, file: str) -> Result[str, Fault]:
    """Decode a file: UTF-8 in every locale, a byte-order mark dropped, line ends made LF."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8: byte {content[error.start]:#04x} at offset {error.start}."
        return Failure(Fault(file=file, line=line, message=message))
    return Success(with_plain_newlines(text))


def parse_toml(source: SourceFile) -> Result[Document, Fault]:
    """Parse one TOML file."""
    return as_text(source.content, source.name).bind(lambda text: _toml(source, text))


def _toml(source: SourceFile, text: str) -> Result[Document, Fault]:
    try:
        table: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = AT_LINE.search(str(error))
        line = None if found is None else int(found[1] or text.rstrip().count("\n") + 1)
        hint = "" if line is None else _hint(text.split("\n")[line - 1])
        message = f"is not TOML: {AT_LINE.sub('', str(error))}{hint}."
        return Failure(Fault(file=source.name, line=line, message=message))
    except RecursionError:
        return Failure(Fault(file=source.name, message=NESTED))
    except ValueError:
        return Failure(Fault(file=source.name, line=_line_of_digits(text), message=DIGITS))
    return Success(Document(source, table, toml_lines(text, table)))


def _hint(line: str) -> str:
    found = UNQUOTED.match(line)
    if found is None or "/" not in found[1]:
        return ""
    header = written(tuple(found[1].split(".")))
    return f": ids with a slash are quoted: [{header}]"


def _line_of_digits(text: str) -> int | None:
    found = MANY_DIGITS.search(text)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def parse_schema(source: SourceFile) -> Result[Document, Fault]:
    """Parse one file with a JSON Schema."""
    return as_text(source.content, source.name).bind(lambda text: _json(source, text))


def _json(source: SourceFile, text: str) -> Result[Document, Fault]:
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        return Failure(Fault(file=source.name, line=error.lineno, message=f"is not JSON: {error.msg}."))
    except RecursionError:
        return Failure(Fault(file=source.name, message=NESTED))
    except _RepeatedError:
        return Failure(_repeated(source.name, text))
    except ValueError:
        return Failure(Fault(file=source.name, line=_line_of_digits(text), message=DIGITS))
    lines = json_lines(text, value)
    try:
        return Success(Document(source, frozen_json(value), lines))
    except UnfitError as error:
        path = located(value, error.path)
        message = f"is not a JSON Schema: a value {error}."
        return Failure(Fault(file=source.name, line=lines.of(path), key=written_pointer(path) or None, message=message))


class _RepeatedError(ValueError):
    """A key that stands twice in one object. Stays inside this module."""


def _repeated(file: str, text: str) -> Fault:
    found = repeated_key(text)
    key, line = (None, None) if found is None else found
    name = "a key" if key is None else f"the key {key!r}"
    return Fault(file=file, line=line, message=f"is not a JSON Schema: {name} stands twice in one object.")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise _RepeatedError
    return table
