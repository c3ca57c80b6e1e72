"""``promptkit chat`` on a terminal."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from servers.stub import Held, error, ok
from servers.terminal import Screen

if TYPE_CHECKING:
    from servers.stub import StubServer

pytest.importorskip("pty", reason="there are no pseudo-terminals here")

pytestmark = [pytest.mark.usefixtures("catalog"), pytest.mark.skipif(os.name == "nt", reason="terminals are others")]


def _screen(*extra: str, **changes: str) -> Screen:
    screen = Screen("chat", "ask", *extra, **{"NO_COLOR": "1", "INPUTRC": os.devnull, **changes})
    screen.wait_for(lambda text: "0> " in text)
    return screen


def _left(screen: Screen) -> int:
    """Leave with Ctrl-D, when the terminal is ready for it."""
    screen.wait_for(lambda text: re.search(r"\d> \Z", text))
    screen.type(b"\x04")
    return screen.end()


def test_a_person_is_told_where_lines_go_and_gets_answers_a_place_and_the_usage(stub: StubServer) -> None:
    stub.say(ok("Because."))
    screen = _screen()
    assert screen.text.startswith("ask · warm-model on server\n")
    assert "your first line fills 'question' of ask; those after it are sent as they are\n" in screen.text
    screen.type(b"Why?\n")
    screen.wait_for(lambda text: "1> " in text)
    assert _left(screen) == 0
    assert re.search(r"Because\.\nsaid-model · 11 input, 7 output tokens · \d", screen.text)
    assert re.search(r"1> .*\n1 turn\n1 run, 1 attempt\ninput tokens        11\n", screen.text)


def test_ctrl_c_while_the_model_works_cancels_the_run_and_not_the_chat(stub: StubServer) -> None:
    held = Held(ok("late"))
    stub.say(ok("one"), held, ok("two"))
    screen = _screen()
    screen.type(b"a\n")
    screen.wait_for(lambda text: "1> " in text)
    screen.type(b"b\n")
    assert held.asked.wait(10)
    screen.wait_for(lambda text: "ask  " in text)
    screen.type(b"\x03")
    screen.wait_for(lambda text: "cancelled; you are where you were; /retry says it again\n" in text)
    screen.type(b"/retry\n")
    screen.wait_for(lambda text: "2> " in text)
    screen.type(b"/quit\n")
    assert screen.end() == 0
    held.free.set()
    last = stub.requests[-1].json["messages"]
    assert [message["content"] for message in last[1:]] == ["a", "one", "b"]
    assert "input tokens        at least 22\n" in screen.text
    assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l")


def test_ctrl_c_at_the_prompt_hints_first_then_leaves(stub: StubServer) -> None:
    screen = _screen()
    screen.interrupt(lambda text: "Ctrl-C once more, Ctrl-D or /quit leaves" in text)
    screen.wait_for(lambda text: text.endswith("0> "))
    screen.interrupt(lambda _: False)
    assert screen.end() == 0
    assert stub.requests == []


def _has(what: str, times: int, text: str) -> bool:
    return text.count(what) == times


def test_ctrl_c_drops_what_is_being_typed_and_forgets_that_one_was_pressed_before(stub: StubServer) -> None:
    pytest.importorskip("readline")
    stub.say(ok("x"))
    screen = _screen()
    screen.interrupt(partial(_has, "Ctrl-C once more", 1))
    for times, typed in enumerate((b"one", b"two", b"a \\\nthree"), 3):
        screen.wait_for(lambda text: text.endswith("0> "))
        screen.type(typed)
        screen.wait_for(partial(_has, typed.split()[-1].decode(), 1))
        screen.interrupt(partial(_has, "0> ", times))
    screen.interrupt(partial(_has, "Ctrl-C once more", 2))
    screen.wait_for(lambda text: text.endswith("0> "))
    screen.type(b"four\n")
    screen.wait_for(lambda text: "1> " in text)
    assert _left(screen) == 0
    assert [sent.json["messages"][-1]["content"] for sent in stub.requests] == ["four"]


def test_the_end_in_the_middle_of_an_entry_is_told_on_a_line_of_its_own() -> None:
    screen = _screen()
    screen.type(b'"""a\n')
    screen.wait_for(lambda text: text.endswith("... "))
    screen.type(b"\x04")
    screen.wait_for(lambda text: "it was not sent\n" in text)
    assert "... \nerror: what begins with" in screen.text
    assert _left(screen) == 0


def test_after_errors_a_person_can_go_on_and_ends_with_zero(stub: StubServer) -> None:
    stub.say(error(401), ok("x"))
    screen = _screen()
    screen.type(b"a\n")
    screen.wait_for(lambda text: "/retry says it again\n" in text)
    screen.type(b"/retry\n")
    screen.wait_for(lambda text: "1> " in text)
    assert _left(screen) == 0
    assert "error: " in screen.text


def test_commands_are_completed_and_lines_found_again(stub: StubServer) -> None:
    pytest.importorskip("readline")
    stub.say(ok("x"))
    screen = _screen()
    screen.type(b"first\n")
    screen.wait_for(lambda text: "1> " in text)
    screen.type(b"/tr\t\n")
    screen.wait_for(lambda text: "* 1  first → x\n" in text)
    screen.type(b"\x1b[A\x1b[A\n")
    screen.wait_for(lambda text: "2> " in text)
    assert _left(screen) == 0
    assert [sent.json["messages"][-1]["content"] for sent in stub.requests] == ["first", "first"]


def test_an_answer_cannot_command_the_terminal_nor_can_the_tree(stub: StubServer) -> None:
    stub.say(ok("\x1b]0;title\x07\x1b[2J\rx"))
    screen = _screen(TERM="dumb")
    screen.type(b"a\n/tree\n")
    screen.wait_for(lambda text: "* 1  a" in text)
    assert _left(screen) == 0
    assert "\\x1b]0;title\\x07\\x1b[2J\\rx\n" in screen.text
    assert "\x07" not in screen.text
    assert "\x1b]" not in screen.text


def test_narrow_terminals_without_unicode_or_colour_are_served(stub: StubServer) -> None:
    stub.say(ok("caf\u00e9"))
    screen = _screen(COLUMNS="40", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", TERM="dumb")
    screen.type("caf\u00e9 and more of it, so that it has to be cut\n".encode())
    screen.wait_for(lambda text: "1> " in text)
    screen.type(b"/tree\n/help\n")
    screen.wait_for(lambda text: "is typed\nwith //.\n" in text)
    assert _left(screen) == 0
    assert stub.requests[0].json["messages"][-1]["content"].startswith("caf\u00e9 and")
    assert "caf\\xe9\n" in screen.text
    (drawn,) = (line for line in screen.text.splitlines() if line.startswith("* 1"))
    assert len(drawn) <= 40
    told = screen.text[screen.text.index("0  ask") :]
    assert max(map(len, told.splitlines())) <= 40


def test_keys_that_are_no_text_are_told_and_end_nothing(stub: StubServer) -> None:
    screen = _screen(PYTHONIOENCODING="utf-8:strict")
    screen.type(b"caf\xe9 \xff\n")
    screen.wait_for(lambda text: "is not UTF-8 text: it was not sent" in text)
    assert _left(screen) == 0
    assert stub.requests == []
