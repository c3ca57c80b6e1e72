"""A sign of life on stderr while a model works: what is waited for, and for how long already."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

from promptkit import AttemptFinished, RetryDelayed, RunFinished, RunStarted
from promptkit._cli.streams import Streams, console_on
from promptkit._values.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import RenderableType
    from rich.live import Live

    from promptkit import ExecutionEvent

FETCHING = "fetching the default model"
EMBEDDED = "promptkit.embedded"  # the logger that tells about the download of the embedded model


class State(NamedTuple):
    """What is known of a run that goes on: which attempt, and the wait before it, if there is one."""

    attempt: int = 1
    purpose: str = ""
    delay: float = 0.0
    source: str = ""
    fetching: str = ""
    fetched: int = 0
    about: int = 0


def after(state: State, event: ExecutionEvent) -> State:
    """Give the state after an event."""
    match event:
        case RunStarted() | RunFinished():
            return State(fetching=state.fetching, fetched=state.fetched, about=state.about)
        case AttemptFinished(outcome="completed"):
            return State(attempt=event.attempt + 1, purpose="repair")
        case AttemptFinished():
            return State(attempt=event.attempt + 1)
        case RetryDelayed():
            return State(attempt=event.attempt + 1, delay=event.delay, source=event.source)


def line_of(prompt_id: str, state: State, elapsed: float, since: float) -> str:
    """Write the line. ``elapsed`` are the seconds of the whole, ``since`` those since the last event.

    >>> line_of("ask", State(attempt=2, delay=3.0, source="retry_after"), 4.0, 1.0)
    'ask  4 s  waiting 2.0 s, as the server asks, then attempt 2'
    """
    parts = [prompt_id, f"{elapsed:.0f} s"]
    if state.fetching:
        so_far = f"{FETCHING}: {state.fetched // 10**6} of about {state.about // 10**6} MB"
        parts.append(so_far if state.fetched else state.fetching)
    elif since < state.delay:
        asks = ", as the server asks" if state.source == "retry_after" else ""
        parts.append(f"waiting {state.delay - since:.1f} s{asks}, then attempt {state.attempt}")
    elif state.attempt > 1:
        parts.append(f"attempt {state.attempt}" + (", a repair" if state.purpose == "repair" else ""))
    return "  ".join(parts)


class Progress:
    """Shows the line from entry to exit, on a terminal that can draw over it; elsewhere nothing.

    The download of the embedded model is told in any case: nobody should wait for 100 MB without a word. While the line
    is there SIGTERM leaves as SystemExit, so that the cursor comes back.
    """

    def __init__(self, streams: Streams, prompt_id: str) -> None:
        self._streams = streams
        self._prompt_id = visible(prompt_id)
        self._state = State()
        self._began = self._changed = 0.0
        self._lock = threading.Lock()
        self.finished: RunFinished | None = None
        self._live = self._drawn() if streams.err.live else None
        self._logged = _Logged(self._fetching)
        self._level = logging.getLogger(EMBEDDED).level
        self._unset: Callable[[], object] = _nothing

    def observe(self, event: ExecutionEvent) -> None:
        """Take an event; the loop's thread calls this."""
        with self._lock:
            self._state = after(self._state, event)
            self._changed = time.monotonic()
            if isinstance(event, RunFinished):
                self.finished = event

    def __enter__(self) -> Self:
        """Begin to show the line."""
        self._began = self._changed = time.monotonic()
        logger = logging.getLogger(EMBEDDED)
        logger.addHandler(self._logged)
        logger.propagate = False
        if self._live is not None and threading.current_thread() is threading.main_thread():
            self._unset = _leave_on_sigterm()
        if self._live is not None:
            logger.setLevel(logging.DEBUG)  # which tells how many bytes are here
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the line away."""
        if self._live is not None:
            self._live.stop()
        self._unset()
        logger = logging.getLogger(EMBEDDED)
        logger.removeHandler(self._logged)
        logger.propagate = True
        logger.setLevel(self._level)

    def _fetching(self, record: logging.LogRecord) -> None:
        sentence, fetched = record.getMessage(), getattr(record, "fetched_bytes", None)
        if fetched is not None:
            with self._lock:
                self._state = self._state._replace(fetched=fetched, about=getattr(record, "about_bytes", 0))
            return
        if self._live is None:
            self._streams.say(sentence)
            return
        with self._lock:
            self._state = self._state._replace(fetching=sentence if sentence.startswith("fetching") else "")

    def _drawn(self) -> Live:
        from rich.live import Live

        console = console_on(sys.stderr, self._streams.err)
        return Live(
            console=console,
            transient=True,
            refresh_per_second=8,
            get_renderable=self._line,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def _line(self) -> RenderableType:
        from rich.text import Text

        now = time.monotonic()
        with self._lock:
            state, changed = self._state, self._changed
        text = line_of(self._prompt_id, state, now - self._began, now - changed)
        return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


class _Logged(logging.Handler):
    def __init__(self, told: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told(record)


def _leave_on_sigterm() -> Callable[[], object]:
    """Let SIGTERM leave as SystemExit, unless it means something already. Gives what ends that."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return _nothing
    signal.signal(signal.SIGTERM, _leave)
    return partial(signal.signal, signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, frame: object) -> NoReturn:  # noqa: ARG001  # a handler takes both
    raise SystemExit(128 + number)  # as shells say it


def _nothing() -> None:
    pass
