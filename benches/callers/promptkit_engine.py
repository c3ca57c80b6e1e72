"""promptkit: Engine.run, continuing from a captured exchange, and capturing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callers import QUESTION, Caller
from catalogs import saying
from promptkit import Engine, Exchange, GenerationCall, GenerationReply, RunRequest

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Scripted:
    reply = ""

    async def generate(self, call: GenerationCall) -> GenerationReply:  # noqa: ARG002  # nothing is sent
        return GenerationReply(content=self.reply)


class Implementation(Caller):
    """Nothing is set but what is needed."""

    packages = ("promptkit-engine", "httpx")

    async def open(self, base_url: str, concurrency: int) -> None:
        self._catalog = saying(base_url, max_concurrency=concurrency, max_waiting=1_000)
        self._engine = Engine(self._catalog)
        self._held: Exchange | None = None

    async def hold(self, turns: Iterable[tuple[str, str]]) -> None:
        client, self._held = _Scripted(), None
        async with Engine(self._catalog, client=client) as engine:
            for user, client.reply in turns:
                self._held = (await engine.run(self._request(user))).exchange

    async def call(self) -> str:
        return (await self._engine.run(self._request(QUESTION))).raw_output

    async def close(self) -> None:
        await self._engine.aclose()

    def _request(self, text: str) -> RunRequest:
        return RunRequest(prompt_id="say", variables={"text": text}, continue_from=self._held, capture_exchange=True)
