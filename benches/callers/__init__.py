"""What is measured side by side when it calls a backend: one module a client, each with a class `Caller`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = ("promptkit_engine", "bare_httpx")
PEERS = ("openai_client", "pydantic_ai_agent")
TITLES = {
    "promptkit_engine": "promptkit",
    "bare_httpx": "bare httpx",
    "openai_client": "openai",
    "pydantic_ai_agent": "pydantic-ai",
}
QUESTION = "And what is left to do? " * 17  # some 400 characters


class Caller(ABC):
    """One client, used as its documentation says, from one event loop of asyncio."""

    packages: ClassVar[tuple[str, ...]] = ()  # whose versions are reported

    @abstractmethod
    async def open(self, base_url: str, concurrency: int) -> None:
        """Make what is kept between calls, for that many at the same time."""

    @abstractmethod
    async def hold(self, turns: Iterable[tuple[str, str]]) -> None:
        """Have a conversation of these turns, which the calls go on from."""

    @abstractmethod
    async def call(self) -> str:
        """Ask QUESTION after all of it, and give the text of the answer."""

    @abstractmethod
    async def close(self) -> None:
        """Close what is kept."""
