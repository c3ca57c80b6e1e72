"""Runs inside model clients: which may wait for a permit, and which would wait for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from promptkit._effects.gate import Gate, Inside, _inside
from promptkit._values.definitions import Backend
from promptkit.errors import CapacityError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

pytestmark = pytest.mark.anyio


def gate_of(concurrency: int = 1, waiting: int = 4, name: str = "local") -> Gate:
    return Gate(
        Backend(
            id=name,
            kind="chat_completions",
            base_url="http://localhost/v1",
            max_concurrency=concurrency,
            max_waiting=waiting,
        )
    )


async def queued(gate: Gate, count: int) -> None:
    while len(gate.state.queue) != count:
        await checkpoint()


def is_whole(gate: Gate) -> bool:
    return gate.state == gate_of(gate.state.max_concurrency, gate.state.max_waiting).state and not gate.waits_inside


class Waiter:
    """A run that needs a permit once."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.served = False

    async def run(self) -> None:
        await self.gate.acquire()
        self.served = True
        self.gate.release()


# ---------------------------------------------------------------- its own backend


async def test_a_re_entrant_run_that_would_wait_is_refused_with_limits_and_counts() -> None:
    gate = gate_of(1, 4)
    with gate.admit().unwrap(), gate.admit().unwrap():
        await gate.acquire()
        before = gate.state
        with Inside(gate), pytest.raises(CapacityError) as caught:
            await gate.acquire()
        assert gate.state == before
        gate.release()
    assert caught.value == CapacityError(
        "backend 'local' would wait for itself: this run was started inside its model client: "
        "1 running, 1 waiting (max_concurrency 1, max_waiting 4): "
        "give runs inside a model client a backend or an engine of their own",
        backend="local",
        running=1,
        waiting=1,
        max_concurrency=1,
        max_waiting=4,
        reason="re-entrant",
    )
    assert is_whole(gate)


async def test_a_re_entrant_run_that_need_not_wait_is_granted() -> None:
    gate = gate_of(2)
    await gate.acquire()
    with Inside(gate):
        await gate.acquire()
        assert gate.state.permits == 2
        gate.release()
    gate.release()
    assert is_whole(gate)


@pytest.mark.parametrize(("concurrency", "waiting"), [(1, 0), (1, 1), (1, 50), (2, 0), (3, 2)])
async def test_a_re_entrant_run_that_finds_no_lease_and_no_permit_is_refused_for_what_it_is(
    concurrency: int, waiting: int
) -> None:
    gate = gate_of(concurrency, waiting)
    leases = [gate.admit().unwrap() for _ in range(concurrency + waiting)]
    for _ in range(concurrency):
        await gate.acquire()
    assert gate.admit().failure().reason == "full"
    with Inside(gate):
        error = gate.admit().failure()
    assert error.reason == "re-entrant"
    assert str(error).startswith("backend 'local' would wait for itself: this run was started inside its model client")
    assert "max_waiting, " not in str(error)
    assert (error.running, error.waiting) == (concurrency, waiting)
    for _ in range(concurrency):
        gate.release()
    for lease in leases:
        with lease:
            pass
    assert is_whole(gate)


async def test_a_re_entrant_run_for_which_only_a_lease_is_missing_finds_the_backend_full() -> None:
    gate = gate_of(2, 0)
    with gate.admit().unwrap(), gate.admit().unwrap():  # one of them waits for its retry
        await gate.acquire()
        with Inside(gate):
            assert gate.admit().failure().reason == "full"
        gate.release()


async def test_a_run_inside_the_client_of_another_backend_waits() -> None:
    inner, outer = Waiter(gate_of()), gate_of()
    await inner.gate.acquire()
    async with anyio.create_task_group() as group:
        with Inside(outer):
            group.start_soon(inner.run)
            await queued(inner.gate, 1)
        inner.gate.release()
    assert inner.served


async def test_a_run_inside_clients_inside_each_other_is_refused_by_both_backends() -> None:
    first, second = gate_of(), gate_of()
    await first.acquire()
    await second.acquire()
    with Inside(first), Inside(second):
        for gate in (first, second):
            with pytest.raises(CapacityError, match="would wait for itself"):
                await gate.acquire()


# ---------------------------------------------------------------- backends that wait for each other


class Ring:
    """Model clients that each hold the one permit of a backend, and may start runs at the others."""

    def __init__(self, *names: str, concurrency: int = 1, waiting: int = 4) -> None:
        self.gates = [gate_of(concurrency, waiting, name=name) for name in names]
        self.free = anyio.Event()
        self.refused: list[CapacityError] = []

    async def client(self, place: int, *waits_at: int) -> None:
        """Call a model client at a gate: inside of it runs wait at other gates, or until all are let go."""
        with self.gates[place].admit().unwrap() as gate:
            await gate.acquire()
            with Inside(gate):
                async with anyio.create_task_group() as group:
                    for other in waits_at:
                        group.start_soon(self.inner, other)
                    if not waits_at:
                        await self.free.wait()
            gate.release()

    async def inner(self, place: int) -> None:
        with self.gates[place].admit().unwrap() as gate:
            try:
                await gate.acquire()
            except CapacityError as error:
                self.refused.append(error)
            else:
                gate.release()

    def is_whole(self) -> bool:
        return all(map(is_whole, self.gates))


