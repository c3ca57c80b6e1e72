"""An event loop in a thread of its own, and calls on it from threads that have none.

What becomes of a call is decided on the loop alone, where no Ctrl-C arrives, so that one can interrupt a caller
anywhere and leave nothing half done. A caller waits on a bare lock, which only the loop releases: an Event, a Condition
or a Future that is interrupted can keep a lock that the loop's thread then waits for. A portal of anyio is no help: the
first SystemExit of a call ends it, a cancellation drops the reply that it meets, and the child of a fork hangs in it.

The thread knows nothing of who owns it, so that an owner that is dropped without being closed can be collected.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import math
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import sniffio

from promptkit._effects.frames import forget_locals
from promptkit._effects.shared import CLOSED, FORKED
from promptkit.errors import EngineStateError, InvalidRequestError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

SLICE = 0.1 if sys.platform == "win32" else -1  # seconds of one wait: Ctrl-C interrupts no lock on Windows
AT_EXIT = 2.0  # seconds that the end of the interpreter waits for what is in flight

CUT_SHORT = "this engine was closed while the work was in flight, which was cancelled"
INSIDE = (
    "an event loop runs in this thread, which a BlockingEngine would stop: use Engine and await, or call from "
    "another thread (anyio.to_thread.run_sync)"
)
INSIDE_ITSELF = (
    "observers and model clients run on the engine's own event loop and must not call back: do it after the run, "
    "or in another thread"
)
NEVER_CLOSED = "a BlockingEngine was never closed: use `with BlockingEngine(...) as engine`, or call close()"


def deadline_after(timeout: float | None) -> float:
    """Give the instant, on the monotonic clock, at which a timeout that begins now ends. None: never.

    Raises InvalidRequestError for what is no number of seconds.
    """
    if timeout is None:
        return math.inf
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        msg = f"timeout: Expected a number of seconds, or None for no limit, got `{type(timeout).__name__}`"
        raise InvalidRequestError(msg)
    if not timeout >= 0:  # NaN too
        msg = "timeout: must be 0 or more seconds, or None for no limit"
        raise InvalidRequestError(msg)
    return time.monotonic() + min(timeout, 1e12)  # an integer can be too large for a float


class Latch:
    """Opened once, by the loop's thread. One thread waits for it."""

    __slots__ = ("_lock", "opened")

    def __init__(self) -> None:
        self.opened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let the waiter go."""
        if not self.opened:
            self.opened = True
            self._lock.release()

    def wait(self) -> None:
        """Wait. An interruption can come after the lock was taken, so that the lock alone says nothing."""
        while not self.opened:
            self._lock.acquire(timeout=SLICE)


class Call(Generic[T]):
    """Work for the loop, and a box for how it ended: ``reply`` has what it gave, once it gave something.

    It runs in a copy of the context of the thread that makes it, until ``deadline`` on the monotonic clock.
    """

    def __init__(self, work: Callable[[], Awaitable[T]], deadline: float = math.inf) -> None:
        self.reply: tuple[T] | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.ended = Latch()
        self._work = work
        self._deadline = deadline
        self._scope: anyio.CancelScope | None = None
        self._unwanted = False
        self._context = copy_context()
        self._context.run(sniffio.current_async_library_cvar.set, "asyncio")  # the copy may say trio

    def outcome(self) -> T:
        """Give what the work gave, or raise what it raised. Without either, its time was up."""
        if self.reply is not None:
            return self.reply[0]
        if self.error is None:
            msg = "the run did not finish within its timeout"
            raise TimeoutError(msg)
        try:
            forget_locals(self.error)
            raise self.error
        finally:
            self.error = None  # or it would keep itself alive, through its traceback and this frame

    # What follows happens on the loop.

    def begin(self, loop: asyncio.AbstractEventLoop, finish: Callable[[Call[Any]], None]) -> None:
        """Start, unless it was cancelled before or its time is up."""
        if self.ended.opened:
            return
        if self._deadline <= time.monotonic():
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
                until = anyio.current_time() + (self._deadline - time.monotonic())
                with anyio.CancelScope(deadline=until) as self._scope:
                    self.reply = (await self._work(),)
        except asyncio.CancelledError as error:
            # Not of the scope: the loop ends under it, or the application's own code cancels the task it is in.
            task = asyncio.current_task()
            self.error = EngineStateError(CUT_SHORT) if task is not None and task.cancelling() else error
        except BaseException as error:  # noqa: BLE001  # it is raised in the caller's thread
            self.error = error
        finally:
            del self._work  # who keeps the error keeps this box: not the request too
            finish(self)


_threads: set[LoopThread] = set()  # those that run, for the end of the interpreter


class LoopThread:
    """A running event loop, until ``leave``. It does ``last`` when the last call has ended."""

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
        self._waiting: list[Latch] = []
        self._claim = threading.Lock()
        self._thread = threading.Thread(target=self._main, name="promptkit", daemon=True)

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

    @property
    def is_this_thread(self) -> bool:
        """Say whether the loop runs in the thread that asks."""
        # The identifier of a thread that has ended is given to another.
        return self._thread.ident == threading.get_ident() and self._thread.is_alive()

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

    def wait(self) -> None:
        """Wait until the thread has ended."""
        latch = Latch()  # one for each waiter, which may be interrupted while it has the lock
        self._waiting.append(latch)
        if not self._over:
            latch.wait()
        if self._thread.is_alive():
            self._thread.join()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, at most so many seconds."""
        if self._thread.is_alive():  # it may have been kept from starting
            self._thread.join(timeout)

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
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread
            self._end()

    # What follows happens in the thread.

    def _main(self) -> None:
        import asyncio

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
        finally:
            self._end()

    def _end(self) -> None:
        """Refuse what the loop took and never began, and let go who waits for the end. What comes now is refused."""
        self._over = True
        for call in list(self._calls):
            call.error = call.error or EngineStateError(CLOSED)
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


