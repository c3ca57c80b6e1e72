"""Drives one branch: calls the application, checks for cancellation, and runs what it chose."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable, Callable, Generator
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn, Self, final

import anyio
from msgspec.structs import force_setattr

from promptkit._effects.cancellation import CancellationCheck
from promptkit._effects.frames import forget_locals
from promptkit._machines import coordination as machine
from promptkit._values.events import compose_observers
from promptkit._values.functions import give_up
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import ConversationTurn, CoordinateRequest, CoordinationResult
from promptkit.errors import EngineStateError, InvalidRequestError

if TYPE_CHECKING:
    from types import CodeType

Execute = Callable[[RunRequest], Awaitable[RunResult]]


@final
class Coordination:
    """A coordination that runs once: ``await coordination``.

    In a task of its own: ``task_group.start_soon(coordination.run)``, or ``asyncio.create_task(coordination.run())``.

    An error or a cancellation leaves through the await as itself; ``result`` survives both. A second run is an
    EngineStateError, and a handle that is dropped without having run a RuntimeWarning. Made by ``Engine.coordinate``.
    """

    __slots__ = ("__weakref__", "_execute", "_made_at", "_request", "_result", "_started")
    _execute: Execute
    _made_at: tuple[CodeType, int]
    _request: CoordinateRequest
    _result: CoordinationResult
    _started: bool

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse: an engine makes it."""
        msg = "a Coordination cannot be constructed: engine.coordinate(request) makes one"
        raise TypeError(msg)

    def __init_subclass__(cls) -> NoReturn:
        """Refuse to be subclassed."""
        msg = "Coordination is final"
        raise TypeError(msg)

    def __await__(self) -> Generator[Any, Any, CoordinationResult]:
        """Run, and give the result."""
        return self.run().__await__()

    @property
    def result(self) -> CoordinationResult:
        """How it ended. ``outcome`` is None while it runs, and after an error or a cancellation."""
        return self._result

    async def run(self) -> CoordinationResult:
        """Lead the branch to its end.

        Raises what the application or a run raised, unchanged; a cancellation wins over both. No lease or permit is
        held while the application works.
        """
        if self._started:
            msg = "this coordination has been started, and runs once: make another with engine.coordinate(...)"
            raise EngineStateError(msg)
        self._started = True
        try:
            await _Branch(self._request, self._execute, self._keep).lead()
        except BaseException as error:
            forget_locals(error)
            raise
        finally:
            del self._execute, self._request
        return self._result

    def _keep(self, result: CoordinationResult) -> None:
        self._result = result

    def __del__(self) -> None:
        """Warn when nothing was awaited."""
        if not getattr(self, "_started", True):
            code, line = self._made_at
            text = "a coordination was never run: await it"
            warnings.warn_explicit(text, RuntimeWarning, code.co_filename, line, source=self)

    def __repr__(self) -> str:
        """Tell the state."""
        return f"<promptkit.Coordination {self._result.outcome or ('started' if self._started else 'not run')}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        msg = "a Coordination cannot be copied or pickled"
        raise TypeError(msg)


def coordination_of(request: CoordinateRequest, execute: Execute) -> Coordination:
    """Make the handle of a coordination, for the caller of the caller."""
    coordination: Coordination = object.__new__(Coordination)
    # When the handle is dropped, its maker is long gone from the stack. A thread may begin with the engine's method.
    maker = sys._getframe(1)  # noqa: SLF001
    caller = maker.f_back or maker
    coordination._made_at = caller.f_code, caller.f_lineno  # noqa: SLF001
    coordination._request, coordination._execute = request, execute  # noqa: SLF001
    coordination._result, coordination._started = _UNENDED, False  # noqa: SLF001
    return coordination


_UNENDED = CoordinationResult()


