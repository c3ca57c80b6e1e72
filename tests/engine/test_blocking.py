"""The engine without an event loop: the same results, from any thread, with its own end, timeouts and refusals."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import copy
import gc
import math
import pickle
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import (
    BlockingCoordination,
    BlockingEngine,
    CapacityError,
    ConversationTurn,
    CoordinateRequest,
    Engine,
    EngineStateError,
    Exchange,
    ExecutionGroup,
    GenerationCall,
    GenerationError,
    GenerationReply,
    InvalidRequestError,
    OutputContract,
    PreparedExecution,
    PreparedExecutionError,
    PromptKitError,
    ReportedUsage,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunResult,
    RunStarted,
)
from promptkit._effects.call import Call
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog, team_catalog
from servers.stub import StubServer, ok

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from promptkit._effects.loop_thread import LoopThread

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)
MORE = RunRequest(prompt_id="more")


class Held:
    """A client whose answers wait until the test lets them go; it says when the first was asked for."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.cancelled = threading.Event()
        self._free: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def generate(self, call: GenerationCall) -> GenerationReply:
        if self._free is None:
            self._free, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self.asked.set()
        try:
            await self._free.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return GenerationReply(content="late")

    def let_go(self) -> None:
        assert self._loop is not None
        assert self._free is not None
        self._loop.call_soon_threadsafe(self._free.set)


class Echo:
    """Says what it was told last, and reports how long that was."""

    async def generate(self, call: GenerationCall) -> GenerationReply:
        await anyio.lowlevel.checkpoint()
        content = call.messages[-1].content
        assert isinstance(content, str)
        return GenerationReply(content=content, usage=ReportedUsage(input_tokens=len(content), output_tokens=1))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def started(*answers: Any, **backend: Any) -> tuple[BlockingEngine, Exchange]:
    engine = BlockingEngine(small_catalog(**backend), client=ScriptedClient("Rome.", *answers))
    return engine, engine.run(ASK).exchange


def capacity(engine: BlockingEngine) -> tuple[int, int]:
    now = engine.inspect_backend("server")
    return now.running, now.waiting


# ---------------------------------------------------------------- the same as Engine

REQUESTS = st.builds(
    RunRequest,
    prompt_id=st.sampled_from(["ask", "follow", "more", "nope"]),
    variables=st.sampled_from([{}, {"question": "Where?"}, {"question": '{"a": 1}'}, {"question": None}]),
    profile=st.sampled_from([None, "warm", "cold", "none"]),
    output=st.sampled_from([None, OutputContract(), OutputContract(kind="json_schema", schema="number")]),
    session_id=st.sampled_from([None, "s"]),
    capture_exchange=st.booleans(),
)


def told(result: RunResult | PromptKitError) -> Any:
    """Everything that does not differ from run to run."""
    if isinstance(result, PromptKitError):
        return type(result), str(result), result.attempts, result.usage
    values = msgspec.to_builtins(result)
    del values["run_id"], values["timing"]
    return values, [message.content for message in result.exchange.details().messages] if result.captured else None


@given(request=REQUESTS)
@settings(max_examples=40, deadline=None)
def test_a_request_gives_what_it_gives_on_an_event_loop(request: RunRequest) -> None:
    async def awaited() -> RunResult | PromptKitError:
        async with Engine(small_catalog(), client=Echo()) as engine:
            try:
                return await engine.run(request)
            except PromptKitError as error:
                return error

    with BlockingEngine(small_catalog(), client=Echo()) as engine:
        try:
            result: RunResult | PromptKitError = engine.run(request)
        except PromptKitError as error:
            result = error
    assert told(result) == told(anyio.run(awaited))


def test_prepared_inspected_and_scoped_are_what_they_are_on_an_event_loop() -> None:
    request = RunRequest(prompt_id="ask", variables={"question": "Where?"})
    plain = Engine(team_catalog(), client=Echo()).scoped("team").scoped("research")
    with BlockingEngine(team_catalog(), client=Echo()) as engine:
        view = engine.scoped("team").scoped("research")
        assert view.inspect_prompt("ask") == plain.inspect_prompt("ask")
        assert view.inspect_profile("warm") == plain.inspect_profile("warm")
        assert view.inspect_backend("server") == plain.inspect_backend("server")
        assert view.prepare(request) == anyio.run(plain.prepare, request)
        view.validate_request(request)
        assert view.run(request).raw_output == "team/research/: Where?"
        execution = view.prepare_execution(request)
        assert engine.run_prepared(execution).rendered_hash == execution.details.rendered_hash
        with pytest.raises(PreparedExecutionError, match="has run"):
            engine.run_prepared(execution)


