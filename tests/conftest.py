"""Fixtures of all tests: both event loops, and a scripted server on loopback."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import promptkit
from servers.stub import StubServer

if TYPE_CHECKING:
    from collections.abc import Iterator


# Hypothesis draws from the constants of the modules that are loaded. One that is loaded on first use, in the middle of
# a test, would change what the same choices draw.
for _module in pkgutil.walk_packages(promptkit.__path__, "promptkit."):
    importlib.import_module(_module.name)

collect_ignore = ["typing"]  # checked by type checkers, never run
LLAMA_KEY = "sk-llama-0123456789"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both event loops."""
    name: str = request.param
    return name


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """Serve scripted replies over real sockets."""
    server = StubServer()
    yield server
    server.close()


@pytest.fixture
def closed_port() -> int:
    """Give a port on loopback at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextlib.contextmanager
def served(name: str, *arguments: str) -> Iterator[str]:
    """Run a program of servers/ in a process of its own, and give the address that it prints."""
    program = Path(__file__).parent / "servers" / name
    with subprocess.Popen(
        [sys.executable, "-P", str(program), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1")
        yield url
        process.stdin.close()
        assert process.wait(15) == 0


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """Serve the local model over HTTP, to who has the key."""
    with served("llama.py", LLAMA_KEY) as url:
        yield url


@pytest.fixture
def llama_url(llama_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the address of the local model's server, with its key in the environment variable LLAMA_KEY."""
    monkeypatch.setenv("LLAMA_KEY", LLAMA_KEY)
    return llama_server


@pytest.fixture(scope="session")
def llmock_server() -> Iterator[str]:
    """Serve llmock."""
    with served("llmock.py") as url:
        yield url
