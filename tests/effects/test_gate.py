"""Capacity is handed over first come, first served, and no cancellation loses any of it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint
from returns.result import Success

from promptkit._effects.gate import Gate
from promptkit._values.definitions import Backend
from promptkit.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def gate_of(concurrency: int = 1, waiting: int = 4) -> Gate:
    return Gate(
        Backend(
            id="local",
            kind="chat_completions",
            base_url="http://localhost/v1",
            max_concurrency=concurrency,
            max_waiting=waiting,
        )
    )


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await checkpoint()


async def queued(gate: Gate, count: int) -> None:
    await until(lambda: len(gate.state.queue) == count)


def is_whole(gate: Gate) -> bool:
    return gate.state == gate_of(gate.state.max_concurrency, gate.state.max_waiting).state


class Runs:
    """Runs that each need a permit once; ``served`` has their names in the order in which they got it."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.served: list[str] = []
        self.most = 0
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def run(self, name: str, steps: int = 0) -> None:
        with anyio.CancelScope() as self.scopes[name]:
            await self.gate.acquire()
            try:
                self.served.append(name)
                self.most = max(self.most, self.gate.state.permits)
                for _ in range(steps):
                    await checkpoint()
            finally:
                self.gate.release()


# Leases


def test_one_run_more_than_concurrency_and_waiting_is_refused_with_limits_and_counts() -> None:
    gate = gate_of(2, 1)
    leases = [gate.admit().unwrap() for _ in range(3)]
    before = gate.state
    error = gate.admit().failure()
    assert error == CapacityError(
        "backend 'local' is full: 0 running, 3 waiting (max_concurrency 2, max_waiting 1): "
        "try again later, or raise max_waiting",
        backend="local",
        running=0,
        waiting=3,
        max_concurrency=2,
        max_waiting=1,
        reason="full",
    )
    assert gate.state == before
    with leases[0]:
        pass
    assert isinstance(gate.admit(), Success)


def test_no_room_to_wait_admits_no_more_than_run() -> None:
    gate = gate_of(1, 0)
    with gate.admit().unwrap() as same:
        assert same is gate
        assert gate.admit().failure().reason == "full"
    assert is_whole(gate)


def test_a_lease_ends_with_its_context_whatever_happens_in_it() -> None:
    gate = gate_of()
    with pytest.raises(ZeroDivisionError), gate.admit().unwrap():
        _ = 1 / 0
    assert is_whole(gate)


# Permits


async def test_permits_up_to_the_limit_are_granted_at_once() -> None:
    gate = gate_of(3)
    for _ in range(3):
        await gate.acquire()
    assert gate.state.permits == 3
    for _ in range(3):
        gate.release()
    assert is_whole(gate)


async def test_the_first_to_come_is_the_first_to_be_served() -> None:
    runs = Runs(gate_of())
    names = [f"run {number}" for number in range(8)]
    await runs.gate.acquire()
    async with anyio.create_task_group() as group:
        for count, name in enumerate(names, start=1):
            group.start_soon(runs.run, name)
            await queued(runs.gate, count)
        runs.gate.release()
    assert runs.served == names
    assert is_whole(runs.gate)


async def test_a_newcomer_does_not_overtake_a_waiter_to_whom_a_permit_was_handed() -> None:
    runs = Runs(gate_of())
    await runs.gate.acquire()
    async with anyio.create_task_group() as group:
        group.start_soon(runs.run, "waiter")
        await queued(runs.gate, 1)
        runs.gate.release()  # the waiter has it now, but has not run yet
        await runs.run("newcomer")
    assert runs.served == ["waiter", "newcomer"]


async def test_a_cancelled_waiter_blocks_nobody() -> None:
    runs = Runs(gate_of())
    await runs.gate.acquire()
    async with anyio.create_task_group() as group:
        for count, name in enumerate(["first", "second", "third"], start=1):
            group.start_soon(runs.run, name)
            await queued(runs.gate, count)
        runs.scopes["second"].cancel()
        await queued(runs.gate, 2)
        runs.gate.release()
    assert runs.served == ["first", "third"]
    assert is_whole(runs.gate)


