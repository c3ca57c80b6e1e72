"""What passes between the coordinator and the application."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from promptkit._values.construction import Checked, reader_of
from promptkit._values.events import Observer
from promptkit._values.exchange import Exchange, read_exchange
from promptkit._values.frozen import UnfitError, shown
from promptkit._values.functions import expect_no_class, function_kind, one_argument_misfit
from promptkit._values.reprs import bounded_repr
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit.errors import InvalidRequestError, with_article

if TYPE_CHECKING:
    from rich.console import RenderableType

    from promptkit._values.construction import Reader


class ConversationTurn(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the application decides on: the branch so far, and the response that has just completed.

    Attributes:
        exchange: the branch so far: the start, later the exchange of the newest response.
        result: the response that has just completed; None before the first continuation.
        remaining_turns: how many more may be started; 0 with the last permitted response.
    """

    exchange: Exchange
    result: RunResult | None
    remaining_turns: int

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import turn_view

        return turn_view(self)


NextTurn = Callable[[ConversationTurn], RunRequest | Awaitable[RunRequest | None] | None]
"""Chooses the next request, or None to stop: a plain or an async function, a method, a partial, a callable object."""


def _read_next(value: Any) -> Any:
    if not callable(value):
        msg = f"Expected {_FUNCTION}, got `{type(value).__name__}`{_instead(value)}"
        raise UnfitError(msg)
    expect_no_class(value, _FUNCTION)
    kind = function_kind(value)
    if kind in {"generator", "async generator"}:
        msg = f"Expected a plain or an async function, got {with_article(kind)} function: {_RETURN}"
        raise UnfitError(msg)
    misfit = one_argument_misfit(value)
    if misfit is not None:
        msg = f"Expected {_FUNCTION}, got one that {misfit}"
        raise UnfitError(msg)
    return value


_FUNCTION = "a function of a ConversationTurn"
_RETURN = "return the request instead of yielding it"


def _instead(value: object) -> str:
    """Say what to give instead of what cannot be called."""
    if callable(getattr(value, "next", None)):
        return ": give its .next"
    if isinstance(value, Generator | AsyncGenerator):
        return f": give a function, which is called anew each turn: {_RETURN}"
    if isinstance(value, Awaitable):
        return ": give the async function itself, without calling it"
    return ""


def _read_turns(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        return reader_of(int)(value)
    plain = int.__int__(value)  # a subclass may compare as it likes
    if plain < 0:
        msg = f"is {shown(plain)}: 0 or more"
        raise UnfitError(msg)
    return plain


AS_WRITTEN = "CoordinateRequest(start=..., additional_turns=..., next=...)"


class CoordinateRequest(Checked, frozen=True, kw_only=True, eq=False):
    """One branch to lead: where it starts, at most how many continuations, and who chooses them.

    Raises InvalidRequestError, naming the field, for values of the wrong kind, and TypeError for arguments that it
    has not.

    Attributes:
        start: the exchange from which the branch goes on.
        additional_turns: at most how many continuations are run, 0 or more.
        next: is called with each completed response, the last permitted one too; with ``additional_turns`` 0 it is
            still called once. The request that it returns continues the branch, whatever its ``continue_from`` says;
            the rest of it is as for ``Engine.run``. To stop, it returns None; a StopIteration that it raises is an
            InvalidRequestError. It is called with no lease and no permit held: it may run anything, on the same
            backend too.
        observer: receives the events of the continuations, after each request's own.
    """

    start: Exchange
    additional_turns: int
    next: NextTurn
    observer: Observer | None = None

    @classmethod
    def _special_fields(cls) -> Mapping[str, Reader]:
        """Name the fields that an annotation cannot describe."""
        return {"start": read_exchange, "next": _read_next, "additional_turns": _read_turns}


def expect_coordination(given: object) -> None:
    """Raise InvalidRequestError for what is no CoordinateRequest."""
    if not isinstance(given, CoordinateRequest):
        msg = f"coordinate: Expected a CoordinateRequest, got `{type(given).__name__}`: give {AS_WRITTEN}"
        raise InvalidRequestError(msg)


class CoordinationResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a coordination ended.

    Attributes:
        outcome: "stopped" when the application chose to stop, "exhausted" when it asked for a turn that the budget did
            not permit, None when it did not end normally.
        undelivered: a completed response that a cancellation kept from the application, or None.
    """

    outcome: Literal["stopped", "exhausted"] | None = None
    undelivered: RunResult | None = None

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import coordination_view

        return coordination_view(self)
