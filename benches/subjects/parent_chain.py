"""The same tree without Rust: turns that point at their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Link:
    __slots__ = ("parent", "reply", "user")

    def __init__(self, parent: _Link | None, user: str, reply: str) -> None:
        self.parent = parent
        self.user = user
        self.reply = reply


class Implementation(Subject):
    """A history is the last link, or None."""

    packages = ("msgspec",)

    def load(self, turns: Iterable[tuple[str, str]]) -> _Link | None:
        history = None
        for user, reply in turns:
            history = _Link(history, user, reply)
        return history

    def grow(self, history: _Link | None, user: str, reply: str) -> _Link:
        return _Link(history, user, reply)

    branch = grow

    def body(self, history: _Link | None, user: str) -> bytes:
        return msgspec.json.encode([*self.details(history), {"role": "user", "content": user}])

    def details(self, history: _Link | None) -> list[dict[str, str]]:
        messages = []
        while history is not None:
            messages.append({"role": "assistant", "content": history.reply})
            messages.append({"role": "user", "content": history.user})
            history = history.parent
        messages.reverse()
        return messages

    def pair(self, message: Any) -> tuple[str, str]:
        return message["role"], message["content"]