@pytest.mark.parametrize("order", ["release, cancel", "cancel, release"])
async def test_a_waiter_that_is_cancelled_at_the_moment_of_hand_over_loses_nothing(order: str) -> None:
    runs = Runs(gate_of())
    await runs.gate.acquire()
    async with anyio.create_task_group() as group:
        for count, name in enumerate(["first", "second"], start=1):
            group.start_soon(runs.run, name, 3)
            await queued(runs.gate, count)
        if order == "release, cancel":
            runs.gate.release()
            runs.scopes["first"].cancel()
        else:
            runs.scopes["first"].cancel()
            runs.gate.release()
    assert runs.scopes["first"].cancelled_caught
    assert runs.served[-1] == "second"
    assert is_whole(runs.gate)


@pytest.mark.parametrize("order", ["release, cancel", "cancel, release"])
async def test_hand_over_to_waiters_that_are_all_cancelled_frees_the_permit(order: str) -> None:
    runs = Runs(gate_of())
    await runs.gate.acquire()
    async with anyio.create_task_group() as group:
        for count in range(1, 6):
            group.start_soon(runs.run, str(count), 3)
            await queued(runs.gate, count)
        if order == "release, cancel":
            runs.gate.release()
        for scope in runs.scopes.values():
            scope.cancel()
        if order == "cancel, release":
            runs.gate.release()
    assert is_whole(runs.gate)


@on_asyncio
@pytest.mark.parametrize("order", ["release, cancel", "cancel, release"])
async def test_a_task_that_is_cancelled_at_the_moment_of_hand_over_loses_nothing(order: str) -> None:
    runs = Runs(gate_of())
    await runs.gate.acquire()
    first = asyncio.ensure_future(runs.run("first"))
    await queued(runs.gate, 1)
    second = asyncio.ensure_future(runs.run("second"))
    await queued(runs.gate, 2)
    if order == "release, cancel":
        runs.gate.release()
        first.cancel()
    else:
        first.cancel()
        runs.gate.release()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert runs.served == ["second"]
    assert is_whole(runs.gate)


@pytest.mark.parametrize("seed", range(6))
async def test_hundreds_of_randomly_cancelled_waiters_leave_the_full_capacity(seed: int) -> None:
    dice = random.Random(seed)
    concurrency = dice.randint(1, 3)
    runs = Runs(gate_of(concurrency))
    ended = 0

    async def run(name: str) -> None:
        nonlocal ended
        await runs.run(name, dice.randint(0, 3))
        ended += 1

    async with anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(run, str(number))
        await until(lambda: len(runs.scopes) == 300)
        while ended < 300:
            for scope in dice.sample(list(runs.scopes.values()), dice.randint(0, 4)):
                scope.cancel()
            await checkpoint()
    assert is_whole(runs.gate)
    assert 0 < runs.most <= concurrency
    cancelled = sum(scope.cancelled_caught for scope in runs.scopes.values())
    assert cancelled > 0
    assert len(runs.served) + cancelled >= 300


@on_asyncio
@pytest.mark.parametrize("seed", range(6))
async def test_hundreds_of_randomly_cancelled_tasks_leave_the_full_capacity(seed: int) -> None:
    dice = random.Random(seed)
    concurrency = dice.randint(1, 3)
    runs = Runs(gate_of(concurrency))
    tasks = [asyncio.ensure_future(runs.run(str(number), dice.randint(0, 3))) for number in range(300)]
    while not all(task.done() for task in tasks):
        for number in dice.sample(range(300), dice.randint(0, 6)):
            if dice.random() < 0.5:
                tasks[number].cancel()
            elif str(number) in runs.scopes:
                runs.scopes[str(number)].cancel()
        await checkpoint()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {type(None), asyncio.CancelledError}
    assert is_whole(runs.gate)
    assert 0 < runs.most <= concurrency
