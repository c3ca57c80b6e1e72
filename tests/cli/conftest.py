"""A catalog in a folder, and the command in this process."""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from promptkit._cli import main
from servers.command_line import Command, Ended, write_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers.stub import StubServer


@pytest.fixture
def catalog(tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a catalog, and go there."""
    folder = write_catalog(tmp_path / "catalog", stub.base_url)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PROMPTKIT_CATALOG", raising=False)
    return folder


@pytest.fixture
def promptkit(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command in this process; ``stdin`` is what it can read."""

    def run(*argv: str, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main(argv)
        out, err = capsysbinary.readouterr()
        return Ended(status, out.decode(), err.decode())

    return run


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Take Ctrl-C as a person's Python does: what is run in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
