"""The command as a process: pipes, locales, interruptions, and what is not installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from servers.command_line import environment
from servers.stub import Held, ok

if TYPE_CHECKING:
    from pathlib import Path

    from servers.stub import StubServer

COMMAND = (sys.executable, "-m", "promptkit")
# These tests can have been started with SIGINT ignored, as a shell does for what it runs in the background.
HEARS_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "promptkit", *sys.argv[1:]])
"""
ASK = ("run", "ask", "--var", "question=Why?")
posix = pytest.mark.skipif(os.name == "nt", reason="signals and pipes are others there")


def _run(*argv: str, **changes: str) -> Any:
    return _child(*COMMAND, *argv, **changes)


def _child(*command: str, **changes: str) -> Any:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(**changes), timeout=15, check=False
    )


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C.UTF-8"}]
)
def test_results_in_a_pipe_are_utf_8_in_every_locale(stub: StubServer, locale: dict[str, str]) -> None:
    stub.say(ok("caf\u00e9 \u2603"))
    answered = _run(*ASK, "-v", **locale)
    assert (answered.returncode, answered.stdout) == (0, "caf\u00e9 \u2603\n".encode())
    assert "said-model \u00b7 11 input" in answered.stderr.decode()
    encoded = _run(*ASK, "--json", **locale)
    assert json.loads(encoded.stdout)["raw_output"] == "caf\u00e9 \u2603"


@posix
@pytest.mark.usefixtures("catalog")
def test_an_argument_arrives_as_it_was_typed_also_in_the_c_locale(stub: StubServer) -> None:
    stub.say(ok("x"))
    argv = ("run", "ask", "--var", "question=caf\u00e9 \u2603", "-m", "\u2603")
    assert _run(*argv, LC_ALL="C", PYTHONUTF8="0").returncode == 0
    assert [message["content"] for message in stub.requests[0].json["messages"]][1:] == ["caf\u00e9 \u2603", "\u2603"]


@posix
def test_ids_and_names_are_found_also_in_the_c_locale(catalog: Path) -> None:
    text = (catalog / "prompts" / "ask.toml").read_text(encoding="utf-8").replace("question", "\u00fcber")
    (catalog / "prompts" / "caf\u00e9.toml").write_text(text, encoding="utf-8")
    argv = ("render", "caf\u00e9", "--var", "\u00fcber=x", "--json")
    ended = _run(*argv, LC_ALL="C", PYTHONUTF8="0")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout)["messages"][-1]["content"] == "x"
    assert _run("show", "prompt", "caf\u00e9", LC_ALL="C", PYTHONUTF8="0").returncode == 0


@posix
@pytest.mark.parametrize(
    ("name", "shown", "locale"),
    [
        (b"bad\xff", "bad\\udcff", {}),
        ("b\u00fcro".encode(), "b\u00fcro", {}),
        ("b\u00fcro".encode(), "b\u00fcro", {"LC_ALL": "C", "PYTHONUTF8": "0"}),
    ],
)
def test_json_names_a_folder_whatever_its_bytes_are(
    catalog: Path, tmp_path: Path, name: bytes, shown: str, locale: dict[str, str]
) -> None:
    folder = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118  # of bytes
    os.rename(catalog, folder)  # noqa: PTH104
    command = [*map(os.fsencode, COMMAND), b"check", folder, b"--json"]
    ended = subprocess.run(command, capture_output=True, env=environment(**locale), timeout=15, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout)["catalog"] == str(tmp_path / shown)


@posix
@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    "argv",
    [
        ("run", "read", "--input", "letter=a\nerror: b"),
        ("run", "ask", "--var", "question=@a\nerror: b"),
        (*ASK, "--trace", "a\nerror: b/t.jsonl"),
        ("report", "a\nerror: b"),
        ("check", "a\nerror: b"),
        ("check", "a\nerror: b", "-C", "."),
        ("show", "-C", "a\nerror: b"),
        ("init", "promptkit.toml/a\nerror: b"),
    ],
)
def test_a_name_of_a_file_makes_no_line_of_its_own(argv: tuple[str, ...]) -> None:
    ended = _run(*argv)
    assert ended.returncode in {1, 2}
    assert [line for line in ended.stderr.splitlines()[1:] if b"error:" in line] == []
    assert b"a\\nerror: b" in ended.stderr


