"""The command on a terminal: colour, progress, and what is shown in place of control characters."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from servers.stub import Held, error, ok
from servers.terminal import Screen

if TYPE_CHECKING:
    from servers.stub import StubServer

pytest.importorskip("pty", reason="there are no pseudo-terminals here")

pytestmark = [pytest.mark.usefixtures("catalog"), pytest.mark.skipif(os.name == "nt", reason="terminals are others")]
ASK = ("run", "ask", "--var", "question=Why?")


def test_the_line_counts_and_goes_away_before_the_answer(stub: StubServer) -> None:
    held = Held(ok("Because."))
    stub.say(held)
    screen = Screen(*ASK)
    assert held.asked.wait(10)
    screen.wait_for(lambda text: "ask  1 s" in text)
    held.free.set()
    assert screen.end() == 0
    _, _, after = screen.text.rpartition("\x1b[2K")  # the line is erased
    assert after.replace("\x1b[?25h", "").startswith("Because.\n\x1b[2msaid-model · 11 input, 7 output tokens")


def test_a_wait_is_told_with_its_seconds_and_attempt(stub: StubServer) -> None:
    stub.say(error(429, "slow down", ("retry-after", "1")), ok("x"))
    screen = Screen(*ASK)
    assert screen.end() == 0
    assert re.search(r"waiting [01]\.\d s, as the server asks, then attempt 2", screen.text)
    assert "2 attempts (1 retry)" in screen.text


def test_ctrl_c_on_the_terminal_cancels_and_leaves_the_cursor_visible(stub: StubServer) -> None:
    held = Held(ok("x"))
    stub.say(held)
    screen = Screen(*ASK)
    assert held.asked.wait(10)
    screen.wait_for(lambda text: "ask  " in text)
    screen.type(b"\x03")
    assert screen.end() == 130
    held.free.set()
    assert "cancelled\n" in screen.text
    assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l")


@pytest.mark.parametrize("command", [ASK, ("chat", "ask")])
def test_sigterm_while_the_line_is_drawn_leaves_the_cursor_visible(stub: StubServer, command: tuple[str, ...]) -> None:
    held = Held(ok("x"))
    stub.say(held)
    screen = Screen(*command, INPUTRC=os.devnull)
    if command != ASK:
        screen.wait_for(lambda text: "0> " in text)
        screen.type(b"Why?\n")
    assert held.asked.wait(10)
    screen.wait_for(lambda text: "ask  " in text)
    screen.terminate()
    assert screen.end() == 143
    held.free.set()
    assert "Traceback" not in screen.text
    assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l")


@pytest.mark.parametrize(("extra", "changes"), [((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--no-color",), {})])
def test_colour_can_be_refused(stub: StubServer, extra: tuple[str, ...], changes: dict[str, str]) -> None:
    stub.say(error(401))
    screen = Screen(*ASK, *extra, **changes)
    assert screen.end() == 1
    assert not re.search(r"\x1b\[[0-9;]*m", re.sub(r"\x1b\[0?m", "", screen.text))
    if changes.get("TERM") == "dumb":
        assert "\x1b" not in screen.text


def test_errors_are_red_and_tables_have_bold_heads_in_colour() -> None:
    screen = Screen("run", "aks")
    assert screen.end() == 2
    assert "\x1b[31merror:\x1b[0m there is no prompt 'aks'" in screen.text
    screen = Screen("show", "prompts")
    assert screen.end() == 0
    assert re.match(r"\x1b\[1mid\b", screen.text)


def test_a_narrow_terminal_gets_paragraphs_in_place_of_columns() -> None:
    screen = Screen("show", "profile", "warm", COLUMNS="40", NO_COLOR="1")
    assert screen.end() == 0
    assert max(map(len, screen.text.splitlines())) <= 40
    assert "\nattempt_timeout\n  120.0  default\n" in screen.text


@pytest.mark.parametrize("argv", [("render", "aks"), ("render", "ask"), ("--help",), ("run", "--help"), ("chat", "-h")])
def test_a_narrow_terminal_breaks_sentences_and_examples_between_words(argv: tuple[str, ...]) -> None:
    narrow, wide = Screen(*argv, COLUMNS="40", NO_COLOR="1"), Screen(*argv, COLUMNS="200", NO_COLOR="1")
    assert narrow.end() == wide.end()
    lines = narrow.text.splitlines()
    assert all(len(line) <= 40 or " " not in line.strip().removesuffix(" \\") for line in lines), lines
    continued = " ".join(line.removesuffix("\\") for line in lines)
    assert set(wide.text.split()) <= set(continued.split())


def test_the_summary_of_a_command_is_a_whole_sentence_on_every_terminal() -> None:
    screen = Screen("--help", COLUMNS="40", NO_COLOR="1")
    assert screen.end() == 0
    assert "Show the exact messages and hashes of a run; nothing is sent." in " ".join(screen.text.split())


def test_what_a_model_writes_cannot_command_the_terminal(stub: StubServer) -> None:
    stub.say(ok("a\x1b]52;c;AAAA\x07b\rc"))
    screen = Screen(*ASK)
    assert screen.end() == 0
    assert "a\\x1b]52;c;AAAA\\x07b\\rc\n" in screen.text


def test_what_a_model_writes_cannot_command_the_terminal_as_json(stub: StubServer) -> None:
    stub.say(ok("a\x9b31mb\u202e"))
    screen = Screen(*ASK, "--json")
    assert screen.end() == 0
    assert '"raw_output":"a\\u009b31mb\\u202e"' in screen.text


def test_a_terminal_without_unicode_gets_escapes(stub: StubServer) -> None:
    stub.say(ok("caf\u00e9"))
    screen = Screen(*ASK, LC_ALL="C", PYTHONUTF8="0")
    assert screen.end() == 0
    assert "caf\\xe9\n" in screen.text


def test_standard_input_is_read_before_the_line_is_drawn(stub: StubServer) -> None:
    stub.say(ok("x"))
    screen = Screen("run", "ask", "--var", "question=-")
    screen.type(b"Why?\n\x04")
    assert screen.end() == 0
    assert stub.requests[0].json["messages"][-1]["content"] == "Why?\n"


def test_a_page_of_html_is_not_written_to_a_terminal() -> None:
    screen = Screen("report", "trace.jsonl", NO_COLOR="1")
    assert screen.end() == 2
    assert screen.text.startswith("error: the report is a page of HTML, and not for a terminal: give --output")
