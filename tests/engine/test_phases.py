"""Every way to cancel in every phase of a run: it ends at its next await, and takes nothing with it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import msgspec
import pytest

from promptkit import (
    AttemptFinished,
    AttemptTimeoutError,
    Catalog,
    DisconnectedError,
    Engine,
    GenerationCall,
    GenerationError,
    GenerationReply,
    Message,
    MessageTemplate,
    OverloadedError,
    PromptDefinition,
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunStarted,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.closing import SlowlyClosing
from servers.stub import Held, Received, StubServer, error, ok
from servers.surroundings import Still, engine_in

pytestmark = pytest.mark.anyio

VALID = ok('{"a": 1}')
FOLLOW = RunRequest(prompt_id="follow")
CAPACITY: dict[str, Any] = {"max_concurrency": 1, "max_waiting": 0}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


# ---------------------------------------------------------------- the ways to cancel


class Scope:
    """A cancel scope of anyio."""

    def __init__(self) -> None:
        self.caught = False

    async def around(self, run: Callable[[], Awaitable[None]]) -> None:
        with anyio.CancelScope() as self.scope:
            await run()
        self.caught = self.scope.cancelled_caught

    def fire(self) -> None:
        self.scope.cancel()


class Deadline(Scope):
    """A deadline of anyio, which passes now."""

    def fire(self) -> None:
        self.scope.deadline = anyio.current_time()


class Timeout(Scope):
    """asyncio.timeout, which ends now."""

    async def around(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(None) as self.timeout:
                await run()
        except TimeoutError:
            self.caught = True

    def fire(self) -> None:
        self.timeout.reschedule(asyncio.get_running_loop().time())


class Native(Scope):
    """task.cancel() of asyncio."""

    async def around(self, run: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        try:
            await run()
        except asyncio.CancelledError:
            self.caught = True
            task.uncancel()

    def fire(self) -> None:
        self.task.cancel()


WAYS = [
    pytest.param(way, loop, id=f"{way.__name__.lower()} on {loop}")
    for loop, ways in {"asyncio": [Scope, Deadline, Timeout, Native], "trio": [Scope, Deadline]}.items()
    for way in ways
]
every_way = pytest.mark.parametrize(("way", "anyio_backend"), WAYS)


# ---------------------------------------------------------------- the phases


class Place:
    """A run that is brought into a phase.

    ``sent`` requests have come to ``server`` when it is there, and ``attempts`` attempts are told of when it has been
    cancelled. ``reached`` waits until it is there; ``at`` is the event whose observer cancels, instead.
    """

    def __init__(self, engine: Engine, server: StubServer, *, sent: int, attempts: int) -> None:
        self.engine = engine
        self.server = server
        self.sent = sent
        self.attempts = attempts
        self.request = FOLLOW
        self.at: type | None = None
        self.reached: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint
        self.recover: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint


Phase = Callable[..., contextlib.AbstractAsyncContextManager[Place]]


@contextlib.asynccontextmanager
async def at_its_start(stub: StubServer) -> AsyncIterator[Place]:
    stub.say(VALID)
    async with Engine(small_catalog(stub.base_url, **CAPACITY)) as engine:
        place = Place(engine, stub, sent=0, attempts=0)
        place.at = RunStarted
        yield place


@contextlib.asynccontextmanager
async def preparing_a_slow_input(stub: StubServer) -> AsyncIterator[Place]:
    stub.say(VALID)
    asked = anyio.Event()
    free = anyio.Event()

    class Reader:
        async def read(self, path: object, limit: int) -> bytes:
            asked.set()
            await free.wait()
            return b"text"

    prompt = PromptDefinition(
        id="read", inputs=("note",), messages=(MessageTemplate(role="user", content="{{ inputs.note }}"),)
    )
    catalog = small_catalog(stub.base_url, **CAPACITY) | Catalog(prompts=[prompt])
    async with Engine(catalog, input_reader=Reader()) as engine:
        place = Place(engine, stub, sent=0, attempts=0)
        place.request = RunRequest(prompt_id="read", profile="warm", inputs={"note": Path("note.txt")})
        place.reached = asked.wait

        async def recover() -> None:
            free.set()

        place.recover = recover
        yield place


@contextlib.asynccontextmanager
async def in_the_queue(stub: StubServer) -> AsyncIterator[Place]:
    held = Held(VALID)
    stub.say(held, VALID)
    catalog = small_catalog(stub.base_url, max_concurrency=1, max_waiting=1)
    async with Engine(catalog) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, FOLLOW)
        await anyio.to_thread.run_sync(held.asked.wait)
        place = Place(engine, stub, sent=1, attempts=0)
        place.reached = lambda: until(lambda: engine.inspect_backend("server").waiting == 1)

        async def recover() -> None:
            counts = engine.inspect_backend("server")
            assert (counts.running, counts.waiting) == (1, 0)
            held.free.set()
            await until(lambda: engine.inspect_backend("server").running == 0)

        place.recover = recover
        yield place


def connecting(port: int) -> int:
    """Count the connections to a local port that wait for the other side to accept them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


