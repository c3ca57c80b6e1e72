"""One event loop at a time: another after the first has ended, never two at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from promptkit import Engine, EngineStateError, ExecutionGroup, RunRequest
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import Held, ok

if TYPE_CHECKING:
    from servers.stub import StubServer

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"})


@pytest.mark.parametrize(("first", "second"), [("asyncio", "trio"), ("trio", "asyncio"), ("asyncio", "asyncio")])
def test_an_engine_serves_another_loop_after_the_first_has_ended(stub: StubServer, first: str, second: str) -> None:
    stub.say(ok("Rome."))
    engine = Engine(small_catalog(stub.base_url, max_concurrency=1, max_waiting=0))

    async def run_and_close() -> None:
        assert (await engine.run(ASK)).raw_output == "Rome."
        state = engine._shared._state  # noqa: SLF001  # the loop ends without closing the engine: only connections go
        assert state is not None
        for client in state.clients.values():
            await client.aclose()  # type: ignore[attr-defined]

    anyio.run(run_and_close, backend=first)
    anyio.run(run_and_close, backend=second)
    assert len(stub.requests) == 2


def test_a_loop_that_ends_with_a_run_in_flight_leaves_full_capacity_to_the_next(stub: StubServer) -> None:
    held = Held(ok("late"))
    stub.say(held, ok("Rome."))
    engine = Engine(small_catalog(stub.base_url, max_concurrency=1, max_waiting=0))

    async def abandon() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ASK)
            await anyio.to_thread.run_sync(held.asked.wait)
            tasks.cancel_scope.cancel()

    async def again() -> None:
        async with engine:
            assert (await engine.run(ASK)).raw_output == "Rome."

    anyio.run(abandon)
    held.free.set()
    anyio.run(again)


def test_two_running_loops_at_once_are_refused(stub: StubServer) -> None:
    held = Held(ok("Rome."))
    stub.say(held)
    engine = Engine(small_catalog(stub.base_url))

    async def first() -> str:
        async with engine:
            return (await engine.run(ASK)).raw_output

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(anyio.run, first)
        assert held.asked.wait(10)
        with pytest.raises(EngineStateError, match="another event loop"):
            anyio.run(engine.run, ASK)
        held.free.set()
        assert running.result(10) == "Rome."


def test_a_callers_http_client_on_a_second_loop_is_refused(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    clients = [httpx.AsyncClient()]
    engine = Engine(small_catalog(stub.base_url), http_client=clients[0])

    async def run_and_close() -> None:
        await engine.run(ASK)
        await clients[0].aclose()

    anyio.run(run_and_close)
    with pytest.raises(EngineStateError, match="http_client"):
        anyio.run(engine.run, ASK)


def test_an_engine_for_each_thread_shares_exchanges_and_groups() -> None:
    first = anyio.run(
        Engine(small_catalog(), client=ScriptedClient("Rome.")).run,
        RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True),
    )
    group = ExecutionGroup()
    answers: list[str] = []

    def work() -> None:
        async def run() -> None:
            engine = Engine(small_catalog(), client=ScriptedClient(*["Yes."] * 50))
            for _ in range(50):
                result = await engine.run(
                    RunRequest(prompt_id="more", continue_from=first.exchange, observer=group.observe)
                )
                answers.append(str(result.exchange.details().messages[-1].content))

        anyio.run(run)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["Yes."] * 200
    assert group.snapshot().attempts == 200
