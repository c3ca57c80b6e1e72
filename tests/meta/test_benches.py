"""The benchmarks measure the same thing everywhere: every operation runs once, at depth 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[2] / "benches"
PEERS_PYTHON = BENCHES.parent / ".venv-peers" / "bin" / "python"
MEASURED = ("build", "build_body", "body", "digest", "details", "branch", "drop", "cold_body", "cold_copy", "copy")
HERE = ("promptkit_store", "plain_list", "parent_chain", "deep_copies")
PEERS = ("pydantic_ai_agent", "langgraph_saver", "llm_conversation") if PEERS_PYTHON.exists() else ()


def _ask(name: str, *commands: tuple[str, dict[str, Any]]) -> list[Any]:
    python = PEERS_PYTHON if name in PEERS else sys.executable
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    command = [str(python), str(BENCHES / "worker.py"), name]
    answers = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("name", HERE + PEERS)
def test_every_implementation_is_measured_and_holds_the_same_conversation(name: str) -> None:
    measured = [("measure", {"what": what, "depth": 2, "count": 1, "limit": 10}) for what in MEASURED]
    said, _, *figures = _ask(name, ("conversation", {"depth": 2}), ("hold", {"depth": 2}), *measured)
    assert all({"cpu", "wall"} == set(figure) for figure in figures)
    assert len(figures) == len(MEASURED)
    told = said["loaded"]
    assert [role for role, _ in told] == ["user", "assistant"] * 2
    assert [len(text) for _, text in told] == [400, 800] * 2
    assert said["grown"] == said["built"] == told
    assert said["branched"] == [*told, ["user", "left?"], ["assistant", "Left."]]
    messages = [{"role": role, "content": text} for role, text in told]
    assert said["sent"] == [messages[:1], messages[:3]]
    assert said["body"] == [*messages, {"role": "user", "content": "right?"}]
    assert said["repeatable digest"]
    assert told == _ask("plain_list", ("conversation", {"depth": 2}))[0]["loaded"]


@pytest.mark.anyio
async def test_preparation_is_measured_beside_the_rendering_of_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHES))
    import preparation
    from promptkit import Engine

    measured = preparation.subjects(Engine(preparation.CATALOG))
    alone = await measured["jinja2 alone"][0]()
    for name, turns in (("prepare", 0), ("prepare after 1,000 turns", 1_000), ("prepare after 10,000 turns", 10_000)):
        prepared: Any = await measured[name][0]()
        assert len(prepared.messages) == 2 * turns + 3
        assert [message.content for message in prepared.messages[-3:]] == alone
    for function, calls in measured.values():
        assert await preparation.timed(function, 1) > 0
        assert calls


@pytest.mark.anyio
async def test_the_coordinator_is_measured_beside_the_same_runs_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHES))
    import coordination
    from promptkit import Engine

    engine = Engine(coordination.CATALOG, client=coordination._Client())  # noqa: SLF001  # the bench's own
    start = (await engine.run(coordination.request())).exchange
    histories = [
        (await function(engine, start, 3)).details().messages
        for function in (coordination.in_a_loop, coordination.coordinated)
    ]
    assert histories[0] == histories[1]
    assert len(histories[0]) == 2 + 2 * 3
    figures = await coordination.measure(rounds=1, turns=2)
    assert figures["beyond"] == figures["coordinated"] - figures["in_a_loop"]


STARTUP = """
import json, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import startup
server = subprocess.Popen([sys.executable, sys.argv[1] + "/server.py"], stdout=subprocess.PIPE, text=True)
try:
    base_url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    programs = {name: startup.answering(name, base_url) for name in startup.ANSWERS if name in startup.HERE}
    answers = startup.in_turns(programs, Path(sys.executable), rounds=1)
finally:
    server.terminate()
    server.communicate()
sizes = {name: startup.installed(name) for name in startup.required(startup.DISTRIBUTION, set())}
print(json.dumps([answers, sizes]))
"""


def test_programs_that_are_timed_from_their_start_are_answered_and_the_whole_of_what_is_installed_is_counted() -> None:
    command = [sys.executable, "-c", STARTUP, str(BENCHES)]  # apart: modules there have names that tests have, too
    answers, sizes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert answers.keys() == {"httpx", "promptkit"}
    assert all(duration > 0 for duration in answers.values())
    assert sizes.keys() >= {"promptkit-engine", "jsonschema-rs", "msgspec", "httpx", "returns"}
    assert "rich" not in sizes  # an extra
    assert all(size > 10_000 for size in sizes.values())