def test_the_built_in_client_keeps_its_connections_between_calls_and_closes_them(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    with BlockingEngine(small_catalog(stub.base_url)) as engine:
        assert [engine.run(ASK).raw_output for _ in range(3)] == ["Rome."] * 3
        assert len(stub.connections) == 1
    assert stub.disconnected.wait(5)


# ---------------------------------------------------------------- many threads


@pytest.mark.parametrize("concurrency", [1, 4])
def test_many_threads_share_the_capacity_of_one_engine(concurrency: int, pool: ThreadPoolExecutor) -> None:
    group = ExecutionGroup()
    most = now = 0

    class Counting(Echo):
        async def generate(self, call: GenerationCall) -> GenerationReply:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await anyio.lowlevel.checkpoint()
            now -= 1
            return await super().generate(call)

    request = msgspec.structs.replace(ASK, observer=group.observe)
    with BlockingEngine(small_catalog(max_concurrency=concurrency), client=Counting()) as engine:
        answers = list(pool.map(lambda _: engine.run(request).raw_output, range(64)))
        assert capacity(engine) == (0, 0)
    assert answers == ["Where?"] * 64
    assert most <= concurrency
    summary = group.snapshot()
    assert (summary.attempts, summary.usage.input_tokens.value) == (64, 64 * len("Where?"))


def test_a_thread_too_many_is_refused_at_once_and_the_others_go_on(pool: ThreadPoolExecutor) -> None:
    client = Held()
    with BlockingEngine(small_catalog(max_concurrency=1, max_waiting=0), client=client) as engine:
        first = pool.submit(engine.run, ASK)
        assert client.asked.wait(5)
        with pytest.raises(CapacityError, match="is full"):
            engine.run(ASK)
        client.let_go()
        assert first.result(5).raw_output == "late"


# ---------------------------------------------------------------- coordination


def test_next_is_called_in_the_thread_and_the_context_of_the_caller() -> None:
    engine, start = started("one")
    word = contextvars.ContextVar("word", default="none")
    word.set("mine")
    seen: list[tuple[int, str]] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        seen.append((threading.get_ident(), word.get()))
        word.set("changed")
        return MORE if turn.remaining_turns else None

    with engine:
        done = engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose)).run()
    assert (done.outcome, done.undelivered) == ("stopped", None)
    assert seen == [(threading.get_ident(), "mine"), (threading.get_ident(), "changed")]
    assert word.get() == "changed"


def test_a_callback_may_run_anything_on_the_same_backend_even_at_capacity_one() -> None:
    with BlockingEngine(small_catalog(max_concurrency=1, max_waiting=0), client=Echo()) as engine:
        start = engine.run(ASK).exchange
        inner: list[str | None] = []

        def once(turn: ConversationTurn) -> RunRequest | None:
            return MORE if turn.remaining_turns else None

        def choose(turn: ConversationTurn) -> RunRequest | None:
            assert engine.run(ASK).raw_output == "Where?"
            nested = engine.coordinate(CoordinateRequest(start=turn.exchange, additional_turns=1, next=once))
            inner.append(nested.run().outcome)
            return MORE

        outer = engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=choose))
        assert outer.run().outcome == "exhausted"
        assert inner == ["stopped"] * 3
        assert capacity(engine) == (0, 0)


def test_the_progression_is_that_of_an_event_loop() -> None:
    turns: dict[str, list[tuple[str | None, int]]] = {"blocking": [], "awaited": []}
    events: dict[str, list[str]] = {"blocking": [], "awaited": []}

    def request(start: Exchange, way: str) -> CoordinateRequest:
        def choose(turn: ConversationTurn) -> RunRequest:
            turns[way].append((turn.result.raw_output if turn.result else None, turn.remaining_turns))
            return msgspec.structs.replace(MORE, observer=lambda event: events[way].append(type(event).__name__))

        return CoordinateRequest(
            start=start, additional_turns=2, next=choose, observer=lambda _: events[way].append("branch")
        )

    async def awaited() -> None:
        engine = Engine(small_catalog(), client=Echo())
        start = (await engine.run(ASK)).exchange
        assert (await engine.coordinate(request(start, "awaited"))).outcome == "exhausted"

    anyio.run(awaited)
    with BlockingEngine(small_catalog(), client=Echo()) as engine:
        start = engine.run(ASK).exchange
        assert engine.coordinate(request(start, "blocking")).run().outcome == "exhausted"
    assert turns["blocking"] == turns["awaited"] == [(None, 2), ("More?", 1), ("More?", 0)]
    assert events["blocking"] == events["awaited"]
    assert events["blocking"][:2] == ["RunStarted", "branch"]


@pytest.mark.parametrize("raised", [ValueError("mine"), KeyboardInterrupt("mine"), SystemExit(3)])
def test_what_next_raises_leaves_as_itself(raised: BaseException) -> None:
    engine, start = started()

    def choose(_: ConversationTurn) -> RunRequest:
        raise raised

    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose))
    with engine:
        with pytest.raises(type(raised)) as found:
            coordination.run()
        assert found.value is raised
        assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)


def test_a_stop_iteration_of_next_says_how_to_stop_as_on_an_event_loop() -> None:
    engine, start = started()
    request = CoordinateRequest(start=start, additional_turns=1, next=lambda _: next(iter(())))
    coordination = engine.coordinate(request)
    with engine, pytest.raises(InvalidRequestError, match=r"^next raised StopIteration: return None to stop$") as found:
        coordination.run()
    assert isinstance(found.value.__cause__, StopIteration)


def test_an_error_of_a_run_leaves_as_itself_and_the_branch_can_be_led_again() -> None:
    engine, start = started(GenerationError("mine"), "one")
    request = CoordinateRequest(
        start=start, additional_turns=1, next=lambda turn: MORE if turn.remaining_turns else None
    )
    with engine:
        with pytest.raises(GenerationError, match=r"^mine$") as found:
            engine.coordinate(request).run()
        assert found.value.attempts == 1
        assert engine.coordinate(request).run().outcome == "stopped"


@pytest.mark.parametrize("chosen", ["text", 3])
def test_a_choice_that_is_none_is_refused_by_name(chosen: Any) -> None:
    engine, start = started()
    with engine, pytest.raises(InvalidRequestError, match="next returned a"):
        engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=lambda _: chosen)).run()


async def async_next(_: ConversationTurn) -> RunRequest | None:
    return None


class AsyncNext:
    async def __call__(self, _: ConversationTurn) -> RunRequest | None:
        return None

    async def method(self, _: ConversationTurn) -> RunRequest | None:
        return None


