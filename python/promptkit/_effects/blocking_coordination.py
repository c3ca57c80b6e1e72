"""Drives one branch from a thread without an event loop: the application is called there, only runs go to the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from promptkit._effects.branch import (
    HAS_RUN,
    IS_RUNNING,
    UNDELIVERED,
    Branch,
    CoordinationHandle,
    ended_by,
    not_run,
    place_of_call,
)
from promptkit._effects.call import Call
from promptkit._effects.frames import forget_locals
from promptkit._effects.once import Once
from promptkit._effects.time_limit import NO_LIMIT, TimeLimit, limit_of
from promptkit._machines import coordination as machine
from promptkit._values.functions import give_up
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import CoordinateRequest, CoordinationResult
from promptkit.errors import EngineStateError, InvalidRequestError

if TYPE_CHECKING:
    from promptkit._effects.loop_thread import LoopOwner

Execute = Callable[[RunRequest], Awaitable[RunResult]]


class Work(NamedTuple):
    """What a coordination needs to run. ``full_id`` gives the id of a prompt as the catalog has it."""

    request: CoordinateRequest
    owner: LoopOwner
    execute: Execute
    full_id: Callable[[str], str]


@final
class BlockingCoordination(CoordinationHandle):
    """A coordination that runs once: ``coordination.run()``.

    An error, a timeout or a KeyboardInterrupt leaves through ``run`` as itself; ``result`` survives each, and any
    thread may read it meanwhile. A second run is an EngineStateError, and a handle that is dropped and whose ``run``
    was never called a RuntimeWarning. Made by ``BlockingEngine.coordinate``.

    Its repr says "not run", "running", "stopped", "exhausted", "failed (TypeName)" with the class of the error, or
    "cancelled (timeout)", "cancelled (KeyboardInterrupt)".
    """

    __slots__ = ("_claim", "_work")
    _called = "a BlockingCoordination"
    _comes_from = "engine.coordinate(request) makes one"
    _to_run = "call its run()"
    _claim: Once[object]
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
        and EngineStateError when it has run, the engine is closed, or an event loop runs in this thread.
        """
        self._asked = True
        work = self._work
        if work is None:
            raise EngineStateError(self._refusal())
        work.owner.expect_usable()
        work.owner.expect_open()
        branch = _Branch(work, self._keep, limit_of(timeout, "the coordination"))
        mine = object()
        if self._claim.settle(mine) is not mine:
            raise EngineStateError(self._refusal())
        try:
            self._work, self._state = None, "running"
            branch.lead()
        except BaseException as error:
            self._state = "cancelled (timeout)" if branch.timed_out else ended_by(error)
            forget_locals(error)
            raise
        self._state = self._result.outcome or self._state
        return self._result

    def _refusal(self) -> str:
        """Say why it does not run once more."""
        return IS_RUNNING if self._state == "running" else HAS_RUN


def coordination_of(work: Work) -> BlockingCoordination:
    """Make the handle of a coordination whose runs go to the owner's loop, for the caller of the caller."""
    made: BlockingCoordination = object.__new__(BlockingCoordination)
    not_run(made, place_of_call())
    made._claim, made._work = Once(), work  # noqa: SLF001  # the halves of one capability
    return made


class _Branch(Branch):
    """The effects of one coordination."""

    def __init__(self, work: Work, keep: Callable[[CoordinationResult], None], limit: TimeLimit) -> None:
        super().__init__(work.request, keep)
        self._work = work
        self._limit = limit
        self._call: Call[RunResult] | None = None  # in flight, or completed and not yet pending
        self._withheld = False

    @property
    def timed_out(self) -> bool:
        """Whether it ended because its time was over."""
        return self._withheld or (self._call is not None and self._call.timed_out)

    def lead(self) -> None:
        """Follow the coordination machine to its end; keep what was not delivered, whatever interrupts."""
        try:
            self._follow()
        except BaseException as error:
            reply = None if self._call is None else self._call.reply
            undelivered = reply[0] if self._pending is None and reply is not None else self._pending
            if undelivered is not None:
                self._keep(CoordinationResult(undelivered=undelivered))
                if not (self._withheld and isinstance(error, TimeoutError)):  # that one says so itself
                    error.add_note(UNDELIVERED)
            raise

    def _follow(self) -> None:
        called = False
        state, command = machine.start(self._request.additional_turns)
        while True:
            match command:
                case machine.Check():
                    state, command = machine.step(state, machine.CANCELLED if self._limit.over else machine.CLEAR)
                case machine.Call(remaining=remaining):
                    called = True
                    state, command = machine.step(state, self._called(remaining))
                case machine.Execute():
                    state, command = machine.step(state, self._executed())
                case machine.Withhold(undelivered=undelivered):
                    self._withheld = True
                    fate = UNDELIVERED if undelivered else _TOO_LATE if called else "it was not begun"
                    timed_out = self._limit.error(fate)
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
        request = self._continuation()
        limit = self._limit
        if limit is not NO_LIMIT:
            limit = limit.of_part(f"its run of prompt {self._work.full_id(request.prompt_id)!r}")
        self._call = Call(partial(self._work.execute, request), limit)
        done = self._completed(self._work.owner.perform(self._call))
        self._call = None
        return done


_AWAITABLE = "next of a BlockingEngine is a plain function: it returned an awaitable, for which there is Engine"
_TOO_LATE = "next took so long that nothing followed it"