@posix
def test_a_name_of_a_file_is_shown_as_it_is_in_the_c_locale(tmp_path: Path) -> None:
    ended = _run("report", str(tmp_path / "b\u00fcro.jsonl"), LC_ALL="C", PYTHONUTF8="0")
    assert f"{tmp_path}/b\u00fcro.jsonl cannot be read: " in ended.stderr.decode()


@pytest.mark.usefixtures("catalog")
def test_an_error_with_what_the_locale_lacks_is_still_told() -> None:
    ended = _run("run", "\u2603", LC_ALL="C", PYTHONUTF8="0")
    assert ended.returncode == 2
    assert "there is no prompt '\u2603'" in ended.stderr.decode()


@pytest.mark.usefixtures("catalog")
def test_nothing_is_drawn_or_coloured_where_there_is_no_terminal(stub: StubServer) -> None:
    stub.say(ok("x"))
    for argv in ((*ASK, "-v"), ("show",), ("run", "nothing"), ("render", *ASK[1:], "-v")):
        ended = _run(*argv, TERM="xterm-256color", FORCE_COLOR="1")
        assert b"\x1b" not in ended.stdout + ended.stderr


@posix
@pytest.mark.usefixtures("catalog")
def test_a_pipe_that_nobody_reads_ends_quietly(stub: StubServer) -> None:
    stub.say(ok("x" * 300_000))
    for argv in (ASK, ("show",), ("render", "ask", "--var", "question=Why?")):
        read, write = os.pipe()
        os.close(read)
        ended = subprocess.run(
            [*COMMAND, *argv], stdout=write, stderr=subprocess.PIPE, env=environment(), timeout=15, check=False
        )
        os.close(write)
        assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk here")  # noqa: PTH110
