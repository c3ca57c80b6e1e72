"""How long a run waits before it tries again, seen from outside: exact, since time and chance are the test's."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from promptkit import (
    AttemptFinished,
    AttemptTimeoutError,
    Engine,
    GenerationCall,
    GenerationReply,
    OverloadedError,
    RateLimitError,
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunStarted,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import error, http, ok
from servers.surroundings import START, Still, engine_in

if TYPE_CHECKING:
    import socket

    from servers.stub import Received, StubServer

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])

POLICY = RetryPolicy(max_retries=6, base_delay=1.0, max_delay=20.0, max_retry_after=60.0)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


def delays(recorder: EventRecorder) -> list[tuple[float, str]]:
    return [(event.delay, event.source) for event in recorder.events if isinstance(event, RetryDelayed)]


# ---------------------------------------------------------------- backoff


@pytest.mark.parametrize(
    ("chance", "waits"),
    [
        (0.0, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (0.5, [1.5, 2.5, 4.5, 8.5, 10.5, 10.5]),
        (1.0 - 2**-53, [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]),
    ],
)
async def test_the_delay_before_retry_k_is_uniform_from_base_delay_to_the_lesser_of_max_delay_and_base_delay_2_k(
    stub: StubServer, chance: float, waits: list[float]
) -> None:
    stub.say(error(503))
    recorder = EventRecorder()
    still = Still([chance])
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY)) as engine:
        with pytest.raises(OverloadedError):
            await engine.run(ask(observer=recorder))
    assert still.waits == pytest.approx(waits)
    assert delays(recorder) == [(wait, "backoff") for wait in still.waits]
    assert len(stub.requests) == 7


async def test_the_delays_grow_over_the_whole_run_and_do_not_start_again_with_a_repair(stub: StubServer) -> None:
    stub.say(error(503), ok("no"), error(503), ok("no"), error(503), ok('{"a": 1}'))
    still = Still([1.0 - 2**-53])
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY, max_repairs=5)) as engine:
        result = await engine.run(RunRequest(prompt_id="follow"))
    assert still.waits == pytest.approx([2.0, 4.0, 8.0])
    assert (result.transient_retries, result.repair_calls) == (3, 2)


@pytest.mark.parametrize("demand", [None, "7"])
async def test_twenty_runs_that_are_refused_at_once_come_back_spread_out(stub: StubServer, demand: str | None) -> None:
    stub.say(*[error(429, "slow", *([("retry-after", demand)] if demand else []))] * 20, ok("Rome."))
    dice = random.Random(5)
    still = Still([dice.random() for _ in range(20)])
    catalog = small_catalog(stub.base_url, retry=POLICY, max_concurrency=20)
    arrived, everybody = 0, anyio.Event()

    async def together(_: float) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 20:
            everybody.set()
        await everybody.wait()

    still._waiting = together  # noqa: SLF001
    async with engine_in(still, catalog) as engine, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(engine.run, ask())
    earliest = 7.0 if demand else 1.0
    waits = sorted(wait - earliest for wait in still.waits)
    assert len(set(waits)) == 20
    assert 0 <= waits[0] < 0.25
    assert 0.75 < waits[-1] < 1
    assert max(later - sooner for sooner, later in itertools.pairwise(waits)) < 0.25


# ---------------------------------------------------------------- demands


def retry_info(delay: str) -> bytes:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
    return http(429, json.dumps({"error": {"code": 429, "message": "slow", "details": details}}).encode())


def date(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")


@pytest.mark.parametrize(
    ("reply", "demand"),
    [
        (error(429, "slow", ("retry-after", "7")), 7.0),
        (error(429, "slow", ("retry-after", "1.5")), 1.5),
        (error(503, "slow", ("retry-after", "0.001")), 0.001),
        (error(429, "slow", ("retry-after", date(30))), 30.0),
        (error(429, "slow", ("retry-after-ms", "250"), ("retry-after", "7")), 0.25),
        (error(429, "slow", ("retry-after", "7"), ("retry-after-ms", "250")), 0.25),
        (retry_info("36s"), 36.0),
        (retry_info("0.5s"), 0.5),
        (error(429, "slow", ("retry-after", "60")), 60.0),
    ],
)
@pytest.mark.parametrize("chance", [0.0, 0.25, 1.0 - 2**-53])
async def test_a_demand_is_waited_out_plus_uniform_up_to_base_delay(
    stub: StubServer, reply: bytes, demand: float, chance: float
) -> None:
    stub.say(reply, ok("Rome."))
    recorder = EventRecorder()
    still = Still([chance])
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY)) as engine:
        await engine.run(ask(observer=recorder))
    assert still.waits == pytest.approx([demand + chance])
    assert still.waits[0] >= demand
    assert delays(recorder) == [(still.waits[0], "retry_after")]


@pytest.mark.parametrize(
    "headers",
    [
        [("retry-after", "0")],
        [("retry-after", "-3")],
        [("retry-after", "nan")],
        [("retry-after", "inf")],
        [("retry-after", "1e2")],
        [("retry-after", date(-30))],
        [("retry-after", "3"), ("retry-after", "3")],
        [("retry-after", "soon")],
        [("retry-after-ms", "0"), ("retry-after", "")],
        [("retry-after", "\xb2")],
    ],
)
async def test_what_is_no_demand_means_backoff(stub: StubServer, headers: list[tuple[str, str]]) -> None:
    stub.say(error(429, "slow", *headers), ok("Rome."))
    recorder = EventRecorder()
    still = Still([0.5])
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY)) as engine:
        await engine.run(ask(observer=recorder))
    assert delays(recorder) == [(1.5, "backoff")]


async def test_the_newest_replys_demand_replaces_the_backoff_and_no_older_one_counts(stub: StubServer) -> None:
    stub.say(
        error(429, "slow", ("retry-after", "30")),
        error(429, "slow", ("retry-after", "3")),
        error(503),
        error(503, "slow", ("retry-after-ms", "10")),
        ok("Rome."),
    )
    recorder = EventRecorder()
    still = Still([0.0])
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY)) as engine:
        await engine.run(ask(observer=recorder))
    assert delays(recorder) == [(30.0, "retry_after"), (3.0, "retry_after"), (1.0, "backoff"), (0.01, "retry_after")]


@pytest.mark.parametrize("first", [[], [error(503)]])
async def test_a_demand_above_max_retry_after_ends_the_run_at_once_with_the_demand_readable(
    stub: StubServer, first: list[bytes]
) -> None:
    stub.say(*first, error(429, "slow", ("retry-after", "60.5")), ok("never"))
    still = Still()
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY)) as engine:
        with pytest.raises(RateLimitError, match=r"wait of 60\.5 s.*max_retry_after is 60 s") as raised:
            await engine.run(ask())
    assert raised.value.retry_after == 60.5
    assert len(stub.requests) == len(still.waits) + 1 == len(first) + 1 == raised.value.attempts


async def test_a_date_counts_from_the_moment_at_which_the_reply_came(stub: StubServer) -> None:
    stub.say(error(429, "slow", ("retry-after", "20")), error(429, "slow", ("retry-after", date(50))), ok("Rome."))
    still = Still([0.0])
    async with engine_in(still, small_catalog(stub.base_url, retry=POLICY)) as engine:
        await engine.run(ask())
    assert still.waits == [20.0, 30.0]


# ---------------------------------------------------------------- what the waits are seen as


async def test_events_and_results_have_the_times_of_the_run(stub: StubServer) -> None:
    stub.say(error(503), ok("Rome."))
    recorder = EventRecorder()
    async with engine_in(Still([0.5]), small_catalog(stub.base_url, retry=POLICY)) as engine:
        result = await engine.run(ask(observer=recorder))
    assert [event.at - START for event in recorder.events] == [timedelta(seconds=s) for s in (0, 0, 0, 1.5, 1.5)]
    attempts = [event for event in recorder.events if isinstance(event, AttemptFinished)]
    assert [(event.queued, event.duration) for event in attempts] == [(0.0, 0.0)] * 2
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert result.timing.started_at == START
    assert result.timing.duration == finished.duration == 1.5


async def test_the_time_in_the_queue_is_told_apart_from_the_attempts() -> None:
    still = Still()
    free, inside = anyio.Event(), anyio.Event()
    recorder = EventRecorder()

    async def hold(_: GenerationCall) -> str:
        inside.set()
        await free.wait()
        return "first"

    def work(_: GenerationCall) -> str:
        still.passed += 2.0
        return "second"

    engine = engine_in(still, small_catalog(max_concurrency=1), client=ScriptedClient(hold, work))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ask())
        await inside.wait()
        tasks.start_soon(engine.run, ask(observer=recorder))
        while engine.inspect_backend("server").waiting == 0:
            await anyio.lowlevel.checkpoint()
        still.passed = 5.0
        free.set()
    attempt = recorder.events[1]
    assert isinstance(attempt, AttemptFinished)
    assert (attempt.queued, attempt.duration) == (5.0, 2.0)


# ---------------------------------------------------------------- deadlines


async def test_a_deadline_that_is_nearer_than_the_wait_ends_the_run_in_it(stub: StubServer) -> None:
    stub.say(error(429, "slow", ("retry-after", "50")), ok("never"))
    recorder = EventRecorder()
    scope = anyio.CancelScope()

    async def waiting(_: float) -> None:
        scope.deadline = anyio.current_time()  # it passes now
        await anyio.sleep_forever()

    async with engine_in(Still(waiting=waiting), small_catalog(stub.base_url, retry=POLICY)) as engine:
        with scope:
            await engine.run(ask(observer=recorder))
    assert scope.cancelled_caught
    assert len(stub.requests) == 1
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts, finished.transient_retries) == ("cancelled", 1, 0)


@pytest.mark.parametrize("client", ["built in", "of the caller, which never waits"])
@pytest.mark.parametrize(
    ("blocking", "replies", "attempts"),
    [
        (RunStarted, ["no"], 0),
        (AttemptFinished, ["no", "no"], 1),
        (AttemptFinished, [503, "no"], 1),
        (RetryDelayed, [503, "no"], 1),
    ],
)
async def test_a_deadline_that_passed_while_an_observer_blocked_sends_nothing_more(
    stub: StubServer, client: str, blocking: type, replies: list[Any], attempts: int
) -> None:
    stub.say(ok("Rome."), *[error(reply) if isinstance(reply, int) else ok(reply) for reply in replies])
    steps = [OverloadedError("503", status=503) if isinstance(reply, int) else reply for reply in replies]
    scripted = ScriptedClient("Rome.", *steps)
    recorder = EventRecorder()

    def observer(event: object) -> None:
        recorder(event)  # type: ignore[arg-type]
        if isinstance(event, blocking):
            scope.deadline = anyio.current_time() + 0.001
            while anyio.current_time() < scope.deadline:
                pass

    given = {} if client == "built in" else {"client": scripted}
    async with Engine(small_catalog(stub.base_url), **given) as engine:  # type: ignore[arg-type]
        await engine.run(ask())  # from now on there is a connection that sends without waiting
        with anyio.CancelScope() as scope:
            await engine.run(RunRequest(prompt_id="follow", observer=observer))
        assert scope.cancelled_caught
    sent = len(stub.requests) if client == "built in" else len(scripted.calls)
    assert sent == 1 + attempts
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts) == ("cancelled", attempts)
    assert sum(isinstance(event, AttemptFinished) for event in recorder.events) == attempts


# ---------------------------------------------------------------- attempt_timeout


def dripping(stub: StubServer) -> Any:
    def drip(_: Received, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not stub.disconnected.wait(0.002):
            connection.sendall(b"1\r\n\n\r\n")

    return drip


async def test_a_drip_fed_body_does_not_extend_an_attempt_and_the_timeout_is_retried(stub: StubServer) -> None:
    stub.say(dripping(stub), ok("Rome."))
    recorder = EventRecorder()
    still = Still([0.0])
    catalog = small_catalog(stub.base_url, attempt_timeout=0.4, retry=POLICY, max_concurrency=1, max_waiting=0)
    async with engine_in(still, catalog) as engine:
        result = await engine.run(ask(observer=recorder))
        assert (await engine.run(ask())).raw_output == "Rome."
    assert (result.raw_output, result.attempts) == ("Rome.", 2)
    assert still.waits == [1.0]
    first = recorder.events[1]
    assert isinstance(first, AttemptFinished)
    assert (first.outcome, first.error, first.status) == ("failed", "AttemptTimeoutError", None)
    assert not result.usage.input_tokens.complete
    assert str(result.usage.input_tokens) == "at least 11"


class Slow:
    """A client whose calls take for ever; ``on_cancel`` is called when the first one is cancelled."""

    def __init__(self, on_cancel: Any = None) -> None:
        self.asked = 0
        self.on_cancel = on_cancel

    async def generate(self, call: GenerationCall) -> GenerationReply:
        self.asked += 1
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if self.on_cancel is not None:
                self.on_cancel()
            raise
        raise AssertionError(call)


@on_asyncio
@pytest.mark.parametrize("retries", [0, 2])
async def test_a_native_cancel_that_races_the_attempts_timeout_is_not_lost(retries: int) -> None:
    tasks: list[asyncio.Task[Any]] = []
    recorder = EventRecorder()
    client = Slow(lambda: tasks.pop().cancel())
    policy = RetryPolicy(max_retries=retries, base_delay=0.0, max_delay=0.0)
    engine = Engine(small_catalog(attempt_timeout=0.01, retry=policy), client=client)
    run = asyncio.ensure_future(engine.run(ask(observer=recorder)))
    tasks.append(run)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert client.asked == 1
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.attempts) == ("cancelled", 1)
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)


@on_asyncio
@pytest.mark.parametrize("first", ["native", "timeout"])
@pytest.mark.parametrize("retries", [0, 2])
async def test_both_at_the_same_instant_end_the_run_as_cancelled(first: str, retries: int) -> None:
    recorder = EventRecorder()
    inside = asyncio.Event()
    asked = 0

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            nonlocal asked
            asked += 1
            loop = asyncio.get_running_loop()
            task = asyncio.current_task()
            assert task is not None
            deadline = anyio.current_effective_deadline()
            order = -1e-6 if first == "native" else 1e-6
            loop.call_at(deadline + order, task.cancel)  # both callbacks run in one turn of the loop
            inside.set()
            await asyncio.sleep(0)
            while loop.time() < deadline + 0.001:  # block, so that both are due at the next turn
                pass
            await anyio.sleep_forever()
            raise AssertionError(call)

    policy = RetryPolicy(max_retries=retries, base_delay=0.0, max_delay=0.0)
    engine = Engine(small_catalog(attempt_timeout=0.01, retry=policy), client=Client())
    task = asyncio.ensure_future(engine.run(ask(observer=recorder)))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asked == 1
    assert recorder.events[-1].outcome == "cancelled"  # type: ignore[union-attr]


@on_asyncio
@pytest.mark.parametrize("retries", [0, 3])
async def test_a_timeout_of_asyncio_that_equals_attempt_timeout_is_one_of_the_two_and_ends_the_run(
    retries: int,
) -> None:
    recorder = EventRecorder()
    client = Slow()
    policy = RetryPolicy(max_retries=retries, base_delay=0.0, max_delay=0.0)
    engine = Engine(small_catalog(attempt_timeout=0.01, retry=policy), client=client)
    with pytest.raises((TimeoutError, AttemptTimeoutError)):
        async with asyncio.timeout(0.01):
            await engine.run(ask(observer=recorder))
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert client.asked <= 2
    assert sum(isinstance(event, RunFinished) for event in recorder.events) == 1
    await asyncio.sleep(0)  # nothing of it is left


@pytest.mark.parametrize("retries", [0, 3])
async def test_a_callers_deadline_that_equals_attempt_timeout_is_one_of_the_two_and_ends_the_run(retries: int) -> None:
    recorder = EventRecorder()
    client = Slow()
    policy = RetryPolicy(max_retries=retries, base_delay=0.0, max_delay=0.0)
    engine = Engine(small_catalog(attempt_timeout=0.01, retry=policy), client=client)
    with pytest.raises((TimeoutError, AttemptTimeoutError)):
        with anyio.fail_after(0.01):
            await engine.run(ask(observer=recorder))
    assert client.asked <= 2
    assert sum(isinstance(event, RunFinished) for event in recorder.events) == 1
    await anyio.lowlevel.checkpoint()  # nothing of it is left