@pytest.mark.parametrize(
    "choose",
    [async_next, AsyncNext(), AsyncNext().method, partial(async_next), partial(AsyncNext())],
    ids=["function", "object", "method", "partial", "partial of an object"],
)
def test_an_async_next_is_refused_before_there_is_a_coordination(choose: Any) -> None:
    engine, start = started()
    request = CoordinateRequest(start=start, additional_turns=1, next=choose)
    with engine, pytest.raises(InvalidRequestError, match=r"next is an async function.* use Engine$"):
        engine.coordinate(request)


def test_a_plain_next_that_returns_an_awaitable_is_refused_and_leaves_no_warning() -> None:
    def choose(turn: ConversationTurn) -> Any:
        return async_next(turn)

    engine, start = started()
    with engine, pytest.raises(InvalidRequestError, match="next of a BlockingEngine is a plain function"):
        engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose)).run()
    gc.collect()


def test_a_coordination_runs_once_whichever_thread_asks(pool: ThreadPoolExecutor) -> None:
    engine, start = started()
    inside, go_on = threading.Event(), threading.Event()

    def choose(_: ConversationTurn) -> None:
        inside.set()
        assert go_on.wait(5)

    with engine:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose))
        assert repr(coordination) == "<promptkit.BlockingCoordination not run>"
        running = pool.submit(coordination.run)
        assert inside.wait(5)
        with pytest.raises(EngineStateError, match="this coordination is running"):
            coordination.run()
        assert coordination.result.outcome is None
        assert repr(coordination) == "<promptkit.BlockingCoordination running>"
        go_on.set()
        assert running.result(5) == coordination.result
        assert coordination.result.outcome == "stopped"
        assert repr(coordination) == "<promptkit.BlockingCoordination stopped>"
        with pytest.raises(EngineStateError, match="runs once"):
            coordination.run()


def test_a_coordination_that_was_refused_can_still_run() -> None:
    engine, start = started()
    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))
    with engine:
        with pytest.raises(InvalidRequestError, match="timeout"):
            coordination.run(timeout=-1)

        async def inside() -> None:
            with pytest.raises(EngineStateError):
                coordination.run()

        anyio.run(inside)
        assert coordination.run().outcome == "stopped"


def test_a_coordination_whose_run_was_refused_is_dropped_without_a_second_message() -> None:
    engine, start = started()
    request = CoordinateRequest(start=start, additional_turns=1, next=lambda _: None)
    with engine:
        with pytest.raises(InvalidRequestError, match="timeout"):
            engine.coordinate(request).run(timeout="3")  # type: ignore[arg-type]

        async def inside() -> None:
            with pytest.raises(EngineStateError):
                made.pop().run()

        made = [engine.coordinate(request)]
        anyio.run(inside)
        closed_on = engine.coordinate(request)
    with pytest.raises(EngineStateError, match="closed"):
        closed_on.run()
    del closed_on
    gc.collect()


@pytest.mark.parametrize(
    ("answer", "chosen", "state"),
    [
        ("one", [MORE, None], "stopped"),
        ("one", [MORE, MORE], "exhausted"),
        ("one", [ValueError("mine")], "failed (ValueError)"),
        ("one", [TimeoutError("mine")], "failed (TimeoutError)"),
        (GenerationError("mine"), [MORE], "failed (GenerationError)"),
        ("one", [KeyboardInterrupt()], "cancelled (KeyboardInterrupt)"),
        ("one", [SystemExit(3)], "cancelled (SystemExit)"),
    ],
)
def test_the_repr_of_a_coordination_tells_how_it_ended(answer: Any, chosen: list[Any], state: str) -> None:
    def choose(_: ConversationTurn) -> RunRequest | None:
        said.append(repr(coordination))
        choice = chosen[len(said) - 1]
        if isinstance(choice, BaseException):
            raise choice
        return choice  # type: ignore[no-any-return]

    engine, start = started(answer)
    said: list[str] = []
    with engine:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose))
        assert repr(coordination) == "<promptkit.BlockingCoordination not run>"
        with contextlib.suppress(ValueError, TimeoutError, GenerationError, KeyboardInterrupt, SystemExit):
            coordination.run()
    assert set(said) == {"<promptkit.BlockingCoordination running>"}
    assert repr(coordination) == f"<promptkit.BlockingCoordination {state}>"


def test_a_coordination_that_is_dropped_unrun_warns_where_it_was_made() -> None:
    engine, start = started()
    with engine:
        request = CoordinateRequest(start=start, additional_turns=1, next=lambda _: None)
        with pytest.warns(RuntimeWarning, match="never run: call its run") as caught:
            engine.coordinate(request)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_thread_may_begin_with_coordinate() -> None:
    engine, start = started()
    request = CoordinateRequest(start=start, additional_turns=0, next=lambda _: None)
    with engine, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _thread.start_new_thread(engine.coordinate, (request,))
        until = time.monotonic() + 10
        while not caught and time.monotonic() < until:
            time.sleep(0.001)
    assert [str(warning.message) for warning in caught] == ["a coordination was never run: call its run()"]


def test_a_coordination_is_made_by_an_engine_alone_and_is_no_value() -> None:
    engine, start = started()
    with engine:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=0, next=lambda _: None))
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                copying(coordination)
        coordination.run()
        with pytest.raises(InvalidRequestError, match="Expected a CoordinateRequest, got `RunRequest`"):
            engine.coordinate(MORE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"engine\.coordinate"):
        BlockingCoordination()
    with pytest.raises(TypeError, match="final"):
        type("Mine", (BlockingCoordination,), {})


