"""Drives one branch from a thread without an event loop: the application is called there, only runs go to the loop."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from promptkit._effects.branch import HAS_RUN, Branch, place_of_call
from promptkit._effects.frames import forget_locals
from promptkit._effects.loop_thread import Call, LoopOwner, deadline_after
from promptkit._machines import coordination as machine
from promptkit._values.functions import give_up
from promptkit._values.handle import Handle
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import CoordinateRequest, CoordinationResult
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
class BlockingCoordination(Handle):
    """A coordination that runs once: ``coordination.run()``.

    An error, a timeout or a KeyboardInterrupt leaves through ``run`` as itself; ``result`` survives each, and any
    thread may read it meanwhile. A second run is an EngineStateError, and a handle that is dropped without having run a
    RuntimeWarning. Made by ``BlockingEngine.coordinate``.
    """

    __slots__ = ("__weakref__", "_lock", "_made_at", "_result", "_work")
    _called = "a BlockingCoordination"
    _comes_from = "engine.coordinate(request) makes one"
    _lock: threading.Lock
    _made_at: tuple[CodeType, int]
    _result: CoordinationResult
    _work: Work | None  # until it runs

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
            raise EngineStateError(HAS_RUN)
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


def coordination_of(request: CoordinateRequest, owner: LoopOwner, execute: Execute) -> BlockingCoordination:
    """Make the handle of a coordination whose runs go to the owner's loop, for the caller of the caller."""
    made: BlockingCoordination = object.__new__(BlockingCoordination)
    made._made_at = place_of_call()  # noqa: SLF001  # the halves of one capability
    made._result, made._lock = CoordinationResult(), threading.Lock()  # noqa: SLF001
    made._work = Work(request, owner, execute)  # noqa: SLF001
    return made


class _Branch(Branch):
    """The effects of one coordination."""

    def __init__(self, work: Work, keep: Callable[[CoordinationResult], None], deadline: float) -> None:
        super().__init__(work.request, keep)
        self._owner = work.owner
        self._execute = work.execute
        self._deadline = deadline
        self._call: Call[RunResult] | None = None  # in flight, or completed and not yet pending

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
                    state, command = machine.step(state, machine.CANCELLED if expired else machine.CLEAR)
                case machine.Call(remaining=remaining):
                    state, command = machine.step(state, self._called(remaining))
                case machine.Execute():
                    state, command = machine.step(state, self._executed())
                case machine.Withhold():
                    timed_out = TimeoutError("the coordination did not finish within its timeout")
                    self._note(timed_out)
                    raise timed_out
                case _:
                    self._end(command)
                    return

    def _called(self, remaining: int) -> machine.Input:
        """Call the application: being called is delivery."""
        turn = self._turn(remaining)
        try:
            self._pending = None
            chosen = self._request.next(turn)
        except Exception as error:  # noqa: BLE001  # any error of the application ends the branch, after the check
            return self._raised(error)
        if isinstance(chosen, Awaitable):
            give_up(chosen)
            return self._raised(InvalidRequestError(_AWAITABLE))
        return self._returned(chosen)

    def _executed(self) -> machine.Input:
        """Run what was chosen, in what is left of the time."""
        self._call = Call(partial(self._execute, self._continuation()), self._deadline)
        done = self._completed(self._owner.perform(self._call))
        self._call = None
        return done


_AWAITABLE = "next of a BlockingEngine is a plain function: it returned an awaitable, for which there is Engine"
