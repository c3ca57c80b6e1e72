"""Observers: which are taken, how they are composed and guarded, and that none is lost."""

from __future__ import annotations

import functools
import gc
import unittest.mock
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from promptkit import (
    CoordinateRequest,
    Engine,
    ExecutionGroup,
    InvalidRequestError,
    RunRequest,
    RunStarted,
    compose_observers,
    guard_observer,
)
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT = RunStarted(at=datetime.now(UTC), run_id="r", parent_run_id=None, prompt_id="p")


async def asynchronous(event: object) -> None:
    pass


async def generating(event: object) -> Any:
    yield event


def yielding(event: object) -> Any:
    yield event


class Observing:
    async def __call__(self, event: object) -> None:
        pass

    async def observe(self, event: object) -> None:
        pass


NEVER_AWAITED = [
    asynchronous,
    functools.partial(asynchronous),
    functools.partial(functools.partial(asynchronous)),
    Observing(),
    Observing().observe,
    functools.partial(Observing()),
    generating,
    yielding,
]
EXCHANGE = exchange_of(Turn(None, [("user", "q", None)]).capture("r", "a"))
PLACES: dict[str, Callable[[Any], object]] = {
    "RunRequest.observer": lambda observer: RunRequest(prompt_id="ask", observer=observer),
    "CoordinateRequest.observer": lambda observer: CoordinateRequest(
        start=EXCHANGE, additional_turns=1, next=lambda _: None, observer=observer
    ),
    "compose_observers": lambda observer: compose_observers(EventRecorder(), observer),
    "compose_observers alone": compose_observers,
    "guard_observer": lambda observer: guard_observer(observer, lambda _: None),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("observer", NEVER_AWAITED, ids=lambda observer: type(observer).__name__)
def test_an_observer_that_would_be_called_and_never_awaited_is_refused_at_once(place: str, observer: Any) -> None:
    with pytest.raises(InvalidRequestError, match=rf"{place.split(maxsplit=1)[0]}.*Expected a plain function"):
        PLACES[place](observer)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_function_is_refused_as_an_observer(place: str) -> None:
    with pytest.raises(InvalidRequestError, match="Expected a function, got `int`"):
        PLACES[place](3)
    with pytest.raises(InvalidRequestError, match=r"give its \.observe"):
        PLACES[place](ExecutionGroup())
    with pytest.raises(InvalidRequestError, match="got the class `EventRecorder`: give an instance of it"):
        PLACES[place](EventRecorder)


def test_the_handler_of_a_guard_is_a_plain_function_too() -> None:
    with pytest.raises(InvalidRequestError, match="guard_observer: on_error: Expected a plain function"):
        guard_observer(EventRecorder(), asynchronous)  # type: ignore[arg-type]


class Anything:
    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, event: object) -> None:
        pass


def test_an_object_that_has_every_attribute_and_doubles_of_functions_are_taken_for_what_they_are() -> None:
    plain: Any
    for plain in (Anything(), unittest.mock.Mock(return_value=None), [].append):
        assert compose_observers(plain) is plain
    with pytest.raises(InvalidRequestError, match="got an async one"):
        compose_observers(unittest.mock.AsyncMock())


def returning(event: object) -> Any:
    return asynchronous(event)


@pytest.mark.parametrize("observer", [returning, compose_observers(EventRecorder(), returning)])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_an_observer_that_returns_an_awaitable_ends_the_run(observer: Any) -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    with pytest.raises(InvalidRequestError, match="an observer returned a coroutine"):
        await engine.run(RunRequest(prompt_id="more", observer=observer))
    gc.collect()  # a coroutine that was never awaited would warn here


def test_a_guarded_observer_that_returns_an_awaitable_goes_to_the_handler() -> None:
    caught: list[Exception] = []
    guard_observer(returning, caught.append)(EVENT)
    assert [type(error) for error in caught] == [InvalidRequestError]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_an_observer_may_return_a_task_which_runs_by_itself() -> None:
    import asyncio

    tasks: list[asyncio.Task[None]] = []

    def starting(event: object) -> Any:
        tasks.append(asyncio.ensure_future(asynchronous(event)))
        return tasks[-1]

    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    await engine.run(RunRequest(prompt_id="more", observer=starting))
    await asyncio.wait(tasks)
    assert len(tasks) == 3


def test_composition_calls_in_order_skips_none_and_removes_no_duplicates() -> None:
    order: list[str] = []
    first, second = (lambda _: order.append("a")), (lambda _: order.append("b"))
    composed = compose_observers(first, None, second, first)
    assert composed is not None
    composed(EVENT)
    assert order == ["a", "b", "a"]
    assert compose_observers() is compose_observers(None, None) is None
    assert compose_observers(None, first) is first


def test_what_one_observer_raises_keeps_the_event_from_the_later_ones() -> None:
    recorder = EventRecorder()

    def broken(_: object) -> None:
        raise ZeroDivisionError

    composed = compose_observers(broken, recorder)
    assert composed is not None
    with pytest.raises(ZeroDivisionError):
        composed(EVENT)
    assert recorder.events == []


def test_every_observer_receives_the_one_event() -> None:
    first, second = EventRecorder(), EventRecorder()
    composed = compose_observers(first, compose_observers(second, first))
    assert composed is not None
    composed(EVENT)
    assert [id(event) for event in (*first.events, *second.events)] == [id(EVENT)] * 3


def show(_: object) -> None:
    pass


def test_an_observer_that_was_made_says_in_bounds_what_of() -> None:
    group, recorder = ExecutionGroup(), EventRecorder()
    guarded = guard_observer(show, lambda _: None)
    composed = compose_observers(group.observe, recorder, guarded)
    many = compose_observers(*[composed] * 50, show)
    again: Any = show
    for _ in range(50):
        again = guard_observer(again, lambda _: None)
    assert repr(guarded).startswith("<function guard_observer(show) at 0x")
    assert "compose_observers(ExecutionGroup.observe, EventRecorder, guard_observer(show)) at" in repr(composed)
    assert "..., 48 more) at" in repr(many)
    kept: list[object] = []
    assert "guard_observer(list.append) at" in repr(guard_observer(kept.append, lambda _: None))
    for made in (guarded, composed, many, again):
        assert len(repr(made)) < 300
        assert "_values" not in repr(made)
        assert "_effects" not in repr(made)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_an_observer_may_take_a_snapshot_compose_and_start_another_run() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome.", "more"))
    group = ExecutionGroup()
    members: list[int] = []
    async with anyio.create_task_group() as tasks:

        def observer(event: Any) -> None:
            inner = compose_observers(group.observe, lambda _: members.append(len(group.snapshot().members)))
            assert inner is not None
            inner(event)
            if isinstance(event, RunStarted):
                tasks.start_soon(engine.run, RunRequest(prompt_id="more", observer=group.observe))

        await engine.run(RunRequest(prompt_id="more", observer=observer))
    assert (members[0], len(members)) == (1, 3)
    assert len(group.snapshot().members) == 2
    assert group.snapshot().attempts == 2
