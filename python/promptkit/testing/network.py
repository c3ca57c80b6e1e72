"""A block of code in which promptkit opens no connection."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from promptkit._effects.network import Limit, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
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

    ``with no_network():``, or a decorator of functions, plain and async, but not of generators; in unittest
    ``self.enterContext(no_network())``.
    """
    call = f"no_network({'allow_loopback=True' if allow_loopback else ''})"
    return NetworkBlock(Limit(allow_loopback, call, "allow that, no_network(allow_loopback=True)", "leave that block"))


class NetworkBlock(AbstractContextManager[None, None]):
    """What ``no_network`` gives: a context manager, and a decorator of functions."""

    def __init__(self, limit: Limit) -> None:
        """Take the limit."""
        self._limit = limit

    def __enter__(self) -> None:
        """Begin to refuse. It may be entered again, inside itself too."""
        switch.add(self._limit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Allow again what was allowed before."""
        switch.remove(self._limit)

    def __call__(self, function: F) -> F:
        """Decorate a function: it runs, or is awaited, inside such a block.

        Raises TypeError for a class, and for a generator, since the block would end before it runs.
        """
        if isinstance(function, type):
            msg = f"no_network decorates functions: {function.__name__} is a class; decorate its methods"
            raise TypeError(msg)
        if not callable(function):
            msg = f"no_network: Expected a function, got `{type(function).__name__}`: decorate what is inside it"
            raise TypeError(msg)
        name = getattr(function, "__name__", type(function).__name__)
        # Unwrapped, since what contextlib makes of a generator runs later, too.
        if _is(inspect.unwrap(function), inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            raise self._generator(name)

        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            with self:
                result = function(*args, **kwargs)
            if isinstance(result, Generator | AsyncGenerator):
                raise self._generator(name)
            return self._awaited(result) if inspect.iscoroutine(result) else result

        @wraps(function)
        async def limited_while_awaited(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await function(*args, **kwargs)

        chosen: Any = limited_while_awaited if _is(function, inspect.iscoroutinefunction) else limited
        chosen.__name__ = name
        return chosen  # type: ignore[no-any-return]  # it is called as the function is

    async def _awaited(self, result: Coroutine[Any, Any, Any]) -> Any:
        with self:
            return await result

    def _generator(self, name: str) -> TypeError:
        return TypeError(
            f"no_network decorates functions: {name} is a generator: write `with {self._limit.said_by}:` inside it"
        )


def _is(function: Any, *kinds: Callable[[Any], bool]) -> bool:
    """Say whether a function, or what is called of an object, is of a kind."""
    return any(kind(each) for kind in kinds for each in (function, getattr(function, "__call__", None)))  # noqa: B004  # it is called
