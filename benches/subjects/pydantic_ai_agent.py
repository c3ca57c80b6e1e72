"""pydantic-ai: `message_history` of an Agent, with the FunctionModel that its documentation gives for offline use.

The body is the mapping of its OpenAI model alone, encoded by msgspec: sent through its client it costs fifty times as
much, most of it in the openai package.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic_ai import Agent, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable


class Implementation(Subject):
    """A history is a list of messages, as `result.all_messages()` gives it."""

    packages = ("pydantic-ai-slim", "msgspec")

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)  # the one that run_sync uses too
        self._model = OpenAIChatModel("stub", provider=OpenAIProvider(base_url="http://localhost/v1", api_key="none"))
        self._agent = Agent(FunctionModel(self._answer))
        self._reply = ""
        self._wanted = False
        self._body = b""

    async def _answer(self, messages: list[Any], _: Any) -> Any:
        if self._wanted:
            self._body = await self._encode(messages)
        return ModelResponse(parts=[TextPart(content=self._reply)])

    async def _encode(self, messages: list[Any]) -> bytes:
        mapped = await self._model._map_messages(messages, ModelRequestParameters())  # noqa: SLF001  # see above
        return msgspec.json.encode(mapped)

    def load(self, turns: Iterable[tuple[str, str]]) -> list[Any]:
        history: list[Any] = []
        for user, reply in turns:
            history.append(ModelRequest(parts=[UserPromptPart(content=user)]))
            history.append(ModelResponse(parts=[TextPart(content=reply)]))
        return history

    def grow(self, history: list[Any], user: str, reply: str) -> list[Any]:
        self._reply = reply
        messages: list[Any] = self._agent.run_sync(user, message_history=history).all_messages()
        return messages

    branch = grow

    def grow_with_body(self, history: list[Any], user: str, reply: str) -> tuple[list[Any], bytes]:
        self._wanted = True
        try:
            return self.grow(history, user, reply), self._body
        finally:
            self._wanted = False

    def body(self, history: list[Any], user: str) -> bytes:
        request = ModelRequest(parts=[UserPromptPart(content=user)])
        return self._loop.run_until_complete(self._encode([*history, request]))

    def details(self, history: list[Any]) -> list[Any]:
        return list(history)

    def pair(self, message: Any) -> tuple[str, str]:
        return "user" if message.kind == "request" else "assistant", message.parts[0].content
