"""The runs of a chat: an event loop in this thread, which goes on only while something runs.

BlockingEngine would do, but for one thing: Ctrl-C in the moment in which a reply is in hand leaves its ``run`` as
KeyboardInterrupt, without the reply. Here Ctrl-C cancels a task, and a task that has its reply keeps it.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Self

import anyio

from promptkit import Engine
from promptkit._cli.failure import timeout_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from promptkit import Catalog, InputReader, PreparedRun, RunRequest, RunResult


class Runs:
    """Runs requests one after the other. Close it with ``with``."""

    def __init__(self, catalog: Catalog, files: InputReader) -> None:
        self._engine = Engine(catalog, input_reader=files)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the engine, then the loop."""
        with self._runner:
            self._runner.run(self._engine.aclose())

    def prepare(self, request: RunRequest) -> PreparedRun:
        """Show what would be sent. Raises what the engine refuses."""
        return self._runner.run(self._engine.prepare(request))

    def run(self, request: RunRequest, timeout: float | None, keep: Callable[[RunResult], None]) -> None:
        """Run a request, and give the result to ``keep``, before any Ctrl-C can come in between.

        Raises what the run raises, TimeoutError when it takes longer, and KeyboardInterrupt when Ctrl-C cancelled it.
        """
        self._runner.run(self._run(request, math.inf if timeout is None else timeout, keep))

    async def _run(self, request: RunRequest, seconds: float, keep: Callable[[RunResult], None]) -> None:
        with anyio.move_on_after(seconds):
            keep(await self._engine.run(request))
            return
        raise TimeoutError(timeout_text(seconds))
