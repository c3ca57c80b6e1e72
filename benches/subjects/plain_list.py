"""What a careful program does by hand: a list of dicts, encoded by msgspec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable


class Implementation(Subject):
    """A history is a list of dicts."""

    packages = ("msgspec",)

    def load(self, turns: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        history: list[dict[str, str]] = []
        for user, reply in turns:
            self.grow(history, user, reply)
        return history

    def grow(self, history: list[dict[str, str]], user: str, reply: str) -> list[dict[str, str]]:
        history.append({"role": "user", "content": user})
        history.append({"role": "assistant", "content": reply})
        return history

    def grow_with_body(
        self, history: list[dict[str, str]], user: str, reply: str
    ) -> tuple[list[dict[str, str]], bytes]:
        history.append({"role": "user", "content": user})
        body = msgspec.json.encode(history)
        history.append({"role": "assistant", "content": reply})
        return history, body

    def branch(self, history: list[dict[str, str]], user: str, reply: str) -> list[dict[str, str]]:
        return [*history, {"role": "user", "content": user}, {"role": "assistant", "content": reply}]

    def body(self, history: list[dict[str, str]], user: str) -> bytes:
        return msgspec.json.encode([*history, {"role": "user", "content": user}])

    def details(self, history: list[dict[str, str]]) -> list[dict[str, str]]:
        return list(history)

    def pair(self, message: Any) -> tuple[str, str]:
        return message["role"], message["content"]
