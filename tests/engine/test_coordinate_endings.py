"""How a coordination ends: who wins, what is kept, and what is let go."""

from __future__ import annotations

import _thread
import asyncio
import functools
import gc
import io
import sys
import time
import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import sniffio

from promptkit import (
    CoordinateRequest,
    Coordination,
    Engine,
    InvalidRequestError,
    RunFinished,
    RunRequest,
    Secret,
)
from promptkit._effects.branch import UNDELIVERED
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Generator

    from promptkit import ConversationTurn, Exchange

pytestmark = pytest.mark.anyio

MORE = RunRequest(prompt_id="more")


async def started(*answers: Any, **backend: Any) -> tuple[Engine, Exchange]:
    engine = Engine(small_catalog(**backend), client=ScriptedClient("Rome.", *answers))
    first = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True))
    return engine, first.exchange


def coordinate(engine: Engine, start: Exchange, choose: Any, turns: int = 3, **fields: Any) -> Coordination:
    return engine.coordinate(CoordinateRequest(start=start, additional_turns=turns, next=choose, **fields))


# ---------------------------------------------------------------- interrupts


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupt_at_the_check_keeps_the_completed_response(kind: type[BaseException]) -> None:
    engine, start = await started("one")
    completed: list[RunFinished] = []

    def observer(event: object) -> None:
        if isinstance(event, RunFinished):
            completed.append(event)

    class Thrown:
        def __await__(self) -> Generator[Any, Any, Any]:
            steps = coordination.run().__await__()
            given = None
            while not completed:
                given = yield steps.send(given)
            steps.throw(interrupt)

    interrupt = kind("now")
    coordination = coordinate(engine, start, lambda _: MORE, observer=observer)
    caught: BaseException | None = None
    try:
        await Thrown()
    except kind as error:
        caught = error
    assert caught is interrupt
    assert coordination.result.undelivered is not None
    assert coordination.result.undelivered.raw_output == "one"
    assert interrupt.__notes__ == [UNDELIVERED]


# ---------------------------------------------------------------- cancellation mixed with errors


async def mixed(scope: anyio.CancelScope, error: BaseException) -> None:
    """Raise an error while a task group is cancelled: trio gives both together."""

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise error

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(child)
        await anyio.lowlevel.checkpoint()
        scope.cancel()
        await anyio.sleep_forever()


async def test_a_cancellation_wins_over_the_error_that_a_callback_raises_together_with_it() -> None:
    engine, start = await started()

    async def choose(_: ConversationTurn) -> None:
        await mixed(scope, ValueError("mine"))

    with anyio.CancelScope() as scope:
        coordination = coordinate(engine, start, choose)
        await coordination
    assert scope.cancelled_caught
    assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupt_that_comes_together_with_a_cancellation_goes_through(kind: type[BaseException]) -> None:
    engine, start = await started()

    async def choose(_: ConversationTurn) -> None:
        if "trio" in sys.modules and sniffio.current_async_library() == "trio":
            await mixed(scope, kind())
        scope.cancel()  # an interrupt in a task of asyncio would end its loop
        message = "both"
        raise BaseExceptionGroup(message, [kind(), asyncio.CancelledError()])

    caught: BaseException | None = None
    try:
        with anyio.CancelScope() as scope:
            await coordinate(engine, start, choose)
    except BaseException as error:  # noqa: BLE001  # that it is one of these is what is tested
        caught = error
    assert isinstance(caught, BaseExceptionGroup)
    assert caught.subgroup(kind) is not None


async def test_a_cancellation_that_wins_names_the_error_of_the_application_and_not_its_text() -> None:
    engine, start = await started()
    noted: list[str] = []

    def choose(_: ConversationTurn) -> None:
        scope.cancel()
        message = "MARK"
        raise ZeroDivisionError(message)

    with anyio.CancelScope() as scope:
        try:
            await coordinate(engine, start, choose)
        except anyio.get_cancelled_exc_class() as cancelled:
            noted.extend(cancelled.__notes__)
            raise
    assert scope.cancelled_caught
    assert noted == ["next had raised ZeroDivisionError"]


# ---------------------------------------------------------------- what next may be and return


async def test_a_stop_iteration_of_next_says_how_to_stop() -> None:
    engine, start = await started()
    coordination = coordinate(engine, start, lambda _: next(iter(())))
    with pytest.raises(InvalidRequestError, match="next raised StopIteration: return None to stop") as raised:
        await coordination
    assert isinstance(raised.value.__cause__, StopIteration)


async def inner() -> RunRequest:
    return MORE


async def of_a_coroutine(_: ConversationTurn) -> Any:
    return inner()


async def generating(_: ConversationTurn) -> Any:
    yield MORE


def yielding(_: ConversationTurn) -> Any:
    yield MORE


class Asking:
    """A callable object whose call is async."""

    async def __call__(self, turn: ConversationTurn) -> RunRequest | None:
        return MORE if turn.result is None else None

    async def generating(self, turn: ConversationTurn) -> Any:
        yield MORE


async def test_a_coroutine_that_was_not_awaited_is_refused_by_name_and_closed() -> None:
    engine, start = await started()
    with pytest.raises(InvalidRequestError, match="next returned a coroutine that was not awaited"):
        await coordinate(engine, start, of_a_coroutine)
    gc.collect()  # a coroutine that was never awaited would warn here


