"""The floor: a list of dicts, encoded and decoded by msgspec, posted with an httpx.AsyncClient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import msgspec

from callers import QUESTION, Caller

if TYPE_CHECKING:
    from collections.abc import Iterable


class Implementation(Caller):
    """The client has its default settings; they hold 100 connections and keep 20."""

    packages = ("httpx", "httpcore", "msgspec")

    async def open(self, base_url: str, concurrency: int) -> None:  # noqa: ARG002  # its default is what people use
        self._client = httpx.AsyncClient(timeout=60)
        self._url = f"{base_url}/chat/completions"

    async def hold(self, turns: Iterable[tuple[str, str]]) -> None:
        self._messages = [
            {"role": role, "content": text}
            for turn in turns
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]

    async def call(self) -> str:
        messages = [*self._messages, {"role": "user", "content": QUESTION}]
        body = msgspec.json.encode({"model": "model", "messages": messages})
        response = await self._client.post(self._url, content=body, headers={"content-type": "application/json"})
        text: str = msgspec.json.decode(response.content)["choices"][0]["message"]["content"]
        return text

    async def close(self) -> None:
        await self._client.aclose()
