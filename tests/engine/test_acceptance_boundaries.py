"""Where a coordination meets capacity, cancellation and what ends a program."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from promptkit import (
    AuthenticationError,
    CapacityError,
    ConversationTurn,
    CoordinationResult,
    RunFinished,
    RunRequest,
)
from promptkit.testing import EventRecorder
from servers.conversations import HISTORY, MORE, coordinated, scene, texts

if TYPE_CHECKING:
    from promptkit import Coordination

pytestmark = pytest.mark.anyio

WHERE = contextvars.ContextVar("WHERE", default="nowhere")


# ---------------------------------------------------------------- capacity


async def test_another_task_has_the_whole_capacity_while_the_application_waits_for_input() -> None:
    engine, _, first = await scene("one", "of another task", "two", max_concurrency=1, max_waiting=0)
    asked, answered = anyio.Event(), anyio.Event()
    ended: list[object] = []

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None and turn.remaining_turns:
            asked.set()
            await answered.wait()
        return MORE if turn.remaining_turns else None

    async def lead() -> None:
        ended.append((await coordinated(engine, first.exchange, choose, 2)).outcome)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead)
        await asked.wait()
        assert (await engine.run(MORE)).raw_output == "of another task"
        assert ended == []
        answered.set()
    assert ended == ["stopped"]


async def test_a_later_turn_is_admitted_like_any_other_run() -> None:
    free = anyio.Event()

    async def held(_: object) -> str:
        await free.wait()
        return "held"

    engine, client, first = await scene("one", held, max_concurrency=1, max_waiting=0)
    async with anyio.create_task_group() as tasks:

        async def choose(turn: ConversationTurn) -> RunRequest:
            if turn.result is not None:
                tasks.start_soon(engine.run, MORE)
                while len(client.calls) < 3:
                    await anyio.lowlevel.checkpoint()
            return MORE

        coordination = coordinated(engine, first.exchange, choose)
        with pytest.raises(CapacityError) as raised:
            await coordination
        free.set()
    assert (raised.value.reason, raised.value.running) == ("full", 1)
    assert coordination.result == CoordinationResult()


# ---------------------------------------------------------------- cancellation


async def cancelled_before(mechanism: str, coordination: Coordination) -> None:
    """Await it where it is cancelled already."""
    if mechanism == "native":

        async def lead() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await coordination

        led = asyncio.ensure_future(lead())
        await asyncio.wait([led])
        assert led.cancelled()
        return
    with anyio.CancelScope() as scope:
        if mechanism == "scope":
            scope.cancel()
        else:
            scope.deadline = anyio.current_time() - 1
        await coordination
    assert scope.cancelled_caught


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize(
    ("anyio_backend", "mechanism"),
    [*((loop, how) for loop in ("asyncio", "trio") for how in ("scope", "deadline")), ("asyncio", "native")],
)
async def test_a_cancellation_before_the_initial_callback_calls_runs_and_withholds_nothing(
    mechanism: str, turns: int
) -> None:
    engine, client, first = await scene("afterwards")
    recorder = EventRecorder()
    called: list[object] = []
    coordination = coordinated(engine, first.exchange, called.append, turns, observer=recorder)
    await cancelled_before(mechanism, coordination)
    assert (called, recorder.events, len(client.calls)) == ([], [], 1)
    assert coordination.result == CoordinationResult()
    again = await engine.run(msgspec.structs.replace(MORE, continue_from=first.exchange))
    assert texts(again.exchange) == [*HISTORY, "More?", "afterwards"]


async def test_a_callback_is_inside_the_scopes_and_the_context_of_the_await() -> None:
    engine, _, first = await scene("one")
    seen: list[tuple[str, float]] = []

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        seen.append((WHERE.get(), anyio.current_effective_deadline()))
        WHERE.set(f"after {len(seen)}")
        return MORE if turn.remaining_turns else None

    WHERE.set("before")
    with anyio.CancelScope(deadline=anyio.current_time() + 1000) as scope:
        await coordinated(engine, first.exchange, choose, 1)
        assert seen == [("before", scope.deadline), ("after 1", scope.deadline)]
    assert WHERE.get() == "after 2"


async def test_a_callback_that_shields_its_work_finishes_it_before_the_cancellation_is_seen() -> None:
    engine, client, first = await scene("never")
    finished: list[str] = []

    async def choose(_: ConversationTurn) -> RunRequest:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
            finished.append("work")
        return MORE

    with anyio.CancelScope() as scope:
        coordination = coordinated(engine, first.exchange, choose)
        await coordination
    assert scope.cancelled_caught
    assert (finished, len(client.calls), coordination.result) == (["work"], 1, CoordinationResult())


async def test_an_undelivered_response_is_one_result_whose_exchange_continues() -> None:
    engine, _, first = await scene("one", "from there")
    delivered: list[object] = []

    def observe(event: object) -> None:
        if isinstance(event, RunFinished):
            scope.cancel()

    def choose(turn: ConversationTurn) -> RunRequest:
        delivered.append(turn.result)
        return MORE

    with anyio.CancelScope() as scope:
        coordination = coordinated(engine, first.exchange, choose, observer=observe)
        await coordination
    assert scope.cancelled_caught
    kept = coordination.result.undelivered
    assert kept is not None
    assert coordination.result.undelivered is kept
    assert (delivered, kept.raw_output, coordination.result.outcome) == ([None], "one", None)
    again = await engine.run(msgspec.structs.replace(MORE, continue_from=kept.exchange))
    assert (again.parent_run_id, texts(again.exchange)[-3:]) == (kept.run_id, ["one", "More?", "from there"])


# ---------------------------------------------------------------- errors and what ends a program


class EndingError(BaseException):
    """What is no Exception, and nobody's cancellation."""


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, EndingError, ZeroDivisionError, ExceptionGroup])
async def test_whatever_a_callback_raises_propagates_as_itself_once_and_is_not_replayed(
    kind: type[BaseException], *, waits: bool, delivered: bool
) -> None:
    engine, client, first = await scene("one", "afterwards", max_concurrency=1, max_waiting=0)
    problem: BaseException = ExceptionGroup("mine", [ValueError()]) if kind is ExceptionGroup else kind("mine")
    calls: list[object] = []

    def plain(turn: ConversationTurn) -> RunRequest:
        calls.append(turn.result)
        if delivered and turn.result is None:
            return MORE
        raise problem

    async def waiting(turn: ConversationTurn) -> RunRequest:
        await anyio.lowlevel.checkpoint()
        return plain(turn)

    choose: Any = waiting if waits else plain
    coordination = coordinated(engine, first.exchange, choose)
    caught: BaseException | None = None
    try:
        await coordination
    except kind as error:
        caught = error
    assert caught is problem
    assert problem.__cause__ is None
    assert (len(calls), len(client.calls)) == ((2, 2) if delivered else (1, 1))
    assert coordination.result == CoordinationResult()
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)
    assert (await engine.run(msgspec.structs.replace(MORE, continue_from=first.exchange))).captured


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, EndingError])
async def test_what_ends_a_program_leaves_a_callback_without_a_check_for_cancellation(
    kind: type[BaseException],
) -> None:
    engine, client, first = await scene()
    problem = kind("now")

    def choose(_: ConversationTurn) -> None:
        scope.cancel()
        raise problem

    scope = anyio.CancelScope()
    caught: BaseException | None = None
    try:
        with scope:
            await coordinated(engine, first.exchange, choose)
    except kind as error:
        caught = error
    assert caught is problem
    assert (scope.cancelled_caught, len(client.calls)) == (False, 1)


async def test_an_error_of_a_turn_keeps_its_class_its_fields_and_its_cause() -> None:
    cause = OSError("underneath")
    mine = ZeroDivisionError("of the client")
    mine.__cause__ = cause
    refused = AuthenticationError("401", status=401, provider_code="no_key")
    engine, _, first = await scene(mine, refused)
    with pytest.raises(ZeroDivisionError) as plain:
        await coordinated(engine, first.exchange, lambda _: MORE)
    assert plain.value is mine
    assert plain.value.__cause__ is cause
    with pytest.raises(AuthenticationError) as typed:
        await coordinated(engine, first.exchange, lambda _: MORE)
    assert (typed.value.status, typed.value.provider_code, typed.value.attempts) == (401, "no_key", 1)
    assert typed.value.parent_run_id == first.run_id
