"""What ``--var``, ``--json-var`` and ``--input`` say: names, and where their values are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from returns.result import Failure, Result, Success

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Option = Literal["--var", "--json-var", "--input"]


class Text(msgspec.Struct, frozen=True):
    """A value that was typed."""

    text: str


class File(msgspec.Struct, frozen=True):
    """A value that is in a file, by its path as it was typed."""

    path: str


class Stdin(msgspec.Struct, frozen=True):
    """A value that comes from standard input."""


Source = Text | File | Stdin


class Assignment(NamedTuple):
    """A name, and where its value is."""

    option: Option
    name: str
    source: Source


def read_assignment(option: Option, typed: str) -> Result[Assignment, str]:
    """Read ``NAME=VALUE``. The failure says what to type.

    >>> read_assignment("--var", "question=Who?").unwrap().source
    Text(text='Who?')
    >>> read_assignment("--var", "letter=@letter.txt").unwrap().source
    File(path='letter.txt')
    """
    name, equals, value = typed.partition("=")
    if not equals or not name:
        form = "NAME=FILE" if option == "--input" else "NAME=VALUE"
        example = {"--var": "question=Why?", "--json-var": "count=3", "--input": "letter=letter.txt"}[option]
        return Failure(f"{option} {typed!r} has no name and value: type {option} {form}, such as {option} {example!r}")
    source = _source(option, value)
    if source == File(""):
        return Failure(f"{option} {typed!r} names no file: type the file's path, or {name}=- for standard input")
    return Success(Assignment(option, name, source))


def _source(option: Option, value: str) -> Source:
    if value == "-":
        return Stdin()
    if option == "--input":
        return File(value)
    if value.startswith("@@"):
        return Text(value[1:])
    return File(value[1:]) if value.startswith("@") else Text(value)


def read_assignments(
    variables: Sequence[str], json_variables: Sequence[str], inputs: Sequence[str]
) -> Result[tuple[Assignment, ...], str]:
    """Read all that was typed. A name stands once, and so does standard input."""
    typed: list[tuple[Option, str]] = [
        *(("--var", each) for each in variables),
        *(("--json-var", each) for each in json_variables),
        *(("--input", each) for each in inputs),
    ]
    found: list[Assignment] = []
    for option, text in typed:
        read = read_assignment(option, text)
        if isinstance(read, Failure):
            return read
        found.append(read.unwrap())
    return _consistent(found)


def _consistent(found: list[Assignment]) -> Result[tuple[Assignment, ...], str]:
    seen: set[tuple[bool, str]] = set()
    for each in found:
        key = (each.option == "--input", each.name)
        if key in seen:
            return Failure(f"{'the input' if key[0] else 'the variable'} {each.name!r} is given twice: give it once")
        seen.add(key)
    streamed = [f"{each.option} {each.name}=-" for each in found if each.source == Stdin()]
    if len(streamed) > 1:
        return Failure(f"standard input can be read once, and {' and '.join(streamed)} want it: put one into a file")
    return Success(tuple(found))


def missing(variables: Iterable[str], inputs: Iterable[str], found: Iterable[Assignment]) -> tuple[str, ...]:
    """Say what to type for the declared names that were not given."""
    given = {(each.option == "--input", each.name) for each in found}
    return (
        *(f"--var {name}=TEXT" for name in variables if (False, name) not in given),
        *(f"--input {name}=FILE" for name in inputs if (True, name) not in given),
    )


def inline(data: bytes) -> str | bytes:
    """Give what came from a stream as text if it is text; the engine tells images and PDF by their bytes.

    >>> inline(b"Dear neighbours"), inline(b"%PDF-1.7")
    ('Dear neighbours', b'%PDF-1.7')
    """
    if data.startswith((b"%PDF-", b"GIF8")):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data


def readable(each: Assignment, file_system_encoding: str) -> Assignment:
    """Give an assignment with its name and text ``as_text``; the path of a file stays what the system knows it by."""
    source = each.source
    if isinstance(source, Text):
        source = Text(as_text(source.text, file_system_encoding))
    return each._replace(name=as_text(each.name, file_system_encoding), source=source)


def as_text(typed: str, file_system_encoding: str) -> str:
    """Give an argument as the UTF-8 that it most likely is, where the locale made it unreadable.

    In the C locale Python reads each byte above 127 as a lone surrogate.
    """
    if not any("\udc80" <= character <= "\udcff" for character in typed):
        return typed
    try:
        return typed.encode(file_system_encoding, "surrogateescape").decode("utf-8")
    except UnicodeError:
        return typed