class LoopOwner:
    """What an engine and its views have of a loop in a thread: it starts with the first call.

    Any thread may use it but those in which an event loop runs.
    """

    __slots__ = ("__weakref__", "_closed", "_last", "_lock", "_process", "_thread")

    def __init__(self, last: Callable[[], Awaitable[None]]) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False
        self._last = last

    @property
    def forked(self) -> bool:
        """Say whether this is the child of a fork: its locks may be held for ever, and the thread is not there."""
        return os.getpid() != self._process

    def expect_usable(self) -> None:
        """Raise EngineStateError in the child of a fork, and where an event loop runs in this thread."""
        if self.forked:
            raise EngineStateError(FORKED)
        thread = self._thread
        if thread is not None and thread.is_this_thread:
            raise EngineStateError(INSIDE_ITSELF)
        if _an_event_loop_runs_here():
            raise EngineStateError(INSIDE)

    def perform(self, call: Call[T]) -> T:
        """Let a call run, and wait for it. Raises what it raises, and TimeoutError when its time was up.

        What interrupts the wait, such as Ctrl-C, cancels the call, and leaves when that has ended; a second one leaves
        at once, and the call ends by itself.
        """
        thread = self._started()
        try:
            begins = thread.submit(call)
            if begins:
                call.ended.wait()
        except BaseException:
            try:
                runs = thread.cancel(call)
            except BaseException:
                thread.cancel(call)
                raise
            if runs:
                call.ended.wait()
            raise
        if not begins:
            raise EngineStateError(CLOSED)
        return call.outcome()

    def close(self, *, cancel: bool) -> None:
        """Refuse new calls, wait for those there are or cancel them, do the last thing, and end the thread.

        An interruption cancels them, and leaves when the thread has ended.
        """
        with self._lock:
            self._closed = True
            thread = self._thread
            if thread is not None and not thread.launched:
                thread.launch()  # it was interrupted: the thread ends what waits for it
        if thread is None:
            return
        try:
            thread.leave(cancel=cancel)
            thread.wait()
        except BaseException:
            thread.leave(cancel=True)
            thread.wait()
            raise
        failure, thread.failure = thread.failure, None
        if failure is not None:
            raise failure

    def _started(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise EngineStateError(CLOSED)
            thread = self._thread
            if thread is None:
                thread = self._thread = LoopThread(self._last)
            if not thread.launched:
                finalizer = weakref.finalize(self, _abandon, thread)
                finalizer.atexit = False  # there is _end_all
                thread.launch()
            return thread


def _an_event_loop_runs_here() -> bool:
    # Facts of the thread. sniffio would say so in asyncio.to_thread too, where no loop runs.
    asyncio: Any = sys.modules.get("asyncio")  # where it is not loaded, it runs nothing
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001  # documented for frameworks
        return True
    trio: Any = sys.modules.get("trio")
    try:
        return trio is not None and trio.lowlevel.current_trio_token() is not None
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
