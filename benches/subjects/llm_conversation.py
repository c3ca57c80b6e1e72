"""llm: a Conversation that is prompted; a branch is `reply()` to a response.

The body is what its OpenAI plugin builds, encoded by msgspec.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

os.environ["LLM_LOAD_PLUGINS"] = ""
os.environ["LLM_USER_PATH"] = os.path.join(tempfile.gettempdir(), "promptkit-bench-llm")  # noqa: PTH118  # never made

import llm
import msgspec
from llm.default_plugins.openai_models import Chat
from llm.parts import Message, TextPart

from subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class _Stub(Chat):  # type: ignore[misc]  # its types are in another environment
    needs_key = None
    reply = ""

    def execute(self, *_: Any, **__: Any) -> Iterator[str]:
        yield self.reply


class Implementation(Subject):
    """A history is a Conversation, or the Response that ends a branch."""

    packages = ("llm", "msgspec")

    def __init__(self) -> None:
        self._model = _Stub("stub")

    def load(self, turns: Iterable[tuple[str, str]]) -> Any:
        conversation = llm.Conversation(model=self._model)
        messages: list[Any] = []
        for user, reply in turns:
            messages.append(Message("user", [TextPart(text=user)]))
            messages.append(Message("assistant", [TextPart(text=reply)]))
        if messages:
            self._model.reply = messages.pop().parts[0].text
            conversation.prompt(messages=messages).text()
        return conversation

    def grow(self, history: Any, user: str, reply: str) -> Any:
        self._model.reply = reply
        history.prompt(user).text()
        return history

    def grow_with_body(self, history: Any, user: str, reply: str) -> tuple[Any, bytes]:
        self._model.reply = reply
        response = history.prompt(user)
        body = msgspec.json.encode(self._model.build_messages(response.prompt, history))
        response.text()
        return history, body

    def branch(self, history: Any, user: str, reply: str) -> Any:
        self._model.reply = reply
        response = history.responses[-1].reply(user)
        response.text()
        return response

    def body(self, history: Any, user: str) -> bytes:
        response = history.prompt(user)  # a Response runs when it is read
        return msgspec.json.encode(self._model.build_messages(response.prompt, history))

    def details(self, history: Any) -> list[Any]:
        last = history.responses[-1] if isinstance(history, llm.Conversation) else history
        return [*last.prompt.messages, *last.messages()]

    def pair(self, message: Any) -> tuple[str, str]:
        return message.role, message.parts[0].text