async def test_what_next_returns_by_mistake_is_not_closed() -> None:
    engine, start = await started()
    mistaken = io.StringIO()
    with pytest.raises(InvalidRequestError, match="next returned a StringIO"):
        await coordinate(engine, start, lambda _: mistaken)
    assert not mistaken.closed


@pytest.mark.parametrize(
    ("choose", "kind"),
    [
        (generating, "an async generator function"),
        (functools.partial(generating), "an async generator function"),
        (Asking().generating, "an async generator function"),
        (yielding, "a generator function"),
    ],
)
async def test_a_generator_function_is_refused_as_next_at_once(choose: Any, kind: str) -> None:
    engine, start = await started()
    with pytest.raises(InvalidRequestError, match=rf"CoordinateRequest.next: .*{kind}"):
        coordinate(engine, start, choose)


@pytest.mark.parametrize(
    "choose",
    [Asking(), Asking().__call__, functools.partial(Asking()), lambda turn: MORE if turn.result is None else None],
)
async def test_next_may_be_a_function_a_method_a_partial_or_a_callable_object_plain_or_async(choose: Any) -> None:
    engine, start = await started("one")
    assert (await coordinate(engine, start, choose)).outcome == "stopped"


@pytest.mark.parametrize("turns", [-1, -(2**64)])
async def test_a_negative_budget_says_zero_or_more(turns: int) -> None:
    engine, start = await started()
    with pytest.raises(InvalidRequestError, match=r"additional_turns: is -\d+: 0 or more"):
        coordinate(engine, start, lambda _: None, turns)


async def test_a_budget_may_be_as_large_as_one_likes() -> None:
    engine, start = await started()
    seen: list[int] = []

    def choose(turn: ConversationTurn) -> None:
        seen.append(turn.remaining_turns)

    await coordinate(engine, start, choose, 2**64)
    assert seen == [2**64]


# ---------------------------------------------------------------- handles


async def test_a_coordination_is_made_by_an_engine_only() -> None:
    with pytest.raises(TypeError, match=r"engine\.coordinate"):
        Coordination()
    with pytest.raises(TypeError, match="final"):
        types.new_class("Mine", (Coordination,))


async def test_the_warning_about_a_dropped_coordination_says_where_it_was_made() -> None:
    engine, start = await started()
    held = [engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))]
    line = sys._getframe().f_lineno - 1  # noqa: SLF001  # the cheapest name of a line

    def elsewhere() -> None:
        held.clear()
        gc.collect()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        elsewhere()
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, line)]


async def test_a_thread_may_begin_with_coordinate() -> None:
    engine, start = await started()
    request = CoordinateRequest(start=start, additional_turns=0, next=lambda _: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _thread.start_new_thread(engine.coordinate, (request,))
        while not caught:
            await anyio.to_thread.run_sync(time.sleep, 0.001)
    assert "never run" in str(caught[0].message)


class Application:
    """What must not be kept."""

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def next(self, turn: ConversationTurn) -> RunRequest | None:
        if self.ending == "raise" and turn.result is not None:
            raise ZeroDivisionError
        if self.ending == "fail" and turn.result is not None:
            return RunRequest(prompt_id="nope", credential=Secret("sk-MARK"))
        return RunRequest(prompt_id="more", credential=Secret("sk-MARK")) if turn.result is None else None

    def observe(self, event: object) -> None:
        pass


def kept_by(root: object) -> list[object]:
    """Follow references, but not into modules, classes and running frames."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(
            found, types.ModuleType | type | types.FunctionType | types.BuiltinFunctionType
        ):
            continue
        if isinstance(found, types.FrameType) and found.f_globals["__name__"] == __name__:
            continue
        seen[id(found)] = found
        left.extend(gc.get_referents(found))
    return list(seen.values())


@pytest.mark.parametrize("ending", ["raise", "fail"])
async def test_a_failed_coordination_keeps_neither_the_key_nor_the_observer_nor_the_request(ending: str) -> None:
    engine, start = await started("one")
    application = Application(ending)
    coordination = coordinate(engine, start, application.next, observer=application.observe)
    error: Exception | None = None
    try:
        await coordination
    except Exception as raised:  # noqa: BLE001  # which one it is does not matter here
        error = raised
    assert error is not None
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals["__name__"].startswith("promptkit."):
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    assert frames
    held = [value for frame in frames for name, value in frame.f_locals.items() for value in kept_by(value)]
    assert [value for value in held if isinstance(value, Secret | Application | CoordinateRequest | RunRequest)] == []


async def test_an_ended_coordination_lets_the_application_go() -> None:
    engine, start = await started("one")
    application = Application("stop")
    gone = weakref.ref(application)
    coordination = coordinate(engine, start, application.next, observer=application.observe)
    await coordination
    del application
    gc.collect()
    assert gone() is None
    assert coordination.result.outcome == "stopped"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_group_of_cancellations_that_are_not_ours_propagates_unchanged() -> None:
    engine, start = await started()
    group = BaseExceptionGroup("theirs", [asyncio.CancelledError()])

    def choose(_: ConversationTurn) -> None:
        raise group

    caught: BaseException | None = None
    try:
        await coordinate(engine, start, choose)
    except BaseExceptionGroup as error:
        caught = error
    assert caught is group