@pytest.mark.usefixtures("catalog")
def test_a_result_that_cannot_be_written_is_an_error(stub: StubServer) -> None:
    stub.say(ok("x"))
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        ended = subprocess.run(
            [*COMMAND, *ASK], stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=15, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr == b"error: the result cannot be written to standard output: No space left on device\n"


LIMITED = """
import resource, os, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@posix
@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("unbuffered", [(), ("-u",)])
@pytest.mark.parametrize("command", ["run", "render", "report"])
def test_a_result_that_is_cut_off_by_the_system_is_an_error(
    stub: StubServer, tmp_path: Path, unbuffered: tuple[str, ...], command: str
) -> None:
    stub.say(ok("x" * 300_000))
    assert _run(*ASK, "--trace", "t.jsonl").returncode == 0
    argv = {"run": ASK, "render": ("render", "ask", "--var", "question=@long"), "report": ("report", "t.jsonl")}
    (tmp_path / "catalog" / "long").write_text("y" * 300_000, encoding="utf-8")
    with (tmp_path / "out").open("wb") as out:
        ended = subprocess.run(
            [sys.executable, "-c", LIMITED, *unbuffered, "-m", "promptkit", *argv[command]],
            stdout=out, stderr=subprocess.PIPE, env=environment(), timeout=15, check=False,
        )  # fmt: skip
    assert (ended.returncode, (tmp_path / "out").stat().st_size) == (1, 8192)
    assert ended.stderr == b"error: the result cannot be written to standard output: File too large\n"


@posix
@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("unbuffered", [(), ("-u",)])
def test_who_stops_reading_in_the_middle_ends_it_quietly(stub: StubServer, unbuffered: tuple[str, ...]) -> None:
    stub.say(ok("x\n" * 300_000))
    with subprocess.Popen(
        [sys.executable, *unbuffered, "-m", "promptkit", *ASK],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        told = process.stderr.read()
        assert (process.wait(10), told) == (141, b"")


@posix
def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_all_of_it(catalog: Path) -> None:
    (catalog / "long").write_text("y" * 300_000, encoding="utf-8")
    read, write = os.pipe()
    os.set_blocking(write, False)
    with subprocess.Popen(
        [*COMMAND, "render", "ask", "--var", "question=@long"], stdout=write, stderr=subprocess.PIPE, env=environment()
    ) as process:
        os.close(write)
        with open(read, "rb") as out:  # noqa: PTH123
            text = out.read()
        assert process.wait(10) == 0
    assert b"y" * 300_000 in text


@posix
@pytest.mark.parametrize("argv", [("--help",), ("run", "--help"), ("--version",)])
def test_help_that_nobody_reads_ends_quietly_and_on_a_full_disk_is_told(argv: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [*COMMAND, *argv], stdout=write, stderr=subprocess.PIPE, env=environment(), timeout=15, check=False
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")
    if os.path.exists("/dev/full"):  # noqa: PTH110
        with open("/dev/full", "wb") as full:  # noqa: PTH123
            ended = subprocess.run(
                [*COMMAND, *argv], stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=15, check=False
            )
        assert ended.returncode == 1
        assert ended.stderr == b"error: the result cannot be written to standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("extra", "told"),
    [([], "cancelled\n"), (["--json"], '{"error":{"type":"Interrupted","message":"cancelled"}}\n')],
)
def test_ctrl_c_while_modules_are_loaded_is_told_as_at_any_other_moment(extra: list[str], told: str) -> None:
    program = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'promptkit._cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "from promptkit._cli import main\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        f"sys.exit(main({['check', *extra]!r}))"
    )
    ended = _child(sys.executable, "-c", program)
    assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (130, b"", told)


@posix
@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_ctrl_c_cancels_the_run_and_leaves_at_once(stub: StubServer, tmp_path: Path, extra: tuple[str, ...]) -> None:
    held = Held(ok("x"))
    stub.say(held)
    trace = tmp_path / "trace"
    command = [sys.executable, "-c", HEARS_CTRL_C, *ASK, *extra, "--trace", str(trace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert held.asked.wait(10)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    held.free.set()
    assert (process.returncode, out) == (130, b"")
    if extra:
        assert json.loads(err)["error"]["attempts"] == 1
    else:
        spent = b"note: the run made 1 attempt, and used unknown input, unknown output tokens\n"
        assert err == b"cancelled\n" + spent
    last = json.loads(trace.read_text(encoding="utf-8").splitlines()[-1])
    assert (last["kind"], last["outcome"]) == ("run_finished", "cancelled")
    assert stub.disconnected.wait(10)


@posix
@pytest.mark.usefixtures("catalog")
def test_standard_streams_that_are_closed_do_not_matter_or_are_told(stub: StubServer) -> None:
    stub.say(ok("x"))

    def shell(redirections: str) -> Any:
        line = f'exec "$0" -m promptkit run ask --var {redirections}'
        return subprocess.run(
            ["/bin/sh", "-c", line, sys.executable], capture_output=True, env=environment(), timeout=15, check=False
        )

    assert shell("question=Why? 2>&-").stdout == b"x\n"
    ended = shell("question=- <&-")
    assert (ended.returncode, ended.stderr) == (1, b"error: --var question: there is no standard input\n")
    ended = shell("question=Why? >&-")
    assert (ended.returncode, ended.stderr) == (1, b"error: there is no standard output to write to\n")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_sentence_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from promptkit._cli import main; sys.exit(main(['run']))"
    ended = _child(sys.executable, "-c", program)
    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (2, b"", 1)
    assert b"pip install 'promptkit-engine[cli]'" in ended.stderr


def test_without_the_embedded_extra_the_demo_says_what_to_install() -> None:
    program = "import sys; sys.modules['xllamacpp'] = None; from promptkit._cli import main; sys.exit(main(['demo']))"
    ended = _child(sys.executable, "-c", program)
    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (1, b"", 1)
    assert b"pip install 'promptkit-engine[embedded]'" in ended.stderr


def test_help_loads_nothing_that_only_a_run_needs() -> None:
    slow = ["httpx", "jinja2", "jsonschema_rs", "rich.console", "xllamacpp", "promptkit._cli.run"]
    program = (
        "import sys; from promptkit._cli import main; status = main(['--help'])\n"
        f"sys.stderr.write(str((status, [name for name in {slow!r} if name in sys.modules])))"
    )
    assert _child(sys.executable, "-c", program).stderr == b"(0, [])"


@pytest.mark.timeout(120)
def test_the_demo_holds_a_conversation_with_the_real_model() -> None:
    ended = subprocess.run(
        [*COMMAND, "demo", "--json"], capture_output=True, env=environment(), timeout=100, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    told = json.loads(ended.stdout)
    first, one, other, finding = told["results"]
    assert one["parent_run_id"] == other["parent_run_id"] == first["run_id"]
    assert finding["parent_run_id"] == other["run_id"]
    assert told["usage"]["input_tokens"]["known"] is True
