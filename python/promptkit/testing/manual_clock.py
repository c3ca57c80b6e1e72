"""Time in the hands of a test: a run waits before a retry until the test says that the time has passed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Self

import anyio.lowlevel

from promptkit._blocking_engine import BlockingEngine
from promptkit._effects.event_loop import current_loop
from promptkit._engine import Engine
from promptkit.testing.changes import HELD, PATIENCE, Changes

if TYPE_CHECKING:
    from types import TracebackType

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
ROUNDING = 1e-9  # seconds: what sums of seconds may lack
HEAD_START = 20  # turns of its event loop that a run lets pass, within which the one before it sends its next attempt


class _Wait:
    def __init__(self, due: float, loop: Any) -> None:
        self.due = due
        self.over = False
        self._loop = loop

    def is_abandoned(self) -> bool:
        """Say whether its event loop was closed without an end of its tasks. Trio always ends them."""
        closed = getattr(self._loop, "is_closed", None)
        return closed is not None and closed()


class ManualClock:
    """The time that an engine waits by, turned by hand: no test sleeps in a backoff.

    It takes the place of the engine's clock at once, for the views of it too: make it before the first run. A run that
    waits before a retry, a backoff or what the backend demanded, goes on when ``advance`` has let that time pass;
    several do one after the other, in the order of their instants. With ``autoadvance=True`` every wait ends at once,
    and ``waits`` tells of it. A run that waits for a clock that nobody advances ``within`` so many seconds of real
    time, 15 if nothing is said, ends with an AssertionError.

    ``now`` is the instant at which it begins (2026-01-01, 12:00 UTC unless it is given), of what events and results
    report, and from which dates in a ``retry-after`` are counted. ``chance``, from 0 to below 1, is the place of each
    wait between its bounds. What it does not touch goes by real time: a backend's ``connect_timeout`` and
    ``attempt_timeout``, the ``timeout`` of a BlockingEngine, the deadlines of anyio.

    ``with ManualClock(engine) as clock:`` gives the engine its own clock back. Runs that still wait when the block ends
    go on at once, in the order of their instants: none is left behind, whether the test passed or failed.
    """

    waits: list[float]
    """The seconds of every wait that a run began, in order."""

    def __init__(
        self,
        engine: Engine | BlockingEngine,
        *,
        now: datetime = START,
        chance: float = 0.5,
        autoadvance: bool = False,
        within: float = HELD,
    ) -> None:
        """Take the place of the engine's clock.

        Raises TypeError and ValueError for what is no engine or no time, and RuntimeError when the engine, or a view of
        it, has a ManualClock already.
        """
        inner = engine._engine if isinstance(engine, BlockingEngine) else engine  # noqa: SLF001  # a seam for this only
        if not isinstance(inner, Engine):
            msg = f"ManualClock: Expected an Engine or a BlockingEngine, got `{type(engine).__name__}`"
            raise TypeError(msg)
        if now.tzinfo is None:
            msg = "ManualClock.now: has no time zone: give one, datetime(2026, 1, 1, tzinfo=UTC)"
            raise ValueError(msg)
        if not 0 <= chance < 1:
            msg = f"ManualClock.chance: is {chance!r}: from 0 to below 1"
            raise ValueError(msg)
        surroundings = vars(inner._shared.surroundings)  # noqa: SLF001  # a seam for this only
        taken = isinstance(getattr(surroundings.get("sleep"), "__self__", None), ManualClock)
        if taken:
            msg = (
                "ManualClock: this engine has one already: use that, or leave it before the next takes its place "
                "(`with ManualClock(engine) as clock:`)"
            )
            raise RuntimeError(msg)
        self.waits = []
        self._start = now.astimezone(UTC)
        self._autoadvance = autoadvance
        self._within = within
        self._passed = 0.0
        self._waiting: list[_Wait] = []
        self._due: list[_Wait] = []  # their time has come; one goes on at a time
        self._going: _Wait | None = None
        self._ended = False
        self._changes = Changes()
        # Those of the engine themselves, since clients and runs hold them.
        self._surroundings = surroundings
        self._before = dict(surroundings)
        self._surroundings.update(
            now=lambda: self.now, monotonic=lambda: self._passed, chance=lambda: chance, sleep=self._sleep
        )

    @property
    def now(self) -> datetime:
        """The instant that it shows, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    async def waiting(self, *, runs: int = 1, within: float = PATIENCE) -> float:
        """Wait until so many runs wait, and give the seconds until the first of them goes on.

        Raises AssertionError when they do not, ``within`` so many seconds of real time (10 unless it is given).
        """
        self._expect_manual()
        return self._first(runs, within, there=await self._changes.expect(lambda: len(self._waiting) >= runs, within))

    def wait_until_waiting(self, *, runs: int = 1, within: float = PATIENCE) -> float:
        """Do what ``waiting`` does, in a thread without an event loop: for a BlockingEngine in another thread."""
        self._expect_manual()
        there = self._changes.expect_in_thread(lambda: len(self._waiting) >= runs, within)
        return self._first(runs, within, there=there)

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass, 0 or more. Runs whose wait is over go on, in any thread and on any loop.

        ``clock.advance(await clock.waiting())`` lets the next one go on.
        """
        if not 0 <= seconds < inf:
            msg = f"ManualClock.advance: Expected 0 or more seconds, got {seconds!r}"
            raise ValueError(msg)
        with self._changes.lock:
            self._passed += seconds
            self._let_go(self._passed + ROUNDING)
        self._changes.tell()

    def __enter__(self) -> Self:
        """Give the clock itself. Raises RuntimeError when its block has ended before: an engine needs a new one."""
        if self._ended:
            msg = "this ManualClock has given the engine its own clock back: make a new one"
            raise RuntimeError(msg)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the engine its own clock back, and let the runs go on that still wait."""
        with self._changes.lock:
            if self._ended:
                return
            self._ended = True
            self._surroundings.clear()
            self._surroundings.update(self._before)
            self._let_go(inf)
        self._changes.tell()

    def _first(self, runs: int, within: float, *, there: bool) -> float:
        with self._changes.lock:
            if there and self._waiting:
                return max(0.0, min(wait.due for wait in self._waiting) - self._passed)
            msg = (
                f"{len(self._waiting)} of {runs} runs wait before a retry, after {within:g} s: the program must run "
                "beside the test, in a task (await waiting) or in a thread (wait_until_waiting), and its backend fail "
                "with a transient error, with retries left"
            )
        raise AssertionError(msg)

    def _expect_manual(self) -> None:
        msg = None
        if self._ended:
            msg = "nothing waits for a clock whose block has ended: the engine has its own clock again"
        elif self._autoadvance:
            msg = "nothing waits for a clock with autoadvance=True: leave that out, or look at clock.waits"
        if msg is not None:
            raise AssertionError(msg)

    async def _sleep(self, seconds: float) -> None:
        with self._changes.lock:
            self.waits.append(seconds)
            wait = _Wait(self._passed + seconds, current_loop())
            at_once = self._autoadvance or self._ended  # a run may come just when the block ends
            if at_once:
                self._passed = wait.due
            else:
                self._waiting.append(wait)
        if at_once:
            await anyio.lowlevel.checkpoint()
            return
        self._changes.tell()
        try:
            await self._over(wait)
            for _ in range(HEAD_START):
                await anyio.lowlevel.checkpoint()
        finally:
            self._left(wait)

    async def _over(self, wait: _Wait) -> None:
        while not wait.over:
            seen = self._passed
            if not await self._changes.expect(lambda: wait.over or self._passed != seen, self._within):  # noqa: B023  # awaited here
                msg = (
                    f"a run waits before a retry, and nobody has advanced its ManualClock for {self._within:g} s: call "
                    "clock.advance(await clock.waiting()) in a task beside the run, or make the clock with "
                    "autoadvance=True"
                )
                raise AssertionError(msg)

    def _let_go(self, due: float) -> None:
        come = [wait for wait in self._waiting if wait.due <= due]
        self._due += sorted(come, key=lambda wait: wait.due)  # those of one instant stay as they came
        self._waiting = [wait for wait in self._waiting if wait not in come]
        self._next()

    def _left(self, wait: _Wait) -> None:
        """Let the next one go on, when this one does or was cancelled."""
        with self._changes.lock:
            self._waiting = [each for each in self._waiting if each is not wait]
            self._due = [each for each in self._due if each is not wait]
            if self._going is wait:
                self._going = None
            self._next()
        self._changes.tell()

    def _next(self) -> None:
        # One after the other: trio resumes tasks that are woken together in any order, and they wait for turns of the
        # loop before they take the next step of a script. Each counts the turns itself: the loop of the one before it
        # may have ended by then.
        while self._due and (self._going is None or self._going.is_abandoned()):
            self._going = self._due.pop(0)
            self._going.over = True

    def __repr__(self) -> str:
        """Tell the instant and who waits."""
        return f"<promptkit.testing.ManualClock: {self.now:%Y-%m-%d %H:%M:%S.%f}, {len(self._waiting)} runs wait>"
