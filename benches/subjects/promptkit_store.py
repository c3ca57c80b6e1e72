"""promptkit: the history store in Rust, as `Engine.run` uses it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from promptkit._history import Node, Turn
from promptkit._values.exchange import exchange_of
from subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptkit import Message


class Implementation(Subject):
    """A history is a Node, or None."""

    packages = ("promptkit-engine",)

    def __init__(self) -> None:
        self._runs = count()

    def load(self, turns: Iterable[tuple[str, str]]) -> Node | None:
        history = None
        for user, reply in turns:
            history = self.grow(history, user, reply)
        return history

    def grow(self, history: Node | None, user: str, reply: str) -> Node:
        return Turn(history, [("user", user, None)]).capture(f"{next(self._runs):032x}", reply)

    def grow_with_body(self, history: Node | None, user: str, reply: str) -> tuple[Node, bytes]:
        turn = Turn(history, [("user", user, None)])
        body = turn.encode_chat("omit")
        return turn.capture(f"{next(self._runs):032x}", reply), body

    branch = grow

    def body(self, history: Node | None, user: str) -> bytes:
        return Turn(history, [("user", user, None)]).encode_chat("omit")

    def digest(self, history: Node | None, user: str) -> str:
        return Turn(history, [("user", user, None)]).digest("session")

    def details(self, history: Node | None) -> Sequence[Message]:
        return () if history is None else exchange_of(history).details().messages

    def pair(self, message: Any) -> tuple[str, str]:
        return message.role, message.content
