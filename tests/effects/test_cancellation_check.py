"""A cancellation is found however it came: swallowed, passed by code that blocked, or due and yet to happen."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio.testing
from anyio.lowlevel import checkpoint

from promptkit._effects.cancellation import TURNS_AFTER_A_WHILE, CancellationCheck

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def block(seconds: float) -> None:
    until = anyio.current_time() + seconds
    while anyio.current_time() <= until:
        pass


def pass_the_deadline(scope: anyio.CancelScope) -> None:
    """Block, as synchronous code does, until the deadline is over."""
    scope.deadline = anyio.current_time() + 0.002
    block(0.002)


def running_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def test_nothing_is_found_where_there_is_nothing() -> None:
    check = CancellationCheck()
    await check()
    await checkpoint()
    await check()


async def test_a_cancelled_scope_is_found() -> None:
    with anyio.CancelScope() as scope:
        check = CancellationCheck()
        scope.cancel()
        await check()
        pytest.fail("not found")
    assert scope.cancelled_caught


async def test_an_outer_scope_that_is_cancelled_is_found_and_ends_there() -> None:
    with anyio.CancelScope() as outer:
        with anyio.CancelScope() as inner, anyio.fail_after(3600):
            check = CancellationCheck()
            outer.cancel()
            await check()
        pytest.fail("not found")
    assert outer.cancelled_caught
    assert not inner.cancelled_caught


async def test_a_deadline_that_passed_while_code_blocked_is_found() -> None:
    for _ in range(20):
        with anyio.CancelScope() as scope:
            check = CancellationCheck()
            pass_the_deadline(scope)
            await check()
            pytest.fail("not found")
        assert scope.cancelled_caught


async def test_an_outer_deadline_that_passed_is_found() -> None:
    with anyio.CancelScope() as outer:
        with anyio.CancelScope():
            check = CancellationCheck()
            pass_the_deadline(outer)
            await check()
        pytest.fail("not found")
    assert outer.cancelled_caught


async def test_a_scope_cancellation_that_was_swallowed_is_found_and_ends_at_its_scope() -> None:
    with anyio.CancelScope() as scope:
        check = CancellationCheck()
        scope.cancel()
        with contextlib.suppress(BaseException):
            await checkpoint()
        await check()
        pytest.fail("not found")
    assert scope.cancelled_caught


async def test_a_cancellation_behind_a_shield_is_not_found_and_one_of_the_shield_is() -> None:
    with anyio.CancelScope() as outer:
        outer.cancel()
        with anyio.CancelScope(shield=True) as shield:
            check = CancellationCheck()
            await check()
            shield.cancel()
            await check()
            pytest.fail("not found")
        assert shield.cancelled_caught


async def test_a_scope_that_the_callback_opened_and_ended_is_not_found() -> None:
    check = CancellationCheck()
    with anyio.move_on_after(-1) as own:
        await anyio.sleep_forever()
    assert own.cancelled_caught
    with anyio.CancelScope() as own:
        own.cancel()
        with contextlib.suppress(BaseException):
            await checkpoint()
    with contextlib.suppress(TimeoutError), anyio.fail_after(-1):
        await anyio.sleep_forever()
    await check()


@on_asyncio
async def test_native_cancellation_that_was_swallowed_is_found() -> None:
    async def caller() -> None:
        check = CancellationCheck()
        running_task().cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        await check()
        pytest.fail("not found")

    task = asyncio.ensure_future(caller())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


@on_asyncio
async def test_native_cancellation_that_is_pending_is_delivered_once() -> None:
    seen: list[object] = []

    async def caller() -> None:
        check = CancellationCheck()
        running_task().cancel("shutting down")
        try:
            await check()
        except asyncio.CancelledError as error:
            seen.extend(error.args)
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(caller())
    assert seen == ["shutting down", "cleaned up"]


@on_asyncio
async def test_native_cancellation_leaves_a_scope_that_is_cancelled_too() -> None:
    async def caller() -> None:
        with anyio.CancelScope() as scope:
            check = CancellationCheck()
            running_task().cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            scope.cancel()
            await check()
        pytest.fail("the scope took a cancellation that is not its own")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(caller())


@on_asyncio
async def test_a_task_that_was_cancelled_before_the_await_began_is_not_cancelled_by_it() -> None:
    async def caller(*, uncancel: bool) -> None:
        task = running_task()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        if uncancel:
            task.uncancel()
        check = CancellationCheck()
        await check()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await check()

    await asyncio.ensure_future(caller(uncancel=True))
    await asyncio.ensure_future(caller(uncancel=False))


@on_asyncio
async def test_native_cancellation_that_the_callback_took_back_is_not_found() -> None:
    async def caller() -> None:
        check = CancellationCheck()
        running_task().cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        running_task().uncancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(-1):
                await asyncio.sleep(3600)
        await check()

    await asyncio.ensure_future(caller())


# What came due while code blocked


async def link(before: asyncio.Future[object], then: Callable[[], object]) -> None:
    await before
    then()


def chain(length: int, cancel: Callable[[], object]) -> asyncio.Future[object]:
    """Give a future that, when it is done, wakes a task, whose end wakes the next, of which the last cancels."""
    first: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    last: asyncio.Future[object] = first
    for number in range(length):
        last = asyncio.ensure_future(link(last, cancel if number == length - 1 else lambda: None))
    return first


@on_asyncio
@pytest.mark.parametrize("length", range(1, 4))
async def test_after_a_while_the_tasks_that_came_due_get_their_turn_before_the_check_ends(length: int) -> None:
    with anyio.CancelScope() as scope:
        check = CancellationCheck()
        await check()
        first = chain(length, scope.cancel)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.001, first.set_result, None)
        block(0.002)
        await check()
        pytest.fail("not found")
    assert scope.cancelled_caught


@on_asyncio
async def test_a_cancellation_at_the_end_of_a_long_chain_of_tasks_is_found_by_a_later_check() -> None:
    checks = 0
    with anyio.CancelScope() as scope:
        check = CancellationCheck()
        await check()
        first = chain(TURNS_AFTER_A_WHILE + 3, scope.cancel)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.001, first.set_result, None)
        block(0.002)
        for _ in range(5):
            await check()
            checks += 1
    assert scope.cancelled_caught
    assert checks > 0


class StoppedLoop(asyncio.SelectorEventLoop):
    """An event loop on which no time passes."""

    def time(self) -> float:
        return 0.0


WITHOUT_TIME: list[Any] = [
    ("asyncio", {"loop_factory": StoppedLoop}),
    ("trio", {"clock": trio.testing.MockClock()}),
]


@pytest.mark.parametrize("anyio_backend", WITHOUT_TIME, ids=["asyncio", "trio"])
async def test_a_check_that_follows_at_once_takes_no_more_turns_than_it_needs() -> None:
    check = CancellationCheck()
    turns = 0
    async with anyio.create_task_group() as others:

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await checkpoint()

        others.start_soon(count)
        await check()
        others.cancel_scope.cancel()
    assert turns <= 3