async def test_a_wait_that_would_close_a_ring_of_model_clients_is_refused_and_the_others_go_on() -> None:
    ring = Ring("left", "right")
    left, right = ring.gates
    await right.acquire()
    async with anyio.create_task_group() as group:
        group.start_soon(ring.client, 0, 1)
        await queued(right, 1)
        with Inside(right):
            with pytest.raises(CapacityError) as caught:
                await left.acquire()
        right.release()
    assert caught.value == CapacityError(
        "backend 'left' would wait in a ring of model clients: 'left' waits for 'right', which waits for 'left': "
        "1 running, 0 waiting (max_concurrency 1, max_waiting 4): "
        "give runs inside a model client a backend or an engine of their own",
        backend="left",
        running=1,
        waiting=0,
        max_concurrency=1,
        max_waiting=4,
        reason="re-entrant",
    )
    assert ring.refused == []
    assert ring.is_whole()


async def test_a_run_that_finds_no_lease_is_re_entrant_too_if_its_wait_would_close_a_ring() -> None:
    ring = Ring("left", "right", waiting=0)
    left, right = ring.gates
    await right.acquire()
    with Inside(right):
        with left.admit().unwrap():
            await left.acquire()
            assert left.admit().failure().reason == "full"  # nobody waits for "right" yet
            left.release()
    async with anyio.create_task_group() as group:
        group.start_soon(ring.client, 0, 1)
        await queued(right, 1)
        with Inside(right):
            refused = left.admit().failure()
        right.release()
    assert refused.reason == "re-entrant"
    assert "'left' waits for 'right', which waits for 'left'" in str(refused)
    assert ring.is_whole()


async def test_a_ring_is_found_through_any_number_of_backends() -> None:
    ring = Ring("a", "b", "c", "d")
    last = ring.gates[-1]
    await last.acquire()
    async with anyio.create_task_group() as group:
        for place in (2, 1, 0):
            group.start_soon(ring.client, place, place + 1)
            await queued(ring.gates[place + 1], 1)
        with (
            Inside(last),
            pytest.raises(CapacityError, match="'b' waits for 'c', which waits for 'd', which waits for 'b'"),
        ):
            await ring.gates[1].acquire()
        last.release()
    assert ring.is_whole()


async def test_a_run_waits_where_one_client_of_the_ring_has_a_permit_to_give_back() -> None:
    ring = Ring("left", "right", concurrency=2)
    left, right = ring.gates
    async with anyio.create_task_group() as group:
        for client in ((0,), (0, 1), (1,), (1,)):
            group.start_soon(ring.client, *client)
        await queued(right, 1)
        with Inside(right):
            group.start_soon(ring.inner, 0)  # the other client of "left" is at work
            await queued(left, 1)
        ring.free.set()
    assert ring.refused == []
    assert ring.is_whole()


async def test_a_client_that_has_returned_is_in_no_ring() -> None:
    ring = Ring("left", "right")
    left, right = ring.gates
    await left.acquire()
    await right.acquire()
    async with anyio.create_task_group() as group:
        with Inside(left):
            group.start_soon(ring.inner, 1)
            await queued(right, 1)
        with Inside(right):
            group.start_soon(ring.inner, 0)
            await queued(left, 1)
        left.release()
        right.release()
    assert ring.refused == []
    assert ring.is_whole()


async def test_backends_of_one_name_in_two_engines_are_told_apart_in_the_ring() -> None:
    ring = Ring("server", "server")
    first, second = ring.gates
    await second.acquire()
    async with anyio.create_task_group() as group:
        group.start_soon(ring.client, 0, 1)
        await queued(second, 1)
        with Inside(second), pytest.raises(CapacityError) as caught:
            await first.acquire()
        second.release()
    text = "'server' waits for 'server' of another engine, which waits for 'server'"
    assert text in str(caught.value)


async def test_clients_that_have_returned_do_not_pile_up_in_tasks_that_start_each_other() -> None:
    gate = gate_of()
    sizes: list[int] = []

    async def link(group: TaskGroup, number: int) -> None:
        await gate.acquire()
        with Inside(gate):
            sizes.append(len(_inside.get()))
            if number:
                group.start_soon(link, group, number - 1)
        gate.release()

    async with anyio.create_task_group() as group:
        group.start_soon(link, group, 50)
    assert sizes == [1] * 51


async def test_a_task_that_a_client_started_is_inside_it_while_the_client_runs() -> None:
    gate = gate_of()
    await gate.acquire()
    refused = []

    async def nested() -> None:
        try:
            await gate.acquire()
        except CapacityError as error:
            refused.append(error.reason)

    with Inside(gate):
        async with anyio.create_task_group() as group:
            group.start_soon(nested)
    assert refused == ["re-entrant"]


async def test_a_task_that_outlives_the_client_that_started_it_waits_like_any_other() -> None:
    waiter = Waiter(gate_of())
    await waiter.gate.acquire()
    left = anyio.Event()

    async def background() -> None:
        await left.wait()
        await waiter.run()

    async with anyio.create_task_group() as group:
        with Inside(waiter.gate):
            group.start_soon(background)
        left.set()
        await queued(waiter.gate, 1)
        waiter.gate.release()
    assert waiter.served
