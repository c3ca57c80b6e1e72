"""Work that a thread hands to an event loop in another, and the box in which it finds how that ended."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import sniffio

from promptkit._effects.frames import forget_locals
from promptkit._effects.time_limit import NO_LIMIT, TimeLimit

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

# Seconds of one wait. Ctrl-C interrupts no lock on Windows. Elsewhere it interrupts none that does not wait yet: one
# that strikes after the last look at signals, and before the wait itself, would be seen only when that ends.
SLICE = 0.1 if sys.platform == "win32" else 0.5


class Latch:
    """Opened once, mostly by the loop's thread. One thread waits for it.

    It is a bare lock: an Event, a Condition or a Future that is interrupted can keep a lock that its opener waits for.
    """

    __slots__ = ("_lock", "opened")

    def __init__(self) -> None:
        self.opened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let the waiter go."""
        self.opened = True
        with contextlib.suppress(RuntimeError):  # it was open
            self._lock.release()

    def wait(self) -> None:
        """Wait. An interruption can come after the lock was taken, so that the lock alone says nothing."""
        while not self.opened:
            self._lock.acquire(timeout=SLICE)


class Call(Generic[T]):
    """Work for the loop, and a box for how it ended: ``reply`` has what it gave, once it gave something.

    It runs in a copy of the context of the thread that makes it, until its limit.
    """

    def __init__(self, work: Callable[[], Awaitable[T]], limit: TimeLimit = NO_LIMIT) -> None:
        self.reply: tuple[T] | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.timed_out = False  # and its outcome was asked for
        self.ended = Latch()
        self._work = work
        self._limit = limit
        self._scope: anyio.CancelScope | None = None
        self._unwanted = False
        self._notes: Iterable[str] = ()
        self._context = copy_context()
        self._context.run(sniffio.current_async_library_cvar.set, "asyncio")  # the copy may say trio

    def outcome(self) -> T:
        """Give what the work gave, or raise what it raised. Without either, its time was over."""
        if self.reply is not None:
            return self.reply[0]
        if self.error is None:
            self.timed_out = True
            fate = "was not begun" if self.task is None else "was cancelled"
            raise self.noted(self._limit.error(f"{self._limit.part} {fate}"))
        try:
            forget_locals(self.error)
            raise self.error
        finally:
            self.error = None  # or it would keep itself alive, through its traceback and this frame

    def noted(self, error: BaseException) -> BaseException:
        """Give the error that stands for the cancellation of the work, with the notes that the cancellation had.

        What an observer raised meanwhile is one.
        """
        for note in self._notes:
            error.add_note(note)
        self._notes = ()
        return error

    # What follows happens on the loop.

    def begin(self, loop: asyncio.AbstractEventLoop, finish: Callable[[Call[Any]], None]) -> None:
        """Start, unless it was cancelled before or its time is over."""
        if self.ended.opened:
            return
        if self._limit.over:
            finish(self)
            return
        self.task = loop.create_task(self._carry_out(finish), context=self._context)

    def cancel(self, finish: Callable[[Call[Any]], None], error: BaseException | None = None) -> None:
        """End it. What never began ends at once; ``error`` is how it ends, if it gives nothing."""
        if self.ended.opened:
            finish(self)
            return
        self._unwanted = True
        self.error = self.error or error
        if self.task is None:
            finish(self)
        elif self._scope is not None:
            self._scope.cancel()

    async def _carry_out(self, finish: Callable[[Call[Any]], None]) -> None:
        # Nothing leaves the task: a SystemExit or a KeyboardInterrupt of one call would end the loop of all.
        import asyncio

        try:
            if not self._unwanted:
                until = anyio.current_time() + (self._limit.ends - time.monotonic())
                with anyio.CancelScope(deadline=until) as self._scope:
                    try:
                        self.reply = (await self._work(),)
                    except asyncio.CancelledError as cancellation:
                        self._notes = getattr(cancellation, "__notes__", ())
                        raise
        except asyncio.CancelledError as error:
            # Not of the scope: the loop ends under it, which has left its error, or code of the application's own
            # cancels the task that it is in.
            if self.error is None:
                self._notes = ()  # they stay on this one
                self.error = error
        except BaseException as error:  # noqa: BLE001  # it is raised in the caller's thread
            self.error = error
        finally:
            del self._work  # who keeps the error keeps this box: not the request too
            finish(self)
