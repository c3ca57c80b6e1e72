"""Time and chance in the hands of a test: an engine whose waits end at once and are kept."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from promptkit import Engine
from promptkit._effects.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from promptkit import Catalog

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Still(Surroundings):
    """Time stands still but for the waits, which end at once; ``waits`` has them in order.

    ``chances`` are handed out one after the other, again and again. ``waiting`` takes the place of a wait.
    """

    def __init__(
        self, chances: Iterable[float] = (0.5,), waiting: Callable[[float], Awaitable[None]] | None = None
    ) -> None:
        self.waits: list[float] = []
        self.passed = 0.0
        self._chances = itertools.cycle(chances)
        self._waiting = waiting

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    def chance(self) -> float:
        return next(self._chances)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.passed += seconds
        await (anyio.lowlevel.checkpoint() if self._waiting is None else self._waiting(seconds))


def engine_in(surroundings: Surroundings, catalog: Catalog, **options: Any) -> Engine:
    """Give an engine that has its time and chance from a test."""
    engine = Engine(catalog, **options)
    engine._shared.surroundings = surroundings  # noqa: SLF001  # no setting of people who use promptkit
    return engine
