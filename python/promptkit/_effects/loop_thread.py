"""An event loop in a thread of its own, and calls on it from threads that have none.

What becomes of a call is decided on the loop alone, where no signal handler runs, so that one can interrupt a caller
anywhere and leave nothing half done. No lock is held here that a handler could meet again: it may call the engine. A
portal of anyio is no help: the first SystemExit of a call ends it, a cancellation drops the reply that it meets, and
the child of a fork hangs in it.

The thread knows nothing of who owns it, so that an owner that is dropped without being closed can be collected.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from promptkit._effects.call import Call, Latch
from promptkit._effects.once import Once
from promptkit._effects.shared import CLOSED, FORKED
from promptkit.errors import EngineStateError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

AT_EXIT = 2.0  # seconds that the end of the interpreter waits for what is in flight

CUT_SHORT = "this engine was closed while the work was in flight, which was cancelled"
STOPPED = "code of a model client or an observer stopped the engine's event loop: the work in flight was cancelled"
INSIDE = (
    "an event loop runs in this thread, which a BlockingEngine would stop: use Engine and await, or call from "
    "another thread (anyio.to_thread.run_sync)"
)
INSIDE_ITSELF = (
    "observers and model clients run on the engine's own event loop and must not call back: do it after the run, "
    "or in another thread that they do not wait for"
)
NEVER_CLOSED = "a BlockingEngine was never closed: use `with BlockingEngine(...) as engine`, or call close()"


_threads: set[LoopThread] = set()  # those that run, for the end of the interpreter


class LoopThread:
    """A running event loop, from ``launch`` until ``leave``. It does ``last`` when the last call has ended."""

    def __init__(self, last: Callable[[], Awaitable[None]]) -> None:
        self.process = os.getpid()
        self.launched = False
        self.leaving = False  # someone asked it to
        self.failure: Exception | None = None  # of ``last``
        self._last = last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left: asyncio.Event | None = None
        self._inbox: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._calls: set[Call[Any]] = set()
        self._over = False
        self._refusal = CLOSED
        self._waiting: list[Latch] = []
        self._fate: Once[object] = Once()  # which launch starts it, or that none does
        self._thread: threading.Thread | None = None
        self._identifier: int | None = None  # while it runs: that of a thread that has ended is given to another
        self._joining: set[int] = set()

    @property
    def closed(self) -> bool:
        """Whether it begins no call any more."""
        return self.leaving or self._over or self._fate.value is _NEVER

    @property
    def is_this_thread(self) -> bool:
        """Whether the loop runs in the thread that asks."""
        return self._identifier == threading.get_ident()

    def launch(self) -> None:
        """Start the thread. Raises EngineStateError when the system has none.

        Another thread does it, where no Ctrl-C arrives: one could leave half a thread, or half a loop. A launch that is
        interrupted is done again, and one thread comes of it.
        """
        _threads.add(self)
        try:
            _thread.start_new_thread(self._launch, ())
        except RuntimeError as error:
            _threads.discard(self)
            msg = f"there is no thread for the engine's event loop: {error}"
            raise EngineStateError(msg) from None
        self.launched = True

    def submit(self, call: Call[Any]) -> bool:
        """Let a call begin. False when the loop has ended, and never will."""
        self._calls.add(call)
        return self._soon(self._begin, call)

    def cancel(self, call: Call[Any]) -> bool:
        """Let a call end, whether it was submitted or not. False when the loop has ended, and with it the call."""
        self._calls.add(call)  # or it would be waited for in vain, when the loop ends first
        return self._soon(call.cancel, self._finish)

    def leave(self, *, cancel: bool) -> bool:
        """Let the loop end when its calls have ended, or cancel them. False when it has ended."""
        self.leaving = True
        return self._soon(self._leave, cancel)

    def end(self, *, cancel: bool) -> None:
        """Let the loop end, and wait for the end of its thread. One that has not started never will."""
        if self._fate.settle(_NEVER) is _NEVER:
            self._refuse_all()
            return
        self.leave(cancel=cancel)
        latch = Latch()  # one for each waiter, which may be interrupted while it has the lock
        self._waiting.append(latch)
        if not self._over:
            latch.wait()
        self.join()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread, at most so many seconds."""
        here = threading.get_ident()
        if here in self._joining:  # a signal handler inside the join, for whose lock it would wait
            return
        self._joining.add(here)
        try:
            if self._thread is not None and self._thread.is_alive():  # it may have been kept from starting
                self._thread.join(timeout)
        finally:
            self._joining.discard(here)

    def _soon(self, function: Callable[..., object], *arguments: object) -> bool:
        if self._over:
            return False
        self._inbox.append((function, arguments))
        loop = self._loop
        if loop is None:  # it is being made, and looks into the inbox then
            return True
        try:
            loop.call_soon_threadsafe(self._take)
        except RuntimeError:  # it is closed
            return False
        return True

    def _launch(self) -> None:
        mine = object()
        if self._fate.settle(mine) is mine:
            self._thread = threading.Thread(target=self._main, name="promptkit", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the system has no thread
                self._refuse_all()
        elif self._over:
            _threads.discard(self)

    # What follows happens in the thread.

    def _main(self) -> None:
        import asyncio

        self._identifier = threading.get_ident()
        try:
            self._left = asyncio.Event()
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                self._loop = runner.get_loop()
                self._loop.call_soon(self._take)
                serving = self._loop.create_task(self._serve(self._left))
                try:
                    while not serving.done():
                        # One that a task of the application's own raised: who awaits that has it, the others go on.
                        with contextlib.suppress(SystemExit, KeyboardInterrupt):
                            self._loop.run_until_complete(serving)
                finally:
                    self._left.set()  # whatever ended it: nothing begins on a loop that is being closed
                    for call in list(self._calls):  # none is there, unless the loop ends under it
                        call.error = call.error or EngineStateError(CLOSED if call.task is None else STOPPED)
        except Exception as error:
            if self._loop is not None:
                raise
            self._refusal = (
                f"the engine's event loop could not be made: {type(error).__name__}: {error}: make a new engine"
            )
        finally:
            self._refuse_all()
            self._identifier = None

    def _refuse_all(self) -> None:
        """Refuse what the loop took and never began, and let go who waits for the end. What comes now is refused."""
        self._over = True
        for call in list(self._calls):
            call.error = call.error or EngineStateError(self._refusal)
            self._finish(call)
        for latch in list(self._waiting):
            latch.open()
        _threads.discard(self)

    def _take(self) -> None:
        while self._inbox:
            function, arguments = self._inbox.popleft()
            function(*arguments)

    async def _serve(self, left: asyncio.Event) -> None:
        import asyncio

        await left.wait()
        while running := [call.task for call in list(self._calls) if call.task is not None and not call.task.done()]:
            await asyncio.wait(running)
        try:
            await self._last()
        except Exception as error:  # noqa: BLE001  # who closes the engine gets it
            self.failure = error

    def _begin(self, call: Call[Any]) -> None:
        if self._loop is None or self._left is None or self._left.is_set():
            call.cancel(self._finish, EngineStateError(CLOSED))
        else:
            call.begin(self._loop, self._finish)

    def _leave(self, cancel: bool) -> None:  # noqa: FBT001  # a callback takes no names
        if self._left is not None:
            self._left.set()
        for call in list(self._calls) if cancel else ():
            call.cancel(self._finish, EngineStateError(CUT_SHORT))

    def _finish(self, call: Call[Any]) -> None:
        self._calls.discard(call)
        call.ended.open()


_NEVER = object()


class LoopOwner:
    """What an engine and its views have of a loop in a thread: it starts with the first call.

    Any thread may use it but those in which an event loop runs.
    """

    __slots__ = ("__weakref__", "_thread")

    def __init__(self, last: Callable[[], Awaitable[None]]) -> None:
        self._thread = LoopThread(last)

    @property
    def forked(self) -> bool:
        """Whether this is the child of a fork, where the thread is not there."""
        return os.getpid() != self._thread.process

    def expect_usable(self) -> None:
        """Raise EngineStateError in the child of a fork, and where an event loop runs in this thread."""
        if self.forked:
            raise EngineStateError(FORKED)
        if self._thread.is_this_thread:
            raise EngineStateError(INSIDE_ITSELF)
        if _an_event_loop_runs_here():
            raise EngineStateError(INSIDE)

    def expect_open(self) -> None:
        """Raise EngineStateError when it was closed."""
        if self._thread.closed:
            raise EngineStateError(CLOSED)

    def perform(self, call: Call[T]) -> T:
        """Let a call run, and wait for it. Raises what it raises, and TimeoutError when its time was over.

        What interrupts the wait, such as Ctrl-C, cancels the call, and leaves when that has ended; a second one leaves
        at once, and the call ends by itself.
        """
        thread = self._started()
        try:
            begins = thread.submit(call)
            if begins:
                call.ended.wait()
        except BaseException as interrupt:
            try:
                runs = thread.cancel(call)
            except BaseException:
                thread.cancel(call)
                raise
            if runs:
                call.ended.wait()
                call.noted(interrupt)
            raise
        if not begins:
            raise EngineStateError(CLOSED)
        return call.outcome()

    def close(self, *, cancel: bool) -> None:
        """Refuse new calls, wait for those there are or cancel them, do the last thing, and end the thread.

        An interruption cancels them, and leaves when the thread has ended.
        """
        thread = self._thread
        try:
            thread.end(cancel=cancel)
        except BaseException:
            thread.end(cancel=True)
            raise
        failure, thread.failure = thread.failure, None
        if failure is not None:
            raise failure

    def _started(self) -> LoopThread:
        self.expect_open()
        thread = self._thread
        if not thread.launched:
            weakref.finalize(self, _abandon, thread).atexit = False  # there is _end_all
            thread.launch()
        return thread


def _an_event_loop_runs_here() -> bool:
    # Facts of the thread. sniffio would say so in asyncio.to_thread too, where no loop runs.
    asyncio: Any = sys.modules.get("asyncio")  # where it is not loaded, it runs nothing
    running: Any = getattr(asyncio, "_get_running_loop", None)  # one that is being imported runs nothing here
    if running is not None and running() is not None:
        return True
    trio: Any = sys.modules.get("trio")
    lowlevel: Any = getattr(trio, "lowlevel", None)
    token: Any = getattr(lowlevel, "current_trio_token", None)
    try:
        return token is not None and token() is not None
    except RuntimeError:
        return False


def _abandon(thread: LoopThread) -> None:
    """End a loop whose owner is gone. It may be this very thread that collected it, so that nothing here waits."""
    if thread.process != os.getpid() or thread.leaving:
        return
    if thread.leave(cancel=True):
        warnings.warn(NEVER_CLOSED, ResourceWarning, stacklevel=2)


@atexit.register
def _end_all() -> None:
    """End what runs, before the interpreter takes away what it needs."""
    until = time.monotonic() + AT_EXIT
    threads = [thread for thread in list(_threads) if thread.process == os.getpid()]
    closed = [thread.leaving for thread in threads]
    for thread in threads:
        thread.leave(cancel=True)
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if not all(closed):
        warnings.warn(NEVER_CLOSED, ResourceWarning, stacklevel=2)