# ---------------------------------------------------------------- timeouts


@pytest.mark.parametrize("timeout", [True, "3", -1, -0.001, math.nan, -(10**400), 3j, b"1"])
def test_what_is_no_timeout_is_refused_and_nothing_is_sent(timeout: Any) -> None:
    client = ScriptedClient()
    with BlockingEngine(small_catalog(), client=client) as engine:
        with pytest.raises(InvalidRequestError, match="timeout: "):
            engine.run(ASK, timeout=timeout)
        assert client.calls == []


@pytest.mark.parametrize("timeout", [None, 30, 30.0, math.inf, 10**400])
def test_a_long_timeout_or_none_changes_nothing(timeout: float | None) -> None:
    with BlockingEngine(small_catalog(), client=Echo()) as engine:
        assert engine.run(ASK, timeout=timeout).raw_output == "Where?"


def test_a_timeout_of_zero_begins_nothing() -> None:
    recorder = EventRecorder()
    engine, start = started()
    with engine:
        with pytest.raises(TimeoutError):
            engine.run(msgspec.structs.replace(ASK, observer=recorder), timeout=0)
        coordination = engine.coordinate(
            CoordinateRequest(start=start, additional_turns=1, next=lambda _: pytest.fail("was called"))
        )
        with pytest.raises(TimeoutError, match="within its timeout of 0 s: it was not begun"):
            coordination.run(timeout=0)
        execution = engine.prepare_execution(ASK)
        with pytest.raises(TimeoutError):
            engine.run_prepared(execution, timeout=0)
    assert recorder.events == []


def test_a_timeout_ends_an_attempt_in_flight_and_the_wait_for_a_permit(pool: ThreadPoolExecutor) -> None:
    client, recorder = Held(), EventRecorder()
    with BlockingEngine(small_catalog(max_concurrency=1, max_waiting=2), client=client) as engine:
        first = pool.submit(engine.run, ASK)
        assert client.asked.wait(5)
        with pytest.raises(TimeoutError):  # in the queue
            engine.run(msgspec.structs.replace(ASK, observer=recorder), timeout=0.01)
        assert [type(event) for event in recorder.events] == [RunStarted, RunFinished]
        client.let_go()
        assert first.result(5).raw_output == "late"
        assert capacity(engine) == (0, 0)
    client = Held()
    with BlockingEngine(small_catalog(), client=client) as engine:
        with pytest.raises(TimeoutError):
            engine.run(ASK, timeout=0.01)
        assert client.cancelled.is_set()
        assert capacity(engine) == (0, 0)


def test_a_timeout_ends_the_wait_before_a_retry() -> None:
    engine = BlockingEngine(
        small_catalog(retry=RetryPolicy(base_delay=30.0, max_delay=30.0)),
        client=ScriptedClient(GenerationError("once", transient=True)),
    )
    recorder = EventRecorder()
    with engine, pytest.raises(TimeoutError):
        engine.run(msgspec.structs.replace(ASK, observer=recorder), timeout=0.02)
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts) == ("cancelled", 1)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("run", "the run of prompt 'team/ask' did not finish within its timeout of 0.01 s: it was cancelled"),
        ("run_prepared", "the run of prompt 'team/ask' did not finish within its timeout of 0.01 s: it was cancelled"),
        ("not begun", "the run of prompt 'team/ask' did not finish within its timeout of 0 s: it was not begun"),
        (
            "coordination",
            "the coordination did not finish within its timeout of 0.01 s: its run of prompt 'team/ask' was cancelled",
        ),
    ],
)
def test_a_timeout_says_how_long_what_and_what_became_of_it(way: str, said: str) -> None:
    engine, start = started()
    engine.close()
    recorder = EventRecorder()
    request = RunRequest(prompt_id="ask", variables={"question": "a secret"}, observer=recorder)
    with BlockingEngine(team_catalog(), client=Held()) as engine, engine.scoped("team") as view:
        branch = CoordinateRequest(start=start, additional_turns=1, next=lambda _: request)
        execution = view.prepare_execution(request)
        ways: dict[str, Callable[[], object]] = {
            "run": lambda: view.run(request, timeout=0.01),
            "run_prepared": lambda: view.run_prepared(execution, timeout=0.01),
            "not begun": lambda: view.run(request, timeout=0),
            "coordination": lambda: view.coordinate(branch).run(timeout=0.01),
        }
        with pytest.raises(TimeoutError) as ended:
            ways[way]()
        assert str(ended.value) == said
        assert (recorder.events == []) == (way == "not begun")


def observer_that_fails_at_the_end(event: object) -> None:
    if isinstance(event, RunFinished):
        msg = "full disk"
        raise OSError(msg)


@pytest.mark.parametrize("way", ["run", "run_prepared", "coordination"])
def test_what_an_observer_raises_on_the_way_of_a_timeout_is_a_note_of_it(way: str) -> None:
    engine, start = started()
    engine.close()
    request = msgspec.structs.replace(ASK, observer=observer_that_fails_at_the_end)
    with BlockingEngine(small_catalog(), client=Held()) as engine:
        execution = engine.prepare_execution(request)
        branch = CoordinateRequest(start=start, additional_turns=1, next=lambda _: request)
        ways: dict[str, Callable[[], object]] = {
            "run": lambda: engine.run(request, timeout=0.01),
            "run_prepared": lambda: engine.run_prepared(execution, timeout=0.01),
            "coordination": lambda: engine.coordinate(branch).run(timeout=0.01),
        }
        with pytest.raises(TimeoutError) as ended:
            ways[way]()
    assert ended.value.__notes__ == ["an observer raised OSError: full disk"]


