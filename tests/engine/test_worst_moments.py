"""What comes at the worst moment: an interrupt between two steps, a library half imported, a loop that is gone."""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

from promptkit import (
    CoordinateRequest,
    Engine,
    EngineStateError,
    GenerationReply,
    InvalidRequestError,
    RunFinished,
    RunRequest,
    guard_observer,
)
from promptkit._effects.run import RunDriver
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog
from servers.interpreters import on_posix, run_script

if TYPE_CHECKING:
    from types import FrameType

    from promptkit import ConversationTurn, ExecutionEvent, GenerationCall

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)


class Never:
    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def generate(self, _: GenerationCall) -> GenerationReply:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_the_first_calls_of_a_process_may_come_from_many_threads_while_a_loop_is_being_imported(library: str) -> None:
    program = f"""
from concurrent.futures import ThreadPoolExecutor
def ask(number):
    if number == 0 and {library!r} == "trio":
        import trio
    return engine.run(MORE).raw_output
with BlockingEngine(small_catalog(max_concurrency=8), client=Quick()) as engine, ThreadPoolExecutor(8) as pool:
    print(set(pool.map(ask, range(8))))
"""
    unloaded = (
        "for name in [n for n in sys.modules if n.partition('.')[0] in ('asyncio', 'trio')]: del sys.modules[name]\n"
    )
    for _ in range(3):
        done = run_script(unloaded + program)
        assert (done.stdout, done.stderr, done.returncode) == ("{'x'}\n", "", 0)


@on_posix
@pytest.mark.parametrize("loop", [asyncio, trio])
def test_an_interrupt_just_after_a_permit_was_taken_leaves_as_itself_and_gives_the_permit_back(loop: Any) -> None:
    lines, first = inspect.getsourcelines(RunDriver._attempt)  # noqa: SLF001  # the place between two of its steps
    after = first + next(index for index, line in enumerate(lines) if "began = " in line)

    def strike(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_name != "_attempt":
            return None
        if event == "line" and frame.f_lineno == after:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return strike

    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient("x"))
    left: list[BaseException] = []

    async def main() -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(strike)
        try:
            await engine.run(ASK)
        except BaseException as error:
            details = engine.inspect_backend("server")
            left.append(error)
            assert (details.running, details.waiting) == (0, 0)
            raise
        finally:
            sys.settrace(None)
            signal.signal(signal.SIGINT, before)

    with pytest.raises(KeyboardInterrupt):
        loop.run(main() if loop is asyncio else main)
    assert [type(error) for error in left] == [KeyboardInterrupt]


@pytest.mark.parametrize("message", [{"reason": "shutdown"}, ["a"], "text", None])
def test_a_native_cancellation_leaves_next_with_any_message(message: Any) -> None:
    async def main() -> None:
        engine = Engine(small_catalog(), client=ScriptedClient("x"))
        start = (await engine.run(ASK)).exchange
        inside = asyncio.Event()

        async def choose(_: ConversationTurn) -> None:
            inside.set()
            await asyncio.sleep(60)

        led = engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose))
        task = asyncio.create_task(led.run())
        await inside.wait()
        task.cancel(message)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


class UntellableError(Exception):
    def __str__(self) -> str:
        return str(self.missing)  # type: ignore[attr-defined]  # a faulty class of somebody


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("raised", "note"),
    [
        (UntellableError(), "an observer raised UntellableError"),
        (OSError("full disk"), "an observer raised OSError: full disk"),
        ("cancelled", "an observer raised CancelledError"),
    ],
)
async def test_what_an_observer_raises_never_takes_the_place_of_a_cancellation(raised: Any, note: str) -> None:
    client = Never()
    error = asyncio.CancelledError() if raised == "cancelled" else raised

    def observe(event: ExecutionEvent) -> None:
        if isinstance(event, RunFinished):
            raise error

    seen: list[BaseException] = []

    async def run() -> None:
        request = RunRequest(prompt_id="ask", variables={"question": "Where?"}, observer=observe)
        try:
            await Engine(small_catalog(), client=client).run(request)
        except BaseException as found:
            seen.append(found)
            raise

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await client.asked.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert seen[0] is not error
    assert isinstance(seen[0], anyio.get_cancelled_exc_class())
    assert seen[0].__notes__ == [note]


def test_a_run_whose_coroutine_is_closed_when_its_loop_is_gone_gives_its_capacity_back() -> None:
    client = Never()
    events: list[ExecutionEvent] = []
    engine = Engine(small_catalog(), client=client)
    request = RunRequest(prompt_id="ask", variables={"question": "Where?"}, observer=events.append)

    async def begin() -> Any:
        coroutine = engine.run(request)
        coroutine.send(None)
        return coroutine

    left = asyncio.run(begin())
    with pytest.raises(RuntimeError, match="no running event loop"):  # says anyio, whose time limit needs one to end
        left.close()
    gate = engine._shared._state.gates["server"]  # type: ignore[union-attr]  # noqa: SLF001  # it has served a loop
    assert (gate.state.leases, gate.state.permits) == (0, 0)
    assert [type(event).__name__ for event in events] == ["RunStarted", "AttemptFinished", "RunFinished"]


@pytest.mark.anyio
async def test_a_model_client_that_closes_its_own_engine_is_refused_instead_of_waiting_for_itself() -> None:
    class Closing:
        async def generate(self, _: GenerationCall) -> GenerationReply:
            await engine.aclose()
            raise AssertionError

    engine = Engine(small_catalog(), client=Closing())
    with pytest.raises(EngineStateError, match="would wait for itself: close it after the run"):
        await engine.run(ASK)
    await engine.aclose()
    with pytest.raises(EngineStateError, match="closed"):
        await engine.run(ASK)


@pytest.mark.anyio
async def test_a_handle_that_is_refused_can_still_run_where_it_belongs() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("x", "y"))
    start = (await engine.run(ASK)).exchange
    led = engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))
    refusals: list[str] = []

    def elsewhere() -> None:
        async def run() -> None:
            with pytest.raises(EngineStateError) as refused:
                await led
            refusals.append(str(refused.value))

        asyncio.run(run())

    await anyio.to_thread.run_sync(elsewhere)
    assert "serves another event loop" in refusals[0]
    assert (await led).outcome == "stopped"


@pytest.mark.anyio
async def test_what_a_guard_is_told_by_is_a_plain_function_too() -> None:
    def broken(_: ExecutionEvent) -> None:
        raise OSError

    async def tell(_: Exception) -> None: ...

    observer = guard_observer(broken, lambda error: tell(error))  # type: ignore[arg-type]  # noqa: PLW0108  # the mistake
    request = RunRequest(prompt_id="ask", variables={"question": "Where?"}, observer=observer)
    with pytest.raises(InvalidRequestError, match="on_error of guard_observer returned a coroutine"):
        await Engine(small_catalog(), client=ScriptedClient("x")).run(request)


class Lying(int):
    def __lt__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@pytest.mark.anyio
async def test_a_number_that_lies_about_itself_is_taken_by_its_value() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("x"))
    start = (await engine.run(ASK)).exchange
    with pytest.raises(InvalidRequestError, match="additional_turns: is -1: 0 or more"):
        CoordinateRequest(start=start, additional_turns=Lying(-1), next=lambda _: None)
