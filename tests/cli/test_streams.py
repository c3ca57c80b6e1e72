"""What a stream can show, and what reaches it, as plain values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from promptkit import Fault
from promptkit._cli.streams import RED, Facts, Streams, encoded, encoded_json, facts_of, folded, styled
from promptkit._cli.value_text import value_text
from promptkit._values.folding_table import fits


def _facts(**given: Any) -> Facts:
    return facts_of(**{"terminal": True, "encoding": "utf-8", "columns": 80, "environ": {}, "no_color": False, **given})


def test_a_terminal_has_colour_and_is_drawn_over() -> None:
    assert _facts(environ={"TERM": "xterm"}) == Facts(terminal=True, live=True, colour=True, encoding="utf-8", width=80)


@pytest.mark.parametrize(
    "given", [{"environ": {"NO_COLOR": "1"}}, {"no_color": True}, {"environ": {"TERM": "dumb"}}, {"terminal": False}]
)
def test_there_is_no_colour_where_it_is_not_wanted_or_cannot_be(given: dict[str, Any]) -> None:
    assert not _facts(**given).colour


def test_an_empty_no_color_does_not_count() -> None:
    assert _facts(environ={"NO_COLOR": ""}).colour


def test_a_dumb_terminal_is_not_drawn_over_and_keeps_its_encoding() -> None:
    facts = _facts(environ={"TERM": "dumb"}, encoding="ascii")
    assert (facts.live, facts.encoding, facts.terminal) == (False, "ascii", True)


def test_what_is_piped_is_utf_8_whatever_the_locale() -> None:
    facts = _facts(terminal=False, encoding="ascii")
    assert encoded("café ☃", facts) == "café ☃".encode()


def test_a_terminal_gets_escapes_for_what_its_encoding_lacks() -> None:
    assert encoded("café ☃", _facts(encoding="latin-1")) == b"caf\xe9 \\u2603"
    assert encoded("lone \ud800", _facts(terminal=False)) == b"lone \\ud800"


def test_json_on_a_terminal_does_nothing_there_and_has_the_same_value() -> None:
    value = {"said": "\x9b31m \x9d0;t\x9c \u202e\x7f\x1b \U000e0041 caf\u00e9"}
    for encoding in ("utf-8", "latin-1", "ascii"):
        line = encoded_json(value, _facts(encoding=encoding)).decode(encoding)
        assert json.loads(line) == value
        assert [c for c in ("\x9b", "\x9d", "\u202e", "\x7f", "\x1b", "\U000e0041") if c in line] == []
    assert encoded_json("\x9b", _facts(terminal=False)) == b'"\xc2\x9b"\n'


def test_json_of_a_path_that_is_no_text_has_the_text_that_it_most_likely_is_or_escapes() -> None:
    value = {"b\udcff": Fault(message="x", file="bad\udcff\udcfe"), "n": [1, ("\udcff",)]}
    line = encoded_json(value, _facts(terminal=False))
    told = json.loads(line)
    assert (told["b\\udcff"]["file"], told["n"]) == ("bad\\udcff\\udcfe", [1, ["\\udcff"]])


def test_with_json_all_that_is_told_is_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    streams = Streams(json=True)
    streams.say("\nfetching", RED)
    streams.note("the answer was cut off")
    streams.error("no", hint="try")
    lines = [json.loads(line) for line in capsysbinary.readouterr().err.splitlines()]
    assert lines == [
        {"note": "fetching"},
        {"note": "the answer was cut off"},
        {"error": {"type": "FailedError", "message": "no", "hint": "try"}},
    ]


def test_a_style_is_around_the_text_and_only_where_there_is_colour() -> None:
    assert styled("x\x1b", RED, _facts()) == "\x1b[31mx\\x1b\x1b[0m"
    assert styled("x", RED, _facts(no_color=True)) == "x"


def test_a_table_folds_only_its_widest_column_and_only_where_that_is_readable() -> None:
    rows = [("name", "w" * 100, "from")]
    assert fits(rows, 4 + 24 + 4 + 4)
    assert not fits(rows, 4 + 24 + 4 + 3)


def test_values_of_settings_are_written_as_they_are_configured() -> None:
    assert [value_text(value) for value in (None, "x", 1.5, False, ["a"], (), [], {}, {"b": None, "c": 2})] == [
        "-", "x", "1.5", "false", '["a"]', "none", "none", "none", "b default, c 2",
    ]  # fmt: skip


def test_sentences_are_folded_between_words() -> None:
    assert folded("say something, or leave", 12).splitlines() == ["say", "something,", "or leave"]
    assert folded("short", 12) == "short"
    assert folded("a-word-that-is-longer and\n  one more line", 12) == "a-word-that-is-longer\nand\n  one more\n  line"