def block_past(seconds: float) -> None:
    """Block, as synchronous code does."""
    until = time.monotonic() + seconds
    while time.monotonic() <= until:
        pass


def test_a_reply_in_hand_is_not_lost_to_the_timeout() -> None:
    def answer(_: GenerationCall) -> str:
        block_past(0.03)
        return "late"

    with BlockingEngine(small_catalog(), client=ScriptedClient(answer)) as engine:
        assert engine.run(ASK, timeout=0.02).raw_output == "late"


def test_a_response_that_arrives_when_the_time_is_over_is_kept_undelivered() -> None:
    def answer(_: GenerationCall) -> str:
        block_past(0.06)
        return "late"

    engine, start = started(answer)
    calls: list[ConversationTurn] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        calls.append(turn)
        return MORE

    with engine:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=choose))
        with pytest.raises(TimeoutError, match=r"within its timeout of 0.05 s: the response .* in .result.undelivered"):
            coordination.run(timeout=0.05)
    assert repr(coordination) == "<promptkit.BlockingCoordination cancelled (timeout)>"
    assert len(calls) == 1
    assert coordination.result.outcome is None
    assert coordination.result.undelivered is not None
    assert coordination.result.undelivered.raw_output == "late"


@pytest.mark.parametrize("then", ["returns", "raises"])
def test_a_timeout_inside_next_wins_over_what_it_returns_or_raises(then: str) -> None:
    engine, start = started("one")

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            block_past(0.06)
            if then == "raises":
                msg = "beaten"
                raise ValueError(msg)
        return MORE

    with engine:
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=choose))
        with pytest.raises(TimeoutError, match=r"within its timeout of 0.05 s: next took so long") as ended:
            coordination.run(timeout=0.05)
        assert repr(coordination) == "<promptkit.BlockingCoordination cancelled (timeout)>"
        assert coordination.result.undelivered is None  # being called was delivery
        assert getattr(ended.value, "__notes__", []) == ["next had raised ValueError"] * (then == "raises")


def test_a_timeout_of_a_coordination_ends_its_run_in_flight() -> None:
    client = Held()
    engine, start = started()
    engine.close()
    with BlockingEngine(small_catalog(), client=client) as other:  # an exchange works on any engine
        coordination = other.coordinate(CoordinateRequest(start=start, additional_turns=1, next=lambda _: MORE))
        with pytest.raises(TimeoutError):
            coordination.run(timeout=0.02)
        assert client.cancelled.is_set()
        assert (coordination.result.outcome, coordination.result.undelivered) == (None, None)


# ---------------------------------------------------------------- where it may be called

METHODS: dict[str, Callable[[BlockingEngine], object]] = {
    "run": lambda engine: engine.run(ASK),
    "prepare": lambda engine: engine.prepare(ASK),
    "prepare_execution": lambda engine: engine.prepare_execution(ASK),
    "run_prepared": lambda engine: engine.run_prepared(None),  # type: ignore[arg-type]  # refused before it is read
    "validate_request": lambda engine: engine.validate_request(ASK),
    "inspect_prompt": lambda engine: engine.inspect_prompt("ask"),
    "inspect_profile": lambda engine: engine.inspect_profile("warm"),
    "inspect_backend": lambda engine: engine.inspect_backend("server"),
    "coordinate": lambda engine: engine.coordinate(None),  # type: ignore[arg-type]
    "scoped": lambda engine: engine.scoped("team"),
    "close": lambda engine: engine.close(),
    "__enter__": lambda engine: engine.__enter__(),
    "__exit__": lambda engine: engine.__exit__(None, None, None),
}


def test_every_method_is_known_here() -> None:
    public = {name for name in vars(BlockingEngine) if not name.startswith("_") or name in {"__enter__", "__exit__"}}
    assert public == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_inside_a_running_event_loop_every_method_refuses_with_the_remedy(method: str, backend: str) -> None:
    with BlockingEngine(small_catalog(), client=Echo()) as engine:

        async def inside() -> None:
            with pytest.raises(EngineStateError, match="use Engine and await"):
                METHODS[method](engine)
            assert repr(engine) == "<promptkit.BlockingEngine>"

        anyio.run(inside, backend=backend)
        assert engine.run(ASK).raw_output == "Where?"


@pytest.mark.parametrize("method", METHODS)
def test_an_observer_that_calls_back_is_refused_by_name(method: str) -> None:
    def observer(_: object) -> None:
        METHODS[method](engine)

    with BlockingEngine(small_catalog(), client=Echo()) as engine:
        with pytest.raises(EngineStateError, match=r"or in another thread that they do not wait for$"):
            engine.run(msgspec.structs.replace(ASK, observer=observer))
        assert engine.run(ASK).raw_output == "Where?"


def test_a_thread_of_an_event_loop_may_call(pool: ThreadPoolExecutor) -> None:
    with BlockingEngine(small_catalog(), client=Echo()) as engine:
        run = partial(engine.run, ASK)

        async def in_trio() -> RunResult:
            return await trio.to_thread.run_sync(run)

        async def in_anyio() -> RunResult:
            return await anyio.to_thread.run_sync(run)

        answers = [asyncio.run(asyncio.to_thread(run)), trio.run(in_trio)]
        answers += [anyio.run(in_anyio, backend=backend) for backend in ("asyncio", "trio")]

        async def copied() -> RunResult:
            # The context says that trio runs here, as one that is carried into a thread by hand does.
            running = pool.submit(contextvars.copy_context().run, run)
            return await anyio.to_thread.run_sync(running.result)

        answers.append(anyio.run(copied, backend="trio"))
    assert [answer.raw_output for answer in answers] == ["Where?"] * 5


