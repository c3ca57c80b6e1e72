"""A reply in hand is kept: work that must not be interrupted is finished, and the cancellation follows it, once."""

from __future__ import annotations

import asyncio
import math

import anyio
import pytest
from anyio.lowlevel import checkpoint

from promptkit._effects.cancellation import finish

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


class Closing:
    """Work of several steps. ``during`` is called between them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = False
        self.done = False
        self._error = error
        self.may_end = anyio.Event()

    async def __call__(self) -> None:
        self.begun = True
        await self.may_end.wait()
        for _ in range(3):
            await checkpoint()
        self.done = True
        if self._error is not None:
            raise self._error


def pass_the_deadline(scope: anyio.CancelScope) -> None:
    """Block, as synchronous code does, until the deadline is over."""
    scope.deadline = anyio.current_time() + 0.002
    while anyio.current_time() <= scope.deadline:
        pass


def running_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def begun(work: Closing) -> None:
    while not work.begun:
        await checkpoint()


# finish: work that must not be interrupted


async def test_work_that_nothing_interrupts_is_finished_and_nothing_is_delivered() -> None:
    work = Closing()
    work.may_end.set()
    await finish(work)
    assert work.done
    await checkpoint()


async def test_a_cancelled_scope_does_not_interrupt_work_and_is_delivered_at_the_next_await() -> None:
    work = Closing()
    seen = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        work.may_end.set()
        await finish(work)
        seen.append("returned")
        await checkpoint()
        seen.append("not delivered")
    assert work.done
    assert scope.cancelled_caught
    assert seen == ["returned"]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_scope_that_is_cancelled_during_the_work_is_delivered_at_the_next_await(how: str) -> None:
    work = Closing()
    seen = []
    scope = anyio.CancelScope()

    async def interrupt() -> None:
        await begun(work)
        if how == "cancel":
            scope.cancel()
        else:
            scope.deadline = -math.inf
        for _ in range(3):
            await checkpoint()
        work.may_end.set()

    async with anyio.create_task_group() as others:
        others.start_soon(interrupt)
        with scope:
            await finish(work)
            seen.append("returned")
            await checkpoint()
            seen.append("not delivered")
    assert work.done
    assert scope.cancelled_caught
    assert seen == ["returned"]


async def test_a_deadline_that_passes_during_the_work_does_not_interrupt_it() -> None:
    seen = []
    with anyio.CancelScope() as scope:

        async def work() -> None:
            pass_the_deadline(scope)
            for _ in range(3):
                await checkpoint()
            seen.append("done")

        await finish(work)
        seen.append("returned")
        for _ in range(2):  # what blocks past a deadline is seen by the second on asyncio, with or without this work
            await checkpoint()
        seen.append("not delivered")
    assert seen == ["done", "returned"]


@on_asyncio
async def test_work_that_waits_for_nothing_is_done_at_once_in_the_same_task(anyio_backend: str) -> None:
    del anyio_backend
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "had its turn")
    tasks = []

    async def work() -> None:
        await checkpoint()
        tasks.append(running_task())

    await finish(work)
    assert tasks == [running_task()]
    assert others == []


@on_asyncio
async def test_work_that_polls_for_others_lets_them_go_on(anyio_backend: str) -> None:
    del anyio_backend
    said: list[str] = []
    asyncio.get_running_loop().call_soon(said.append, "at last")

    async def work() -> None:
        while not said:  # noqa: ASYNC110  # it is polling that is tried
            await asyncio.sleep(0)

    await finish(work)
    assert said == ["at last"]


async def test_an_error_of_the_work_propagates_as_itself() -> None:
    error = OSError("closing failed")
    work = Closing(error)
    work.may_end.set()
    with pytest.raises(OSError, match="closing failed") as caught:
        await finish(work)
    assert caught.value is error


async def test_an_error_of_interrupted_work_propagates_and_the_cancellation_follows_it() -> None:
    work = Closing(OSError("closing failed"))
    seen = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        work.may_end.set()
        try:
            await finish(work)
        except OSError:
            seen.append("error")
        await checkpoint()
        seen.append("not delivered")
    assert seen == ["error"]
    assert scope.cancelled_caught


@on_asyncio
@pytest.mark.parametrize("requests", [1, 2, 3])
async def test_native_cancellation_during_the_work_is_delivered_once_after_it(requests: int) -> None:
    work = Closing()
    seen: list[object] = []

    async def caller() -> None:
        await finish(work)
        seen.append("returned")
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            seen.extend(error.args)
            seen.append(running_task().cancelling())
            await asyncio.sleep(0)
            seen.append("once")
            raise

    task = asyncio.ensure_future(caller())
    await begun(work)
    for _ in range(requests):
        task.cancel("shutting down")
        await asyncio.sleep(0)
        assert not task.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.done
    assert seen == ["returned", "shutting down", requests, "once"]


@on_asyncio
async def test_native_cancellation_that_is_pending_before_the_work_waits_for_it() -> None:
    work = Closing()
    work.may_end.set()
    seen: list[object] = []

    async def caller() -> None:
        running_task().cancel()
        await finish(work)
        seen.append(work.done)
        await asyncio.sleep(0)
        seen.append("not delivered")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(caller())
    assert seen == [True]


@on_asyncio
async def test_native_cancellation_at_the_moment_when_the_work_is_done_is_not_lost() -> None:
    seen: list[object] = []

    async def caller() -> None:
        task = running_task()

        async def work() -> None:
            await asyncio.sleep(0)
            task.cancel()

        await finish(work)
        seen.append(task.cancelling())
        await asyncio.sleep(0)
        seen.append("not delivered")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(caller())
    assert seen == [1]


@on_asyncio
async def test_an_error_of_natively_cancelled_work_propagates_and_the_cancellation_follows_it() -> None:
    work = Closing(OSError("closing failed"))
    seen = []

    async def caller() -> None:
        try:
            await finish(work)
        except OSError:
            seen.append("error")
        await asyncio.sleep(0)
        seen.append("not delivered")

    task = asyncio.ensure_future(caller())
    await begun(work)
    task.cancel()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["error"]


@on_asyncio
async def test_a_timeout_of_asyncio_that_ends_during_the_work_is_still_a_timeout() -> None:
    work = Closing()

    async def caller() -> None:
        async with asyncio.timeout(None) as timeout:

            async def working() -> None:
                timeout.reschedule(asyncio.get_running_loop().time())
                await work()

            await finish(working)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(caller())
    await begun(work)
    while not task.cancelling():
        await checkpoint()
    work.may_end.set()
    with pytest.raises(TimeoutError):
        await task
    assert work.done
    assert task.cancelling() == 0
