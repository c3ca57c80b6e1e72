"""The guides and the reference, page by page: every file in them is read, every program runs and prints what is shown.

A page is worked through from top to bottom in a folder of its own. A fence with a file name after its language
(```toml prompts/ask.toml) is that file. A ``python`` fence runs there, in the names that those before it left. A
``text`` fence right after it is what it prints. A ``console`` fence has commands after ``$ ``, each with what it writes
to both streams; ``...`` there stands for anything on its line. Where a page has commands, the server that its catalogs
name at port 8080 is one that knows the letter of the starter.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from promptkit._values.schemas import compile_schema
from servers.command_line import environment
from servers.stub import ok

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from servers.stub import Received, StubServer

ROOT = Path(__file__).parents[2]
UNTOLD = {"acceptance.md", "performance.md"}  # a table of tests, and figures of a benchmark
PARTS = (".", "guides", "concepts", "coming-from", "reference")
PAGES = sorted(page for part in PARTS for page in (ROOT / "docs" / part).glob("*.md") if page.name not in UNTOLD)
LANGUAGES = {"python", "toml", "json", "text", "sh", "console", "yaml"}
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
UPDATE = "PROMPTKIT_UPDATE_DOCS" in os.environ  # write what programs print into the pages instead of comparing it


class Fence(NamedTuple):
    language: str
    file: str | None
    body: str
    start: int  # of the body, in the page
    follows: bool  # nothing stands between it and the fence before


def fences(page: str) -> Iterator[Fence]:
    end = 0
    for found in FENCE.finditer(page):
        if found["info"].startswith("{"):  # of the site: what stands there is no program
            continue
        language, *files = found["info"].split()
        assert language in LANGUAGES, found["info"]
        assert len(files) <= 1, found["info"]
        yield Fence(
            language,
            files[0] if files else None,
            found["body"],
            found.start("body"),
            not page[end : found.start()].strip(),
        )
        end = found.end()


def write(folder: Path, fence: Fence) -> None:
    assert fence.file is not None
    file = folder / fence.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(fence.body, encoding="utf-8")
    if fence.language == "toml" and not fence.file.startswith("broken/"):
        name = "promptkit.schema.json" if file.name == "promptkit.toml" else "prompt.schema.json"
        schema = msgspec.json.decode((importlib.resources.files("promptkit") / "schemas" / name).read_bytes())
        assert compile_schema(schema).unwrap().violations(tomllib.loads(fence.body)) == (), fence.file


def printed(program: str, names: dict[str, Any], page: Path, out: io.StringIO) -> str:
    """Run a program. Those of a page share one output, as a reader's do: an earlier one may have kept it."""
    before = len(out.getvalue())
    with contextlib.redirect_stdout(out):
        exec(compile(program, page.name, "exec", dont_inherit=True), names)  # noqa: S102  # of this repository
    return out.getvalue()[before:]


KNOWN = {
    "response_format": '{"sentence": "The oven broke on Monday.", "euros": 420}',
    "What broke on Monday?": "The oven of the bakery broke on Monday.",
    "What is sold until Friday?": "Only cold cakes are sold until Friday.",
    "What does the new fan cost?": "The new fan costs 420 euros.",
}


def answer(received: Received, connection: socket.socket) -> None:
    """Say what there is to say about the starter's letter, as text or as JSON."""
    asked = received.body.decode()
    connection.sendall(ok(next(text for words, text in KNOWN.items() if words in asked)))


class Shell:
    """Runs the commands of a page, each where the one before it has left off."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where = folder.with_suffix(".where")

    def transcript(self, shown: str) -> str:
        """Give a fence as it is when its commands are run now. What is shown stays where ``...`` covers what is new."""
        parts = re.split(r"^(?=\$ )", shown, flags=re.MULTILINE)
        assert parts[0] == "", "a console fence begins with a command"
        return "".join(self._run(part) for part in parts[1:])

    def _run(self, shown: str) -> str:
        found = re.match(r"\$ ((?:.*\\\n)*.*)\n", shown)
        assert found is not None
        where = self._where
        lines = f'promptkit() {{ "$PYTHON" -m promptkit "$@"; }}\n{found[1]}\npwd > {shlex.quote(str(where))}'
        ended = subprocess.run(
            ["/bin/sh", "-c", lines],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            env=environment(PYTHON=sys.executable),
            check=False,
        )
        self._folder = Path(where.read_text(encoding="utf-8").strip())
        expected = ".*".join(map(re.escape, shown[found.end() :].split("...")))
        return shown if re.fullmatch(expected, ended.stdout) else found[0] + ended.stdout


def program_of(page: Path, folder: Path) -> str:
    """Write the programs of a page as one, each on its lines of the page."""
    source = page.read_text(encoding="utf-8")
    lines = [""] * source.count("\n")
    for fence in FENCE.finditer(source):
        if fence["info"] == "python":
            body = fence["body"].splitlines()
            first = source.count("\n", 0, fence.start("body"))
            lines[first : first + len(body)] = body
    name = page.stem.replace("-", "_") + ".py"
    (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return name


@pytest.mark.timeout(120)  # a page can have many commands, each a process
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_file_and_program_of_a_page_does_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: StubServer
) -> None:
    monkeypatch.chdir(tmp_path)
    stub.say(answer)
    shell = Shell(tmp_path)
    source = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    said: str | None = None
    out = io.StringIO()
    outputs: list[tuple[Fence, str]] = []
    for fence in fences(source):
        if fence.file is not None:
            write(tmp_path, fence)
            if "```console" in source:
                file = tmp_path / fence.file
                served = file.read_text(encoding="utf-8").replace("http://localhost:8080/v1", stub.base_url)
                file.write_text(served, encoding="utf-8")
        elif fence.language == "console":
            outputs.append((fence, shell.transcript(fence.body)))
        elif fence.language == "python":
            said = printed(fence.body, names, page, out)
        elif fence.language == "text" and fence.follows and said is not None:
            outputs.append((fence, said))
            said = None
        else:
            assert fence.language in {"text", "sh", "console", "yaml"}, (
                f"a {fence.language} fence without the name of its file"
            )
    if UPDATE:
        for fence, text in reversed(outputs):
            source = source[: fence.start] + text + source[fence.start + len(fence.body) :]
        page.write_text(source, encoding="utf-8")
    else:
        assert [fence.body for fence, _ in outputs] == [text for _, text in outputs]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_no_box_of_a_page_is_empty(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    assert [fence.start for fence in fences(source) if not fence.body.strip()] == []


def test_there_are_pages_and_most_of_what_they_show_is_run() -> None:
    shown = [fence for page in PAGES for fence in fences(page.read_text(encoding="utf-8"))]
    guides = {page.stem for page in PAGES if page.parent.name == "guides"}
    assert guides >= {"write-a-prompt", "organise-a-catalog", "continue-a-conversation", "lead-a-conversation"}
    assert guides >= {"watch-and-count", "test-offline"}
    assert sum(fence.language == "python" for fence in shown) >= 30
    assert all(fence.body for fence in shown)


@pytest.mark.timeout(180)  # the types of the libraries are read anew
def test_the_programs_of_the_pages_pass_a_strict_type_check(tmp_path: Path) -> None:
    names = [program_of(page, tmp_path) for page in (*PAGES, ROOT / "README.md")]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", *names]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)
