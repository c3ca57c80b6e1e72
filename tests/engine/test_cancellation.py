"""A run that is cancelled: nothing in hand is lost, nothing is swallowed, capacity and connections come back."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

from promptkit import (
    AttemptFinished,
    Engine,
    GenerationCall,
    GenerationReply,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunStarted,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.closing import SlowlyClosing
from servers.stub import Held, error, ok

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"})


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_native_cancel_while_the_response_is_closed_loses_nothing(cancels: int) -> None:
    transport = SlowlyClosing()
    got: list[str] = []
    async with httpx.AsyncClient(transport=transport) as client:
        engine = Engine(small_catalog(), http_client=client)

        async def run() -> None:
            got.append((await engine.run(ASK)).raw_output)
            await asyncio.sleep(0)
            got.append("never")

        task = asyncio.ensure_future(run())
        await transport.closing.wait()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        transport.free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert got == ["Rome."]
    assert transport.closed == 1


async def test_a_run_cancelled_in_flight_tells_so_once_and_gives_its_capacity_back(stub: StubServer) -> None:
    held = Held(ok("Rome."))
    stub.say(held, ok("Again."))
    recorder = EventRecorder()
    async with Engine(small_catalog(stub.base_url, max_concurrency=1, max_waiting=0)) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ask(observer=recorder))
            await anyio.to_thread.run_sync(held.asked.wait)
            tasks.cancel_scope.cancel()
        held.free.set()
        assert (await engine.run(ASK)).raw_output == "Again."
    assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished, RunFinished]
    attempt, finished = recorder.events[1:]
    assert isinstance(attempt, AttemptFinished)
    assert isinstance(finished, RunFinished)
    assert (attempt.outcome, finished.outcome, finished.attempts) == ("cancelled", "cancelled", 1)
    assert not finished.usage.input_tokens.complete


async def test_a_run_cancelled_while_queued_has_no_attempt(stub: StubServer) -> None:
    held = Held(ok("Rome."))
    stub.say(held)
    recorder = EventRecorder()
    async with Engine(small_catalog(stub.base_url, max_concurrency=1)) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ASK)
            await anyio.to_thread.run_sync(held.asked.wait)
            with anyio.move_on_after(0.05):
                await engine.run(ask(observer=recorder))
            held.free.set()
    assert [type(event) for event in recorder.events] == [RunStarted, RunFinished]
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts, finished.usage.input_tokens.complete) == ("cancelled", 0, True)
    assert len(stub.requests) == 1


async def test_a_run_cancelled_in_backoff_sends_nothing_more(stub: StubServer) -> None:
    stub.say(error(503), ok("never"))
    recorder = EventRecorder()
    catalog = small_catalog(stub.base_url, retry=RetryPolicy(base_delay=30.0, max_delay=30.0))
    async with Engine(catalog) as engine:
        with anyio.move_on_after(0.1) as scope:
            await engine.run(ask(observer=recorder))
        assert scope.cancelled_caught
    assert len(stub.requests) == 1
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts, finished.transient_retries) == ("cancelled", 1, 0)


async def test_no_permit_is_held_during_a_backoff(stub: StubServer) -> None:
    stub.say(error(503), ok("Second run."))
    catalog = small_catalog(
        stub.base_url, max_concurrency=1, max_waiting=1, retry=RetryPolicy(base_delay=30.0, max_delay=30.0)
    )
    delayed = anyio.Event()
    async with Engine(catalog) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(
            engine.run, ask(observer=lambda e: delayed.set() if type(e).__name__ == "RetryDelayed" else None)
        )
        await delayed.wait()
        assert (await engine.run(ASK)).raw_output == "Second run."
        tasks.cancel_scope.cancel()


async def test_what_an_observer_raises_on_the_cancelled_path_is_a_note_of_the_cancellation(stub: StubServer) -> None:
    held = Held(ok("Rome."))
    stub.say(held)

    def observer(event: object) -> None:
        if isinstance(event, AttemptFinished):
            msg = "mine"
            raise ZeroDivisionError(msg)

    notes: list[str] = []
    async with Engine(small_catalog(stub.base_url)) as engine:

        async def run() -> None:
            try:
                await engine.run(ask(observer=observer))
            except anyio.get_cancelled_exc_class() as cancellation:
                notes.extend(getattr(cancellation, "__notes__", []))
                raise

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.to_thread.run_sync(held.asked.wait)
            tasks.cancel_scope.cancel()
        held.free.set()
    assert notes == ["an observer raised ZeroDivisionError: mine"]


async def test_random_cancellation_leaves_the_pool_and_the_capacity_whole(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    chance = random.Random(7)
    async with Engine(small_catalog(stub.base_url, max_concurrency=4, max_waiting=500)) as engine:

        async def run() -> None:
            with anyio.move_on_after(chance.uniform(0, 0.02)):
                await engine.run(ASK)

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(run)
        for _ in range(20):
            assert (await engine.run(ASK)).raw_output == "Rome."
        state = engine._shared._state  # noqa: SLF001  # nothing public shows the counts yet
        assert state is not None
        counts = state.gates["server"].state
    assert (counts.permits, counts.leases, counts.queue) == (0, 0, ())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_native_cancellation_at_any_moment_leaves_the_pool_and_the_capacity_whole(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    async with Engine(small_catalog(stub.base_url, max_concurrency=2, max_waiting=500)) as engine:
        for steps in range(60):
            task = asyncio.ensure_future(engine.run(ASK))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert (await engine.run(ASK)).raw_output == "Rome."
        state = engine._shared._state  # noqa: SLF001  # nothing public shows the counts yet
        assert state is not None
        counts = state.gates["server"].state
    assert (counts.permits, counts.leases) == (0, 0)


@pytest.mark.parametrize("step", [lambda: "Rome.", lambda: GenerationReply(content="Rome.")])
async def test_a_client_that_returns_although_it_was_cancelled_is_heard(step: Callable[[], Any]) -> None:
    scope = anyio.CancelScope()

    def answer(_: object) -> Any:
        scope.cancel()
        return step()

    engine = Engine(small_catalog(), client=ScriptedClient(answer))
    got = []
    with scope:
        got.append(await engine.run(ASK))
        await anyio.lowlevel.checkpoint()
        got.append(None)  # type: ignore[arg-type]
    assert [result.raw_output for result in got] == ["Rome."]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog refuses instead of being silent")
async def test_a_cancellation_while_connecting_leaves_as_itself() -> None:
    recorder = EventRecorder()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        port = silent.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for other in waiting:
            other.settimeout(0)
            other.connect_ex(("127.0.0.1", port))
        engine = Engine(small_catalog(f"http://127.0.0.1:{port}/v1"))
        with anyio.move_on_after(0.05) as scope:
            await engine.run(ask(observer=recorder))
        for other in waiting:
            other.close()
    assert scope.cancelled_caught
    assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished, RunFinished]
    assert [event.outcome for event in recorder.events[1:]] == ["cancelled"] * 2  # type: ignore[union-attr]


async def test_a_cancellation_inside_the_nursery_of_a_client_leaves_as_itself() -> None:
    recorder = EventRecorder()

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                tasks.start_soon(anyio.sleep_forever)
            raise AssertionError(call)

    engine = Engine(small_catalog(), client=Client())
    with anyio.move_on_after(0.01) as scope:
        await engine.run(ask(observer=recorder))
    assert scope.cancelled_caught
    assert recorder.events[-1].outcome == "cancelled"  # type: ignore[union-attr]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_that_was_cancelled_with_its_answer_in_hand_begins_no_repair(anyio_backend: str) -> None:
    del anyio_backend
    recorder = EventRecorder()
    asked = 0

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            nonlocal asked
            asked += 1
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # arrives with the reply: nothing is awaited after it
            return GenerationReply(content=f"not JSON, attempt {call.attempt}")

    engine = Engine(small_catalog(max_repairs=3), client=Client())
    with pytest.raises(asyncio.CancelledError):
        await engine.run(RunRequest(prompt_id="follow", observer=recorder))
    assert asked == 1
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts, finished.repair_calls) == ("cancelled", 1, 0)
    assert sum(isinstance(event, AttemptFinished) for event in recorder.events) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("times", [1, 2])
async def test_native_cancellations_leave_no_connection_in_between(
    stub: StubServer, anyio_backend: str, times: int
) -> None:
    del anyio_backend
    held = Held(ok("Rome."))
    stub.say(held)
    async with Engine(small_catalog(stub.base_url, max_concurrency=8)) as engine:
        for steps in range(50):
            task = asyncio.ensure_future(engine.run(ask()))
            for _ in range(steps):
                await asyncio.sleep(0)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([task])
            assert task.cancelled()
        assert connections_of(engine) == (0, True)
        held.free.set()
        assert (await engine.run(ask())).raw_output == "Rome."


def connections_of(engine: Engine) -> tuple[int, bool]:
    """Count the pools that are still to be closed, and say whether every connection of the others is idle."""
    shared: Any = engine._shared  # noqa: SLF001  # no one else can see them
    own = shared._state.clients["server"]._transport._own  # noqa: SLF001
    connections = [connection for pool in own._pools for connection in pool.transport._pool.connections]  # noqa: SLF001
    return len(own._spent), all(connection.is_idle() for connection in connections)  # noqa: SLF001
