"""A step that waits for the test: a call that is in flight exactly as long as it says."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from promptkit import AttemptTimeoutError, BlockingEngine, Engine, OverloadedError, RetryPolicy, RunRequest
from promptkit.testing import Gate, ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from promptkit import GenerationCall

pytestmark = pytest.mark.anyio


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


async def test_a_call_is_in_flight_until_the_gate_is_released_and_then_gets_the_step() -> None:
    gate = Gate("Hello!")
    outputs: list[str] = []
    engine = Engine(small_catalog(), client=ScriptedClient(gate))

    async def run() -> None:
        outputs.append((await engine.run(ask())).raw_output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await gate.reached()
        assert (engine.inspect_backend("server").running, outputs) == (1, [])
        gate.release()
    assert (outputs, gate.cancelled) == (["Hello!"], False)


async def test_a_call_can_be_cancelled_exactly_in_flight_and_the_gate_tells() -> None:
    gate = Gate("never")
    engine = Engine(small_catalog(), client=ScriptedClient(gate))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ask())
        await gate.reached()
        assert not gate.cancelled
        tasks.cancel_scope.cancel()
    assert gate.cancelled
    assert engine.inspect_backend("server").running == 0


async def test_an_attempt_timeout_ends_a_held_call_and_the_retry_takes_the_next_step() -> None:
    gate = Gate("never")
    catalog = small_catalog(attempt_timeout=0.01, retry=RetryPolicy(max_retries=1, base_delay=0.0, max_delay=0.0))
    with ScriptedClient(gate, "second") as client:
        result = await Engine(catalog, client=client).run(ask())
    assert (result.raw_output, gate.cancelled) == ("second", True)
    with pytest.raises(AttemptTimeoutError):
        await Engine(catalog, client=ScriptedClient(Gate("a"), Gate("b"))).run(ask())


async def test_a_gate_that_was_released_before_holds_nothing() -> None:
    gate = Gate("at once")
    gate.release()
    with ScriptedClient(gate) as client:
        assert (await Engine(small_catalog(), client=client).run(ask())).raw_output == "at once"
    await gate.reached()


@pytest.mark.parametrize("behind", [OverloadedError("busy", status=503), lambda _: OverloadedError("busy", status=503)])
async def test_behind_a_gate_is_any_step(behind: Any) -> None:
    gate = Gate(behind)
    gate.release()
    with ScriptedClient(gate, "then") as client:
        result = await Engine(small_catalog(), client=client).run(ask())
    assert (result.raw_output, result.transient_retries) == ("then", 1)


async def test_a_function_behind_a_gate_is_called_when_the_gate_is_released() -> None:
    called: list[GenerationCall] = []

    def answer(call: GenerationCall) -> str:
        called.append(call)
        return "yes"

    gate = Gate(answer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Engine(small_catalog(), client=ScriptedClient(gate)).run, ask())
        await gate.reached()
        assert called == []
        gate.release()
    assert len(called) == 1


def test_a_gate_around_a_gate_and_one_gate_for_two_steps_are_refused() -> None:
    with pytest.raises(TypeError, match="not another Gate"):
        Gate(Gate("x"))  # type: ignore[arg-type]
    gate = Gate("x")
    with pytest.raises(TypeError, match="steps 1 and 3 of a ScriptedClient are one Gate: make one for each"):
        ScriptedClient(gate, "y", gate)


async def test_a_gate_of_two_clients_serves_one_call() -> None:
    gate = Gate("x")
    gate.release()
    await Engine(small_catalog(), client=ScriptedClient(gate)).run(ask())
    with pytest.raises(AssertionError, match=re.escape("Gate('x') was reached twice")):
        await Engine(small_catalog(), client=ScriptedClient(gate)).run(ask())


async def test_a_call_that_nobody_releases_says_so_instead_of_hanging() -> None:
    gate = Gate("never", within=0)
    engine = Engine(small_catalog(), client=ScriptedClient(gate))
    with pytest.raises(AssertionError, match=r"Gate\('never'\) held its call for 0 s, and nobody released it"):
        await engine.run(ask())
    assert not gate.cancelled
    released = Gate("yes", within=0)
    released.release()
    assert (await Engine(small_catalog(), client=ScriptedClient(released)).run(ask())).raw_output == "yes"


async def test_a_gate_that_no_call_reaches_says_so_instead_of_hanging() -> None:
    with pytest.raises(
        AssertionError, match=re.escape("no call has reached Gate('x') within 0 s: the program must run")
    ):
        await Gate("x").reached(within=0)
    with pytest.raises(
        AssertionError, match=re.escape("no call has reached Gate('x') within 0 s: the program must run")
    ):
        await anyio.to_thread.run_sync(lambda: Gate("x").wait_until_reached(within=0))


def test_threads_use_a_gate_with_a_blocking_engine() -> None:
    gate = Gate("Hello!")
    outputs: list[str] = []
    with BlockingEngine(small_catalog(), client=ScriptedClient(gate)) as engine:
        thread = threading.Thread(target=lambda: outputs.append(engine.run(ask()).raw_output))
        thread.start()
        gate.wait_until_reached()
        assert engine.inspect_backend("server").running == 1
        gate.release()
        thread.join()
    assert outputs == ["Hello!"]


def test_the_timeout_of_a_blocking_run_cancels_the_held_call() -> None:
    gate = Gate("never")
    with BlockingEngine(small_catalog(), client=ScriptedClient(gate)) as engine:
        with pytest.raises(TimeoutError):
            engine.run(ask(), timeout=0.5)  # long enough to reach the gate on a busy machine
        gate.wait_until_reached()
        assert gate.cancelled


async def test_a_task_of_one_loop_waits_for_a_call_on_another() -> None:
    gate = Gate("Hello!")
    outputs: list[str] = []

    def work() -> None:
        with BlockingEngine(small_catalog(), client=ScriptedClient(gate)) as engine:
            outputs.append(engine.run(ask()).raw_output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, work)
        await gate.reached()
        gate.release()
    assert outputs == ["Hello!"]
