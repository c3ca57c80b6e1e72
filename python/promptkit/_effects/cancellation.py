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


def is_cancellation(error: BaseException) -> bool:
    """Say whether an error is a cancellation and nothing else. That its coroutine is closed, is one too."""
    libraries: list[tuple[Any, str]] = [
        (sys.modules.get("asyncio"), "CancelledError"),  # of both: it may leave when no event loop runs any more
        (sys.modules.get("trio"), "Cancelled"),
    ]
    kinds = (GeneratorExit, *(getattr(library, name) for library, name in libraries if library is not None))
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


class CancellationCheck:
    """Finds a cancellation of the await that it was made in, however it came."""

    def __init__(self) -> None:
        self._task = asyncio_task()
        self._requests_before = 0 if self._task is None else self._task.cancelling()

    @property
    def pending(self) -> bool:
        """Whether there is one, as far as can be told without letting others go first."""
        if anyio.current_effective_deadline() <= anyio.current_time():
            return True
        return self._task is not None and self._task.cancelling() > self._requests_before

    async def __call__(self) -> None:
        """Raise the cancellation if there is one, with its identity: the event loop's own exception."""
        if self._task is None:
            await _check_on_trio()
            return
        while (deadline := anyio.current_effective_deadline()) != math.inf and deadline <= anyio.current_time():
            await anyio.lowlevel.checkpoint()
        sleep: Any = sys.modules["asyncio"].sleep  # what anyio's checkpoint is, without a search for the event loop
        await sleep(0)
        await sleep(0)
        # Last: a scope takes only the cancellation that it made itself, and one that is pending must not come twice.
        if self._task.cancelling() > self._requests_before:
            raise anyio.get_cancelled_exc_class()


async def _check_on_trio() -> None:
    trio: Any = sys.modules["trio"]  # itself, for the same reason: checks are most of what a coordinated turn costs
    while (deadline := trio.current_effective_deadline()) != math.inf and deadline <= trio.current_time():
        await trio.lowlevel.checkpoint()
    await trio.lowlevel.cancel_shielded_checkpoint()
    await trio.lowlevel.checkpoint()