@contextlib.asynccontextmanager
async def connecting_to_a_silent_backlog(stub: StubServer, **backend: Any) -> AsyncIterator[Place]:
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = silent.getsockname()[1]
        others = [stack.enter_context(socket.socket()) for _ in range(4)]
        for other in others:
            other.settimeout(0)
            other.connect_ex(("127.0.0.1", port))
        before = connecting(port)
        async with Engine(small_catalog(f"http://127.0.0.1:{port}/v1", **CAPACITY, **backend)) as engine:
            place = Place(engine, stub, sent=0, attempts=1)
            place.reached = lambda: until(lambda: connecting(port) > before)

            async def recover() -> None:
                for other in others:
                    other.close()
                silent.listen(128)
                place.server = StubServer(silent)
                place.server.say(VALID)

            place.recover = recover
            try:
                yield place
            finally:
                if place.server is not stub:
                    place.server.close()


class Unread(StubServer):
    """Reads nothing from its first connection, which it closes when it is told to, and serves the others."""

    def __init__(self) -> None:
        self.accepted, self.free = threading.Event(), threading.Event()
        super().__init__()

    def _serve(self, connection: socket.socket) -> None:
        if self.accepted.is_set():
            super()._serve(connection)
        else:
            self.accepted.set()
            self.free.wait(15)
            connection.close()


@contextlib.asynccontextmanager
async def sending_a_large_body_that_is_not_read(stub: StubServer, **backend: Any) -> AsyncIterator[Place]:
    server = Unread()
    server.say(VALID)
    try:
        async with Engine(small_catalog(server.base_url, **CAPACITY, **backend)) as engine:
            place = Place(engine, server, sent=0, attempts=1)
            large = Message(role="user", content="x" * 2**24)
            place.request = msgspec.structs.replace(FOLLOW, appended_messages=(large,))
            place.reached = lambda: anyio.to_thread.run_sync(server.accepted.wait)

            async def recover() -> None:
                server.free.set()

            place.recover = recover
            yield place
    finally:
        server.free.set()
        server.close()


@contextlib.asynccontextmanager
async def waiting_for_the_head(stub: StubServer, **backend: Any) -> AsyncIterator[Place]:
    held = Held(VALID)
    stub.say(held, VALID)
    async with Engine(small_catalog(stub.base_url, **CAPACITY, **backend)) as engine:
        place = Place(engine, stub, sent=1, attempts=1)
        place.reached = lambda: anyio.to_thread.run_sync(held.asked.wait)

        async def recover() -> None:
            held.free.set()

        place.recover = recover
        yield place


