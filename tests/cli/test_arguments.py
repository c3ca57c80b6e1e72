"""What is typed after --var, --json-var and --input, as plain values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._cli.arguments import (
    Assignment,
    File,
    Stdin,
    Text,
    as_text,
    inline,
    missing,
    read_assignment,
    read_assignments,
)


@pytest.mark.parametrize(
    ("typed", "source"),
    [
        ("k=v", Text("v")),
        ("k=", Text("")),
        ("k=a=b", Text("a=b")),
        ("k= v ", Text(" v ")),
        ("k=@file.txt", File("file.txt")),
        ("k=@@home", Text("@home")),
        ("k=@@@", Text("@@")),
        ("k=-", Stdin()),
        ("k=--", Text("--")),
    ],
)
def test_a_variable_is_text_or_names_where_its_text_is(typed: str, source: object) -> None:
    assert read_assignment("--var", typed).unwrap() == Assignment("--var", "k", source)  # type: ignore[arg-type]


def test_an_input_is_a_file_and_an_at_sign_is_a_part_of_its_name() -> None:
    assert read_assignment("--input", "k=@x").unwrap().source == File("@x")
    assert read_assignment("--input", "k=a=b.txt").unwrap().source == File("a=b.txt")
    assert read_assignment("--input", "k=-").unwrap().source == Stdin()


@pytest.mark.parametrize(
    ("option", "typed", "remedy"),
    [
        ("--var", "question", "type --var NAME=VALUE, such as --var 'question=Why?'"),
        ("--var", "=x", "--var '=x' has no name"),
        ("--json-var", "n", "--json-var 'count=3'"),
        ("--input", "letter.txt", "type --input NAME=FILE"),
        ("--input", "letter=", "names no file: type the file's path, or letter=- for standard input"),
        ("--var", "k=@", "names no file"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_type(option: str, typed: str, remedy: str) -> None:
    assert remedy in read_assignment(option, typed).failure()  # type: ignore[arg-type]


def test_a_name_is_given_once_whether_as_text_or_as_json() -> None:
    assert "the variable 'a' is given twice" in read_assignments(["a=1"], ["a=1"], []).failure()
    assert "the input 'a' is given twice" in read_assignments([], [], ["a=x", "a=y"]).failure()
    assert len(read_assignments(["a=1"], [], ["a=x"]).unwrap()) == 2


def test_standard_input_is_used_once() -> None:
    found = read_assignments(["a=-"], ["b=-"], ["c=-"]).failure()
    assert "--var a=- and --json-var b=- and --input c=- want it" in found


def test_what_was_not_given_is_written_as_it_is_typed() -> None:
    found = read_assignments(["a=1"], ["b=2"], ["d=x"]).unwrap()
    assert missing(["a", "b", "c"], ["d", "e"], found) == ("--var c=TEXT", "--input e=FILE")


@pytest.mark.parametrize("data", [b"%PDF-1.7 text", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff"])
def test_what_the_engine_knows_by_its_bytes_stays_bytes(data: bytes) -> None:
    assert inline(data) == data


@given(st.text())
def test_a_text_from_a_stream_is_that_text(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    assert inline(data) in {text.removeprefix("\ufeff"), data}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_argument_that_the_locale_garbled_is_read_as_utf_8(text: str) -> None:
    assert as_text(text.encode().decode("ascii", "surrogateescape"), "ascii") == text


def test_an_argument_that_is_no_utf_8_stays_as_it_is() -> None:
    assert as_text("caf\udce9", "ascii") == "caf\udce9"
