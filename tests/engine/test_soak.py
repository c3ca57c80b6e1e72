"""Thousands of runs that are cancelled at random moments: nothing is lost, nothing is left, all sums are right."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import pytest

from promptkit import (
    AttemptFinished,
    CapacityError,
    DisconnectedError,
    Engine,
    ExecutionGroup,
    GenerationCall,
    GenerationReply,
    OverloadedError,
    ReportedUsage,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunStarted,
    compose_observers,
)
from promptkit._effects.event_loop import asyncio_task
from promptkit._values.usage import NO_USAGE, shown
from promptkit.testing import EventRecorder
from servers.catalogs import small_catalog
from servers.stub import error, ok
from servers.surroundings import Still, engine_in

if TYPE_CHECKING:
    import socket

    from servers.stub import Received, StubServer

pytestmark = pytest.mark.anyio

CONCURRENCY = 3
AT_ONCE = 40
POLICY = RetryPolicy(max_retries=3, base_delay=1.0, max_delay=8.0)


class Client:
    """Waits a few turns of the loop, and never gives a run a reason to fail.

    It breaks the first two attempts of a run at most, and answers badly twice at most. It says what it has counted.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.calls = 0
        self.inside = 0
        self.most = 0
        self.reported = 0  # tokens in, of the replies that it gave
        self.hold: anyio.Event | None = None

    async def generate(self, call: GenerationCall) -> GenerationReply:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            if self.hold is not None:
                await self.hold.wait()
            for _ in range(self.dice.randrange(4)):
                await anyio.lowlevel.checkpoint()
        finally:
            self.inside -= 1
        if call.attempt <= 2 and self.dice.random() < 0.3:
            raise self.dice.choice([DisconnectedError("gone"), OverloadedError("503", status=503)])
        tokens = self.dice.randrange(20)
        self.reported += tokens
        good = call.attempt > 4 or self.dice.random() < 0.6
        return GenerationReply(
            content='{"a": 1}' if good else "no", usage=ReportedUsage(input_tokens=tokens, output_tokens=1)
        )


class Crowd:
    """Runs that are cancelled at random moments, in random ways, and what became of each.

    At each turn of the loop some are cancelled with the probability ``haste``.
    """

    def __init__(self, engine: Engine, dice: random.Random, *, native: bool, haste: float) -> None:
        self.haste = haste
        self.engine = engine
        self.dice = dice
        self.native = native
        self.group = ExecutionGroup()
        self.recorders: list[EventRecorder] = []
        self.returned = 0
        self.live: dict[int, tuple[anyio.CancelScope, Any]] = {}

    async def run(self, number: int) -> None:
        recorder = EventRecorder()
        self.recorders.append(recorder)
        request = RunRequest(prompt_id="follow", observer=compose_observers(recorder, self.group.observe))
        with anyio.CancelScope() as scope:
            self.live[number] = (scope, asyncio_task())
            try:
                await self.engine.run(request)
                self.returned += 1
            finally:
                del self.live[number]

    def cancel_some(self) -> None:
        if self.dice.random() >= self.haste:
            return
        for number in self.dice.sample(sorted(self.live), min(len(self.live), self.dice.randrange(3))):
            scope, task = self.live[number]
            way = self.dice.randrange(3 if self.native else 2)
            if way == 2:
                task.cancel()
            elif way == 1:
                scope.cancel()
            else:
                scope.deadline = anyio.current_time()

    async def live_through(self, count: int) -> None:
        """Let so many runs begin, AT_ONCE of them at the same time, and wait for the end of all."""
        natives: list[asyncio.Task[None]] = []
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                if self.native:
                    natives.append(asyncio.ensure_future(self.run(number)))
                else:
                    tasks.start_soon(self.run, number)
                await anyio.lowlevel.checkpoint()
                while len(self.live) >= AT_ONCE or (number == count - 1 and self.live):
                    self.cancel_some()
                    await anyio.lowlevel.checkpoint()
        ends = await asyncio.gather(*natives, return_exceptions=True) if natives else []
        assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}

    def check(self, count: int) -> None:
        """Compare what the runs told with what became of them, and with the totals of the group."""
        assert len(self.recorders) == count
        outcomes: list[str] = []
        usage = NO_USAGE
        finals = []
        for recorder in self.recorders:
            assert isinstance(recorder.events[0], RunStarted)
            final = recorder.events[-1]
            assert isinstance(final, RunFinished)
            told = [event for event in recorder.events if isinstance(event, AttemptFinished)]
            assert sum(isinstance(event, RunFinished) for event in recorder.events) == 1
            assert final.attempts == len(told)
            assert final.usage.input_tokens.complete == all(event.usage.input_tokens.complete for event in told)
            if told:
                assert final.attempts == 1 + final.transient_retries + final.repair_calls
            if final.outcome == "completed":
                assert told[-1].outcome == "completed"
            outcomes.append(final.outcome)
            replied = any(event.outcome == "completed" for event in told)
            usage += final.usage if replied or final.usage != shown(NO_USAGE) else NO_USAGE
            finals.append(final)
        assert set(outcomes) == {"completed", "cancelled"}
        assert outcomes.count("completed") == self.returned

        summary = self.group.snapshot()
        assert summary.terminal_coverage_complete
        assert len(summary.members) == count
        assert (summary.attempts, summary.transient_retries, summary.repair_calls, summary.usage) == (
            sum(final.attempts for final in finals),
            sum(final.transient_retries for final in finals),
            sum(final.repair_calls for final in finals),
            shown(usage),
        )


