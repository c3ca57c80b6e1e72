"""openai: AsyncOpenAI and a list of dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI

from callers import QUESTION, Caller

if TYPE_CHECKING:
    from collections.abc import Iterable


class Implementation(Caller):
    """The client has its default settings."""

    packages = ("openai",)

    async def open(self, base_url: str, concurrency: int) -> None:  # noqa: ARG002  # its default is what people use
        self._client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)

    async def hold(self, turns: Iterable[tuple[str, str]]) -> None:
        self._messages: list[Any] = [
            {"role": role, "content": text}
            for turn in turns
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]

    async def call(self) -> str:
        messages = [*self._messages, {"role": "user", "content": QUESTION}]
        answer = await self._client.chat.completions.create(model="model", messages=messages)
        return answer.choices[0].message.content or ""

    async def close(self) -> None:
        await self._client.close()
