"""What a native cancellation needs beyond what anyio's scopes see (measured with anyio 4.16, httpx 0.28).

A scope that shields holds back scopes and deadlines, but not ``task.cancel()`` of asyncio: that one would lose a reply
that is in hand. And a cancellation that a callback swallowed, or a deadline that passed while it blocked, is seen by no
single checkpoint.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from promptkit._effects.event_loop import asyncio_task

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable


MOST_TURNS = 20
A_WHILE = 0.001  # seconds: more than what a turn of the event loop should take, and little beside a call of a model
TURNS_AFTER_A_WHILE = 4  # a timer wakes a task, which fails, which its group hears of, which cancels; two come before


async def finish(work: Callable[[], Awaitable[None]], *, within: float | None = None) -> None:
    """Do the work to its end. A cancellation that arrives meanwhile is delivered at the next await after it.

    Work of other people, which may have time limits and tasks of its own, is given up after ``within`` seconds.
    """
    with anyio.CancelScope(shield=True):
        task = asyncio_task()
        if within is None:
            await (work() if task is None else _finish_here(task, work))
            return
        if task is not None:
            await _finish_apart(task, work, within)
            return
        with anyio.move_on_after(within):
            await work()


async def _finish_apart(task: asyncio.Task[object], work: Callable[[], Awaitable[None]], within: float) -> None:
    """Do the work in a task of its own, which its own time limits can cancel, and which is cancelled after a time."""
    import asyncio

    async def bounded() -> None:
        with anyio.move_on_after(within):
            await work()

    working = asyncio.ensure_future(bounded())
    cancelled: tuple[object, ...] | None = None
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as error:
            cancelled = error.args
    _deliver(task, cancelled)
    working.result()


async def _finish_here(task: asyncio.Task[object], work: Callable[[], Awaitable[None]]) -> None:
    """Advance the work in this very task, and wait for what it waits for without lending it the task's cancellation.

    A cancelled task cancels the future that it awaits. Here it awaits another one than the work does. Only for work
    that cancels nothing itself: what such a scope delivers is taken for the task's own cancellation.
    """
    import asyncio

    steps = work().__await__()
    cancelled: tuple[object, ...] | None = None
    turns = 0
    while True:
        try:
            pending: Any = next(steps)
        except StopIteration:
            break
        except BaseException:
            _deliver(task, cancelled)
            raise
        if pending is None:  # it lets others go first, which it may leave out a few times
            turns += 1
            if turns <= MOST_TURNS:
                continue
        else:
            pending._asyncio_future_blocking = False  # noqa: SLF001  # as the task does that takes a future over
        while True:
            try:
                await (asyncio.sleep(0) if pending is None else asyncio.wait([pending]))
                break
            except asyncio.CancelledError as error:
                cancelled = error.args
    _deliver(task, cancelled)


def _deliver(task: asyncio.Task[object], cancelled: tuple[object, ...] | None) -> None:
    if cancelled is not None:
        task.uncancel()
        task.cancel(*cancelled)  # with its message, by which anyio and others know their own


def alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give one cancellation for a group of nothing else, so that it leaves as itself; any other group as it is.

    trio groups what the tasks of a nursery raise, those of a nursery inside its own functions too.
    """
    cancelled = anyio.get_cancelled_exc_class()
    _, others = group.split(cancelled)
    error: BaseException = group
    while others is None and isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def cancellations() -> tuple[type[BaseException], ...]:
    """Give the cancellation of each event loop that is loaded. One may leave when no loop runs any more."""
    names = (("asyncio", "CancelledError"), ("trio", "Cancelled"))
    return tuple(kind for library, name in names if (kind := getattr(sys.modules.get(library), name, None)) is not None)


def is_cancellation(error: BaseException) -> bool:
    """Say whether an error is a cancellation and nothing else. That its coroutine is closed, is one too."""
    kinds: tuple[type[BaseException], ...] = (GeneratorExit, *cancellations())
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


class CancellationCheck:
    """Finds a cancellation of the await that it was made in, however it came.

    What has been asked for is found: a scope that is cancelled, a deadline that has passed though no code saw it, a
    native request that was swallowed. Where code blocked, what came due meanwhile has yet to happen: a timer, a task
    that it wakes, a group that cancels for that task's failure. After a while without a check, those get their turns
    first. A longer chain of tasks than that is found by the next check only, and a cancellation from another thread
    when it has reached this one.
    """

    def __init__(self) -> None:
        self._task = asyncio_task()
        self._requests_before = 0 if self._task is None else self._task.cancelling()
        self._checked_at = math.inf  # never yet
        self._time: Callable[[], float] | None = None  # of trio's clock

    @property
    def pending(self) -> bool:
        """Whether there is one, as far as can be told without letting others go first."""
        if anyio.current_effective_deadline() <= anyio.current_time():
            return True
        return self._task is not None and self._task.cancelling() > self._requests_before

    def __call__(self) -> Awaitable[None]:
        """Raise the cancellation if there is one, with its identity: the event loop's own exception."""
        return self._on_trio() if self._task is None else self._on_asyncio(self._task)

    async def _on_asyncio(self, task: asyncio.Task[Any]) -> None:
        sleep: Any = sys.modules["asyncio"].sleep  # what anyio's checkpoint is, without a search for the event loop
        await sleep(0)
        await sleep(0)
        before, self._checked_at = self._checked_at, task.get_loop().time()
        if self._checked_at - before > A_WHILE:
            for _ in range(TURNS_AFTER_A_WHILE):
                await sleep(0)
        # After them, so that what passes meanwhile is found too.
        while (deadline := anyio.current_effective_deadline()) != math.inf and deadline <= anyio.current_time():
            await anyio.lowlevel.checkpoint()
        # Last: a scope takes only the cancellation that it made itself, and one that is pending must not come twice.
        if task.cancelling() > self._requests_before:
            raise anyio.get_cancelled_exc_class()

    async def _on_trio(self) -> None:
        trio: Any = sys.modules["trio"]  # itself, for the same reason: checks are most of what a coordinated turn costs
        await trio.lowlevel.cancel_shielded_checkpoint()
        await trio.lowlevel.checkpoint()
        if self._time is None:
            self._time = trio.lowlevel.current_clock().current_time
        before, self._checked_at = self._checked_at, self._time()
        if self._checked_at - before > A_WHILE:
            for _ in range(TURNS_AFTER_A_WHILE):
                await trio.lowlevel.checkpoint()
        while (deadline := trio.current_effective_deadline()) != math.inf and deadline <= trio.current_time():
            await trio.lowlevel.checkpoint()
