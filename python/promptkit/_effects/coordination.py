"""Drives one branch: calls the application, checks for cancellation, and runs what it chose."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NoReturn, final

import anyio
import msgspec

from promptkit._effects.cancellation import CancellationCheck
from promptkit._machines import coordination as machine
from promptkit._values.events import compose_observers
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import ConversationTurn, CoordinateRequest, CoordinationResult
from promptkit.errors import EngineStateError, InvalidRequestError

Execute = Callable[[RunRequest], Awaitable[RunResult]]


@final
class Coordination:
    """A coordination that runs once: ``await coordination``.

    In a task of its own: ``task_group.start_soon(coordination.run)``, or ``asyncio.create_task(coordination.run())``.

    An error or a cancellation leaves through the await as itself; ``result`` survives both. A second run is an
    EngineStateError, and a handle that is dropped without having run a RuntimeWarning. Made by ``Engine.coordinate``.
    """

    __slots__ = ("__weakref__", "_execute", "_request", "_result", "_started")

    def __init__(self, request: CoordinateRequest, execute: Execute) -> None:
        self._request = request
        self._execute = execute
        self._result = CoordinationResult()
        self._started = False

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
            msg = "this coordination has run: make another with engine.coordinate(...)"
            raise EngineStateError(msg)
        self._started = True
        try:
            await _Branch(self._request, self._execute, self._keep).lead()
        finally:
            del self._execute
        return self._result

    def _keep(self, result: CoordinationResult) -> None:
        self._result = result

    def __del__(self) -> None:
        """Warn when nothing was awaited."""
        if not getattr(self, "_started", True):
            warnings.warn("a coordination was never run: await it", RuntimeWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        """Tell the state."""
        return f"<promptkit.Coordination {self._result.outcome or ('started' if self._started else 'not run')}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        msg = "a Coordination cannot be copied or pickled"
        raise TypeError(msg)


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
        self._error: Exception | None = None

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
        """Look for a cancellation; with one, keep what was not delivered and let it through."""
        try:
            await self._check()
        except anyio.get_cancelled_exc_class():
            _, command = machine.step(state, machine.Cancelled())
            if isinstance(command, machine.Withhold) and command.undelivered:
                self._keep(CoordinationResult(undelivered=self._pending))
            raise
        return machine.step(state, machine.Clear())

    async def _called(self, remaining: int) -> machine.Input:
        """Call the application: being called is delivery."""
        turn = ConversationTurn(exchange=self._exchange, result=self._pending, remaining_turns=remaining)
        self._pending = None
        try:
            chosen = self._request.next(turn)
            if isinstance(chosen, Awaitable):
                chosen = await chosen
        except Exception as error:  # noqa: BLE001  # any error of the application ends the branch, after the check
            self._error = error
            return machine.Raised()
        if not (chosen is None or isinstance(chosen, RunRequest)):
            kind = type(chosen).__name__
            self._error = InvalidRequestError(
                f"next returned a {kind}: it returns a RunRequest to go on, or None to stop"
            )
            return machine.Raised()
        self._chosen = chosen
        return machine.Chose(stop=chosen is None)

    async def _executed(self) -> machine.Input:
        """Run what was chosen, as a continuation of the branch."""
        if self._chosen is None:
            msg = "the coordination machine executes nothing that was not chosen"
            raise EngineStateError(msg)
        request = msgspec.structs.replace(
            self._chosen,
            continue_from=self._exchange,
            observer=compose_observers(self._chosen.observer, self._request.observer),
        )
        result = await self._execute(request)
        self._exchange = result.exchange
        self._pending = result
        return machine.Completed()
