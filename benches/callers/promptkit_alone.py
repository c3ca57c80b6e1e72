"""promptkit without a server: a client that answers at once, so that only the layer itself is left."""

from __future__ import annotations

from callers import QUESTION
from callers.promptkit_engine import Implementation as Whole
from promptkit import Engine, GenerationCall, GenerationReply


class _AtOnce:
    async def generate(self, call: GenerationCall) -> GenerationReply:  # noqa: ARG002  # nothing is sent
        return GenerationReply(content=QUESTION)


class Implementation(Whole):
    """The same requests as those that go to a server."""

    async def open(self, base_url: str, concurrency: int) -> None:
        await super().open(base_url, concurrency)
        await self._engine.aclose()
        self._engine = Engine(self._catalog, client=_AtOnce())
