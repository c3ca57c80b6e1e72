"""The captured exchange: an opaque capability over a node of the history store."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NoReturn, final

import msgspec

from promptkit._values.frozen import UnfitError
from promptkit._values.handle import Handle
from promptkit._values.messages import Message, from_tuples
from promptkit._values.reprs import bounded_repr

if TYPE_CHECKING:
    from rich.console import RenderableType

    from promptkit._history import Node


class ExchangeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What an exchange holds: detached from it, and encodable with msgspec.

    Attributes:
        run_id: the id of the run that it was captured from.
        parent_run_id: the id of the run before, or None.
        messages: the complete history, oldest first, ending with the final message of the assistant.
    """

    run_id: str
    parent_run_id: str | None
    messages: tuple[Message, ...]

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import conversation_view

        return conversation_view(self)


@final
class Exchange(Handle):
    """One captured exchange and all before it: give it to ``RunRequest.continue_from`` to continue.

    Obtained only from ``RunResult.exchange``. Immutable, bound to no engine, and free to be used on any engine, in any
    thread, any number of times. Its repr is constant, copies are the same object, equality is identity, and it cannot
    be constructed or pickled: encode ``details()`` where content has to leave the process.
    """

    __slots__ = ("__weakref__", "_node")
    _called = "an Exchange"
    _comes_from = "run a request with capture_exchange=True and take result.exchange"
    _node: Node

    def details(self) -> ExchangeDetails:
        """Build the complete history, from the first message to the final answer. Costs what the history is long."""
        return ExchangeDetails(
            run_id=self._node.run_id,
            parent_run_id=self._node.parent_run_id,
            messages=from_tuples(self._node.messages()),
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: an exchange does not change."""
        msg = "an Exchange does not change"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: an exchange does not change."""
        msg = "an Exchange does not change"
        raise AttributeError(msg)

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.Exchange>"

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people: the newest messages."""
        from promptkit._values.renderables import conversation_view

        return conversation_view(self)

    def __copy__(self) -> Exchange:
        """Give the same exchange."""
        return self

    def __deepcopy__(self, memo: object) -> Exchange:
        """Give the same exchange."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        msg = "an Exchange cannot be pickled: encode exchange.details() to keep its content"
        raise TypeError(msg)


def exchange_of(node: Node) -> Exchange:
    """Wrap a node of the store."""
    exchange: Exchange = object.__new__(Exchange)
    object.__setattr__(exchange, "_node", node)
    return exchange


def node_of(exchange: Exchange | None) -> Node | None:
    """Give the node that an exchange stands for."""
    return None if exchange is None else exchange._node  # noqa: SLF001  # the two halves of one capability


def read_exchange(value: Any) -> Any:
    """Take a captured exchange, or raise UnfitError; an empty one, made around the class, holds no history."""
    if isinstance(value, Exchange) and hasattr(value, "_node"):
        return value
    given = "an empty one" if isinstance(value, Exchange) else f"`{type(value).__name__}`"
    first = "await it, and " if isinstance(value, Awaitable) else ""
    msg = f"Expected an Exchange, got {given}: {first}take .exchange of a result with capture_exchange=True"
    raise UnfitError(msg)