WAYS = [
    pytest.param("asyncio", False, id="scopes on asyncio"),
    pytest.param("asyncio", True, id="tasks on asyncio"),
    pytest.param("trio", False, id="scopes on trio"),
]
every_way = pytest.mark.parametrize(("anyio_backend", "native"), WAYS)


@every_way
@pytest.mark.parametrize("haste", [1.0, 0.3, 0.05])
async def test_thousands_of_randomly_cancelled_runs_leave_the_full_capacity(haste: float, *, native: bool) -> None:
    count = 1500
    dice = random.Random(3)
    client = Client(dice)
    catalog = small_catalog(max_repairs=2, max_concurrency=CONCURRENCY, max_waiting=AT_ONCE, retry=POLICY)
    engine = engine_in(Still([0.5]), catalog, client=client)
    crowd = Crowd(engine, dice, native=native, haste=haste)
    await crowd.live_through(count)
    crowd.check(count)
    assert client.most == CONCURRENCY
    summary = crowd.group.snapshot()
    assert client.calls == summary.attempts
    assert client.reported == summary.usage.input_tokens.value
    await check_full_capacity(engine, client)


async def check_full_capacity(engine: Engine, client: Client) -> None:
    client.hold = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(CONCURRENCY + AT_ONCE):
            tasks.start_soon(engine.run, RunRequest(prompt_id="more"))
        await anyio.wait_all_tasks_blocked()
        counts = engine.inspect_backend("server")
        assert (counts.running, counts.waiting, client.inside) == (CONCURRENCY, AT_ONCE, CONCURRENCY)
        with pytest.raises(CapacityError):
            await engine.run(RunRequest(prompt_id="more"))
        client.hold.set()
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)


class Moods:
    """Replies of all kinds, some of them in pieces, that never give a run a reason to fail."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lock = threading.Lock()  # each connection has a thread of its own
        self.pause = threading.Event()

    def __call__(self, _: Received, connection: socket.socket) -> None:
        with self.lock:
            mood = self.dice.randrange(6)
        reply = error(503) if mood == 0 else ok("no") if mood == 1 else ok('{"a": 1}')
        if mood == 2:
            connection.sendall(reply[:-5])
            connection.shutdown(2)
        elif mood == 3:
            for start in range(0, len(reply), 60):
                connection.sendall(reply[start : start + 60])
                self.pause.wait(0.0005)
        else:
            connection.sendall(reply)


def established(port: int) -> int:
    """Count the connections to a local port that are open on the client's side."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


@every_way
async def test_hundreds_of_randomly_cancelled_runs_leave_the_pool_of_connections_whole(
    stub: StubServer, *, native: bool
) -> None:
    count = 300
    dice = random.Random(11)
    stub.say(Moods(11))
    policy = RetryPolicy(max_retries=1000)
    catalog = small_catalog(stub.base_url, max_repairs=2, max_concurrency=4, max_waiting=AT_ONCE, retry=policy)
    async with engine_in(Still([0.5]), catalog) as engine:
        crowd = Crowd(engine, dice, native=native, haste=0.02)
        await crowd.live_through(count)
        crowd.check(count)
        events = [event for recorder in crowd.recorders for event in recorder.events]
        answered = [event for event in events if isinstance(event, AttemptFinished) and event.outcome == "completed"]
        assert len(answered) <= len(stub.requests) <= crowd.group.snapshot().attempts
        counts = engine.inspect_backend("server")
        assert (counts.running, counts.waiting) == (0, 0)
        if sys.platform == "linux":
            assert established(urlsplit(stub.base_url).port or 0) <= 4
        stub.say(ok("Rome."))
        for _ in range(10):
            assert (await engine.run(RunRequest(prompt_id="more"))).raw_output == "Rome."
