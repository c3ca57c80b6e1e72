"""Time in the hands of a test: waits before retries end when it says so, and no test sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from promptkit import (
    BlockingEngine,
    Engine,
    GenerationCall,
    GenerationReply,
    OverloadedError,
    RateLimitError,
    RetryDelayed,
    RetryPolicy,
    RunRequest,
)
from promptkit.testing import EventRecorder, ManualClock, ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import error, ok

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.stub import StubServer

pytestmark = pytest.mark.anyio
BUSY = OverloadedError("busy", status=503)
POLICY = RetryPolicy(max_retries=3, base_delay=1.0, max_delay=100.0, max_retry_after=60.0)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


def engine(*steps: Any, **backend: Any) -> Engine:
    return Engine(small_catalog(retry=POLICY, **backend), client=ScriptedClient(*steps))


async def settled() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def test_a_run_waits_until_the_clock_has_been_advanced_by_what_it_waits_for() -> None:
    recorder = EventRecorder()
    tested = engine(BUSY, BUSY, "yes")
    clock = ManualClock(tested)
    outputs: list[str] = []

    async def run() -> None:
        outputs.append((await tested.run(ask(observer=recorder))).raw_output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        assert await clock.waiting() == 1.5
        clock.advance(1.0)
        assert await clock.waiting() == 0.5
        await settled()
        assert clock.waits == [1.5]
        clock.advance(0.5)
        assert await clock.waiting() == 2.5
        assert tested.inspect_backend("server").running == 0
        clock.advance(1000)
    assert outputs == ["yes"]
    assert clock.waits == [1.5, 2.5] == [event.delay for event in recorder.events if isinstance(event, RetryDelayed)]
    assert recorder.events[-1].at == clock.now == datetime(2026, 1, 1, 12, 16, 41, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("chance", "waits"), [(0.0, [1.0, 1.0, 1.0]), (0.5, [1.5, 2.5, 4.5]), (0.75, [1.75, 3.25, 6.25])]
)
async def test_with_autoadvance_every_wait_ends_at_once_and_is_listed(chance: float, waits: list[float]) -> None:
    tested = engine(BUSY, BUSY, BUSY, "yes")
    clock = ManualClock(tested, chance=chance, autoadvance=True)
    result = await tested.run(ask())
    assert clock.waits == pytest.approx(waits)
    assert result.timing.duration == pytest.approx(sum(waits))


async def test_runs_that_wait_at_once_go_on_in_the_order_of_their_instants() -> None:
    demands = {"a": 30.0, "b": 10.0, "c": 20.0, "d": 10.0, "e": 50.0, "f": 40.0, "g": 15.0, "h": 25.0}
    went: list[str] = []

    def answer(call: GenerationCall) -> Any:
        name = str(call.messages[-1].content)
        if call.attempt == 1:
            return RateLimitError("slow down", status=429, retry_after=demands[name])
        went.append(name)
        return "yes"

    script = ScriptedClient(*[answer] * 16)

    class Hesitant:
        """Sometimes lets others go first before it asks, as a client around another one may."""

        async def generate(self, call: GenerationCall) -> GenerationReply:
            for _ in range(5 if call.messages[-1].content in {"b", "c", "a"} else 0):
                await anyio.lowlevel.checkpoint()
            return await script.generate(call)

    tested = Engine(small_catalog(retry=POLICY), client=Hesitant())
    clock = ManualClock(tested, chance=0.0)
    async with anyio.create_task_group() as tasks:
        for number, name in enumerate(demands, 1):
            tasks.start_soon(tested.run, RunRequest(prompt_id="ask", variables={"question": name}))
            assert await clock.waiting(runs=number) == min(list(demands.values())[:number])
        clock.advance(5.0)
        assert await clock.waiting(runs=8) == 5.0
        clock.advance(100.0)
    assert went == ["b", "d", "g", "c", "h", "a", "f", "e"]
    assert clock.waits == list(demands.values())


async def test_a_run_that_is_cancelled_while_it_waits_keeps_nobody_from_going_on() -> None:
    tested = engine(*[BUSY] * 3, "yes", "yes")
    clock = ManualClock(tested)
    scope = anyio.CancelScope()
    done: list[str] = []

    async def run(within: anyio.CancelScope) -> None:
        with within:
            done.append((await tested.run(ask())).raw_output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, scope)
        await clock.waiting(runs=1)
        for number in (2, 3):
            tasks.start_soon(run, anyio.CancelScope())
            await clock.waiting(runs=number)
        clock.advance(1.5)
        scope.cancel()  # the first of those whose time has come
    assert done == ["yes", "yes"]
    assert "0 runs wait" in repr(clock)


async def test_sums_of_fractions_lack_nothing() -> None:
    assert 0.13 + (1.3 - 0.13) < 1.3
    tested = engine(RateLimitError("slow down", status=429, retry_after=1.3), "yes")
    clock = ManualClock(tested, chance=0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tested.run, ask())
        assert await clock.waiting() == 1.3
        clock.advance(0.13)
        clock.advance(await clock.waiting())
    assert clock.waits == [1.3]


async def test_a_second_clock_is_refused_until_the_block_of_the_first_has_ended() -> None:
    tested = engine(BUSY, "yes", BUSY, "yes")
    with ManualClock(tested, autoadvance=True) as first:
        for same in (tested, tested.scoped("team")):
            with pytest.raises(RuntimeError, match="this engine has one already: use that, or leave it before the"):
                ManualClock(same)
        await tested.run(ask())
    with ManualClock(tested, autoadvance=True) as second:
        first.__exit__(None, None, None)  # again: it has no place any more
        await tested.run(ask())
    assert (first.waits, second.waits) == ([1.5], [1.5])
    with pytest.raises(RuntimeError, match="make a new one"), first:
        pass


@pytest.mark.parametrize("failed", [False, True])
async def test_runs_that_wait_when_the_block_ends_go_on_at_once_in_their_order(failed: bool) -> None:  # noqa: FBT001
    demands = {"a": 30.0, "b": 10.0, "c": 20.0}
    went: list[str] = []

    def answer(call: GenerationCall) -> Any:
        name = str(call.messages[-1].content)
        if call.attempt == 1:
            return RateLimitError("slow down", status=429, retry_after=demands[name])
        went.append(name)
        return "yes"

    tested = engine(*[answer] * 6)
    async with anyio.create_task_group() as tasks:
        try:
            with ManualClock(tested, chance=0.0) as clock:
                for number, name in enumerate(demands, 1):
                    tasks.start_soon(tested.run, RunRequest(prompt_id="ask", variables={"question": name}))
                    await clock.waiting(runs=number)
                assert not failed
        except AssertionError:
            assert failed
    assert went == ["b", "c", "a"]


async def test_a_run_that_was_cancelled_as_the_block_ended_makes_no_further_attempt() -> None:
    client = ScriptedClient(BUSY)
    tested = Engine(small_catalog(retry=POLICY), client=client)
    async with anyio.create_task_group() as tasks:
        with ManualClock(tested) as clock:
            tasks.start_soon(tested.run, ask())
            await clock.waiting()
            tasks.cancel_scope.cancel()
    client.assert_exhausted()


async def test_a_run_of_another_thread_that_comes_to_its_wait_just_as_the_block_ends_does_not_wait() -> None:
    tested = engine()
    with ManualClock(tested):
        come = tested._shared.surroundings.sleep(1.5)  # noqa: SLF001  # between its call and its first step
    with anyio.fail_after(5):
        await come


def test_a_thread_that_waits_when_the_block_ends_keeps_no_engine_from_closing() -> None:
    with BlockingEngine(small_catalog(retry=POLICY), client=ScriptedClient(BUSY, "yes")) as tested:
        outputs: list[str] = []
        with ManualClock(tested) as clock:
            thread = in_a_thread(lambda: outputs.append(tested.run(ask()).raw_output))
            clock.wait_until_waiting()
        thread.join()
    assert outputs == ["yes"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_loop_that_ends_just_after_a_wait_holds_up_no_run_on_the_next_loop(
    backend: str,
    cancelled: bool,  # noqa: FBT001
) -> None:
    def answer(call: GenerationCall) -> Any:
        return BUSY if call.attempt == 1 else "yes"

    tested = engine(*[answer] * 4)
    clock = ManualClock(tested)
    outputs: list[str] = []

    async def turned(*, cancelled: bool) -> None:
        async def run() -> None:
            outputs.append((await tested.run(ask())).raw_output)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                clock.advance(await clock.waiting())
                if cancelled:
                    tasks.cancel_scope.cancel()

    for first in (cancelled, False):
        anyio.run(partial(turned, cancelled=first), backend=backend)
    assert outputs == ["yes"] * (1 if cancelled else 2)


def test_a_run_that_was_left_behind_on_a_closed_loop_holds_up_no_other() -> None:
    tested = engine(BUSY, BUSY, "yes")
    clock = ManualClock(tested)
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[Any]:
        task = asyncio.ensure_future(tested.run(ask()))
        await clock.waiting()
        return task

    left = loop.run_until_complete(begin())
    loop.close()

    async def turned() -> str:
        with anyio.fail_after(5):
            task = asyncio.ensure_future(tested.run(ask()))
            await clock.waiting(runs=2)
            clock.advance(1.5)
            return (await task).raw_output

    assert asyncio.run(turned()) == "yes"
    assert not left.done()
    left._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # it is meant to be left
    with contextlib.suppress(RuntimeError):  # its scopes miss their loop
        left.get_coro().close()


async def test_views_share_the_clock_and_other_engines_do_not() -> None:
    tested, other = engine(BUSY, "yes"), engine("yes")
    clock = ManualClock(tested.scoped("team"), autoadvance=True)
    await tested.run(ask())
    assert clock.waits == [1.5]
    assert (await other.run(ask())).timing.started_at > clock.now


async def test_a_retry_after_date_is_counted_from_the_clocks_now(stub: StubServer) -> None:
    stub.say(error(429, "slow", ("retry-after", "Thu, 01 Jan 2026 12:00:40 GMT")), ok("yes"))
    async with Engine(small_catalog(stub.base_url, retry=POLICY)) as tested:
        clock = ManualClock(tested, chance=0.0, autoadvance=True)
        await tested.run(ask())
        assert clock.waits == [40.0]


async def test_leaving_the_block_gives_the_engine_its_own_clock_back_also_to_clients_that_exist(
    stub: StubServer,
) -> None:
    late = ("retry-after", "Fri, 01 Jan 2027 12:00:00 GMT")
    stub.say(error(429, "slow", late), ok("yes"), ok("real"))
    async with Engine(small_catalog(stub.base_url, retry=POLICY)) as tested:
        with ManualClock(
            tested, now=datetime(2027, 1, 1, 11, 59, 30, tzinfo=UTC), chance=0.0, autoadvance=True
        ) as clock:
            await tested.run(ask())
        assert clock.waits == [30.0]
        before = datetime.now(UTC)
        assert before <= (await tested.run(ask())).timing.started_at <= datetime.now(UTC)
        with ManualClock(tested) as second:
            stub.say(ok("manual"))
            assert (await tested.run(ask())).timing.started_at == second.now


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_thread_turns_the_clock_of_a_blocking_engine() -> None:
    outputs: list[str] = []
    with BlockingEngine(small_catalog(retry=POLICY), client=ScriptedClient(BUSY, "yes")) as tested:
        clock = ManualClock(tested)
        thread = in_a_thread(lambda: outputs.append(tested.run(ask()).raw_output))
        clock.advance(clock.wait_until_waiting())
        thread.join()
    assert (outputs, clock.waits) == (["yes"], [1.5])


def test_a_blocking_engine_does_not_sleep_with_autoadvance() -> None:
    late = RateLimitError("slow down", status=429, retry_after=60.0)  # a test is stopped long before
    with BlockingEngine(small_catalog(retry=POLICY), client=ScriptedClient(late, late, late, "yes")) as tested:
        clock = ManualClock(tested.scoped("team"), chance=0.0, autoadvance=True)
        assert tested.run(ask()).timing.duration == 180.0
    assert clock.waits == [60.0, 60.0, 60.0]


async def test_a_run_whose_clock_nobody_advances_is_told_instead_of_hanging() -> None:
    tested = engine(BUSY, "yes", BUSY, "yes")
    with ManualClock(tested, within=0) as clock:
        with pytest.raises(AssertionError, match=r"nobody has advanced its ManualClock for 0 s: .*autoadvance=True"):
            await tested.run(ask())
        assert "0 runs wait" in repr(clock)
    with ManualClock(tested, autoadvance=True, within=0):
        assert (await tested.run(ask())).raw_output == "yes"


@pytest.mark.parametrize("autoadvance", [False, True])
async def test_a_clock_for_which_nothing_can_wait_says_so_at_once(autoadvance: bool) -> None:  # noqa: FBT001
    with ManualClock(engine(), autoadvance=autoadvance) as clock:
        why = "with autoadvance=True: leave that out" if autoadvance else "whose block has ended"
        if not autoadvance:
            clock.__exit__(None, None, None)
        with pytest.raises(AssertionError, match=f"nothing waits for a clock {why}"):
            await clock.waiting(within=inf)
        with pytest.raises(AssertionError, match=f"nothing waits for a clock {why}"):
            clock.wait_until_waiting(within=threading.TIMEOUT_MAX)


async def test_a_run_that_does_not_wait_is_told_instead_of_hanging() -> None:
    clock = ManualClock(engine())
    with pytest.raises(AssertionError, match="0 of 2 runs wait before a retry, after 0 s"):
        await clock.waiting(runs=2, within=0)
    with pytest.raises(AssertionError, match="0 of 1 runs wait before a retry"):
        await anyio.to_thread.run_sync(lambda: clock.wait_until_waiting(within=0))


def test_what_is_no_engine_and_no_time_is_refused() -> None:
    tested = engine()
    with pytest.raises(TypeError, match="Expected an Engine or a BlockingEngine, got `Catalog`"):
        ManualClock(small_catalog())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no time zone"):
        ManualClock(tested, now=datetime(2026, 1, 1))  # noqa: DTZ001
    for chance in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="from 0 to below 1"):
            ManualClock(tested, chance=chance)
    clock = ManualClock(tested, now=datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now == datetime(2026, 1, 1, 1, tzinfo=UTC)
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="0 or more seconds"):
            clock.advance(seconds)
    assert repr(clock) == "<promptkit.testing.ManualClock: 2026-01-01 01:00:00.000000, 0 runs wait>"
