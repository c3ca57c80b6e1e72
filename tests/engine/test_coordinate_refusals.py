"""What a coordination refuses: when, in which words, and before anything of the application is called."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from promptkit import CoordinateRequest, Coordination, Engine, EngineStateError, InvalidRequestError, RunRequest
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit import ConversationTurn, Exchange, RunResult

pytestmark = pytest.mark.anyio

MORE = RunRequest(prompt_id="more", capture_exchange=True)


async def started(*answers: Any) -> tuple[Engine, Exchange]:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome.", *answers))
    first = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True))
    return engine, first.exchange


def leading(engine: Engine, start: Exchange, choose: Any, turns: int = 3) -> Coordination:
    return engine.coordinate(CoordinateRequest(start=start, additional_turns=turns, next=choose))


# ---------------------------------------------------------------- a closed engine


async def test_a_closed_engine_coordinates_nothing() -> None:
    engine, start = await started()
    await engine.aclose()
    with pytest.raises(EngineStateError, match="this engine is closed: make a new one"):
        leading(engine, start, lambda _: None)


async def test_a_coordination_made_before_the_engine_was_closed_calls_nothing_after_it() -> None:
    engine, start = await started()
    calls: list[object] = []
    coordination = leading(engine, start, calls.append)
    await engine.aclose()
    with pytest.raises(EngineStateError, match="this engine is closed: make a new one"):
        await coordination
    assert calls == []
    assert coordination.result.outcome is None
    del coordination
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in caught] == []  # it was awaited, and said what is wrong


async def test_a_coordination_under_way_goes_on_in_a_closed_engine_until_its_next_run() -> None:
    engine, start = await started("one")
    delivered: list[str | None] = []

    async def choose(turn: ConversationTurn) -> RunRequest:
        delivered.append(None if turn.result is None else turn.result.raw_output)
        if turn.result is not None:
            await engine.aclose()
        return MORE

    coordination = leading(engine, start, choose)
    with pytest.raises(EngineStateError, match="this engine is closed: make a new one"):
        await coordination
    assert delivered == [None, "one"]
    assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)


@pytest.mark.parametrize("namespace", ["", "team"])
async def test_a_closed_engine_cannot_be_entered(namespace: str) -> None:
    engine, _ = await started()
    await engine.aclose()
    with pytest.raises(EngineStateError, match="this engine is closed: make a new one"):
        async with engine.scoped(namespace) if namespace else engine:
            pytest.fail("entered")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_coordination_on_a_second_running_loop_calls_nothing() -> None:
    engine, start = await started()
    calls: list[object] = []

    def elsewhere() -> None:
        asyncio.run(leading(engine, start, calls.append).run())

    with pytest.raises(EngineStateError, match="serves another event loop that is still running"):
        await anyio.to_thread.run_sync(elsewhere)
    assert calls == []


# ---------------------------------------------------------------- a handle runs once


async def test_a_coordination_that_its_own_next_awaits_says_that_it_would_wait_for_itself() -> None:
    engine, start = await started()

    async def choose(_: ConversationTurn) -> None:
        await coordination

    coordination = leading(engine, start, choose)
    with pytest.raises(EngineStateError, match=r"^this coordination is running: its own next"):
        await coordination


async def test_a_coordination_that_a_second_task_awaits_while_it_runs_says_so() -> None:
    engine, start = await started()
    refused: list[str] = []

    async def second() -> None:
        try:
            await coordination
        except EngineStateError as error:
            refused.append(str(error))

    async def choose(_: ConversationTurn) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)

    coordination = leading(engine, start, choose)
    assert (await coordination).outcome == "stopped"
    assert refused == ["this coordination is running: it runs once, and its result is read from .result when it ends"]
    with pytest.raises(EngineStateError, match="has been started, and runs once"):
        await coordination


# ---------------------------------------------------------------- what next is


class Chooser:
    def __init__(self, turn: ConversationTurn) -> None:
        self.turn = turn


async def test_a_class_is_no_next() -> None:
    engine, start = await started()
    with pytest.raises(InvalidRequestError) as refused:
        leading(engine, start, Chooser)
    assert str(refused.value) == (
        "CoordinateRequest.next: Expected a function of a ConversationTurn, got the class `Chooser`: "
        "give an instance of it, or a method of one"
    )


# ---------------------------------------------------------------- what next returns


def plain_of_a_run(engine: Engine) -> Callable[[ConversationTurn], Any]:
    return lambda turn: engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange))


def async_of_a_run(engine: Engine) -> Callable[[ConversationTurn], Awaitable[Any]]:
    async def choose(turn: ConversationTurn) -> Any:
        return engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange))

    return choose


def plain_of_an_async(engine: Engine) -> Callable[[ConversationTurn], Any]:
    choose = async_of_a_run(engine)
    return lambda turn: choose(turn)  # noqa: PLW0108  # it is a plain function that this is about


def result_itself(engine: Engine) -> Callable[[ConversationTurn], Awaitable[RunResult]]:
    async def choose(turn: ConversationTurn) -> RunResult:
        return await engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange))

    return choose


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (plain_of_a_run, "next returned a RunResult: give the request itself, which the coordination runs"),
        (result_itself, "next returned a RunResult: give the request itself, which the coordination runs"),
        (async_of_a_run, "next returned a coroutine that was not awaited: await it in next"),
        (plain_of_an_async, "next returned a coroutine that was not awaited: await it in next"),
    ],
)
async def test_a_forgotten_await_and_a_result_are_told_apart_and_what_to_do(given: Any, says: str) -> None:
    engine, start = await started("one")
    with pytest.raises(InvalidRequestError, match=re.escape(says)):
        await leading(engine, start, given(engine))
    gc.collect()  # a coroutine that was never awaited would warn here


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_was_not_awaited_is_named_and_goes_on() -> None:
    engine, start = await started()
    made: list[asyncio.Task[str]] = []

    async def work() -> str:
        return "done"

    async def choose(_: ConversationTurn) -> Any:
        made.append(asyncio.ensure_future(work()))
        return made[0]

    with pytest.raises(InvalidRequestError, match="next returned a Task that was not awaited: await it"):
        await leading(engine, start, choose)
    assert await made[0] == "done"


async def test_an_exchange_that_next_returns_is_told_where_it_belongs() -> None:
    engine, start = await started()
    with pytest.raises(InvalidRequestError, match="next returned an Exchange: it returns a RunRequest to go on"):
        await leading(engine, start, lambda turn: turn.exchange)


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("value", ["x", MORE, None, {"start": 1}])
async def test_what_is_no_coordinate_request_is_told_how_one_is_written(value: Any) -> None:
    engine, _ = await started()
    with pytest.raises(InvalidRequestError) as refused:
        engine.coordinate(value)
    assert str(refused.value) == (
        f"coordinate: Expected a CoordinateRequest, got `{type(value).__name__}`: "
        "give CoordinateRequest(start=..., additional_turns=..., next=...)"
    )


# ---------------------------------------------------------------- what a repr tells


async def test_a_repr_tells_whether_it_runs_and_how_it_ended() -> None:
    engine, start = await started("one")
    seen: list[str] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        seen.append(repr(coordination))
        return MORE if turn.result is None else None

    coordination = leading(engine, start, choose)
    assert repr(coordination) == "<promptkit.Coordination not run>"
    await coordination
    assert set(seen) == {"<promptkit.Coordination running>"}
    assert repr(coordination) == "<promptkit.Coordination stopped>"
    coordination = leading(engine, start, lambda _: MORE, 0)
    await coordination
    assert repr(coordination) == "<promptkit.Coordination exhausted>"


async def test_a_repr_tells_by_what_it_failed_or_that_it_was_cancelled() -> None:
    engine, start = await started()
    coordination = leading(engine, start, lambda _: RunRequest(prompt_id="MARK"))
    with pytest.raises(InvalidRequestError):
        await coordination
    assert repr(coordination) == "<promptkit.Coordination failed (UnknownPromptError)>"

    def choose(_: ConversationTurn) -> None:
        scope.cancel()

    with anyio.CancelScope() as scope:
        coordination = leading(engine, start, choose)
        await coordination
    assert repr(coordination) == "<promptkit.Coordination cancelled>"


async def test_a_coordination_whose_coroutine_is_closed_was_cancelled() -> None:
    engine, start = await started()
    coordination = leading(engine, start, lambda _: None)
    running = coordination.run()
    running.send(None)
    running.close()
    assert repr(coordination) == "<promptkit.Coordination cancelled>"


async def test_an_interrupt_is_no_cancellation() -> None:
    engine, start = await started()

    def choose(_: ConversationTurn) -> None:
        raise KeyboardInterrupt

    coordination = leading(engine, start, choose)
    caught: BaseException | None = None
    try:
        await coordination
    except KeyboardInterrupt as error:
        caught = error
    assert isinstance(caught, KeyboardInterrupt)
    assert repr(coordination) == "<promptkit.Coordination cancelled (KeyboardInterrupt)>"
