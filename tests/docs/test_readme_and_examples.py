"""What people read and start from, run as it stands, with the real model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from promptkit import Engine, GenerationReply, ReportedUsage, load_catalog
from promptkit.testing import ScriptedClient

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = ROOT / "examples" / "demo.py"
BRANCH = re.compile(r"^([ │├└─]*)(?:[├└]── )(\w+): ", re.MULTILINE)


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def _run(*command: str) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=ROOT, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def _shape(tree: str) -> list[tuple[int, str]]:
    return [(len(indent) // 4, prompt) for indent, prompt in BRANCH.findall(tree)]


@pytest.mark.timeout(300)
def test_the_first_program_runs_as_printed_and_is_short(tmp_path: Path) -> None:
    program = _block("python")
    assert len(program.splitlines()) <= 20
    file = tmp_path / "first.py"
    file.write_text(program, encoding="utf-8")
    lines = _run(sys.executable, str(file)).splitlines()
    assert len([line for line in lines if " -> " in line]) >= 2


@pytest.mark.timeout(300)
def test_the_demo_holds_a_conversation_of_the_shape_that_the_readme_shows() -> None:
    assert len(DEMO.read_text(encoding="utf-8").splitlines()) <= 120
    printed = _run(sys.executable, str(DEMO))
    assert re.search(r"^The coordinator ended: (stopped|exhausted)$", printed, re.MULTILINE)
    assert re.search(r"^The finding is (valid|invalid) after [012] repairs: ", printed, re.MULTILINE)
    assert re.search(r"input +│ [1-9]\d*", printed)
    assert re.search(r"reasoning +│ unknown", printed)
    shape, promised = _shape(printed), _shape(_block("text"))
    assert shape[:3] == promised[:3] == [(0, "read"), (1, "notice"), (1, "ask")]
    assert shape[-1][1] == promised[-1][1] == "finding"


@pytest.mark.anyio
async def test_the_demo_repairs_a_finding_and_stops_when_it_has_enough(capsys: pytest.CaptureFixture[str]) -> None:
    sys.path.insert(0, str(DEMO.parent))
    try:
        import demo
    finally:
        sys.path.remove(str(DEMO.parent))
    known = GenerationReply(content="The oven.", usage=ReportedUsage(input_tokens=5, output_tokens=2))
    client = ScriptedClient(known, "Closed.", "Maria.", "420 euros.", "oops", '{"sentence": "the oven", "euros": 420}')
    async with Engine(load_catalog(DEMO.parent / "bakery"), client=client) as engine:
        await demo.main(engine, Console(highlight=False, width=100))
    client.assert_exhausted()
    printed = capsys.readouterr().out
    assert "The coordinator ended: stopped" in printed
    assert "The finding is valid after 1 repairs: {'sentence': 'the oven', 'euros': 420}" in printed
    assert "5 runs, 6 attempts" in printed
    assert re.search(r"input +│ at least 5", printed)
    assert "letter" not in str(client.calls[1].messages[-1].content)


def test_everything_that_the_readme_names_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for command in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
