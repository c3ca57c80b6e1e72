"""``init``, ``check``, ``show``, ``render`` and ``report`` from outside, in this process."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from promptkit import load_catalog
from servers.command_line import environment
from servers.stub import ok

if TYPE_CHECKING:
    from servers.command_line import Command
    from servers.stub import StubServer

COMMANDS = ("init", "check", "show", "render", "run", "report", "demo")


def _everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_starter_passes_check_and_its_program_and_commands_run(
    tmp_path: Path, promptkit: Command, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = promptkit("init", "mine")
    assert made.status == 0
    assert made.out.splitlines() == [str(Path("mine") / name) for name in sorted(_everything(tmp_path / "mine"))]
    assert "  cd mine\n  promptkit check\n" in made.err
    checked = promptkit("check", "mine")
    assert (checked.status, checked.out) == (0, "mine: 3 prompts, 1 profile, 1 backend, 1 schema, no faults\n")
    settings = tmp_path / "mine" / "promptkit.toml"
    server = f'kind = "chat_completions"\nbase_url = "{stub.base_url}"\n'
    settings.write_text(settings.read_text(encoding="utf-8").replace('kind = "embedded"', server + "#", 1), "utf-8")
    answer = '{"sentence": "The oven broke.", "euros": 420}'
    stub.say(ok(answer))
    monkeypatch.chdir(tmp_path / "mine")
    commands = [line.split("promptkit ")[1] for line in made.err.splitlines() if "promptkit run" in line]
    assert len(commands) == 2
    for command in commands:
        assert promptkit(*shlex.split(command)).out == answer + "\n"
    program = subprocess.run(
        [sys.executable, "first.py"], capture_output=True, text=True, env=environment(), encoding="utf-8", check=False
    )
    assert (program.stderr, program.returncode) == ("", 0)
    assert "finding: valid {'sentence': 'The oven broke.', 'euros': 420}\n4 runs: " in program.stdout


def test_the_servers_that_the_starter_suggests_are_right_as_they_stand(tmp_path: Path, promptkit: Command) -> None:
    promptkit("init", str(tmp_path))
    settings = tmp_path / "promptkit.toml"
    lines = settings.read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line == "# [backends.server]")
    suggested = [line.removeprefix("# ") for line in lines[start:] if line.startswith("# [") or " = " in line]
    suggested = [line for line in suggested if line.startswith("[") or line.split(" = ")[0].isidentifier()]
    settings.write_text("\n".join([*lines[:start], *suggested]), encoding="utf-8")
    kinds = {backend.kind for backend in load_catalog(tmp_path).backends.values()}
    assert kinds == {"embedded", "chat_completions", "anthropic_messages"}


@pytest.mark.parametrize("taken", ["promptkit.toml", "inputs/letter.txt"])
def test_init_overwrites_nothing_and_lists_what_is_in_the_way(tmp_path: Path, promptkit: Command, taken: str) -> None:
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("mine", encoding="utf-8")
    ended = promptkit("init", str(tmp_path))
    assert (ended.status, ended.out) == (1, "")
    assert f"nothing was written:\n  {tmp_path / taken}\n" in ended.err
    assert _everything(tmp_path) == {taken: b"mine"}


def test_init_writes_nothing_where_a_file_is_in_the_place_of_a_folder(tmp_path: Path, promptkit: Command) -> None:
    (tmp_path / "prompts").write_text("mine", encoding="utf-8")
    ended = promptkit("init", str(tmp_path))
    assert (ended.status, _everything(tmp_path)) == (1, {"prompts": b"mine"})
    ended = promptkit("init", str(tmp_path / "prompts"))
    assert (ended.status, _everything(tmp_path)) == (1, {"prompts": b"mine"})
    assert str(tmp_path / "prompts") in ended.err


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_init_does_not_write_through_a_broken_link(tmp_path: Path, promptkit: Command) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "first.py").symlink_to(tmp_path / "elsewhere.py")
    assert promptkit("init", str(tmp_path / "a")).status == 1
    assert not (tmp_path / "elsewhere.py").exists()


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_init_does_not_write_through_a_folder_that_is_a_link(tmp_path: Path, promptkit: Command) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "prompts").symlink_to(tmp_path / "elsewhere")
    ended = promptkit("init", str(tmp_path / "a"))
    assert ended.status == 1
    assert f"nothing was written:\n  {tmp_path / 'a' / 'prompts'}\n" in ended.err
    assert _everything(tmp_path / "elsewhere") == {}
    (tmp_path / "whole").symlink_to(tmp_path / "elsewhere")
    assert promptkit("init", str(tmp_path / "whole")).status == 0


@pytest.mark.skipif(os.name == "nt", reason="paths are bounded otherwise there")
def test_init_that_fails_in_the_middle_leaves_nothing(tmp_path: Path, promptkit: Command) -> None:
    most = os.pathconf("/", "PC_PATH_MAX") - 1
    left = most - len("/promptkit.toml") - len(str(tmp_path))  # so that longer names do not fit
    deep = str(tmp_path) + ("/" + "d" * 99) * (left // 100 - 1)
    deep += "/" + "e" * (most - len("/promptkit.toml") - len(deep) - 1)
    ended = promptkit("init", deep)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.endswith("/inputs/letter.txt cannot be written, and nothing was kept: File name too long\n")
    assert list(tmp_path.iterdir()) == []


def test_init_as_json_lists_the_files(tmp_path: Path, promptkit: Command) -> None:
    made = promptkit("init", str(tmp_path / "mine"), "--json")
    assert set(made.json["files"]) == {Path(name).as_posix() for name in _everything(tmp_path / "mine")}


def test_check_lists_every_fault_where_editors_find_it(
    catalog: Path, tmp_path: Path, promptkit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (catalog / "prompts" / "ask.toml").write_text('profil = "warm"', encoding="utf-8")
    (catalog / "schemas" / "number.json").write_text("{", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ended = promptkit("check", "catalog")
    places = {line.split(":")[0] for line in ended.out.splitlines()}
    assert (ended.status, places) == (1, {"catalog/prompts/ask.toml", "catalog/schemas/number.json"})
    assert ended.err.endswith("faults in catalog\n")
    told = promptkit("check", "catalog", "--json")
    assert (told.status, told.err, len(told.json["faults"])) == (1, "", len(ended.out.splitlines()))
    monkeypatch.chdir(catalog / "prompts")
    assert promptkit("check").out.startswith("../prompts/ask.toml")


@pytest.mark.usefixtures("catalog")
def test_check_as_json_counts_what_there_is(promptkit: Command) -> None:
    ended = promptkit("check", "--json")
    assert (ended.status, ended.json["faults"], ended.json["prompts"]) == (0, [], 6)


@pytest.mark.usefixtures("catalog")
def test_show_lists_what_there_is(promptkit: Command) -> None:
    ended = promptkit("show")
    assert ended.status == 0
    assert ended.out.splitlines()[:3] == [
        "prompts",
        "id      profile  output       description",
        "ask     warm     text         Asks.",
    ]
    assert [line for line in ended.out.splitlines() if line in {"prompts", "profiles", "backends", "schemas"}]
    assert [each["id"] for each in promptkit("show", "prompts", "--json").json] == [
        "ask", "bare", "count", "look", "number", "read",
    ]  # fmt: skip
    assert promptkit("show", "--json").json["schemas"] == [{"id": "number"}]


@pytest.mark.usefixtures("catalog")
def test_show_tells_all_about_one_thing(promptkit: Command) -> None:
    prompt = promptkit("show", "prompt", "number")
    assert "\n--- user\nA number.\n" in prompt.out
    assert '"required": [' in prompt.out
    assert promptkit("show", "prompt", "number", "--json").json["output"]["schema"]["required"] == ["a"]
    profile = promptkit("show", "profile", "warm").out
    assert any(line.split() == ["temperature", "0.7", "profile"] for line in profile.splitlines())
    assert promptkit("show", "profile", "warm", "--json").json["settings"]["temperature"]["origin"] == "profile"
    assert "max_concurrency" in promptkit("show", "backend", "server").out
    assert promptkit("show", "backend", "server", "--json").json["max_concurrency"] == 8
    assert json.loads(promptkit("show", "schema", "number").out)["required"] == ["a"]
    assert promptkit("show", "schema", "number", "--json").json["required"] == ["a"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["show", "prompt", "aks"], "did you mean 'ask'?"),
        (["show", "profile", "warn"], "did you mean 'warm'?"),
        (["show", "backend", "x"], "'server'"),
        (["show", "model", "x"], "type show prompt ID, show profile ID, show backend ID, show schema ID"),
        (["show", "promts"], "did you mean 'prompts'?"),
        (["show", "schema", "numbr"], "there is no schema 'numbr': did you mean 'number'? the schemas are: 'number'"),
    ],
)
@pytest.mark.usefixtures("catalog")
def test_show_of_what_is_not_there_says_what_is(promptkit: Command, argv: list[str], said: str) -> None:
    ended = promptkit(*argv)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err


@pytest.mark.usefixtures("catalog")
def test_render_shows_the_exact_messages_and_hashes_and_sends_nothing(promptkit: Command, stub: StubServer) -> None:
    question = "Why?  " + "x" * 300 + "\n\n  [bold]not markup[/bold]"
    ended = promptkit("render", "ask", "--var", f"question={question}", "--message", "And?")
    prepared = promptkit("render", "ask", "--var", f"question={question}", "--message", "And?", "--json").json
    assert ended.out.startswith(f"--- system\nYou are terse.\n\n--- user\n{question}\n\n--- user\nAnd?\n\n")
    assert prepared["definition_hash"] in ended.out
    assert prepared["rendered_hash"] in ended.out
    assert (ended.status, ended.err, stub.requests) == (0, "", [])


@pytest.mark.usefixtures("catalog")
def test_render_shows_where_settings_come_from_when_asked(promptkit: Command, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")
    ended = promptkit("render", "look", "-i", f"picture={tmp_path / 'a.pdf'}", "-p", "cold", "-v")
    assert "[file 'a.pdf', application/pdf, 8 bytes]" in ended.out
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["model", "cold-model", "profile"] in lines
    assert ["profile", "cold", "request"] in lines
    assert ["max_retries"] not in lines


@pytest.mark.usefixtures("catalog")
def test_render_of_a_wrong_request_says_what_to_type(promptkit: Command) -> None:
    ended = promptkit("render", "ask")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.endswith("\nnot given: --var question=TEXT\n")


@pytest.mark.usefixtures("catalog")
def test_report_makes_a_page_or_the_same_as_values(promptkit: Command, stub: StubServer) -> None:
    stub.say(ok("x"))
    promptkit("run", "ask", "--var", "question=x", "--trace", "t.jsonl")
    page = promptkit("report", "t.jsonl")
    assert (page.status, page.err) == (0, "")
    assert page.out.startswith("<!doctype html>")
    assert promptkit("report", "-", stdin=Path("t.jsonl").read_bytes()).out.startswith("<!doctype html>")
    assert promptkit("report", "t.jsonl", "-o", "r.html").err == "r.html: 1 run\n"
    assert Path("r.html").read_text(encoding="utf-8") == page.out
    assert promptkit("report", "t.jsonl", "--json").json["totals"]["runs"] == 1


def test_report_tells_what_it_cannot_read(promptkit: Command, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text("no\n" * 9, encoding="utf-8")
    ended = promptkit("report", str(trace))
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.err.startswith(f"error: this is no trace: {trace}:1: is not JSON")
    assert ended.err.endswith(" (8 other lines are no events either)\n")
    told = promptkit("report", str(trace), "--json").error
    assert ([fault["line"] for fault in told["faults"]], told["fault_count"]) == ([1], 9)
    assert "\n" not in told["message"]
    trace.rename(tmp_path / "t\nerror: x")
    assert "/t\\nerror: x:1: " in promptkit("report", str(tmp_path / "t\nerror: x")).err
    trace.write_bytes(b"")
    assert promptkit("report", str(trace)).err.startswith(f"error: {trace}: has no events")
    ended = promptkit("report", str(tmp_path / "nowhere"))
    assert (ended.status, ended.err.endswith("nowhere cannot be read: No such file or directory\n")) == (1, True)
    made = promptkit("report", str(trace), "-o", str(tmp_path / "no" / "r.html"))
    assert made.status == 1


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.usefixtures("catalog")
def test_report_never_writes_over_the_trace_it_reads(promptkit: Command, stub: StubServer) -> None:
    stub.say(ok("x"))
    promptkit("run", "ask", "--var", "question=x", "--trace", "t.jsonl")
    before = Path("t.jsonl").read_bytes()
    Path("soft").symlink_to("t.jsonl")
    os.link("t.jsonl", "hard")
    for output in ("t.jsonl", "./t.jsonl", "soft", "hard"):
        ended = promptkit("report", "t.jsonl", "-o", output)
        assert (ended.status, Path("t.jsonl").read_bytes()) == (2, before)
        assert ended.err == f"error: --output: {output} is the trace itself, and was not touched: name another file\n"
    with Path("t.jsonl").open("rb") as trace:
        piped = subprocess.run(
            [sys.executable, "-m", "promptkit", "report", "-", "-o", "t.jsonl"],
            stdin=trace, capture_output=True, env=environment(), timeout=15, check=False,
        )  # fmt: skip
    assert (piped.returncode, Path("t.jsonl").read_bytes()) == (2, before)


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
@pytest.mark.usefixtures("catalog")
def test_a_page_is_written_beside_and_then_gets_its_name(promptkit: Command, stub: StubServer) -> None:
    stub.say(ok("x"))
    promptkit("run", "ask", "--var", "question=x", "--trace", "t.jsonl")
    Path("kept.html").write_text("old", encoding="utf-8")
    Path("kept.html").chmod(0o640)
    Path("link.html").symlink_to("kept.html")
    inode = Path("kept.html").stat().st_ino
    assert promptkit("report", "t.jsonl", "-o", "link.html").status == 0
    assert Path("link.html").is_symlink()
    assert Path("kept.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (Path("kept.html").stat().st_mode & 0o777, Path("kept.html").stat().st_ino != inode) == (0o640, True)
    assert not list(Path().glob(".*html*"))
    assert promptkit("report", "t.jsonl", "-o", "-").out.startswith("<!doctype html>")
    assert not Path("-").exists()
    assert promptkit("report", "t.jsonl", "-o", "").status == 2
    told = promptkit("report", "t.jsonl", "--json", "-o", "kept.html")
    assert json.loads(told.err) == {"note": "kept.html: 1 run"}


def test_a_folder_that_cannot_be_made_is_told(promptkit: Command) -> None:
    ended = promptkit("init", os.path.join(os.devnull, "x"))  # noqa: PTH118
    assert ended.status == 1
    assert ended.err.startswith("error: ")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no such folder here")
def test_a_folder_that_the_system_refuses_is_told(promptkit: Command) -> None:
    ended = promptkit("init", "/proc/x")
    assert (ended.status, ended.err) == (
        1, "error: the folder /proc/x cannot be made: No such file or directory; name another one\n",
    )  # fmt: skip


@pytest.mark.usefixtures("catalog")
def test_options_of_every_command_can_stand_before_its_name(
    promptkit: Command, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(catalog.parent)
    assert promptkit("-C", "catalog", "--no-color", "check").status == 0
    assert promptkit("--json", "--catalog=catalog", "check").json["prompts"] == 6
    assert promptkit("--no-color", "--version").status == 0
    ended = promptkit("--trace", "t", "run", "ask")
    assert ended.err.endswith("an option of a command stands after its name, as in `promptkit run ID --trace FILE`\n")
    assert promptkit("-C", "catalog", "demo").status == 2


@pytest.mark.usefixtures("catalog")
def test_check_takes_one_folder(promptkit: Command, catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = promptkit("check", "-C", ".", "../empty")
    assert (ended.status, ended.err) == (2, "error: two folders are named, ../empty and .: leave one out\n")
    monkeypatch.setenv("PROMPTKIT_CATALOG", "nowhere")
    assert promptkit("check", str(catalog)).status == 0


@pytest.mark.usefixtures("catalog")
def test_faults_are_found_from_here_whatever_command_finds_them(
    promptkit: Command, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (catalog / "prompts" / "ask.toml").write_text('profil = "warm"', encoding="utf-8")
    monkeypatch.chdir(catalog.parent)
    ended = promptkit("run", "ask", "-C", "catalog")
    assert ended.status == 1
    assert "catalog/prompts/ask.toml:1: profil: " in ended.err


@pytest.mark.usefixtures("catalog")
def test_an_empty_catalog_says_that_it_has_none(promptkit: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "promptkit.toml").write_bytes(b"")
    ended = promptkit("run", "x", "-C", str(tmp_path / "empty"))
    assert ended.err == "error: there is no prompt 'x': the catalog has none\n"
    assert promptkit("render", "number", "--var", "a=b").err == (
        "error: prompt 'number' declares no variable 'a': it declares none\n"
    )


@pytest.mark.parametrize(
    ("name", "usage"), [("check", "[OPTIONS] [DIR]"), ("show", "[OPTIONS] [KIND] [ID]"), ("run", "[OPTIONS] ID")]
)
def test_usage_lines_are_plain(promptkit: Command, name: str, usage: str) -> None:
    assert promptkit(name, "--help").out.startswith(f"Usage: promptkit {name} {usage}\n")


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_completion_is_for_this_shell_and_takes_no_name(
    promptkit: Command, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home in ("HOME", "USERPROFILE"):  # where it would be installed
        monkeypatch.setenv(home, str(tmp_path))
    ended = promptkit(option, "nosuch")
    assert (ended.status, ended.out, list(tmp_path.iterdir())) == (2, "", [])
    assert ended.err.startswith(f"error: {option} takes nothing after it")


@pytest.mark.usefixtures("catalog")
def test_report_of_a_trace_with_very_many_faults_says_how_many(promptkit: Command, stub: StubServer) -> None:
    stub.say(ok("x"))
    promptkit("run", "ask", "--var", "question=x", "--trace", "t.jsonl")
    with Path("t.jsonl").open("ab") as trace:
        trace.write(b"no\n" * 1_500)
    ended = promptkit("report", "t.jsonl", "-o", "r.html")
    assert "note: 1,495 more lines cannot be read: the report lists the first 1,000\n" in ended.err
    told = promptkit("report", "t.jsonl", "--json")
    assert (len(told.json["faults"]), told.json["fault_count"]) == (1_000, 1_500)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does_first_and_ends_with_examples(promptkit: Command, name: str) -> None:
    ended = promptkit(name, "-h")
    usage, _, first, *rest = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert usage.startswith(f"Usage: promptkit {name}")
    assert first.strip()[0].isupper()
    examples = rest[rest.index("  Examples:") + 1 :]
    assert examples
    assert all(line.startswith("    promptkit ") for line in examples)
    assert promptkit(name, "--help") == ended


def test_the_version_is_that_of_the_distribution(promptkit: Command) -> None:
    assert promptkit("--version") == (0, f"promptkit {version('promptkit-engine')}\n", "")


def test_no_command_at_all_is_wrong_use_and_shows_the_help(promptkit: Command) -> None:
    ended = promptkit()
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("Usage: promptkit")
    assert "Commands:" in ended.err
    told = promptkit("--json")
    assert (told.status, json.loads(told.err)["error"]["type"]) == (2, "WrongUseError")
    for argv in (("-C",), ("-C", "nowhere"), ("--no-color",)):
        assert promptkit(*argv) == (2, "", "error: no command is named: `promptkit --help` lists them\n")
