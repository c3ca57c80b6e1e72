"""One branch that a coordination leads: what its two drivers do alike, whether they await or block."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable
from copy import copy
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import force_setattr

from promptkit._machines import coordination as machine
from promptkit._values.events import compose_observers
from promptkit._values.functions import give_up
from promptkit._values.handle import Handle
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import ConversationTurn, CoordinateRequest, CoordinationResult
from promptkit.errors import EngineStateError, InvalidRequestError, with_article

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from rich.console import RenderableType


HAS_RUN = "this coordination has been started, and runs once: make another with engine.coordinate(...)"
IS_RUNNING = "this coordination is running: it runs once, and its result is read from .result when it ends"
UNDELIVERED = (
    "the response that next was not given is in .result.undelivered of the coordination: "
    "keep what engine.coordinate(...) gives, and run that"
)
_RETURNS = "it returns a RunRequest to go on, or None to stop"


def place_of_call() -> tuple[CodeType, int]:
    """Give where the engine's method was called that makes a handle. To be called by what that method calls.

    When the handle is dropped, its maker is long gone from the stack. A thread may begin with the engine's method.
    """
    method = sys._getframe(2)  # noqa: SLF001
    caller = method.f_back or method
    return caller.f_code, caller.f_lineno


def ended_by(error: BaseException) -> str:
    """Say how a coordination ended that this left: an interrupt cancels it, as a cancellation does."""
    return f"{'failed' if isinstance(error, Exception) else 'cancelled'} ({type(error).__name__})"


class CoordinationHandle(Handle, final=False):
    """What a coordination is to its application, awaited or not: how it stands, and a warning where it never ran."""

    __slots__ = ("__weakref__", "_asked", "_made_at", "_result", "_state")
    _to_run: ClassVar[str]  # what was forgotten
    _asked: bool  # to run, if only to be refused: nobody has forgotten it
    _made_at: tuple[CodeType, int]
    _result: CoordinationResult
    _state: str

    def _keep(self, result: CoordinationResult) -> None:
        self._result = result

    def __del__(self) -> None:
        """Warn when nobody asked it to run."""
        if not getattr(self, "_asked", True):
            code, line = self._made_at
            text = f"a coordination was never run: {self._to_run}"
            warnings.warn_explicit(text, RuntimeWarning, code.co_filename, line, source=self)

    def __repr__(self) -> str:
        """Tell the state."""
        return f"<promptkit.{type(self).__name__} {self._state}>"

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people: the state, and a response that was not delivered."""
        from promptkit._values.renderables import led_view

        return led_view(repr(self), self._result)


def not_run(handle: CoordinationHandle, made_at: tuple[CodeType, int]) -> None:
    """Let a handle that was just made stand at its beginning."""
    handle._made_at, handle._asked = made_at, False  # noqa: SLF001  # the halves of one capability
    handle._result, handle._state = _UNENDED, "not run"  # noqa: SLF001


_UNENDED = CoordinationResult()


class Branch:
    """A branch as it grows. What was delivered is gone: it keeps its own exchange."""

    def __init__(self, request: CoordinateRequest, keep: Callable[[CoordinationResult], None]) -> None:
        self._request = request
        self._keep = keep
        self._exchange = request.start
        self._pending: RunResult | None = None
        self._chosen: RunRequest | None = None
        self._error: BaseException | None = None

    def _turn(self, remaining: int) -> ConversationTurn:
        """Make what the application is called with."""
        return ConversationTurn(exchange=self._exchange, result=self._pending, remaining_turns=remaining)

    def _raised(self, error: BaseException) -> machine.Input:
        """Hold an error back until the check that follows it. No coroutine can raise a StopIteration."""
        if isinstance(error, StopIteration):
            self._error = InvalidRequestError("next raised StopIteration: return None to stop")
            self._error.__cause__ = error
        else:
            self._error = error
        return machine.RAISED

    def _returned(self, chosen: object) -> machine.Input:
        """Take what the application returned."""
        if not (chosen is None or isinstance(chosen, RunRequest)):
            give_up(chosen)
            return self._raised(InvalidRequestError(f"next returned {_mistaken(chosen)}"))
        if chosen is None:
            return machine.STOP
        self._chosen = copy(chosen)  # at once: its values are frozen, but the application may have means of its own
        return machine.GO_ON

    def _continuation(self) -> RunRequest:
        """Make the request that runs what was chosen, as a continuation of the branch."""
        request, self._chosen = self._chosen, None
        if request is None:
            msg = "the coordination machine executes nothing that was not chosen"
            raise EngineStateError(msg)
        force_setattr(request, "continue_from", self._exchange)
        if self._request.observer is not None:
            force_setattr(request, "observer", compose_observers(request.observer, self._request.observer))
        return request

    def _completed(self, result: RunResult) -> machine.Input:
        """Grow by a result, which waits for delivery."""
        self._exchange = result.exchange
        self._pending = result
        return machine.COMPLETED

    def _note(self, cancellation: BaseException) -> None:
        """Tell a cancellation what it wins over. The text of that may be anything, and it is logged where it ends."""
        if self._error is not None:
            cancellation.add_note(f"next had raised {type(self._error).__name__}")
            self._error = None

    def _end(self, command: machine.Command) -> None:
        """Carry out the last command of the machine."""
        match command:
            case machine.Finish(outcome=outcome):
                self._keep(CoordinationResult(outcome=outcome))
            case machine.Propagate() if self._error is not None:
                try:
                    raise self._error
                finally:
                    self._error = None  # or it would keep itself alive, through its traceback and this frame
            case _:
                msg = f"the coordination machine gave {command!r}, which nothing led to"
                raise EngineStateError(msg)


def _mistaken(chosen: object) -> str:
    """Name what the application returned instead, and say what to do."""
    kind = with_article(type(chosen).__name__)
    if isinstance(chosen, Awaitable):
        return f"{kind} that was not awaited: await it in next; {_RETURNS}"
    if isinstance(chosen, RunResult):
        return f"{kind}: give the request itself, which the coordination runs; {_RETURNS}"
    return f"{kind}: {_RETURNS}"
