"""A process that holds clients and measures their calls: JSON, one line in, one line out."""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.metadata
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from worker import turns

if TYPE_CHECKING:
    from callers import Caller


class Worker:
    """Answers commands; each is a method."""

    def __init__(self, names: list[str]) -> None:
        self._callers: dict[str, Caller] = {
            name: importlib.import_module(f"callers.{name}").Implementation() for name in names
        }

    async def versions(self) -> dict[str, str]:
        """Say what is measured."""
        packages = {package for caller in self._callers.values() for package in caller.packages}
        return {package: importlib.metadata.version(package) for package in packages}

    async def open(self, name: str, base_url: str, concurrency: int) -> None:
        """Make a client."""
        await self._callers[name].open(base_url, concurrency)

    async def hold(self, name: str, depth: int) -> None:
        """Have a conversation that the calls go on from; the new turn is the last of the `depth`."""
        await self._callers[name].hold(turns(depth - 1))

    async def call(self, name: str, count: int, tasks: int = 1) -> dict[str, Any]:
        """Call so many times in each of so many tasks; CPU and wall seconds of one call, and what came back."""
        caller = self._callers[name]
        said: set[str] = set()

        async def one_after_another() -> None:
            for _ in range(count):
                said.add(await caller.call())

        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        if tasks == 1:
            await one_after_another()
        else:
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(one_after_another())
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return {"cpu": cpu / (count * tasks), "wall": wall / (count * tasks), "said": sorted(said)}

    async def close(self, name: str) -> None:
        """Close a client."""
        await self._callers[name].close()


async def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a client prints is no answer
    if hasattr(os, "sched_setaffinity"):  # the server has another core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    worker = Worker(sys.argv[1:])
    for line in sys.stdin:
        command, arguments = json.loads(line)
        answers.write(json.dumps(await getattr(worker, command)(**arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    asyncio.run(main())
