"""pydantic-ai: an Agent with its OpenAI model, and `message_history`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from callers import QUESTION, Caller

if TYPE_CHECKING:
    from collections.abc import Iterable


class Implementation(Caller):
    """The client has its default settings."""

    packages = ("pydantic-ai-slim", "openai")

    async def open(self, base_url: str, concurrency: int) -> None:  # noqa: ARG002  # its default is what people use
        self._client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
        self._agent = Agent(OpenAIChatModel("model", provider=OpenAIProvider(openai_client=self._client)))

    async def hold(self, turns: Iterable[tuple[str, str]]) -> None:
        self._history: list[Any] = []
        for user, reply in turns:
            self._history.append(ModelRequest(parts=[UserPromptPart(content=user)]))
            self._history.append(ModelResponse(parts=[TextPart(content=reply)]))

    async def call(self) -> str:
        return str((await self._agent.run(QUESTION, message_history=self._history)).output)

    async def close(self) -> None:
        await self._client.close()
