"""Drives one branch from a thread without an event loop: the application is called there, only runs go to the loop."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self, final

import msgspec

from promptkit._effects.frames import forget_locals
from promptkit._effects.loop_thread import Call, LoopOwner, deadline_after
from promptkit._machines import coordination as machine
from promptkit._values.events import compose_observers
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import ConversationTurn, CoordinateRequest, CoordinationResult
from promptkit.errors import EngineStateError, InvalidRequestError

if TYPE_CHECKING:
    from types import CodeType

Execute = Callable[[RunRequest], Awaitable[RunResult]]


class Work(NamedTuple):
    """What a coordination needs to run."""

    request: CoordinateRequest
    owner: LoopOwner
    execute: Execute


@final
class BlockingCoordination:
    """A coordination that runs once: ``coordination.run()``.

    An error, a timeout or a KeyboardInterrupt leaves through ``run`` as itself; ``result`` survives each, and any
    thread may read it meanwhile. A second run is an EngineStateError, and a handle that is dropped without having run a
    RuntimeWarning. Made by ``BlockingEngine.coordinate``.
    """

    __slots__ = ("__weakref__", "_lock", "_made_at", "_result", "_work")
    _lock: threading.Lock
    _made_at: tuple[CodeType, int]
    _result: CoordinationResult
    _work: Work | None  # until it runs

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse: an engine makes it."""
        msg = "a BlockingCoordination cannot be constructed: engine.coordinate(request) makes one"
        raise TypeError(msg)

    def __init_subclass__(cls) -> NoReturn:
        """Refuse to be subclassed."""
        msg = "BlockingCoordination is final"
        raise TypeError(msg)

    @property
    def result(self) -> CoordinationResult:
        """How it ended. ``outcome`` is None while it runs, and after an error, a timeout or a KeyboardInterrupt.

        ``undelivered`` is then the response that had completed and never reached ``next``, if there is one.
        """
        return self._result

    def run(self, *, timeout: float | None = None) -> CoordinationResult:
        """Lead the branch to its end. ``next`` is called in this thread, and may use the engine.

        ``timeout`` bounds the whole in seconds (None: no limit). When it is over, a run is cancelled wherever it is;
        ``next`` is not interrupted, but nothing follows it. Raises what the application or a run raised, unchanged;
        TimeoutError, which wins over what ``next`` returned or raised; InvalidRequestError for a timeout that is none;
        and EngineStateError when it has run, or an event loop runs in this thread.
        """
        waiting = self._work
        if waiting is not None:
            waiting.owner.expect_usable()  # before the lock: in the child of a fork it may be held for ever
        deadline = deadline_after(timeout)
        with self._lock:
            work, self._work = self._work, None
        if work is None:
            msg = "this coordination has been started, and runs once: make another with engine.coordinate(...)"
            raise EngineStateError(msg)
        try:
            _Branch(work, self._keep, deadline).lead()
        except BaseException as error:
            forget_locals(error)
            raise
        return self._result

    def _keep(self, result: CoordinationResult) -> None:
        self._result = result

    def __del__(self) -> None:
        """Warn when it never ran."""
        if getattr(self, "_work", None) is not None:
            code, line = self._made_at
            text = "a coordination was never run: call its run()"
            warnings.warn_explicit(text, RuntimeWarning, code.co_filename, line, source=self)

    def __repr__(self) -> str:
        """Tell the state."""
        state = self._result.outcome or ("started" if self._work is None else "not run")
        return f"<promptkit.BlockingCoordination {state}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        msg = "a BlockingCoordination cannot be copied or pickled"
        raise TypeError(msg)


def coordination_of(request: CoordinateRequest, owner: LoopOwner, execute: Execute) -> BlockingCoordination:
    """Make the handle of a coordination whose runs go to the owner's loop, for the caller of the caller."""
    made: BlockingCoordination = object.__new__(BlockingCoordination)
    caller = sys._getframe(2)  # noqa: SLF001  # when the handle is dropped, its maker is long gone from the stack
    made._made_at = caller.f_code, caller.f_lineno  # noqa: SLF001  # the halves of one capability
    made._result, made._lock = CoordinationResult(), threading.Lock()  # noqa: SLF001
    made._work = Work(request, owner, execute)  # noqa: SLF001
    return made