def test_a_model_client_that_runs_its_own_backend_from_a_thread_is_refused_and_not_stuck() -> None:
    async def generate(_: GenerationCall) -> str:
        return (await asyncio.to_thread(engine.run, ASK)).raw_output

    with BlockingEngine(small_catalog(max_concurrency=1, max_waiting=5), client=ScriptedClient(generate)) as engine:
        with pytest.raises(CapacityError) as refused:
            engine.run(ASK)
        assert refused.value.reason == "re-entrant"
        assert capacity(engine) == (0, 0)


def test_a_model_client_sees_the_context_of_the_caller() -> None:
    word = contextvars.ContextVar("word", default="none")
    word.set("mine")
    with BlockingEngine(small_catalog(), client=ScriptedClient(lambda _: word.get())) as engine:
        assert engine.run(ASK).raw_output == "mine"


# ---------------------------------------------------------------- what a run raises


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), ValueError("x"), asyncio.CancelledError("x")])
@pytest.mark.parametrize("place", ["observer", "client"])
def test_what_an_observer_or_a_client_raises_reaches_its_caller_and_leaves_the_runs_of_others_alone(
    raised: BaseException, place: str, pool: ThreadPoolExecutor
) -> None:
    held = Held()

    def fail(_: object) -> Any:
        raise raised

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            if call.session_id == "fails":
                fail(call)
            return await held.generate(call)

    failing = msgspec.structs.replace(ASK, session_id="fails", observer=fail if place == "observer" else None)
    with BlockingEngine(small_catalog(), client=Client()) as engine:
        other = pool.submit(engine.run, ASK)
        assert held.asked.wait(5)
        with pytest.raises(type(raised)) as found:
            engine.run(failing)
        assert found.value is raised
        held.let_go()
        assert other.result(5).raw_output == "late"
        assert capacity(engine) == (0, 0)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_what_a_clients_own_task_raises_ends_the_run_that_awaits_it_alone(
    raised: BaseException, pool: ThreadPoolExecutor
) -> None:
    held = Held()

    async def leave() -> None:
        raise raised

    async def generate(_: GenerationCall) -> None:
        await asyncio.create_task(leave())

    with BlockingEngine(small_catalog(), client=ScriptedClient(held.generate, generate)) as engine:
        other = pool.submit(engine.run, ASK)
        assert held.asked.wait(5)
        with pytest.raises(type(raised)) as found:
            engine.run(ASK)
        assert found.value is raised
        held.let_go()
        assert other.result(5).raw_output == "late"


@pytest.mark.parametrize("meanwhile", ["closing", "nothing"])
def test_a_client_that_cancels_its_own_task_ends_its_run_with_that(meanwhile: str, pool: ThreadPoolExecutor) -> None:
    go_on, asked = asyncio.Event(), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def generate(_: GenerationCall) -> None:
        loops.append(asyncio.get_running_loop())
        asked.set()
        await go_on.wait()
        task = asyncio.current_task()
        assert task is not None
        task.cancel("by itself")
        await anyio.sleep_forever()

    engine = BlockingEngine(small_catalog(), client=ScriptedClient(generate, "x"))
    running = pool.submit(engine.run, msgspec.structs.replace(ASK, observer=observer_that_fails_at_the_end))
    assert asked.wait(5)
    closed = pool.submit(engine.close) if meanwhile == "closing" else None  # which waits for the run
    if closed is not None:
        while not engine._owner._thread.closed:  # noqa: SLF001
            pass
    loops[0].call_soon_threadsafe(go_on.set)
    with pytest.raises(asyncio.CancelledError) as ended:
        running.result(5)
    assert ended.value.__notes__ == ["an observer raised OSError: full disk"]
    if closed is not None:
        closed.result(5)
    else:
        assert engine.run(ASK).raw_output == "x"
        engine.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_a_client_stops_leaves_nobody_waiting(pool: ThreadPoolExecutor) -> None:
    async def generate(_: GenerationCall) -> None:
        asyncio.get_running_loop().stop()
        await anyio.sleep_forever()

    with BlockingEngine(small_catalog(), client=ScriptedClient(generate, "x")) as engine:
        with pytest.raises(EngineStateError, match="stopped the engine's event loop: the work in flight was cancelled"):
            pool.submit(engine.run, ASK).result(5)
        with pytest.raises(EngineStateError, match="make a new one"):
            pool.submit(engine.run, ASK).result(5)


def test_an_error_of_a_prepared_run_does_not_keep_its_observer_alive() -> None:
    class Watching:
        def __call__(self, event: object) -> None:
            pass

    def prepared() -> tuple[PreparedExecution, weakref.ref[Watching]]:
        observer = Watching()
        return engine.prepare_execution(msgspec.structs.replace(ASK, observer=observer)), weakref.ref(observer)

    with BlockingEngine(small_catalog(), client=ScriptedClient(GenerationError("x", transient=False))) as engine:
        execution, observer = prepared()
        with pytest.raises(GenerationError) as failed:
            engine.run_prepared(execution)
        gc.collect()
        assert observer() is None
        assert failed.value.attempts == 1


# ---------------------------------------------------------------- closing


def test_closing_refuses_new_runs_and_waits_for_those_in_flight(pool: ThreadPoolExecutor) -> None:
    client = Held()
    engine = BlockingEngine(small_catalog(), client=client)
    running = pool.submit(engine.run, ASK)
    assert client.asked.wait(5)
    closers = [pool.submit(engine.close) for _ in range(3)]
    while not engine._owner._thread.closed:  # noqa: SLF001  # the close has begun
        pass
    with pytest.raises(EngineStateError, match="closed: make a new one"):
        engine.run(ASK)
    assert not running.done()
    client.let_go()
    assert running.result(5).raw_output == "late"
    for closer in closers:
        closer.result(5)
    engine.close()
    with pytest.raises(EngineStateError, match="closed"):
        engine.prepare(ASK)


