"""What is measured side by side: one module an implementation, each with a class `Implementation`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HERE = ("promptkit_store", "plain_list", "parent_chain", "deep_copies")
PEERS = ("pydantic_ai_agent", "langgraph_saver", "llm_conversation")
TITLES = {
    "promptkit_store": "promptkit",
    "plain_list": "list+msgspec",
    "parent_chain": "parent chain",
    "deep_copies": "deepcopy",
    "pydantic_ai_agent": "pydantic-ai",
    "langgraph_saver": "LangGraph",
    "llm_conversation": "llm",
}


class Subject(ABC):
    """One implementation. A history is whatever it keeps conversations in; `load([])` gives an empty one."""

    packages: ClassVar[tuple[str, ...]] = ()  # whose versions are reported

    @abstractmethod
    def load(self, turns: Iterable[tuple[str, str]]) -> Any:
        """Make a history of these turns, the fastest way there is; the set-up of the other measurements."""

    @abstractmethod
    def grow(self, history: Any, user: str, reply: str) -> Any:
        """Go on with a turn. What was there before need not stay usable."""

    def grow_with_body(self, history: Any, user: str, reply: str) -> tuple[Any, bytes]:
        """Go on with a turn, and make the body that its request sends on the way."""
        return self.grow(history, user, reply), self.body(history, user)

    @abstractmethod
    def branch(self, history: Any, user: str, reply: str) -> Any:
        """Go on with a turn, while the history stays usable for others."""

    @abstractmethod
    def body(self, history: Any, user: str) -> bytes:
        """Make the `messages` array of the next chat-completions request."""

    def digest(self, history: Any, user: str) -> str:
        """Hash what the next request says. Without a digest of its own, an implementation hashes its body."""
        return sha256(self.body(history, user)).hexdigest()

    @abstractmethod
    def details(self, history: Any) -> Sequence[Any]:
        """Give every message as an object."""

    def drop(self, history: Any) -> None:  # noqa: B027  # most keep nothing elsewhere
        """Forget what is kept elsewhere than in the history."""

    @abstractmethod
    def pair(self, message: Any) -> tuple[str, str]:
        """Give role and text of one of the details. Not measured."""
