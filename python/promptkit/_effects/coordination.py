"""Drives one branch: calls the application, checks for cancellation, and runs what it chose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, final

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
from promptkit._effects.cancellation import CancellationCheck, cancellations, is_cancellation
from promptkit._effects.event_loop import current_task
from promptkit._effects.frames import forget_locals
from promptkit._machines import coordination as machine
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import CoordinateRequest, CoordinationResult
from promptkit.errors import EngineStateError

Execute = Callable[[RunRequest], Awaitable[RunResult]]


class Work(NamedTuple):
    """What a coordination needs to run."""

    request: CoordinateRequest
    execute: Execute
    expect_usable: Callable[[], None]  # raises when the engine could run nothing here


@final
class Coordination(CoordinationHandle):
    """A coordination that runs once: ``await coordination``.

    In a task of its own: ``task_group.start_soon(coordination.run)``, or ``asyncio.create_task(coordination.run())``.

    (What these two take is a function and a coroutine. The handle itself is neither.)

    An error or a cancellation leaves through the await as itself; ``result`` survives both, and ``repr`` says which it
    was. A cancellation that kept a completed response from the application has a note that says so. A second run is an
    EngineStateError, and a handle that is dropped without having run a RuntimeWarning. Made by ``Engine.coordinate``.
    """

    __slots__ = ("_task", "_work")
    _called = "a Coordination"
    _comes_from = "engine.coordinate(request) makes one"
    _to_run = "await it"
    _task: Any  # that runs it, while one does
    _work: Work | None  # until it runs

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
        held while the application works. Raises EngineStateError, before ``next`` is called, when it has been started
        before, or the engine has been closed or serves another event loop. An engine that is closed later refuses the
        next run.
        """
        self._asked = True
        work = self._work
        if work is None:
            raise EngineStateError(self._refusal())
        work.expect_usable()
        self._work = None
        try:
            self._state, self._task = "running", current_task()
            await _Branch(work.request, work.execute, self._keep).lead()
        except BaseException as error:
            self._state = "cancelled" if is_cancellation(error) else ended_by(error)
            del work
            forget_locals(error)
            raise
        finally:
            self._task = None
        self._state = str(self._result.outcome)
        return self._result

    def _refusal(self) -> str:
        """Say why it does not run once more."""
        if self._task is None:
            return HAS_RUN
        return _AWAITS_ITSELF if self._task is current_task() else IS_RUNNING


def coordination_of(request: CoordinateRequest, execute: Execute, expect_usable: Callable[[], None]) -> Coordination:
    """Make the handle of a coordination, for the caller of the caller."""
    coordination: Coordination = object.__new__(Coordination)
    not_run(coordination, place_of_call())
    coordination._work, coordination._task = Work(request, execute, expect_usable), None  # noqa: SLF001  # the halves of one capability
    return coordination


_AWAITS_ITSELF = "this coordination is running: its own next awaits it, and would wait for itself"


class _Branch(Branch):
    """The effects of one coordination."""

    def __init__(
        self, request: CoordinateRequest, execute: Execute, keep: Callable[[CoordinationResult], None]
    ) -> None:
        super().__init__(request, keep)
        self._execute = execute
        self._check = CancellationCheck()

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
                    completed = self._completed(await self._execute(self._continuation()))
                    state, command = machine.step(state, completed)
                case _:
                    self._end(command)
                    return

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
                found.add_note(UNDELIVERED)
            raised = self._error
            if raised is None or not _is_same_cancellation(raised, found):
                self._note(found)
                raise
        else:
            return machine.step(state, machine.CLEAR)
        self._error = None
        raise raised  # as what the application has seen, where it has seen it

    async def _called(self, remaining: int) -> machine.Input:
        """Call the application: being called is delivery."""
        turn = self._turn(remaining)
        self._pending = None
        try:
            chosen = self._request.next(turn)
            if isinstance(chosen, Awaitable):
                chosen = await chosen
        except Exception as error:  # noqa: BLE001  # any error of the application ends the branch, after the check
            return self._raised(error)
        except BaseException as error:
            if not _waits_for_the_check(error):
                raise
            return self._raised(error)
        return self._returned(chosen)


def _waits_for_the_check(error: BaseException) -> bool:
    """Say whether an error of the application, or a group, is nothing that has to go through at once.

    An interrupt has to, and so has the end of a coroutine. A cancellation may be one that nobody asked for.
    """
    if isinstance(error, GeneratorExit):
        return False
    if isinstance(error, BaseExceptionGroup):
        kinds: tuple[type[BaseException], ...] = (Exception, *cancellations())
        return error.split(kinds)[1] is None
    return isinstance(error, cancellations())


def _is_same_cancellation(raised: BaseException, found: BaseException) -> bool:
    """Say whether the application let out the very cancellation that a check found, which then need not be another.

    asyncio tells them by their message, which a check does not know of one that was delivered before. trio does not.
    """
    return isinstance(raised, cancellations()) and type(raised) is type(found) and found.args in ((), raised.args)
