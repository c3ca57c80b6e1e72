"""Waiting for what another task, loop or thread brings about."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from promptkit._effects.event_loop import current_loop

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 10.0  # seconds that a test waits for the program before it fails: below the limit that most give a test
HELD = 15.0  # seconds that a program is held for a test at most: longer, so that who waits for more tells of it first


class Changes:
    """Lets tasks on any event loop, and threads, wait until something is so.

    What it is about is read and written under ``lock``; who writes says ``tell``.
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self._condition = threading.Condition(self.lock)
        self._wakers: list[Callable[[], None]] = []

    def tell(self) -> None:
        """Let all who wait look again."""
        with self.lock:
            self._condition.notify_all()
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait in a task."""
        await anyio.lowlevel.checkpoint()
        while True:
            with self.lock:
                if is_so():
                    return
                event = anyio.Event()
                waker = partial(_wake, current_loop(), event)
                self._wakers.append(waker)
            try:
                await event.wait()
            finally:
                with self.lock, contextlib.suppress(ValueError):  # it was told
                    self._wakers.remove(waker)

    async def expect(self, is_so: Callable[[], bool], within: float) -> bool:
        """Wait in a task, for so many seconds at most. False: it is not so."""
        with anyio.move_on_after(within):
            await self.until(is_so)
        with self.lock:
            return is_so()

    def expect_in_thread(self, is_so: Callable[[], bool], within: float) -> bool:
        """Wait in a thread without an event loop, for so many seconds at most. False: it is not so."""
        with self.lock:
            return self._condition.wait_for(is_so, within)


def _wake(loop: Any, event: anyio.Event) -> None:
    # Either event loop has its own way to be told something by any thread, its own included.
    soon: Callable[[Callable[[], None]], object] = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    with contextlib.suppress(RuntimeError):  # it has ended, and with it who waited there
        soon(event.set)
