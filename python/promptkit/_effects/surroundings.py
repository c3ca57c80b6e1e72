"""Time, chance and identities: what pure code gets as values."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

import anyio


class Surroundings:
    """The real ones. Tests put their own in place, so that no test sleeps."""

    def now(self) -> datetime:
        """Give the instant, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Give seconds that never go back."""
        return time.monotonic()

    def chance(self) -> float:
        """Give a number that is uniform in [0, 1)."""
        import random

        return random.random()  # noqa: S311  # spreads retries, protects nothing

    def new_run_id(self) -> str:
        """Give an id that no other run has, in this process or another."""
        return uuid.uuid4().hex

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)
