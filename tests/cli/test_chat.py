"""``promptkit chat`` from outside: lines in a pipe, against a server."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from promptkit import AttemptFinished, BlockingEngine, RunFinished, RunRequest, RunStarted, load_catalog
from promptkit._cli.asking import Typed
from promptkit._cli.chat import ChatOptions, ChatSession
from promptkit._cli.chat_opening import opening_of
from promptkit._cli.kept_run import kept_run
from promptkit._cli.progress import Progress
from promptkit._cli.streams import Streams
from promptkit._cli.user_files import MOST
from servers.command_line import environment, interrupting
from servers.stub import Held, StubServer, error, ok

if TYPE_CHECKING:
    from promptkit import ExecutionEvent, RunResult
    from servers.command_line import Command
    from servers.stub import Received

pytestmark = pytest.mark.usefixtures("catalog")

COMMAND = [sys.executable, "-m", "promptkit", "chat"]


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _process(*argv: str) -> subprocess.Popen[bytes]:
    """Start a chat whose lines are written later. It takes Ctrl-C, whatever this process does."""
    takes = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    runs = "from promptkit._cli import main; sys.exit(main(['chat', *sys.argv[1:]]))"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", takes + runs, *argv], stdin=pipe, stdout=pipe, stderr=pipe, env=environment()
    )


def _sent(stub: StubServer, index: int = -1) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in stub.requests[index].json["messages"]]


def _prompt(name: str, text: str) -> None:
    Path("prompts", f"{name}.toml").write_text(text, encoding="utf-8")


ABOUT = """\
profile = "cold"
variables = ["line"]
inputs = ["letter"]
[[messages]]
role = "user"
content = "{{ inputs.letter }}: {{ line }}"
"""
FORM = """\
profile = "cold"
variables = ["line", "tone"]
[[messages]]
role = "user"
content = "{{ line }}{% if tone is defined %} ({{ tone }}){% endif %}"
"""


def test_answers_are_on_stdout_as_they_are_and_all_else_on_stderr(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("Hello\x1b \u2603"), ok("Because."))
    ended = promptkit("chat", "ask", stdin=_lines("Hi", "", "Why?"))
    assert (ended.status, ended.out) == (0, "Hello\x1b \u2603\nBecause.\n")
    assert ended.err.splitlines() == [
        "2 turns",
        "2 runs, 2 attempts",
        "input tokens        22",
        "output tokens       14",
        "cache read tokens   unknown",
        "cache write tokens  unknown",
        "reasoning tokens    unknown",
    ]


def test_what_a_prompt_says_is_said_once_and_lines_after_it_are_sent_as_they_are(
    stub: StubServer, promptkit: Command
) -> None:
    stub.say(ok("one"), ok("two"))
    ended = promptkit("chat", "ask", "-v", stdin=_lines("Hi", "{{ 1 }} \u2603"))
    assert _sent(stub) == [
        ("system", "You are terse."), ("user", "Hi"), ("assistant", "one"), ("user", "{{ 1 }} \u2603"),
    ]  # fmt: skip
    assert [sent.json["model"] for sent in stub.requests] == ["warm-model", "warm-model"]
    assert ended.err.startswith(
        "ask · warm-model on server\nyour first line fills 'question' of ask; those after it are sent as they are\n"
    )


def test_a_prompt_of_one_user_message_takes_every_line(stub: StubServer, promptkit: Command) -> None:
    _prompt("form", FORM)
    stub.say(ok("one"), ok("two"))
    assert promptkit("chat", "form", "--var", "tone=loud", stdin=_lines("Hi", "Why?")).status == 0
    assert _sent(stub) == [("user", "Hi (loud)"), ("assistant", "one"), ("user", "Why? (loud)")]


def test_a_prompt_that_begins_by_itself_takes_lines_after_its_answer_or_at_the_beginning(
    stub: StubServer, promptkit: Command
) -> None:
    stub.say(ok("one"), ok("two"), ok("three"))
    lines = _lines("And?", "/branch 0", "Be brief.")
    assert promptkit("chat", "count", "--json-var", "items=[1]", stdin=lines).status == 0
    begun = ("user", "1 things: [1]")
    assert _sent(stub, 0) == [begun]
    assert _sent(stub, 1) == [begun, ("assistant", "one"), ("user", "And?")]
    assert _sent(stub, 2) == [begun, ("user", "Be brief.")]


def test_where_the_beginning_failed_the_next_line_begins(stub: StubServer, promptkit: Command) -> None:
    stub.say(error(401), ok("one"))
    ended = promptkit("chat", "count", "--json-var", "items=[1]", stdin=_lines("And?"))
    assert (ended.status, ended.out) == (1, "one\n")
    assert _sent(stub) == [("user", "1 things: [1]"), ("user", "And?")]


def test_lines_that_are_sent_as_they_are_keep_the_session_of_their_branch(stub: StubServer, promptkit: Command) -> None:
    system = '[[messages]]\nrole = "system"\ncontent = "Be terse."\n[[messages]]\nrole = "user"'
    session = 'session = "about {{ line }}"\n[[messages]]'
    _prompt("kept", FORM.replace("[[messages]]", session).replace('[[messages]]\nrole = "user"', system))
    stub.say(ok("x"))
    ended = promptkit("chat", "kept", "--line", "line", "--json", stdin=_lines("a", "b", "/branch 0", "c", "d"))
    sessions = [json.loads(line)["session_id"] for line in ended.out.splitlines()]
    assert sessions == ["about a", "about a", "about c", "about c"]


def test_another_prompt_can_take_the_lines_after_the_first(stub: StubServer, promptkit: Command) -> None:
    _prompt("form", FORM)
    stub.say(ok("one"), ok("two"))
    argv = ("chat", "ask", "--continue-with", "form", "--var", "tone=loud")
    assert promptkit(*argv, stdin=_lines("Hi", "Why?")).status == 0
    assert _sent(stub)[-1] == ("user", "Why? (loud)")
    assert stub.requests[1].json["model"] == "cold-model"


def test_inputs_of_the_prompt_that_takes_the_lines_are_read(stub: StubServer, promptkit: Command) -> None:
    _prompt("about", ABOUT)
    Path("letter.txt").write_text("Dear you", encoding="utf-8")
    stub.say(ok("one"), ok("two"))
    argv = ("chat", "ask", "--continue-with", "about", "--input", "letter=letter.txt")
    assert promptkit(*argv, stdin=_lines("Hi", "Why?")).status == 0
    assert _sent(stub)[-1] == ("user", "Dear you: Why?")


def test_the_tree_and_the_usage_are_data_where_all_is_json(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("one"), ok("two"))
    ended = promptkit("chat", "ask", "--json", stdin=_lines("q1", "q2", "/back", "/tree", "/usage"))
    told = [json.loads(line) for line in ended.err.splitlines()]
    tree, usage = told[1]["tree"], told[2]["usage"]
    assert tree["place"] == 1
    assert [(turn["number"], turn["parent"], turn["said"], turn["answer"]) for turn in tree["turns"]] == [
        (1, 0, "q1", "one"), (2, 1, "q2", "two"),
    ]  # fmt: skip
    assert (usage["attempts"], usage["usage"]["input_tokens"]["value"]) == (2, 22)


def test_options_hold_for_every_line_and_a_prompts_own_contract_does_not(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok('{"a": 1}'), ok("a word"))
    assert promptkit("chat", "number", stdin=_lines("And?")).status == 0
    ended = promptkit("chat", "number", "--schema", "number", "--session-id", "s", "--json", stdin=_lines("And?"))
    first, second = map(json.loads, ended.out.splitlines())
    assert (first["validation"]["status"], second["validation"]["status"]) == ("invalid", "invalid")
    assert (first["session_id"], second["session_id"], ended.status) == ("s", "s", 3)
    assert second["parent_run_id"] == first["run_id"]


def test_an_invalid_answer_can_be_talked_about_and_ends_with_three(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("no number"), ok("Sorry."))
    ended = promptkit("chat", "number", stdin=_lines("That was none.", "/tree"))
    assert (ended.status, ended.out) == (3, "no number\nSorry.\n")
    assert "error: the output is invalid under its contract:\n" in ended.err
    assert "  1  no number (invalid)\n* 2  That was none. → Sorry.\n" in ended.err
    assert _sent(stub)[1:] == [("assistant", "no number"), ("user", "That was none.")]


def test_branches_know_nothing_of_each_other(stub: StubServer, promptkit: Command) -> None:
    stub.say(*(ok(f"a{number}") for number in range(1, 6)))
    ended = promptkit("chat", "ask", stdin=_lines("q1", "q2", "/back", "q3", "/branch 2", "q4", "/retry", "/tree"))
    opening = [("system", "You are terse."), ("user", "q1"), ("assistant", "a1")]
    assert _sent(stub, 2) == [*opening, ("user", "q3")]
    assert _sent(stub, 3) == _sent(stub, 4) == [*opening, ("user", "q2"), ("assistant", "a2"), ("user", "q4")]
    assert ended.err.splitlines()[2:8] == [
        "  0  ask",
        "  1  q1 → a1",
        "  ├─ 2  q2 → a2",
        "  │  ├─ 4  q4 → a4",
        "* │  └─ 5  q4 → a5",
        "  └─ 3  q3 → a3",
    ]
    assert "5 turns on 3 branches\n" in ended.err


def test_after_an_error_the_conversation_goes_on_where_it_was(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("one"), error(400, "no"), ok("two"), ok("three"))
    ended = promptkit("chat", "ask", stdin=_lines("q1", "q2", "/retry", "q3"))
    assert (ended.status, ended.out) == (1, "one\ntwo\nthree\n")
    assert ended.err.startswith("error: backend 'server' ")
    assert _sent(stub)[1:] == [
        ("user", "q1"), ("assistant", "one"), ("user", "q2"), ("assistant", "two"), ("user", "q3"),
    ]  # fmt: skip
    assert "3 turns\n4 runs, 4 attempts\n" in ended.err


def test_usage_that_nobody_told_makes_the_sum_a_lower_bound(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("one"), error(500), error(500))
    ended = promptkit("chat", "ask", stdin=_lines("q1", "q2"))
    assert "input tokens        at least 11\n" in ended.err


def test_a_wrong_command_sends_nothing(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    ended = promptkit("chat", "ask", stdin=_lines("/tre", "/back", "/branch 1", "/retry", "/usage", "/help"))
    assert (ended.status, ended.out, stub.requests) == (1, "", [])
    assert ended.err.count("error: ") == 4
    assert "did you mean /tree?" in ended.err
    assert "/branch [NUMBER]  say something else" in ended.err


def test_lines_after_quit_are_not_read(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    assert promptkit("chat", "ask", stdin=_lines("a", "/quit", "b")).out == "x\n"
    assert len(stub.requests) == 1


def test_json_is_one_line_a_result_and_stderr_has_objects_too(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("one"), error(401), ok("two"))
    ended = promptkit("chat", "ask", "--json", stdin=_lines("q1", "q2", "/tre", "/back", "q3"))
    results = [json.loads(line) for line in ended.out.splitlines()]
    told = [json.loads(line) for line in ended.err.splitlines()]
    assert [result["raw_output"] for result in results] == ["one", "two"]
    assert [next(iter(each)) for each in told] == ["error", "error", "note", "chat"]
    assert (told[0]["error"]["type"], told[0]["error"]["status"]) == ("AuthenticationError", 401)
    assert (told[-1]["chat"]["turns"], told[-1]["chat"]["branches"], ended.status) == (2, 2, 1)
    assert len(told[-1]["chat"]["summary"]["members"]) == 3


def test_a_trace_has_the_events_of_every_run(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    assert promptkit("chat", "ask", "--trace", "t.jsonl", stdin=_lines("a", "b")).status == 0
    events = [json.loads(line) for line in Path("t.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["kind"] for event in events] == ["run_started", "attempt_finished", "run_finished"] * 2
    assert events[3]["parent_run_id"] == events[0]["run_id"]


def test_a_run_that_takes_too_long_is_an_error_and_the_chat_goes_on(stub: StubServer, promptkit: Command) -> None:
    held = Held(ok("late"))
    stub.say(held, ok("x"))
    ended = promptkit("chat", "ask", "--timeout", "0.2", stdin=_lines("a", "b"))
    held.free.set()
    assert (ended.status, ended.out) == (1, "x\n")
    assert "error: the run did not finish within the 0.2 s of --timeout: give it more\n" in ended.err
    assert "note: the run made 1 attempt, and used unknown input, unknown output tokens\n" in ended.err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("aks",), "there is no prompt 'aks': did you mean 'ask'?"),
        (("ask", "--continue-with", "aks"), "there is no prompt 'aks': did you mean 'ask'?"),
        (("ask", "--continue-with", "number"), "--continue-with number: your lines fill one variable"),
        (("ask", "--line", "x"), "--line 'x' is no variable of ask (its variables: question)"),
        (("ask", "--continue-with", "read"), "--continue-with read: your lines fill one variable"),
        (("ask", "--continue-with", "about"), "not given: --input letter=FILE"),
        (("ask", "--var", "question=-"), "chat reads your lines from standard input"),
        (("ask", "--var", "qestion=x"), "did you mean 'question'?"),
        (("read",), "not given: --input letter=FILE"),
        (("bare",), "profile"),
        (("ask", "--profile", "wram"), "did you mean 'warm'?"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_said(
    stub: StubServer, promptkit: Command, argv: tuple[str, ...], told: str
) -> None:
    _prompt("about", ABOUT)
    ended = promptkit("chat", *argv, stdin=_lines("Hi"))
    assert (ended.status, ended.out, stub.requests) == (2, "", [])
    assert told in ended.err
    assert "promptkit-chat" not in ended.err


def test_a_template_that_depends_on_the_line_is_judged_by_the_line(stub: StubServer, promptkit: Command) -> None:
    _prompt("words", FORM.replace("{{ line }}", "{{ line[3] }}"))
    stub.say(ok("x"))
    ended = promptkit("chat", "words", "--line", "line", stdin=_lines("one", "one!"))
    assert (ended.status, ended.out) == (1, "x\n")
    assert "error: prompt 'words'" in ended.err
    assert _sent(stub) == [("user", "!")]


def test_lines_are_utf_8_in_every_locale_and_one_that_is_not_is_not_sent(stub: StubServer) -> None:
    stub.say(ok("caf\u00e9"), ok("\u2603"))
    lines = b'\xef\xbb\xbfcaf\xc3\xa9\r\n"""a\n\xff\n"""\n\xe2\x98\x83\n/tree'
    ended = subprocess.run(
        [*COMMAND, "ask"],
        input=lines,
        capture_output=True,
        env=environment(LC_ALL="C", PYTHONUTF8="0"),
        timeout=15,
        check=False,
    )
    assert (ended.returncode, ended.stdout.decode()) == (1, "caf\u00e9\n\u2603\n")
    assert _sent(stub)[1:] == [("user", "caf\u00e9"), ("assistant", "caf\u00e9"), ("user", "\u2603")]
    assert "error: what begins with 'a\\n\\udcff' is not UTF-8 text: it was not sent\n" in ended.stderr.decode()
    assert "* 2  \u2603 \u2192 \u2603\n" in ended.stderr.decode()
    assert b"\x1b" not in ended.stderr


def test_a_piped_line_is_bounded(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("one"))
    ended = promptkit("chat", "ask", stdin=_lines("a") + b"x" * (MOST + 1))
    assert (ended.status, ended.out, len(stub.requests)) == (1, "one\n", 1)
    assert f"error: a line of standard input has more than {MOST:,} bytes: it was not sent" in ended.err


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
def test_ctrl_c_in_a_pipe_cancels_the_run_and_ends_with_what_was_used(stub: StubServer) -> None:
    held = Held(ok("x"))
    stub.say(ok("one"), held)
    with _process("ask") as process:
        assert process.stdin is not None
        process.stdin.write(_lines("a", "b", "c"))
        process.stdin.flush()
        assert held.asked.wait(10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    held.free.set()
    assert (process.returncode, out) == (130, b"one\n")
    assert err.startswith(b"1 turn\n2 runs, 2 attempts\ninput tokens        at least 11\n")
    assert err.endswith(b"\ncancelled\n")
    assert len(stub.requests) == 2


def _interrupted_at(stub: StubServer, kind: type[ExecutionEvent]) -> tuple[list[RunResult], bool]:
    """Run once, with Ctrl-C at an event; give what was kept, and whether it left as KeyboardInterrupt."""
    held = Held(ok("x"))
    if kind is not RunStarted:
        held.free.set()
    stub.say(held, ok("x"))
    kept: list[RunResult] = []
    request = RunRequest(prompt_id="ask", variables={"question": "Why?"}, observer=interrupting(kind))
    progress = Progress(Streams(), "ask")
    with BlockingEngine(load_catalog(".")) as engine:
        try:
            kept_run(engine, request, None, progress, kept.append)
        except KeyboardInterrupt:
            left = True
        else:
            left = False
        held.free.set()
        again: list[RunResult] = []
        kept_run(engine, msgspec.structs.replace(request, observer=None), None, progress, again.append)
    assert [result.raw_output for result in again] == ["x"]
    return kept, left


@pytest.mark.parametrize("event", [AttemptFinished, RunFinished])
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_while_the_reply_is_in_hand_does_not_lose_it(stub: StubServer, event: type[ExecutionEvent]) -> None:
    kept, left = _interrupted_at(stub, event)
    assert ([result.raw_output for result in kept], left) == (["x"], True)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_before_a_reply_cancels_and_what_runs_next_is_not_hurt(stub: StubServer) -> None:
    assert _interrupted_at(stub, RunStarted) == ([], True)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_in_a_pipe_with_the_reply_in_hand_shows_it_and_ends(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    stub.say(ok("paid"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(_lines("a", "b"))))
    opening = opening_of(load_catalog("."), Typed("ask"), None, None)
    with BlockingEngine(opening.catalog) as engine:
        session = ChatSession(opening, engine, interrupting(RunFinished), ChatOptions(), Streams())
        with pytest.raises(KeyboardInterrupt):
            session.hold()
    assert (capsysbinary.readouterr().out, len(stub.requests)) == (b"paid\n", 1)


def test_a_connection_that_was_closed_while_a_person_thought_costs_no_attempt(stub: StubServer) -> None:
    closed = threading.Event()

    def answer_and_close(received: Received, connection: socket.socket) -> None:
        connection.sendall(ok("x"))
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    stub.say(answer_and_close)
    with _process("ask") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_lines("a"))
        process.stdin.flush()
        assert process.stdout.readline() == b"x\n"
        assert closed.wait(10)
        out, err = process.communicate(_lines("b"), timeout=10)
    assert (process.returncode, out) == (0, b"x\n")
    assert b"2 runs, 2 attempts\n" in err


def test_a_long_chat_is_drawn_short(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    ended = promptkit("chat", "ask", stdin=_lines(*(["Hi"] * 300), "/tree"))
    assert (ended.status, ended.out) == (0, "x\n" * 300)
    assert "\n  … 291 turns\n  293  Hi → x\n" in ended.err
