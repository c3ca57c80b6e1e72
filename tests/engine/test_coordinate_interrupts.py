"""Cancellations that `next` raises itself, and interrupts by real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
import trio

from promptkit import (
    BackendStatusError,
    CoordinateRequest,
    Coordination,
    Engine,
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
)
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import ConversationTurn, Exchange

MORE = RunRequest(prompt_id="more")
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


async def started(*answers: Any, **backend: Any) -> tuple[Engine, Exchange]:
    engine = Engine(small_catalog(**backend), client=ScriptedClient("Rome.", *answers))
    first = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True))
    return engine, first.exchange


def leading(engine: Engine, start: Exchange, choose: Any, observer: Any = None) -> Coordination:
    return engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose, observer=observer))


# ---------------------------------------------------------------- a cancellation that next raises by itself


async def stale() -> BaseException:
    """Give a cancellation of the running event loop whose scope has ended."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            return error
    pytest.fail("not cancelled")


@pytest.mark.anyio
async def test_a_cancellation_that_nobody_asked_for_leaves_unchanged() -> None:
    engine, start = await started()
    own = await stale()
    left: BaseException | None = None

    def choose(_: ConversationTurn) -> None:
        raise own

    coordination = leading(engine, start, choose)
    try:
        await coordination
    except anyio.get_cancelled_exc_class() as error:
        left = error
    assert left is own
    assert getattr(own, "__notes__", []) == []
    assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)


@on_asyncio
@pytest.mark.anyio
@pytest.mark.parametrize("how", ["scope", "deadline"])
async def test_a_cancellation_that_was_asked_for_wins_over_one_that_next_raises_by_itself(how: str) -> None:
    engine, start = await started()

    def choose(_: ConversationTurn) -> None:
        if how == "scope":
            scope.cancel()
        else:
            scope.deadline = anyio.current_time()
        raise asyncio.CancelledError

    with anyio.CancelScope() as scope:  # which takes no cancellation but its own
        await leading(engine, start, choose)
        pytest.fail("not cancelled")
    assert scope.cancelled_caught


@on_asyncio
@pytest.mark.anyio
async def test_a_native_cancellation_leaves_as_the_very_one_that_the_callback_has_seen() -> None:
    engine, start = await started()
    waits = anyio.Event()
    seen: list[BaseException] = []
    left: list[BaseException] = []

    async def choose(_: ConversationTurn) -> None:
        waits.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    async def lead() -> None:
        try:
            await leading(engine, start, choose)
        except asyncio.CancelledError as error:
            left.append(error)
            raise

    task = asyncio.ensure_future(lead())
    await waits.wait()
    task.cancel("MARK")
    await asyncio.wait([task])
    assert task.cancelled()
    assert [error.args for error in left] == [("MARK",)]
    assert left == seen
    assert getattr(left[0], "__notes__", []) == []


@on_asyncio
@pytest.mark.anyio
async def test_a_cancellation_by_another_name_ends_a_task_whose_native_one_was_swallowed() -> None:
    engine, start = await started()

    async def choose(_: ConversationTurn) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("MARK")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    task = asyncio.ensure_future(leading(engine, start, choose).run())
    await asyncio.wait([task])
    assert task.cancelled()


# ---------------------------------------------------------------- real signals


class Interrupted:
    """A coordination that SIGINT strikes at a stage, in the thread of its event loop."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.delivered: list[str | None] = []
        self.completed = 0
        self.coordination: Coordination | None = None
        self.cleaned_up = False
        self.due = False  # to be struck in another task, on its next turn
        self.free = anyio.Event()

    def strike(self, stage: str) -> None:
        if stage == self.stage:
            signal.raise_signal(signal.SIGINT)

    def strike_from_outside(self) -> None:
        """Strike while the event loop waits, or soon after."""
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

    def observe(self, event: object) -> None:
        if isinstance(event, RetryDelayed):
            self.strike_from_outside()
        if isinstance(event, RunFinished) and event.outcome == "completed":
            self.completed += 1
            self.strike("terminal observer")
            self.due = self.stage == "check before next"

    async def answer(self, _: object) -> Any:
        if self.stage == "in backoff":
            return BackendStatusError("503", status=503, transient=True)
        if self.stage == "in flight":
            self.strike_from_outside()
            await anyio.sleep_forever()
        return "one"

    async def held(self, _: object) -> str:
        await self.free.wait()
        return "held"

    async def watch(self, engine: Engine) -> None:
        while not (self.due or (self.stage == "queued" and engine.inspect_backend("server").waiting)):
            await anyio.lowlevel.checkpoint()
        self.strike(self.stage)

    async def waiting(self) -> RunRequest:
        try:
            self.strike_from_outside()
            await anyio.sleep_forever()
        finally:
            self.cleaned_up = True
        return MORE

    def next(self, turn: ConversationTurn) -> Any:
        self.delivered.append(None if turn.result is None else turn.result.raw_output)
        if turn.result is None:
            return MORE
        self.strike("plain next")
        self.due = self.stage == "check after next"
        return self.waiting() if self.stage == "async next" else MORE

    async def main(self) -> None:
        policy = RetryPolicy(base_delay=1000.0, max_delay=1000.0)
        held = [self.held] if self.stage == "queued" else []
        engine, start = await started(*held, self.answer, "afterwards", "afterwards", retry=policy, max_concurrency=1)
        self.coordination = leading(engine, start, self.next, self.observe)
        try:
            async with anyio.create_task_group() as others:
                if held:
                    others.start_soon(engine.run, MORE)
                    while engine.inspect_backend("server").running == 0:
                        await anyio.lowlevel.checkpoint()
                if self.stage in {"queued", "check before next", "check after next"}:
                    others.start_soon(self.watch, engine)
                await self.coordination
        finally:
            counts = engine.inspect_backend("server")
            assert (counts.running, counts.waiting) == (0, 0)
            with anyio.CancelScope(shield=True):
                assert (await engine.run(MORE)).attempts == 1


STAGES = {  # and whether a completed response is then undelivered
    "terminal observer": True,
    "check before next": True,
    "plain next": False,
    "async next": False,
    "check after next": False,
    "queued": False,
    "in flight": False,
    "in backoff": False,
}


def run_on_asyncio(main: Callable[[], Any]) -> None:
    asyncio.run(main())


@pytest.mark.parametrize("run", [run_on_asyncio, trio.run])
@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_ends_a_coordination_at_once_and_loses_no_completed_response(
    run: Callable[[Callable[[], Any]], None], stage: str
) -> None:
    scene = Interrupted(stage)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # trio groups what a task raises
        run(scene.main)
    left = caught.value
    while isinstance(left, BaseExceptionGroup):
        (left,) = left.exceptions
    assert isinstance(left, KeyboardInterrupt)
    assert scene.coordination is not None
    result = scene.coordination.result
    assert result.outcome is None
    inside = stage in {"queued", "in flight", "in backoff"}
    assert scene.completed == int(not inside)
    # asyncio cancels the main task. trio raises in the application's own code where it is, and then an observer has
    # ended its run, as with any exception.
    withheld = STAGES[stage] and (run is run_on_asyncio or stage != "terminal observer")
    assert (result.undelivered and result.undelivered.raw_output) == ("one" if withheld else None)
    assert scene.delivered == ([None] if inside or STAGES[stage] else [None, "one"])
    assert scene.cleaned_up == (stage == "async next")
