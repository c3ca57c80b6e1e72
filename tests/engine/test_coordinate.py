"""The coordinator from outside: progression, cancellation, capacity."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from promptkit import (
    ConversationTurn,
    CoordinateRequest,
    Engine,
    EngineStateError,
    Exchange,
    ExecutionGroup,
    InvalidRequestError,
    RunFinished,
    RunRequest,
    RunStarted,
    UnknownPromptError,
    compose_observers,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog

pytestmark = pytest.mark.anyio

MORE = RunRequest(prompt_id="more")


async def started(*answers: Any, **backend: Any) -> tuple[Engine, Exchange, ScriptedClient]:
    client = ScriptedClient("Rome.", *answers)
    engine = Engine(small_catalog(**backend), client=client)
    first = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True))
    return engine, first.exchange, client


async def test_each_response_is_delivered_once_the_last_permitted_one_too() -> None:
    engine, start, _ = await started("one", "two")
    turns: list[ConversationTurn] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        turns.append(turn)
        return MORE

    result = await engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=choose))
    assert (result.outcome, result.undelivered) == ("exhausted", None)
    assert [(t.result and t.result.raw_output, t.remaining_turns) for t in turns] == [(None, 2), ("one", 1), ("two", 0)]
    assert turns[0].exchange is start
    assert [m.content for m in turns[2].exchange.details().messages][-4:] == ["More?", "one", "More?", "two"]


async def test_stopping_after_the_last_permitted_response_is_stopped_and_not_exhausted() -> None:
    engine, start, client = await started("one")
    result = await engine.coordinate(
        CoordinateRequest(start=start, additional_turns=1, next=lambda turn: MORE if turn.remaining_turns else None)
    )
    assert result.outcome == "stopped"
    client.assert_exhausted()


@pytest.mark.parametrize(("choice", "outcome"), [(None, "stopped"), (MORE, "exhausted")])
async def test_zero_turns_still_call_the_application_once(choice: RunRequest | None, outcome: str) -> None:
    engine, start, client = await started()
    calls: list[int] = []

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        calls.append(turn.remaining_turns)
        return choice

    result = await engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=choose))
    assert (result.outcome, calls, len(client.calls)) == (outcome, [0], 1)


async def test_an_exhausted_request_is_not_prepared() -> None:
    engine, start, _ = await started()
    request = CoordinateRequest(start=start, additional_turns=0, next=lambda _: RunRequest(prompt_id="nope"))
    assert (await engine.coordinate(request)).outcome == "exhausted"


async def test_the_branchs_exchange_replaces_continue_from() -> None:
    engine, start, client = await started("other", "one")
    other = await engine.run(RunRequest(prompt_id="more", continue_from=start))
    chosen = msgspec.structs.replace(MORE, continue_from=other.exchange)
    coordination = engine.coordinate(
        CoordinateRequest(start=start, additional_turns=1, next=lambda turn: chosen if turn.remaining_turns else None)
    )
    await coordination
    assert [m.content for m in client.calls[-1].messages] == ["You are terse.", "Where?", "Rome.", "More?"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"start": None}, "start: Expected an Exchange"),
        ({"next": None}, "next: Expected a function"),
        ({"additional_turns": -1}, "additional_turns: is -1"),
        ({"additional_turns": True}, "additional_turns"),
        ({"additional_turns": "3"}, "additional_turns"),
    ],
)
async def test_wrong_arguments_are_refused_at_once(fields: dict[str, Any], says: str) -> None:
    _, start, _ = await started()
    with pytest.raises(InvalidRequestError, match=says):
        CoordinateRequest(**{"start": start, "additional_turns": 1, "next": lambda _: None, **fields})


async def test_what_is_no_coordinate_request_is_refused_by_coordinate_itself() -> None:
    engine, _, _ = await started()
    with pytest.raises(InvalidRequestError, match="CoordinateRequest"):
        engine.coordinate(MORE)  # type: ignore[arg-type]


async def test_a_callback_that_returns_something_else_is_told_what_to_return() -> None:
    engine, start, _ = await started()
    coordination = engine.coordinate(
        CoordinateRequest(start=start, additional_turns=1, next=lambda _: "more")  # type: ignore[arg-type,return-value]
    )
    with pytest.raises(InvalidRequestError, match="next returned a str"):
        await coordination


async def test_an_error_of_the_application_propagates_as_itself_and_leaves_no_outcome() -> None:
    engine, start, _ = await started("one")
    problem = ZeroDivisionError("mine")

    def choose(turn: ConversationTurn) -> RunRequest:
        if turn.result is not None:
            raise problem
        return MORE

    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose))
    with pytest.raises(ZeroDivisionError) as raised:
        await coordination
    assert raised.value is problem
    assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)


async def test_an_error_of_a_run_propagates_as_itself_and_nothing_is_retried() -> None:
    engine, start, client = await started()
    calls: list[int] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        calls.append(turn.remaining_turns)
        return RunRequest(prompt_id="nope")

    with pytest.raises(UnknownPromptError):
        await engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose))
    assert (calls, len(client.calls)) == ([3], 1)


async def test_an_invalid_output_is_delivered_like_any_other() -> None:
    engine, start, _ = await started("no", "still no")
    seen: list[str] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            seen.append(turn.result.validation.status)
            return None
        return RunRequest(prompt_id="follow")

    assert (
        await engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose))
    ).outcome == "stopped"
    assert seen == ["invalid"]


# ---------------------------------------------------------------- handles


async def test_a_coordination_runs_once_and_by_task_group_too() -> None:
    engine, start, _ = await started()
    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(coordination.run)
    assert coordination.result.outcome == "stopped"
    with pytest.raises(EngineStateError, match="runs once"):
        await coordination


async def test_a_coordination_that_is_dropped_without_having_run_warns() -> None:
    engine, start, _ = await started()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))
        gc.collect()
    assert [w.category for w in caught] == [RuntimeWarning]
    assert "never run" in str(caught[0].message)


# ---------------------------------------------------------------- capacity and observers


async def test_a_callback_may_run_on_the_same_backend_at_capacity_one() -> None:
    engine, start, client = await started("one", "nested", max_concurrency=1, max_waiting=0)

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return MORE
        nested = await engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange))
        assert nested.raw_output == "nested"
        return None

    await engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose))
    client.assert_exhausted()


async def test_the_requests_observer_comes_before_the_coordinators_and_nested_runs_inherit_neither() -> None:
    engine, start, _ = await started("one", "nested")
    order: list[str] = []
    group = ExecutionGroup()

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return msgspec.structs.replace(MORE, observer=lambda e: order.append("own " + type(e).__name__))
        await engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange))
        return None

    await engine.coordinate(
        CoordinateRequest(
            start=start,
            additional_turns=1,
            next=choose,
            observer=compose_observers(group.observe, lambda e: order.append("all " + type(e).__name__)),
        )
    )
    assert order[:2] == ["own RunStarted", "all RunStarted"]
    assert len(order) == 6
    assert len(group.snapshot().members) == 1


async def test_what_was_delivered_can_be_changed_without_changing_the_branch() -> None:
    engine, start, client = await started('{"a": 1}', "two")

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return RunRequest(prompt_id="follow")
        if isinstance(turn.result.value, dict):
            turn.result.value.clear()
            turn.result.__dict__.clear()
            return MORE
        return None

    await engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=choose))
    assert [m.content for m in client.calls[-1].messages][-3:] == ["And then?", '{"a": 1}', "More?"]


# ---------------------------------------------------------------- cancellation


async def test_a_cancellation_from_a_terminal_observer_keeps_the_undelivered_response() -> None:
    engine, start, _ = await started("one")
    recorder = EventRecorder()
    calls: list[object] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        calls.append(turn.result)
        return MORE

    with anyio.CancelScope() as scope:

        def observer(event: object) -> None:
            recorder(event)  # type: ignore[arg-type]
            if isinstance(event, RunFinished):
                scope.cancel()

        coordination = engine.coordinate(
            CoordinateRequest(start=start, additional_turns=3, next=choose, observer=observer)
        )
        await coordination
    assert scope.cancelled_caught
    assert calls == [None]
    undelivered = coordination.result.undelivered
    assert undelivered is not None
    assert (undelivered.raw_output, coordination.result.outcome) == ("one", None)
    assert undelivered.exchange.details().messages[-1].content == "one"
    assert [type(event) for event in recorder.events][-1] is RunFinished


async def test_a_cancellation_inside_the_callback_leaves_nothing_undelivered() -> None:
    engine, start, client = await started("one")

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            scope.cancel()
            await anyio.sleep_forever()
        return MORE

    with anyio.CancelScope() as scope:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose))
        await coordination
    assert scope.cancelled_caught
    assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)
    assert len(client.calls) == 2


@pytest.mark.parametrize("ending", ["request", "stop", "raise"])
async def test_cancellation_wins_over_what_the_callback_returned_or_raised(ending: str) -> None:
    engine, start, client = await started()

    def choose(_: ConversationTurn) -> RunRequest | None:
        scope.cancel()
        if ending == "raise":
            raise ZeroDivisionError
        return MORE if ending == "request" else None

    with anyio.CancelScope() as scope:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=3, next=choose))
        await coordination
    assert scope.cancelled_caught
    assert coordination.result.outcome is None
    assert len(client.calls) == 1


async def test_a_cancelled_scope_calls_nothing() -> None:
    engine, start, _ = await started()
    calls: list[object] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=calls.append))
    assert scope.cancelled_caught
    assert calls == []


async def test_the_callback_is_called_in_the_task_that_awaits() -> None:
    engine, start, _ = await started()
    here = anyio.get_current_task().id
    seen: list[int] = []

    def choose(_: ConversationTurn) -> None:
        seen.append(anyio.get_current_task().id)

    await engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose))
    assert seen == [here]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupt_of_a_callback_propagates_without_a_check(kind: type[BaseException]) -> None:
    engine, start, _ = await started()
    interrupt, caught = kind("now"), None

    def choose(_: ConversationTurn) -> None:
        scope.cancel()
        raise interrupt

    with anyio.CancelScope() as scope:
        try:
            await engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose))
        except kind as error:
            caught = error
    assert caught is interrupt


async def test_many_coordinators_share_one_backend_and_the_totals_are_right() -> None:
    engine, start, _ = await started(*["more"] * 60, max_concurrency=2)
    group = ExecutionGroup()
    recorder = EventRecorder()

    def choose(turn: ConversationTurn) -> RunRequest | None:
        return MORE if turn.remaining_turns else None

    request = CoordinateRequest(
        start=start, additional_turns=3, next=choose, observer=compose_observers(group.observe, recorder)
    )
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(engine.coordinate(request).run)
    assert group.snapshot().attempts == 60
    assert sum(isinstance(event, RunStarted) for event in recorder.events) == 60


async def test_a_coordination_cannot_be_copied() -> None:
    engine, start, _ = await started()
    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))
    await coordination
    with pytest.raises(TypeError, match="copied"):
        copy.copy(coordination)
