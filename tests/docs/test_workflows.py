"""The examples of workflows: offline with a scripted model, and as they stand with the local one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from promptkit import Engine, GenerationCall, GenerationReply, ReportedUsage, load_catalog
from promptkit.testing import ScriptedClient

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.anyio


def reply(content: str) -> GenerationReply:
    return GenerationReply(content=content, usage=ReportedUsage(input_tokens=10, output_tokens=2))


async def run(name: str, client: Any) -> None:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    async with Engine(load_catalog(EXAMPLES / "bakery"), client=client) as engine:
        await module.main(engine)


async def test_the_assessing_consumer_stops_when_an_assessment_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient(
        *map(reply, ("The oven.", "Maria.", '{"sentence": "who", "euros": 0}', "420 euros.", "no JSON")),
        *map(reply, ('{"sentence": "the fan", "euros": 420}',)),
    )
    await run("assess", client)
    client.assert_exhausted()
    printed = capsys.readouterr().out
    assert "ended: stopped" in printed
    table = [re.split(r" {2,}", line) for line in printed.splitlines()[-2:]]
    assert table == [
        ["turns", "2", "2", "0", "0", "20", "4", "unknown", "unknown", "unknown"],
        ["assessments", "2", "3", "0", "1", "30", "6", "unknown", "unknown", "unknown"],
    ]
    asked = [message.content for message in client.calls[3].messages]
    assert asked[-1] == "What does the new fan cost?"
    assert not any("JSON" in str(text) for text in asked)  # the branch never sees its assessment


async def test_an_inquiry_that_finds_nothing_is_exhausted(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = reply('{"sentence": "nothing", "euros": 0}')
    await run("assess", ScriptedClient(reply("The oven."), *[reply("Hm."), nothing] * 3))
    assert "ended: exhausted" in capsys.readouterr().out


class Echoing:
    """Answers with the question, so that every answer tells to which branch it belongs."""

    async def generate(self, call: GenerationCall) -> GenerationReply:
        return reply(f"About: {str(call.messages[-1].content).splitlines()[-1]}")


async def test_branches_are_explored_at_once_and_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    await run("explore", Echoing())
    *lines, total = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "the repair:",
        "  user: What does the new fan cost?",
        "  assistant: About: What does the new fan cost?",
        "  user: When does it come?",
        "  assistant: About: When does it come?",
    ]
    assert [line for line in lines if not line.startswith(" ")] == ["the repair:", "the customers:", "the people:"]
    assert len(lines) == 3 * 5
    assert total.startswith("6 runs: 6 attempts, 0 retries, 0 repairs; tokens: input 60, output 12")


async def test_what_was_prepared_is_what_runs_and_is_captured(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient("The oven.")
    await run("prepare", client)
    client.assert_exhausted()
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"to SmolLM2-135M-Instruct: 2 messages, sha256:[0-9a-f]{12}", lines[0])
    assert re.fullmatch(r"  letter: sha256:[0-9a-f]{12}", lines[1])
    assert lines[2:] == [
        "ran what was prepared: True",
        "runs counted: 1",
        "answer: The oven.",
        "again: this prepared execution has run: make another with prepare_execution",
        "a follow-up of the run before: True",
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("assess", r"^ended: (stopped|exhausted)$"),
        ("explore", r"^6 runs: 6 attempts, 0 retries, 0 repairs; tokens: input [1-9]"),
        ("prepare", r"^ran what was prepared: True$"),
    ],
)
async def test_the_workflows_run_on_the_local_model(name: str, says: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    result = subprocess.run(  # noqa: ASYNC221  # nothing else is to be done meanwhile
        command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=300
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(says, result.stdout, re.MULTILINE)