class _Branch:
    """The effects of one coordination. What was delivered is gone: the branch keeps its own exchange."""

    def __init__(self, work: Work, keep: Callable[[CoordinationResult], None], deadline: float) -> None:
        self._request, self._owner, self._execute = work
        self._keep = keep
        self._deadline = deadline
        self._exchange = work.request.start
        self._pending: RunResult | None = None
        self._call: Call[RunResult] | None = None  # in flight, or completed and not yet pending
        self._chosen: RunRequest | None = None
        self._error: Exception | None = None

    def lead(self) -> None:
        """Follow the coordination machine to its end; keep what was not delivered, whatever interrupts."""
        try:
            self._follow()
        except BaseException:
            reply = None if self._call is None else self._call.reply
            undelivered = reply[0] if self._pending is None and reply is not None else self._pending
            if undelivered is not None:
                self._keep(CoordinationResult(undelivered=undelivered))
            raise

    def _follow(self) -> None:
        state, command = machine.start(self._request.additional_turns)
        while True:
            match command:
                case machine.Check():
                    expired = self._deadline <= time.monotonic()
                    state, command = machine.step(state, machine.Cancelled() if expired else machine.Clear())
                case machine.Call(remaining=remaining):
                    state, command = machine.step(state, self._called(remaining))
                case machine.Execute():
                    state, command = machine.step(state, self._executed())
                case machine.Finish(outcome=outcome):
                    self._keep(CoordinationResult(outcome=outcome))
                    return
                case machine.Withhold():
                    raise self._timed_out()
                case machine.Propagate() if self._error is not None:
                    try:
                        raise self._error
                    finally:
                        self._error = None  # or it would keep itself alive, through its traceback and this frame
                case _:
                    msg = f"the coordination machine gave {command!r}, which nothing led to"
                    raise EngineStateError(msg)

    def _timed_out(self) -> TimeoutError:
        timed_out = TimeoutError("the coordination did not finish within its timeout")
        if self._error is not None:  # its text may be anything
            timed_out.add_note(f"next had raised {type(self._error).__name__}")
            self._error = None
        return timed_out

    def _called(self, remaining: int) -> machine.Input:
        """Call the application: being called is delivery."""
        turn = ConversationTurn(exchange=self._exchange, result=self._pending, remaining_turns=remaining)
        try:
            self._pending = None
            chosen = self._request.next(turn)
        except Exception as error:  # noqa: BLE001  # any error of the application ends the branch, after the check
            self._error = error
            return machine.Raised()
        if isinstance(chosen, Awaitable):
            if isinstance(chosen, CoroutineType):
                chosen.close()  # it would warn that it was never awaited
            self._error = InvalidRequestError(
                "next of a BlockingEngine is a plain function: it returned an awaitable, for which there is Engine"
            )
            return machine.Raised()
        if not (chosen is None or isinstance(chosen, RunRequest)):
            kind = type(chosen).__name__
            self._error = InvalidRequestError(
                f"next returned a {kind}: it returns a RunRequest to go on, or None to stop"
            )
            return machine.Raised()
        self._chosen = chosen
        return machine.Chose(stop=chosen is None)

    def _executed(self) -> machine.Input:
        """Run what was chosen, as a continuation of the branch, in what is left of the time."""
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            msg = "the coordination machine executes nothing that was not chosen"
            raise EngineStateError(msg)
        request = msgspec.structs.replace(
            chosen,
            continue_from=self._exchange,
            observer=compose_observers(chosen.observer, self._request.observer),
        )
        self._call = Call(partial(self._execute, request), self._deadline)
        result = self._owner.perform(self._call)
        self._exchange = result.exchange
        self._pending = result
        self._call = None
        return machine.Completed()
