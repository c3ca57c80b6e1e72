"""A coordination that is cancelled: at every stage, by everything that cancels, and at every single step."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from promptkit import (
    BackendStatusError,
    CoordinateRequest,
    Coordination,
    Engine,
    Exchange,
    GenerationReply,
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
)
from promptkit.testing import ScriptedClient
from servers.cancelling import LOOPS, MECHANISMS, Struck
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from promptkit import ConversationTurn

pytestmark = pytest.mark.anyio

MORE = RunRequest(prompt_id="more")


def transient() -> BackendStatusError:
    return BackendStatusError("503", status=503, transient=True)


# ---------------------------------------------------------------- stages


STAGES = {  # and whether a completed response is then undelivered
    "terminal observer": True,
    "check before next": True,
    "plain next that blocks and goes on": False,
    "plain next that blocks and stops": False,
    "plain next that blocks and raises": False,
    "async next that swallows it": False,
    "async next that waits": False,
    "check after next": False,
    "queued": False,
    "in flight": False,
    "in backoff": False,
}


class Scene:
    """A coordination in which something strikes at a stage. Its first run completes, but in a stage inside a run."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.inside = stage in {"queued", "in flight", "in backoff"}
        self.strike: Callable[[], object] = lambda: None
        self.struck_after: int | None = None  # that many calls of the model
        self.due = False  # to be struck by another task, on its next turn
        self.completed = self.delivered = 0
        self.free = anyio.Event()
        held = [self._held] if stage == "queued" else []
        answer = self._step if stage in {"in flight", "in backoff"} else "one"
        self.client = ScriptedClient("Rome.", *held, answer, *["afterwards"] * 3)
        policy = RetryPolicy(base_delay=1000.0, max_delay=1000.0) if stage == "in backoff" else RetryPolicy()
        self.engine = Engine(
            small_catalog(max_concurrency=1, max_waiting=int(stage == "queued"), retry=policy), client=self.client
        )

    def struck(self, stage: str) -> None:
        if stage == self.stage and self.struck_after is None:
            self.struck_after = len(self.client.calls)
            self.strike()

    async def _held(self, _: object) -> str:
        await self.free.wait()
        return "held"

    async def _step(self, _: object) -> str:
        if self.stage == "in backoff":
            raise transient()
        self.struck("in flight")
        await anyio.sleep_forever()
        return "never"

    async def watch(self) -> None:
        """Strike from another task."""
        while not (self.due or (self.stage == "queued" and self.engine.inspect_backend("server").waiting)):
            await anyio.lowlevel.checkpoint()
        self.struck(self.stage)

    def observe(self, event: object) -> None:
        if isinstance(event, RetryDelayed):
            self.due = True
        if isinstance(event, RunFinished) and event.outcome == "completed":
            self.completed += 1
            self.struck("terminal observer")
            self.due = self.stage == "check before next"

    def next(self, turn: ConversationTurn) -> RunRequest | Awaitable[RunRequest | None] | None:
        if turn.result is None:
            return MORE
        self.delivered += 1
        if self.stage.startswith("async next"):
            return self.waiting()
        for ending in ("goes on", "stops", "raises"):
            self.struck(f"plain next that blocks and {ending}")
        self.due = self.stage == "check after next"
        if self.stage.endswith("raises"):
            raise ZeroDivisionError
        return None if self.stage.endswith("stops") else MORE

    async def waiting(self) -> RunRequest | None:
        self.struck(self.stage)
        with contextlib.suppress(*([anyio.get_cancelled_exc_class()] if "swallows" in self.stage else [])):
            await anyio.sleep_forever()
        return MORE

    async def start(self) -> Exchange:
        first = await self.engine.run(
            RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)
        )
        return first.exchange

    def coordination(self, start: Exchange) -> Coordination:
        return self.engine.coordinate(
            CoordinateRequest(start=start, additional_turns=3, next=self.next, observer=self.observe)
        )


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("anyio_backend", "mechanism"),
    [pytest.param(LOOPS[loop], mechanism, id=f"{loop}-{mechanism.__name__}") for loop, mechanism in MECHANISMS],
)
async def test_a_cancellation_ends_a_coordination_in_every_phase_and_loses_no_completed_response(
    stage: str, mechanism: Callable[[Struck, Coordination], Awaitable[None]]
) -> None:
    scene = Scene(stage)
    start = await scene.start()
    coordination = scene.coordination(start)
    async with anyio.create_task_group() as others:
        if stage == "queued":
            others.start_soon(scene.engine.run, MORE)
            while scene.engine.inspect_backend("server").running == 0:
                await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as watching:
            watching.start_soon(scene.watch)
            await mechanism(scene, coordination)
            watching.cancel_scope.cancel()
        assert len(scene.client.calls) == scene.struck_after
        scene.free.set()
    result = coordination.result
    assert result.outcome is None
    assert (result.undelivered is not None) == STAGES[stage]
    assert scene.completed == scene.delivered + STAGES[stage] == int(not scene.inside)
    assert result.undelivered is None or result.undelivered.raw_output == "one"
    assert repr(coordination) == "<promptkit.Coordination cancelled>"
    counts = scene.engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)
    again = await scene.engine.run(RunRequest(prompt_id="more", continue_from=start))
    assert again.attempts == 1


