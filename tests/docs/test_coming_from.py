"""What other libraries' programs look like, on the pages for those who come from them: they run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servers.stub import Received, StubServer, completion, http

if TYPE_CHECKING:
    import socket

ROOT = Path(__file__).parents[2]
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
PROGRAMS = {
    f"{page.stem}/{name}": body
    for page in PAGES
    for name, body in re.findall(
        r"^```python (\w+_before\.py)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
}


def answer(request: Received, connection: socket.socket) -> None:
    """Answer as a model would: a call of the tool that it is given, JSON where that is asked for, else a sentence."""
    asked = request.json
    said = completion('{"euros": 420}' if "response_format" in asked else "The oven.")
    if "tools" in asked:
        call = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"euros": 420}'}
        message = said["choices"][0]["message"]
        message.update(content=None, tool_calls=[{"id": "call-1", "type": "function", "function": call}])
    connection.sendall(http(200, json.dumps(said).encode()))


def test_each_page_shows_what_its_library_does() -> None:
    assert {name.partition("/")[0] for name in PROGRAMS} == {"openai", "pydantic-ai", "langgraph", "llm"}
    for name, program in PROGRAMS.items():
        assert compile(program, name, "exec").co_names


@pytest.mark.skipif(not PEERS_PYTHON.exists(), reason="`make bench-peers` makes the environment of other libraries")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_the_other_library_runs(name: str, tmp_path: Path) -> None:
    server = StubServer()
    with contextlib.closing(server):
        server.say(answer)
        told = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none", "LLM_USER_PATH": str(tmp_path)}
        environment = {**os.environ, **told, "LANGSMITH_TRACING": "false", "LLM_LOAD_PLUGINS": ""}
        command = [str(PEERS_PYTHON), "-c", PROGRAMS[name]]
        ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
    assert server.requests