@contextlib.asynccontextmanager
async def reading_a_body_that_drips(stub: StubServer, **backend: Any) -> AsyncIterator[Place]:
    flowing = threading.Event()

    def drip(_: Received, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for count in range(10_000):
            connection.sendall(b"1\r\n \r\n")
            if count == 10:
                flowing.set()
            if stub.disconnected.wait(0.001):
                return

    stub.say(drip, VALID)
    async with Engine(small_catalog(stub.base_url, **CAPACITY, **backend)) as engine:
        place = Place(engine, stub, sent=1, attempts=1)
        place.reached = lambda: anyio.to_thread.run_sync(flowing.wait)
        yield place


@contextlib.asynccontextmanager
async def in_a_backoff(stub: StubServer) -> AsyncIterator[Place]:
    stub.say(error(503), VALID)
    waits = anyio.Event()

    async def waiting(_: float) -> None:
        waits.set()
        await anyio.sleep_forever()

    async with engine_in(Still(waiting=waiting), small_catalog(stub.base_url, **CAPACITY)) as engine:
        place = Place(engine, stub, sent=1, attempts=1)
        place.reached = waits.wait
        yield place


@contextlib.asynccontextmanager
async def between_an_answer_and_its_repair(stub: StubServer) -> AsyncIterator[Place]:
    stub.say(ok("no"), VALID)
    async with Engine(small_catalog(stub.base_url, **CAPACITY)) as engine:
        place = Place(engine, stub, sent=1, attempts=1)
        place.at = AttemptFinished
        yield place


@contextlib.asynccontextmanager
async def before_a_retry_without_a_delay(stub: StubServer) -> AsyncIterator[Place]:
    stub.say(error(503), VALID)
    async with Engine(small_catalog(stub.base_url, **CAPACITY)) as engine:
        place = Place(engine, stub, sent=1, attempts=1)
        place.at = RetryDelayed
        yield place


IN_AN_ATTEMPT = [
    pytest.param(
        connecting_to_a_silent_backlog,
        marks=pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog refuses"),
    ),
    sending_a_large_body_that_is_not_read,
    waiting_for_the_head,
    reading_a_body_that_drips,
]
PHASES = [
    at_its_start,
    preparing_a_slow_input,
    in_the_queue,
    *IN_AN_ATTEMPT,
    in_a_backoff,
    between_an_answer_and_its_repair,
    before_a_retry_without_a_delay,
]


@every_way
@pytest.mark.parametrize("phase", PHASES)
async def test_a_run_that_is_cancelled_ends_at_its_next_await_and_takes_nothing_with_it(
    phase: Phase, way: type[Scope], stub: StubServer
) -> None:
    source = await Engine(small_catalog(), client=ScriptedClient('{"a": 1}')).run(
        msgspec.structs.replace(FOLLOW, capture_exchange=True)
    )
    recorder = EventRecorder()
    left: list[BaseException] = []
    cancel = way()
    async with phase(stub) as place:

        def observer(event: Any) -> None:
            recorder(event)
            if place.at is type(event):
                cancel.fire()

        request = msgspec.structs.replace(place.request, continue_from=source.exchange, observer=observer)

        async def run() -> None:
            try:
                await place.engine.run(request)
            except BaseException as leaving:
                left.append(leaving)
                raise

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel.around, run)
            await place.reached()
            if place.at is None:
                cancel.fire()

        # The cancellation left as itself, and each event was told once.
        assert cancel.caught
        assert [type(leaving) for leaving in left] == [anyio.get_cancelled_exc_class()]
        finished = recorder.events[-1]
        assert isinstance(finished, RunFinished)
        assert finished.outcome == "cancelled"
        told = [event for event in recorder.events if isinstance(event, AttemptFinished)]
        # What asyncio.timeout does, it does a turn of the loop later: the attempt has begun, and sends nothing.
        begun = 1 if (place.at, way) == (RunStarted, Timeout) else place.attempts
        assert finished.attempts == len(told) == begun
        assert finished.usage.input_tokens.complete == all(event.usage.input_tokens.complete for event in told)
        assert sum(isinstance(event, RunFinished) for event in recorder.events) == 1

        # The capacity, the connections and the exchange are there for the next run, and nothing else was sent.
        await place.recover()
        counts = place.engine.inspect_backend("server")
        assert (counts.running, counts.waiting) == (0, 0)
        assert len(place.server.requests) == place.sent
        again = await place.engine.run(msgspec.structs.replace(place.request, continue_from=source.exchange))
        assert again.raw_output == '{"a": 1}'
        assert again.parent_run_id == source.run_id
        assert len(place.server.requests) == place.sent + 1


@pytest.mark.parametrize("phase", IN_AN_ATTEMPT)
async def test_an_attempt_is_bounded_whatever_it_waits_for_and_takes_nothing_with_it(
    phase: Phase, stub: StubServer
) -> None:
    recorder = EventRecorder()
    async with phase(stub, attempt_timeout=0.3, retry=RetryPolicy(max_retries=0)) as place:
        with pytest.raises(AttemptTimeoutError, match=r"attempt_timeout of 0\.3 s") as raised:
            await place.engine.run(msgspec.structs.replace(place.request, observer=recorder))
        assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished, RunFinished]
        assert raised.value.usage is not None
        assert not raised.value.usage.output_tokens.complete
        await place.recover()
        counts = place.engine.inspect_backend("server")
        assert (counts.running, counts.waiting) == (0, 0)
        assert len(place.server.requests) == place.sent
        assert (await place.engine.run(FOLLOW)).raw_output == '{"a": 1}'


@every_way
async def test_a_finished_response_is_never_lost_between_the_backend_and_the_caller(way: type[Scope]) -> None:
    transport = SlowlyClosing()
    recorder = EventRecorder()
    got: list[str] = []
    cancel = way()
    async with httpx.AsyncClient(transport=transport) as client:
        engine = Engine(small_catalog(**CAPACITY), http_client=client)

        async def run() -> None:
            got.append((await engine.run(RunRequest(prompt_id="more", observer=recorder))).raw_output)
            got.append("before the cancellation")
            await anyio.lowlevel.checkpoint()
            got.append("never")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel.around, run)
            await transport.closing.wait()
            cancel.fire()
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            transport.free.set()
        assert cancel.caught
        assert got == ["Rome.", "before the cancellation"]
        assert transport.closed == 1
        finished = recorder.events[-1]
        assert isinstance(finished, RunFinished)
        assert finished.outcome == "completed"
        assert (await engine.run(RunRequest(prompt_id="more"))).raw_output == "Rome."


