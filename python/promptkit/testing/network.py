"""A block of code in which promptkit opens no connection."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from promptkit._effects.network import Limit, switch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

F = TypeVar("F", bound="Callable[..., Any]")


def no_network(*, allow_loopback: bool = False) -> NetworkBlock:
    """Let promptkit's own clients ask no model while a block runs, or only such as are on this machine.

    A NetworkRefusedError takes the place of a connection, before anything is sent, and of a call of the embedded model,
    although that needs no network once its weights are there: a test that forgets its scripted model fails everywhere.
    ``allow_loopback=True`` lets servers on this machine and the embedded model through; its weights are not fetched.

    It holds for the whole process, every thread of it, but not for what other libraries do, a
    ModelClient of one's own among them. Of an ``http_client`` only one whose transport talks to no network
    (httpx.MockTransport, httpx.ASGITransport) is let through. Blocks only add to each other and to the pytest setting
    ``promptkit_network``.

    ``with no_network():``, or a decorator of functions, plain and async; in unittest
    ``self.enterContext(no_network())``.
    """
    call = f"no_network({'allow_loopback=True' if allow_loopback else ''})"
    return NetworkBlock(Limit(allow_loopback, call, "allow that, no_network(allow_loopback=True)", "leave that block"))


class NetworkBlock(AbstractContextManager[None, None]):
    """What ``no_network`` gives: a context manager, and a decorator of functions."""

    def __init__(self, limit: Limit) -> None:
        """Take the limit."""
        self._limit = limit
        self._entered: list[ExitStack] = []  # it may be entered again, inside itself too

    def __enter__(self) -> None:
        """Begin to refuse."""
        stack = ExitStack()
        stack.enter_context(switch.block(self._limit))
        self._entered.append(stack)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Allow again what was allowed before."""
        self._entered.pop().close()

    def __call__(self, function: F) -> F:
        """Decorate a function: it runs inside such a block. Raises TypeError for a class."""
        if isinstance(function, type):
            msg = f"no_network decorates functions: {function.__name__} is a class; decorate its methods"
            raise TypeError(msg)

        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            with NetworkBlock(self._limit):
                return function(*args, **kwargs)

        @wraps(function)
        async def limited_while_awaited(*args: Any, **kwargs: Any) -> Any:
            with NetworkBlock(self._limit):
                return await function(*args, **kwargs)

        chosen: Any = limited_while_awaited if inspect.iscoroutinefunction(function) else limited
        return chosen  # type: ignore[no-any-return]  # it is called as the function is