class _Branch:
    """The effects of one coordination. What was delivered is gone: the branch keeps its own exchange."""

    def __init__(
        self, request: CoordinateRequest, execute: Execute, keep: Callable[[CoordinationResult], None]
    ) -> None:
        self._request = request
        self._execute = execute
        self._keep = keep
        self._check = CancellationCheck()
        self._exchange = request.start
        self._pending: RunResult | None = None
        self._chosen: RunRequest | None = None
        self._error: BaseException | None = None

    async def lead(self) -> None:
        """Follow the coordination machine to its end."""
        state, command = machine.start(self._request.additional_turns)
        while True:
            match command:
                case machine.Check():
                    state, command = await self._checked(state)
                case machine.Call(remaining=remaining):
                    state, command = machine.step(state, await self._called(remaining))
                case machine.Execute():
                    state, command = machine.step(state, await self._executed())
                case machine.Finish(outcome=outcome):
                    self._keep(CoordinationResult(outcome=outcome))
                    return
                case machine.Propagate() if self._error is not None:
                    try:
                        raise self._error
                    finally:
                        self._error = None  # or it would keep itself alive, through its traceback and this frame
                case _:
                    msg = f"the coordination machine gave {command!r}, which nothing led to"
                    raise EngineStateError(msg)

    async def _checked(self, state: machine.State) -> machine.Step:
        """Look for a cancellation; with one, keep what was not delivered and let it through.

        An interrupt that strikes here is none of its own, and loses no completed response either.
        """
        try:
            await self._check()
        except BaseException as found:
            _, command = machine.step(state, machine.CANCELLED)
            if isinstance(command, machine.Withhold) and command.undelivered:
                self._keep(CoordinationResult(undelivered=self._pending))
            if self._error is not None:  # its text may be anything, and a cancellation is logged where it ends
                found.add_note(f"next had raised {type(self._error).__name__}")
                self._error = None
            raise
        return machine.step(state, machine.CLEAR)

    async def _called(self, remaining: int) -> machine.Input:
        """Call the application: being called is delivery."""
        turn = ConversationTurn(exchange=self._exchange, result=self._pending, remaining_turns=remaining)
        self._pending = None
        try:
            chosen = self._request.next(turn)
            if isinstance(chosen, Awaitable):
                chosen = await chosen
        except StopIteration as stop:
            error = InvalidRequestError("next raised StopIteration: return None to stop")
            error.__cause__ = stop
            self._error = error
            return machine.RAISED
        except Exception as error:  # noqa: BLE001  # any error of the application ends the branch, after the check
            self._error = error
            return machine.RAISED
        except BaseExceptionGroup as group:
            if not _errors_and_cancellations(group):
                raise
            self._error = group
            return machine.RAISED
        if not (chosen is None or isinstance(chosen, RunRequest)):
            self._error = InvalidRequestError(f"next returned {_named(chosen)}: {_RETURNS}")
            give_up(chosen)
            return machine.RAISED
        self._chosen = chosen
        return machine.STOP if chosen is None else machine.GO_ON

    async def _executed(self) -> machine.Input:
        """Run what was chosen, as a continuation of the branch."""
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            msg = "the coordination machine executes nothing that was not chosen"
            raise EngineStateError(msg)
        request = copy(chosen)  # its values were checked when it was made, and are frozen
        force_setattr(request, "continue_from", self._exchange)
        if self._request.observer is not None:
            force_setattr(request, "observer", compose_observers(chosen.observer, self._request.observer))
        result = await self._execute(request)
        self._exchange = result.exchange
        self._pending = result
        return machine.COMPLETED


_RETURNS = "it returns a RunRequest to go on, or None to stop"


def _named(chosen: object) -> str:
    kind = type(chosen).__name__
    if isinstance(chosen, Awaitable):
        return f"a {kind} of a {kind}" if kind == "coroutine" else f"an awaitable that gives a {kind}"
    return f"a {kind}"


def _errors_and_cancellations(group: BaseExceptionGroup[BaseException]) -> bool:
    """Say whether a group holds nothing that has to go through at once, as an interrupt has."""
    kinds = (Exception, anyio.get_cancelled_exc_class())
    return group.split(kinds)[1] is None