def test_closing_an_engine_that_never_ran_is_enough() -> None:
    engine = BlockingEngine(small_catalog(), client=Echo())
    engine.close()
    engine.close()
    with pytest.raises(EngineStateError, match="closed"):
        engine.run(ASK)


def test_a_closed_engine_can_be_looked_at_and_begins_nothing() -> None:
    engine, start = started("one")
    calls: list[ConversationTurn] = []
    request = CoordinateRequest(start=start, additional_turns=1, next=calls.append)
    made_before = engine.coordinate(request)
    with engine:
        pass
    assert engine.inspect_prompt("ask").id == "ask"
    assert engine.inspect_profile("warm").id == "warm"
    assert capacity(engine) == (0, 0)
    view = engine.scoped("team")
    execution = "which is not looked at"
    for refused in (
        lambda: engine.coordinate(request),
        made_before.run,
        made_before.run,
        engine.__enter__,
        view.__enter__,
        lambda: view.coordinate(request),
        lambda: engine.prepare(ASK),
        lambda: engine.validate_request(ASK),
        lambda: engine.prepare_execution(ASK),
        lambda: engine.run(ASK),
        lambda: engine.run_prepared(execution),  # type: ignore[arg-type]
    ):
        with pytest.raises(EngineStateError, match="this engine is closed: make a new one"):
            refused()
    assert calls == []
    assert repr(made_before) == "<promptkit.BlockingCoordination not run>"
    engine.close()


@pytest.mark.parametrize(("then", "state"), [(None, "stopped"), (MORE, "failed (EngineStateError)")])
def test_closing_does_not_wait_for_a_coordination_inside_next_whose_next_run_is_refused(
    then: RunRequest | None, state: str, pool: ThreadPoolExecutor
) -> None:
    engine, start = started("one", "two")
    inside, go_on = threading.Event(), threading.Event()

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return MORE
        inside.set()
        assert go_on.wait(5)
        return then

    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=choose))
    running = pool.submit(coordination.run)
    assert inside.wait(5)
    engine.close()
    go_on.set()
    if then is None:
        assert running.result(5).outcome == "stopped"
    else:
        with pytest.raises(EngineStateError, match="this engine is closed"):
            running.result(5)
        assert coordination.result.outcome is None
    assert coordination.result.undelivered is None  # next has had it
    assert repr(coordination) == f"<promptkit.BlockingCoordination {state}>"


def test_next_may_close_the_engine_and_stop() -> None:
    engine, start = started("one")

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return MORE
        engine.close()
        return None

    assert engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=choose)).run().outcome == "stopped"
    with pytest.raises(EngineStateError, match="closed"):
        engine.run(ASK)


def test_a_run_with_a_timeout_does_not_keep_closing_waiting_longer_than_that(pool: ThreadPoolExecutor) -> None:
    client = Held()
    engine = BlockingEngine(small_catalog(), client=client)
    running = pool.submit(engine.run, ASK, timeout=0.05)
    assert client.asked.wait(5)
    pool.submit(engine.close).result(5)
    with pytest.raises(TimeoutError):
        running.result(5)
    assert client.cancelled.is_set()


def test_an_engine_that_is_dropped_while_another_thread_runs_serves_that_to_its_end(pool: ThreadPoolExecutor) -> None:
    client = Held()
    before = set(threading.enumerate())

    def use() -> threading.Thread:
        running = pool.submit(BlockingEngine(small_catalog(), client=client).run, ASK)
        assert client.asked.wait(5)
        (thread,) = {thread for thread in threading.enumerate() if thread.name == "promptkit"} - before
        client.let_go()
        assert running.result(5).raw_output == "late"
        del running
        pool.shutdown()  # the thread that drops the engine is through with it
        thread.join(5)
        return thread

    with pytest.warns(ResourceWarning, match="never closed"):
        ended = use()
    assert not ended.is_alive()


def test_a_view_shares_thread_and_capacity_and_closes_nothing(pool: ThreadPoolExecutor) -> None:
    with BlockingEngine(team_catalog(), client=Echo()) as engine:
        before = threading.active_count()
        engine.run(ASK)
        with engine.scoped("team") as view:
            assert view.run(ASK).prompt_id == "team/ask"
            assert threading.active_count() <= before + 1
        view.close()
        assert engine.run(ASK).prompt_id == "ask"
    with pytest.raises(EngineStateError, match="closed"):
        view.run(ASK)


def test_no_thread_is_left_after_closing() -> None:
    before = set(threading.enumerate())
    with BlockingEngine(small_catalog(), client=Echo()) as engine:
        engine.run(ASK)
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("left_with", [KeyboardInterrupt, SystemExit])
def test_leaving_the_block_with_an_interrupt_cancels_what_is_in_flight(
    left_with: type[BaseException], pool: ThreadPoolExecutor
) -> None:
    client = Held()

    def leave() -> None:
        with BlockingEngine(small_catalog(), client=client) as engine:
            running.append(pool.submit(engine.run, ASK))
            assert client.asked.wait(5)
            raise left_with

    running: list[Any] = []
    with pytest.raises(left_with):
        leave()
    with pytest.raises(EngineStateError, match="was closed while"):
        running[0].result(5)
    assert client.cancelled.is_set()


