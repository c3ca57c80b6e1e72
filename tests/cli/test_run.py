"""``promptkit run`` from outside: against a server, in this process."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import AttemptFinished, RunFinished, RunStarted, load_catalog
from promptkit._cli.asking import Typed
from promptkit._cli.exits import CancelledError
from promptkit._cli.failure import object_of
from promptkit._cli.run import answer_to
from promptkit._cli.streams import Streams
from servers.command_line import interrupting
from servers.stub import Held, StubServer, completion, error, http, ok

if TYPE_CHECKING:
    from promptkit import ExecutionEvent
    from servers.command_line import Command

pytestmark = pytest.mark.usefixtures("catalog")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def _content(stub: StubServer, index: int = -1) -> Any:
    return stub.requests[index].json["messages"][-1]["content"]


def test_the_answer_is_on_stdout_as_it_is_with_one_newline(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("  Because\x1b of \u2603\r\n\n"))
    ended = promptkit("run", "ask", "--var", "question=Why?")
    assert ended == (0, "  Because\x1b of \u2603\r\n\n\n", "")
    assert _content(stub) == "Why?"


def test_verbose_says_the_model_the_usage_and_the_time_on_stderr(stub: StubServer, promptkit: Command) -> None:
    stub.say(error(503), ok("x"))
    ended = promptkit("run", "ask", "--var", "question=Why?", "-v")
    assert (ended.status, ended.out) == (0, "x\n")
    assert ended.err.startswith("said-model · 11 input, 7 output tokens · ")
    assert ended.err.endswith(" s · 2 attempts (1 retry)\n")


def test_the_name_of_a_model_is_a_line_and_bounded(stub: StubServer, promptkit: Command) -> None:
    stub.say(http(200, json.dumps({**completion("x"), "model": "m\nerror: x" + "z" * 100_000}).encode()))
    ended = promptkit("run", "ask", "--var", "question=Why?", "-v")
    assert ended.err.startswith("m error: xzzz")
    assert (ended.err.count("\n"), len(ended.err) < 200) == (1, True)


def test_json_is_the_whole_result(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok('{"a": 3}'))
    ended = promptkit("run", "number", "--json")
    assert (ended.status, ended.err, ended.out.count("\n")) == (0, "", 1)
    assert ended.json["value"] == {"a": 3}
    assert ended.json["usage"]["input_tokens"] == {"value": 11, "known": True, "complete": True}


def test_an_invalid_answer_is_shown_with_its_violations_and_ends_with_three(
    stub: StubServer, promptkit: Command
) -> None:
    stub.say(ok('{"a": "three"}'))
    ended = promptkit("run", "number")
    assert (ended.status, ended.out) == (3, '{"a": "three"}\n')
    assert ended.err.startswith("error: the output is invalid under its contract:\n  /a: ")
    assert "three" not in ended.err
    told = promptkit("run", "number", "--json")
    assert (told.status, told.err, told.json["validation"]["status"]) == (3, "", "invalid")


def test_options_change_the_request(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok('{"a": 1}'))
    ended = promptkit(
        *("run", "ask", "--var", "question=Why?", "--profile", "cold", "--schema", "number"),
        *("--message", "And then?", "-m", "At last?", "--max-repairs", "1", "--session-id", "s", "--json"),
    )
    sent = stub.requests[0].json
    assert ended.status == 0
    assert (ended.json["profile"], ended.json["session_id"], sent["model"]) == ("cold", "s", "cold-model")
    assert [message["content"] for message in sent["messages"]] == ["You are terse.", "Why?", "And then?", "At last?"]
    assert ended.json["value"] == {"a": 1}


def test_variables_come_from_the_line_a_file_and_standard_input(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    Path("q.txt").write_bytes(b"\xef\xbb\xbfFrom a file\r\n")
    for typed, content in (
        ("question=@@me", "@me"),
        ("question=@q.txt", "From a file\r\n"),
        ("question=-", "caf\u00e9"),
    ):
        assert promptkit("run", "ask", "--var", typed, stdin="caf\u00e9".encode()).status == 0
        assert _content(stub) == content


def test_a_json_variable_is_a_value(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    Path("items.json").write_text('["a", "b"]', encoding="utf-8")
    for typed in ('items=["a","b"]', "items=@items.json", "items=-"):
        assert promptkit("run", "count", "--json-var", typed, stdin=b'["a", "b"]').status == 0
        assert _content(stub) == '2 things: ["a","b"]'


def test_an_input_is_read_from_the_current_folder_and_from_anywhere(
    stub: StubServer, promptkit: Command, tmp_path: Path
) -> None:
    stub.say(ok("x"))
    (tmp_path / "outside.txt").write_text("Dear you", encoding="utf-8")
    for path in ("../outside.txt", str(tmp_path / "outside.txt"), "-"):
        assert promptkit("run", "read", "--input", f"letter={path}", stdin=b"Dear you").status == 0
        assert _content(stub) == "Dear you"


def test_an_attachment_keeps_the_kind_and_name_of_its_file(
    stub: StubServer, promptkit: Command, tmp_path: Path
) -> None:
    stub.say(ok("x"))
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "notes.md").write_text("# Notes", encoding="utf-8")
    assert promptkit("run", "look", "-i", f"picture={tmp_path / 'a.png'}").status == 0
    assert _content(stub)[-1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert promptkit("run", "look", "-i", f"picture={tmp_path / 'notes.md'}").status == 0
    assert _content(stub)[-1]["file"]["filename"] == "notes.md"
    assert promptkit("run", "look", "-i", "picture=-", stdin=PNG).status == 0
    assert "image/png" in str(_content(stub))
    assert promptkit("run", "look", "-i", "picture=-", stdin=b"A text").status == 0
    assert "text/plain" in str(_content(stub))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_an_attachment_from_a_named_pipe_is_taken_by_its_content(
    stub: StubServer, promptkit: Command, tmp_path: Path
) -> None:
    stub.say(ok("x"))
    os.mkfifo(tmp_path / "63")
    writing = threading.Thread(target=(tmp_path / "63").write_bytes, args=(b"A text",))
    writing.start()
    assert promptkit("run", "look", "-i", f"picture={tmp_path / '63'}").status == 0
    writing.join()
    assert "text/plain" in str(_content(stub))


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["run"], 2, "Missing argument 'ID'"),
        (["run", "aks"], 2, "did you mean 'ask'?"),
        (["run", "ask"], 2, "not given: --var question=TEXT"),
        (["run", "read"], 2, "not given: --input letter=FILE"),
        (["run", "look"], 2, "not given: --input picture=FILE"),
        (["run", "bare"], 2, "profile"),
        (["run", "ask", "--var", "question"], 2, "type --var NAME=VALUE"),
        (["run", "ask", "--var", "questoin=x"], 2, "did you mean 'question'?"),
        (["run", "read", "--input", "lettre=nowhere"], 2, "did you mean 'letter'?"),
        (["run", "ask", "--var", "question=x", "--profile", "hot"], 2, "'warm'"),
        (["run", "ask", "--var", "question=x", "--schema", "numbr"], 2, "number"),
        (["run", "ask", "--var", "question=x", "--output", "xml"], 2, "--output text or --output json"),
        (["run", "ask", "--var", "question=x", "--timeout", "soon"], 2, "--timeout"),
        (["run", "ask", "--var", "question=x", "--timeout", "-1"], 2, "--timeout"),
        (["run", "ask", "--var", "question=x", "--timeout", "nan"], 2, "'nan' is no number of seconds"),
        (["run", "ask", "--var", "question=x", "--timeout", "inf"], 2, "leave it out for no limit"),
        (["run", "ask", "--var", "question=x", "--timeout", "1e400"], 2, "leave it out for no limit"),
        (["run", "ask", "--var", "question=x", "--trace", "-"], 2, "'-' is no file, and a trace goes to one"),
        (["run", "ask", "--var", "question=x", "--trace", ""], 2, "'' is no file, and a trace goes to one"),
        (["run", "ask", "--var", "question=\udcff\udcfe"], 2, "--var question: is not UTF-8 text"),
        (["run", "ask", "--var", "question=x", "--session-id", "\udcff"], 2, "--session-id: is not UTF-8 text"),
        (["run", "ask", "--var", "question=x", "-m", "\udcff"], 2, "--message: is not UTF-8 text"),
        (["run", "\udcff"], 2, "ID: is not UTF-8 text"),
        (["run", "ask", "--var", "question=x", "--max-repairs", "-1"], 2, "'-1' is no count: type a whole number"),
        (["run", "ask", "--json-var", "question={"], 2, "--json-var question is not JSON"),
        (["run", "ask", "--var", "question=@nowhere"], 1, "--var question: nowhere cannot be read: No such file"),
        (["run", "read", "--input", "letter=nowhere"], 1, "--input letter: nowhere cannot be read: No such file"),
        (["run", "read", "--input", "letter=."], 1, "cannot be read: Is a directory"),
        (["run", "read", "--input", "letter=\0"], 1, "cannot be read"),
        (["run", "ask", "--var", "question=x", "--trace", "."], 1, "--trace: . cannot be written: Is a directory"),
        (["run", "ask", "--var", "question=x", "--trace", "no/t"], 1, "--trace: no/t cannot be written: No such file"),
        (["run", "ask", "--var", "question=x", "-C", "nowhere"], 2, "no promptkit.toml in nowhere: make a starter"),
        (["run", "ask", "--qeustion"], 2, "--qeustion"),
        (["rnu"], 2, "Did you mean 'run'?"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_type_and_nothing_is_sent(
    stub: StubServer, promptkit: Command, argv: list[str], status: int, said: str
) -> None:
    ended = promptkit(*argv)
    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    told = promptkit(*argv[:1], "--json", *argv[1:])
    if argv[0] == "run":
        assert (told.status, told.out, told.err.count("\n")) == (status, "", 1)
        assert said in f"{told.error['message']} {told.error.get('hint', '')}"
    assert stub.requests == []


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["ask"], "the variable 'question' was not given: give it with --var or --json-var"),
        (["read"], "the input 'letter' was not given as text: give it with --input"),
        (["look"], "which was not given: give it with --input"),
        (["look", "-i", "picture=-"], "give it as a file whose name tells its kind"),
        (["look", "-i", "picture=odd"], "let it end with"),
        (["ask", "--json-var", f"question={'[' * 300}{']' * 300}"], "error: the variable question[0]"),
        (["bare"], "give --profile ID or set profile in the prompt"),
        (["sessions", "--var", "question="], "renders to nothing: give --session-id TEXT or the values"),
        (["keyed"], "needs a key: set the environment variable PROMPTKIT_TEST_KEY\n"),
    ],
)
def test_what_to_do_is_told_in_the_words_of_a_shell(
    promptkit: Command, argv: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPTKIT_TEST_KEY", raising=False)
    Path("odd").write_bytes(b"\xff\xfe\x00")
    with Path("promptkit.toml").open("a", encoding="utf-8") as file:
        file.write(
            '[backends.keyed]\nkind = "chat_completions"\nbase_url = "http://127.0.0.1:9/v1"\n'
            'credential_env = "PROMPTKIT_TEST_KEY"\n[profiles.keyed]\nbackend = "keyed"\nmodel = "m"\n'
        )
    ask = Path("prompts/ask.toml").read_text(encoding="utf-8")
    Path("prompts/sessions.toml").write_text('session = "{{ question }}"\n' + ask, encoding="utf-8")
    Path("prompts/keyed.toml").write_text(
        'profile = "keyed"\n[[messages]]\nrole = "user"\ncontent = "Hi"\n', encoding="utf-8"
    )
    ended = promptkit("run", *argv, stdin=b"\xff\xfe\x00")
    assert ended.status in {1, 2}
    assert said in ended.err
    for word in ("RunRequest", "Secret", "request's", "FilePart", "appended_messages"):
        assert word not in ended.err


def test_a_key_that_is_refused_is_told_in_the_words_of_a_shell(stub: StubServer, promptkit: Command) -> None:
    stub.say(error(401))
    ended = promptkit("run", "ask", "--var", "question=x")
    assert "check the key: the environment variable that credential_env names" in ended.err
    assert "RunRequest" not in ended.err


def test_a_trace_is_not_appended_to_what_is_none(stub: StubServer, promptkit: Command) -> None:
    before = Path("prompts/ask.toml").read_bytes()
    ended = promptkit("run", "ask", "--var", "question=x", "--trace", "prompts/ask.toml")
    assert (ended.status, ended.out, stub.requests) == (2, "", [])
    assert Path("prompts/ask.toml").read_bytes() == before
    assert ended.err == (
        "error: --trace: prompts/ask.toml is no trace, and was not touched: "
        "name a file that is not there yet, or a trace\n"
    )


def test_an_answer_that_is_empty_is_noted(stub: StubServer, promptkit: Command) -> None:
    stub.say(http(200, b'{"choices":[{"message":{"content":null}}]}'), ok("", finish_reason="stop"))
    for reason in ("not given", "stop"):
        ended = promptkit("run", "ask", "--var", "question=x")
        assert ended == (0, "\n", f"note: the answer is empty (finish_reason {reason})\n")


def test_a_backends_error_tells_what_was_spent(stub: StubServer, promptkit: Command) -> None:
    stub.say(error(500, "broken"))
    ended = promptkit("run", "ask", "--var", "question=x")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert ended.err.endswith("note: the run made 2 attempts, and used unknown input, unknown output tokens\n")
    told = promptkit("run", "ask", "--var", "question=x", "--json")
    assert (told.status, told.error["attempts"], told.error["status"]) == (1, 2, 500)
    assert told.error["usage"]["output_tokens"]["known"] is False
    assert told.error["run_id"]


def test_a_timeout_ends_the_run_and_tells_what_was_spent(stub: StubServer, promptkit: Command) -> None:
    held = Held(ok("x"))
    stub.say(held)
    ended = promptkit("run", "ask", "--var", "question=x", "--timeout", "2")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        "error: the run did not finish within the 2 s of --timeout: give it more\n"
        "note: the run made 1 attempt, and used unknown input, unknown output tokens\n"
    )
    told = promptkit("run", "ask", "--var", "question=x", "--timeout", "0", "--json")
    assert (told.status, told.error["type"], told.error["attempts"]) == (1, "TimedOutError", None)
    held.free.set()


@pytest.mark.skipif(os.name == "nt", reason="signals are others there")
@pytest.mark.parametrize("event", [AttemptFinished, RunFinished])
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_with_the_answer_in_hand_does_not_lose_it(stub: StubServer, event: type[ExecutionEvent]) -> None:
    stub.say(ok("paid"))
    answer = answer_to(load_catalog("."), Typed("ask", ["question=x"]), None, interrupting(event), Streams())
    assert (answer.result.raw_output, str(answer.interrupted)) == ("paid", "interrupted, after the answer had come")
    assert isinstance(answer.interrupted, CancelledError)
    assert (answer.interrupted.attempts, object_of(answer.interrupted, "x")["error"]["type"]) == (1, "Interrupted")


@pytest.mark.skipif(os.name == "nt", reason="signals are others there")
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_before_the_answer_cancels(stub: StubServer) -> None:
    held = Held(ok("x"))
    stub.say(held)
    with pytest.raises(CancelledError, match="cancelled"):
        answer_to(load_catalog("."), Typed("ask", ["question=x"]), None, interrupting(RunStarted), Streams())
    held.free.set()


def test_an_answer_that_was_cut_off_or_refused_is_noted(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("An ans", finish_reason="length"))
    ended = promptkit("run", "ask", "--var", "question=x")
    assert (ended.status, ended.out) == (0, "An ans\n")
    assert "max_output_tokens of the profile 'warm'" in ended.err
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    stub.say(http(200, json.dumps(completion(None, message=message)).encode()))
    ended = promptkit("run", "ask", "--var", "question=x")
    assert (ended.out, ended.err) == ("\n", "note: the model refused: I will not.\n")


def test_a_trace_is_appended_one_event_a_line_also_of_a_run_that_fails(stub: StubServer, promptkit: Command) -> None:
    stub.say(error(401), ok("x"))
    file = Path("trace.jsonl")
    file.write_bytes(b'{"kind":"run_sta')
    assert promptkit("run", "ask", "--var", "question=x", "--trace", str(file)).status == 1
    assert promptkit("run", "ask", "--var", "question=x", "--trace", str(file)).status == 0
    first, *lines = file.read_text(encoding="utf-8").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (first, kinds) == ('{"kind":"run_sta', ["run_started", "attempt_finished", "run_finished"] * 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_trace_that_cannot_be_written_costs_no_answer(stub: StubServer, promptkit: Command) -> None:
    stub.say(ok("x"))
    ended = promptkit("run", "ask", "--var", "question=x", "--trace", "/dev/full")
    assert (ended.status, ended.out) == (1, "x\n")
    assert ended.err == "error: --trace: /dev/full does not have all events: No space left on device\n"
    told = promptkit("run", "ask", "--var", "question=x", "--trace", "/dev/full", "--json")
    assert (told.status, told.json["raw_output"]) == (1, "x")
    assert told.error["message"] == "--trace: /dev/full does not have all events: No space left on device"


def test_the_catalog_is_found_upward_by_option_and_by_the_environment(
    catalog: Path, stub: StubServer, promptkit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.say(ok("x"))
    ask = ("run", "ask", "--var", "question=x")
    monkeypatch.chdir(catalog / "prompts")
    assert promptkit(*ask).status == 0
    monkeypatch.chdir(tmp_path)
    ended = promptkit(*ask)
    assert ended.status == 2
    assert f"no promptkit.toml in {tmp_path} or above: make a starter with `promptkit init DIR`" in ended.err
    assert promptkit(*ask, "-C", "catalog").status == 0
    assert promptkit(*ask, "--catalog", "catalog/promptkit.toml").status == 0
    monkeypatch.setenv("PROMPTKIT_CATALOG", "catalog")
    assert promptkit(*ask).status == 0


def test_faults_of_the_catalog_are_told_before_anything_is_sent(stub: StubServer, promptkit: Command) -> None:
    Path("prompts/ask.toml").write_text('profil = "warm"', encoding="utf-8")
    ended = promptkit("run", "ask")
    assert (ended.status, ended.out, stub.requests) == (1, "", [])
    assert "Did you mean 'profile'?" in ended.err
    told = promptkit("run", "ask", "--json")
    assert {fault["file"] for fault in told.error["faults"]} == {"prompts/ask.toml"}
