"""What the benchmarks have in common: worker processes that are asked in JSON, and the page that the figures go to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from types import TracebackType

FOLDER = Path(__file__).resolve().parent
PEERS_PYTHON = FOLDER.parent / ".venv-peers" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PAGE = FOLDER.parent / "docs" / "performance.md"


class Process:
    """A worker: a script beside this one, in the environment of the peers or in this one."""

    def __init__(self, script: str, *names: str, peer: bool = False) -> None:
        command = [str(PEERS_PYTHON) if peer else sys.executable, str(FOLDER / script), *names]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        self._to, self._from = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Ask, and wait for the answer."""
        self._to.write(json.dumps([command, arguments]) + "\n")
        self._to.flush()
        answer = self._from.readline()
        if not answer:
            msg = f"{self._process.args!r} ended with {self._process.wait()} at {command} {arguments}"
            raise RuntimeError(msg)
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._to.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()
        self._from.close()


def say(line: str) -> None:
    """Tell how far it is."""
    print(f"bench: {line}", file=sys.stderr, flush=True)


def put_on_page(name: str, lines: list[str]) -> None:
    """Put a table into the page about performance, where its name stands in a comment."""
    before, mark, old = PAGE.read_text().partition(f"<!-- {name} -->\n```text\n")
    _, end, after = old.partition("```\n")
    if not (mark and end):
        msg = f"{PAGE} has no block {name}"
        raise ValueError(msg)
    PAGE.write_text(before + mark + "\n".join(lines) + "\n" + end + after)