# ---------------------------------------------------------------- at every single step


class Driven:
    """Awaits a coordination, and does something at a step of its own choice."""

    def __init__(self, coordination: Coordination, at_step: Callable[[int], object]) -> None:
        self.coordination = coordination
        self.at_step = at_step
        self.steps = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        running = self.coordination.run().__await__()
        resume: Callable[[], Any] = partial(running.send, None)
        while True:
            try:
                waiting = resume()
            except StopIteration as ended:
                return ended.value
            self.at_step(self.steps)
            self.steps += 1
            try:
                resume = partial(running.send, (yield waiting))
            except BaseException as error:  # noqa: BLE001  # a cancellation goes where it belongs
                resume = partial(running.throw, error)


class Busy:
    """An application with retries, nested runs on the same backend, and awaits of its own."""

    def __init__(self) -> None:
        self.completed = 0
        self.delivered = 0
        self.engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=self)

    def observe(self, event: object) -> None:
        if isinstance(event, RunFinished) and event.outcome == "completed":
            self.completed += 1

    async def generate(self, call: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if call.attempt == 1 and len(call.messages) > 3:
            raise transient()
        await anyio.lowlevel.checkpoint()
        return GenerationReply(content="yes")

    async def next(self, turn: ConversationTurn) -> RunRequest | None:
        self.delivered += turn.result is not None
        await self.engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange))
        await anyio.lowlevel.checkpoint()
        return MORE if turn.remaining_turns else None


@pytest.mark.parametrize(
    ("anyio_backend", "mechanism"), [("asyncio", "scope"), ("asyncio", "native"), ("trio", "scope")]
)
async def test_a_cancellation_at_every_single_step_leaves_one_undelivered_response_exactly_when_there_is_one(
    mechanism: str,
) -> None:
    withheld = 0
    for step in itertools.count():
        busy = Busy()
        first = await busy.engine.run(
            RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)
        )
        coordination = busy.engine.coordinate(
            CoordinateRequest(start=first.exchange, additional_turns=2, next=busy.next, observer=busy.observe)
        )
        scope = anyio.CancelScope()
        task: asyncio.Task[Any] | None = None

        def at_step(number: int, step: int = step, scope: anyio.CancelScope = scope) -> None:
            if number == step:
                if mechanism == "scope":
                    scope.cancel()
                else:
                    current = asyncio.current_task()
                    assert current is not None
                    current.cancel()

        async def lead(
            coordination: Coordination = coordination, at_step: Any = at_step, scope: anyio.CancelScope = scope
        ) -> None:
            with scope:
                await Driven(coordination, at_step)

        if mechanism == "native":
            task = asyncio.ensure_future(lead())
            await asyncio.wait([task])
        else:
            await lead()
        result = coordination.result
        assert busy.completed == busy.delivered + (result.undelivered is not None), step
        counts = busy.engine.inspect_backend("server")
        assert (counts.running, counts.waiting) == (0, 0), step
        assert (await busy.engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))).attempts == 2
        withheld += result.undelivered is not None
        if not (scope.cancelled_caught or (task is not None and task.cancelled())):
            assert result.outcome == "stopped"
            assert (busy.completed, busy.delivered) == (2, 2)
            break
        assert result.outcome is None
    assert step > 30
    assert withheld >= 2