@every_way
async def test_an_answer_that_is_in_hand_when_its_attempt_is_told_is_returned(
    way: type[Scope], stub: StubServer
) -> None:
    stub.say(ok("Rome."))
    cancel = way()
    got: list[str] = []

    def observer(event: object) -> None:
        if isinstance(event, AttemptFinished):
            cancel.fire()

    async with Engine(small_catalog(stub.base_url)) as engine:

        async def run() -> None:
            got.append((await engine.run(RunRequest(prompt_id="more", observer=observer))).raw_output)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            got.append("never")

        await cancel.around(run)
    assert cancel.caught
    assert got == ["Rome."]


@every_way
async def test_a_run_that_is_cancelled_while_a_failed_response_is_closed_gives_its_connection_back(
    way: type[Scope],
) -> None:
    transport = SlowlyClosing(503)
    recorder = EventRecorder()
    cancel = way()
    async with httpx.AsyncClient(transport=transport) as client:
        engine = Engine(small_catalog(**CAPACITY), http_client=client)

        async def run() -> None:
            await engine.run(RunRequest(prompt_id="more", observer=recorder))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel.around, run)
            await transport.closing.wait()
            cancel.fire()
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            transport.free.set()
        assert cancel.caught
        assert (transport.asked, transport.closed) == (1, 1)
        finished = recorder.events[-1]
        assert isinstance(finished, RunFinished)
        assert (finished.outcome, finished.attempts) == ("cancelled", 1)
        transport.status = 200
        assert (await engine.run(RunRequest(prompt_id="more"))).raw_output == "Rome."


async def test_a_response_that_is_in_hand_when_its_attempt_times_out_is_returned() -> None:
    transport = SlowlyClosing()
    transport.free.set()

    async def late() -> None:
        await transport.closing.wait()
        await anyio.sleep(0.04)
        transport.free.set()

    async with httpx.AsyncClient(transport=transport) as client, anyio.create_task_group() as tasks:
        engine = Engine(small_catalog(attempt_timeout=0.03, **CAPACITY), http_client=client)
        await Engine(small_catalog(), http_client=client).run(RunRequest(prompt_id="more"))  # what is loaded once
        transport.closing, transport.free = anyio.Event(), anyio.Event()
        tasks.start_soon(late)
        result = await engine.run(RunRequest(prompt_id="more"))
        await anyio.lowlevel.checkpoint()  # nothing of the timeout is left
    assert (result.raw_output, result.attempts, transport.asked) == ("Rome.", 1, 2)


class Steps:
    """A client that waits a few turns of the loop in each call: fails, answers badly, fails again, answers well."""

    def __init__(self) -> None:
        self.calls = 0
        self.answers: list[Any] = [DisconnectedError("gone"), "no", OverloadedError("503"), '{"a": 1}']

    async def generate(self, call: GenerationCall) -> GenerationReply:
        answer = self.answers[self.calls]
        self.calls += 1
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        if isinstance(answer, GenerationError):
            raise answer
        return GenerationReply(content=answer)


@every_way
async def test_a_cancellation_at_any_step_of_a_run_is_told_once_and_gives_everything_back(way: type[Scope]) -> None:
    outcomes: list[str] = []
    for steps in itertools.count():
        client, cancel, recorder = Steps(), way(), EventRecorder()
        engine = Engine(small_catalog(**CAPACITY), client=client)
        got: list[str] = []

        async def run(engine: Engine = engine, recorder: EventRecorder = recorder, got: list[str] = got) -> None:
            got.append((await engine.run(msgspec.structs.replace(FOLLOW, observer=recorder))).raw_output)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel.around, run)
            await until(lambda recorder=recorder: len(recorder.events) > 0)  # type: ignore[misc]
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            over = isinstance(recorder.events[-1], RunFinished)
            if not over:
                cancel.fire()
        finished = recorder.events[-1]
        assert isinstance(finished, RunFinished)
        told = [event for event in recorder.events if isinstance(event, AttemptFinished)]
        assert sum(isinstance(event, RunFinished) for event in recorder.events) == 1
        assert finished.attempts == len(told) == client.calls
        assert (finished.outcome == "completed") == (got == ['{"a": 1}'])
        assert cancel.caught == (finished.outcome == "cancelled")
        counts = engine.inspect_backend("server")
        assert (counts.running, counts.waiting) == (0, 0)
        outcomes.append(finished.outcome)
        if over:
            break
    assert len(outcomes) > 12
    assert set(outcomes) == {"cancelled", "completed"}