def test_an_ordinary_error_in_the_block_waits_for_what_is_in_flight(pool: ThreadPoolExecutor) -> None:
    client = Held()

    def leave() -> None:
        with BlockingEngine(small_catalog(), client=client) as engine:
            running.append(pool.submit(engine.run, ASK))
            assert client.asked.wait(5)
            pool.submit(client.let_go)
            raise LookupError

    running: list[Any] = []
    with pytest.raises(LookupError):
        leave()
    assert running[0].result(5).raw_output == "late"


def test_closing_while_other_threads_run_loses_no_answer_and_hangs_nobody(pool: ThreadPoolExecutor) -> None:
    for _ in range(30):
        engine = BlockingEngine(small_catalog(), client=Echo())
        ready = threading.Barrier(5)

        def work(engine: BlockingEngine = engine, ready: threading.Barrier = ready) -> str:
            ready.wait(5)
            try:
                while True:
                    assert engine.run(ASK).raw_output == "Where?"
            except EngineStateError as error:
                return str(error)

        working = [pool.submit(work) for _ in range(4)]
        ready.wait(5)
        engine.close()
        assert {thread.result(5) for thread in working} == {"this engine is closed: make a new one"}


def test_what_closing_raises_reaches_who_closes() -> None:
    engine = BlockingEngine(small_catalog(), client=ScriptedClient("x"))
    engine.run(ASK)
    failure = OSError("mine")

    async def fails() -> None:
        raise failure

    thread = engine._owner._thread  # noqa: SLF001  # no client of promptkit's own fails to close
    assert thread is not None
    thread._last = fails  # noqa: SLF001
    with pytest.raises(OSError, match="mine") as found:
        engine.close()
    assert found.value is failure
    engine.close()


def test_a_closed_engine_is_closed_for_a_thread_that_has_the_identifier_of_its_loops_thread_too() -> None:
    engine = BlockingEngine(small_catalog(), client=Echo())
    engine.run(ASK)
    taken_over = engine._owner._thread._thread.ident  # type: ignore[union-attr]  # noqa: SLF001
    engine.close()
    said: list[tuple[bool, str]] = []

    def ask() -> None:
        with pytest.raises(EngineStateError) as caught:
            engine.run(ASK)
        engine.close()
        said.append((threading.get_ident() == taken_over, str(caught.value)))

    for _ in range(50):  # identifiers are given again when it pleases the system, mostly at once
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        if said[-1][0]:
            break
    assert {message for _, message in said} == {"this engine is closed: make a new one"}


# ---------------------------------------------------------------- never closed


def dropped(client: Any) -> tuple[weakref.ref[BlockingEngine], threading.Thread]:
    before = set(threading.enumerate())
    engine = BlockingEngine(small_catalog(), client=client)
    engine.run(ASK)
    (thread,) = set(threading.enumerate()) - before
    return weakref.ref(engine), thread


def test_an_engine_that_is_dropped_is_collected_and_its_thread_ends_with_a_warning() -> None:
    with pytest.warns(ResourceWarning, match="BlockingEngine was never closed"):
        engine, thread = dropped(Echo())
    assert engine() is None
    thread.join(5)
    assert not thread.is_alive()


def test_an_engine_that_its_own_thread_collects_ends_all_the_same() -> None:
    # A cycle holds it, and the collection happens inside a model client of another run of the same loop's thread.
    before = set(threading.enumerate())
    gone = threading.Event()

    async def collect(_: GenerationCall) -> str:
        gc.collect()
        return "x"

    def use() -> Any:
        engine = BlockingEngine(small_catalog(), client=ScriptedClient("first", collect))
        owner = engine._owner  # noqa: SLF001
        engine.run(ASK)
        work = partial(engine._engine.run, ASK)  # noqa: SLF001  # the async engine below knows nothing of this one
        cycle: list[Any] = [engine, owner]
        cycle.append(cycle)
        weakref.finalize(owner, gone.set)
        return work, owner._thread  # noqa: SLF001

    def collect_there(thread: LoopThread, call: Call[RunResult]) -> None:
        assert thread.submit(call)
        call.ended.wait()

    gc.disable()
    try:
        work, thread = use()
        (runs,) = set(threading.enumerate()) - before
        with pytest.warns(ResourceWarning, match="never closed") as caught:
            collect_there(thread, Call(work))
    finally:
        gc.enable()
    assert gone.is_set()
    runs.join(5)
    assert not runs.is_alive()
    assert len(caught) == 1


@pytest.mark.parametrize("engine", [Engine, BlockingEngine])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"client": 3}, ".client: `int` has no method generate"),
        ({"client": Echo}, ".client: `Echo` is a class: give an instance of it"),
        ({"http_client": 3}, ".http_client: `int` has no method aclose"),
        ({"input_reader": 3}, ".input_reader: `int` has no method read"),
        ({"inputs": 3}, ".inputs: Expected the path of a folder, got `int`"),
        ({"max_input_bytes": "3"}, ".max_input_bytes: Expected a number of bytes, got `str`"),
        ({"max_input_bytes": 0}, ".max_input_bytes: must be 1 or more"),
    ],
)
def test_a_wrong_option_is_refused_with_the_name_of_the_engine(
    engine: type[Engine | BlockingEngine], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        engine(small_catalog(), **options)
    assert str(refused.value).startswith(engine.__name__ + said)


@pytest.mark.parametrize("engine", [Engine, BlockingEngine])
def test_a_catalog_is_still_the_first_thing_that_is_asked_for(engine: type[Engine | BlockingEngine]) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{engine.__name__}: Expected a Catalog"):
        engine("folder")  # type: ignore[arg-type]
