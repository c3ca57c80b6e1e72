"""Everything that cancels, on both event loops, and clocks in the hands of a test.

Time passes when a test says so. ``pass_time`` in a plain function is what a blocking call is to the event loop: the
clock has moved on, and nothing else has run. Each ``by_...`` leads a coordination until it is cancelled, tells the
scene how it is struck, and checks that whoever cancels sees it, and nobody else.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import pytest
import trio
import trio.testing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit import Coordination

LIMIT = 10.0


class Struck(Protocol):
    """What calls ``strike`` when it is time."""

    strike: Callable[[], object]


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


LOOPS: dict[str, Any] = {
    "asyncio": ("asyncio", {"loop_factory": SkippingLoop}),
    "trio": ("trio", {"clock": trio.testing.MockClock()}),
}


def pass_time() -> None:
    """Put the clock forward beyond the limit, and let nothing run."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(LIMIT + 1)
    else:
        assert isinstance(loop, SkippingLoop)
        loop.skipped += LIMIT + 1


async def by_scope(scene: Struck, coordination: Coordination) -> None:
    with anyio.CancelScope() as scope:
        scene.strike = scope.cancel
        await coordination
    assert scope.cancelled_caught


async def by_move_on_after(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    with anyio.move_on_after(LIMIT) as scope:
        await coordination
    assert scope.cancelled_caught


async def by_fail_after(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    with pytest.raises(TimeoutError), anyio.fail_after(LIMIT):
        await coordination


async def by_outer_deadline(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    with anyio.move_on_after(LIMIT) as outer:
        with anyio.CancelScope() as inner:
            await coordination
        pytest.fail("it ended in the inner scope")
    assert outer.cancelled_caught
    assert not inner.cancelled_caught


async def by_task_group(scene: Struck, coordination: Coordination) -> None:
    async with anyio.create_task_group() as tasks:
        scene.strike = tasks.cancel_scope.cancel
        tasks.start_soon(coordination.run)


async def by_scope_that_a_task_cancels_in_time(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time

    async def cancel() -> None:
        await anyio.sleep(LIMIT)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(cancel)
            await coordination
        assert scope.cancelled_caught


async def by_task_that_fails_in_time(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    error = LookupError("of the sibling")

    async def fail() -> None:
        await anyio.sleep(LIMIT)
        raise error

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012  # leaving the block is what raises it
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            tasks.start_soon(coordination.run)
    assert caught.value.exceptions == (error,)


async def by_native_cancel(scene: Struck, coordination: Coordination) -> None:
    task = asyncio.ensure_future(coordination.run())
    scene.strike = partial(task.cancel, "MARK")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def by_native_cancel_in_time(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    task = asyncio.ensure_future(coordination.run())
    asyncio.get_running_loop().call_later(LIMIT, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled()


async def by_asyncio_timeout(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LIMIT):
            await coordination


async def by_asyncio_wait_for(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(coordination.run(), LIMIT)


async def by_asyncio_task_that_fails_in_time(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    error = LookupError("of the sibling")

    async def fail() -> None:
        await asyncio.sleep(LIMIT)
        raise error

    async def lead() -> None:  # in a task of its own: Python 3.11 leaves the request that ended the group on its task
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            tasks.create_task(coordination.run())

    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.ensure_future(lead())
    assert caught.value.exceptions == (error,)


async def by_trio_scope(scene: Struck, coordination: Coordination) -> None:
    with trio.CancelScope() as scope:
        scene.strike = scope.cancel
        await coordination
    assert scope.cancelled_caught


async def by_trio_deadline(scene: Struck, coordination: Coordination) -> None:
    scene.strike = pass_time
    with pytest.raises(trio.TooSlowError), trio.fail_after(LIMIT):
        await coordination


async def by_trio_nursery(scene: Struck, coordination: Coordination) -> None:
    async with trio.open_nursery() as nursery:
        scene.strike = nursery.cancel_scope.cancel
        nursery.start_soon(coordination.run)


ANY_LOOP = (
    by_scope,
    by_move_on_after,
    by_fail_after,
    by_outer_deadline,
    by_task_group,
    by_scope_that_a_task_cancels_in_time,
    by_task_that_fails_in_time,
)
ASYNCIO = (
    by_native_cancel,
    by_native_cancel_in_time,
    by_asyncio_timeout,
    by_asyncio_wait_for,
    by_asyncio_task_that_fails_in_time,
)
TRIO = (by_trio_scope, by_trio_deadline, by_trio_nursery)


MECHANISMS: list[tuple[str, Callable[[Struck, Coordination], Awaitable[None]]]] = [
    (loop, mechanism) for loop, own in (("asyncio", ASYNCIO), ("trio", TRIO)) for mechanism in (*ANY_LOOP, *own)
]
