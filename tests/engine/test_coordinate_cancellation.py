"""A coordination that is cancelled: from anywhere, by anything, at every step."""

from __future__ import annotations

import asyncio
import itertools
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
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from promptkit import ConversationTurn

pytestmark = pytest.mark.anyio

MORE = RunRequest(prompt_id="more")
PHASES = ("terminal observer", "inside a callback", "queued", "in flight", "in backoff", "between turns")
MECHANISMS = [
    *((loop, how) for loop in ("asyncio", "trio") for how in ("scope", "deadline", "task group", "KeyboardInterrupt")),
    ("asyncio", "native"),
    ("asyncio", "asyncio.timeout"),
]


def transient() -> BackendStatusError:
    return BackendStatusError("503", status=503, transient=True)


class Scene:
    """A coordination in which ``reached`` becomes true in the phase, and stays so until something cancels it."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.flag = False
        self.recorder = EventRecorder()
        self.delivered: list[str | None] = []
        self.cancel: Callable[[], object] = lambda: None
        self.free = anyio.Event()
        answer = self._step if phase in {"in flight", "in backoff"} else "one"
        held = [self._held] if phase == "queued" else []
        self.client = ScriptedClient("Rome.", *held, answer, "two", "afterwards", "afterwards")
        policy = RetryPolicy(base_delay=1000.0, max_delay=1000.0) if phase == "in backoff" else RetryPolicy()
        self.engine = Engine(
            small_catalog(max_concurrency=1, max_waiting=int(phase == "queued"), retry=policy), client=self.client
        )

    async def _held(self, _: object) -> str:
        await self.free.wait()
        return "held"

    async def _step(self, _: object) -> str:
        if self.phase == "in backoff":
            raise transient()
        self.flag = True
        await anyio.sleep_forever()
        return "never"

    @property
    def reached(self) -> bool:
        if self.phase == "queued":
            return self.engine.inspect_backend("server").waiting == 1
        if self.phase == "in backoff":
            return any(isinstance(event, RetryDelayed) for event in self.recorder.events)
        return self.flag

    def observe(self, event: object) -> None:
        self.recorder(event)  # type: ignore[arg-type]
        if isinstance(event, RunFinished):
            if self.phase == "terminal observer":
                self.cancel()
            self.flag = self.flag or self.phase == "between turns"

    async def next(self, turn: ConversationTurn) -> RunRequest | None:
        self.delivered.append(None if turn.result is None else turn.result.raw_output)
        if self.phase == "inside a callback" and turn.result is not None:
            self.flag = True
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


class Driven:
    """Awaits a coordination, and does something at a step of its own choice."""

    def __init__(self, coordination: Coordination, at_step: Callable[[int], BaseException | None]) -> None:
        self.coordination = coordination
        self.at_step = at_step
        self.steps = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        running = self.coordination.run().__await__()
        given: Any = None
        while True:
            try:
                waiting = running.send(given)
            except StopIteration as ended:
                return ended.value
            thrown = self.at_step(self.steps)
            self.steps += 1
            if thrown is not None:
                running.throw(thrown)
            try:
                given = yield waiting
            except BaseException as error:  # noqa: BLE001  # a cancellation goes where it belongs
                try:
                    waiting = running.throw(error)
                except StopIteration as ended:
                    return ended.value
                given = yield waiting


async def ended_by(mechanism: str, scene: Scene, coordination: Coordination) -> None:
    """Lead it until the mechanism has ended it, and check that it left as what ended it."""

    async def when_reached() -> None:
        while not scene.reached:
            await anyio.lowlevel.checkpoint()
        scene.cancel()

    async with anyio.create_task_group() as outer:
        if mechanism == "KeyboardInterrupt":
            interrupt, left = KeyboardInterrupt(), None
            thrown = iter((interrupt,))
            try:
                await Driven(coordination, lambda _: next(thrown) if scene.reached else None)
            except KeyboardInterrupt as error:
                left = error
            assert left is interrupt
        elif mechanism == "native":
            task = asyncio.ensure_future(coordination.run())
            scene.cancel = lambda: task.cancel("MARK")
            outer.start_soon(when_reached)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
        elif mechanism == "asyncio.timeout":
            with pytest.raises(TimeoutError):  # noqa: PT012  # leaving the block is what raises it
                async with asyncio.timeout(None) as timeout:
                    scene.cancel = lambda: timeout.reschedule(asyncio.get_running_loop().time())
                    outer.start_soon(when_reached)
                    await coordination
        elif mechanism == "task group":
            async with anyio.create_task_group() as tasks:
                scene.cancel = tasks.cancel_scope.cancel
                outer.start_soon(when_reached)
                tasks.start_soon(coordination.run)
        else:
            with anyio.CancelScope() as scope:
                scene.cancel = (
                    scope.cancel if mechanism == "scope" else lambda: setattr(scope, "deadline", anyio.current_time())
                )
                outer.start_soon(when_reached)
                await coordination
            assert scope.cancelled_caught
        outer.cancel_scope.cancel()


@pytest.mark.parametrize(("anyio_backend", "mechanism"), MECHANISMS)
@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancellation_ends_a_coordination_in_every_phase_and_loses_no_completed_response(
    phase: str, mechanism: str
) -> None:
    scene = Scene(phase)
    if mechanism == "KeyboardInterrupt" and phase == "terminal observer":
        scene.phase = phase = "between turns"  # what an observer raises itself ends the run instead
    start = await scene.start()
    coordination = scene.coordination(start)
    async with anyio.create_task_group() as others:
        if phase == "queued":
            others.start_soon(scene.engine.run, MORE)
            while scene.engine.inspect_backend("server").running == 0:
                await anyio.lowlevel.checkpoint()
        await ended_by(mechanism, scene, coordination)
        scene.free.set()
    withheld = phase in {"terminal observer", "between turns"}
    assert coordination.result.outcome is None
    assert (coordination.result.undelivered and coordination.result.undelivered.raw_output) == (
        "one" if withheld else None
    )
    assert scene.delivered == ([None, "one"] if phase == "inside a callback" else [None])
    terminals = [event.outcome for event in scene.recorder.events if isinstance(event, RunFinished)]
    completed = withheld or phase == "inside a callback"
    interrupted = "failed" if mechanism == "KeyboardInterrupt" else "cancelled"
    assert terminals == ["completed" if completed else interrupted]
    counts = scene.engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)
    scene.client._steps[len(scene.client.calls) :] = ["afterwards"]  # noqa: SLF001  # whatever was asked before
    again = await scene.engine.run(RunRequest(prompt_id="more", continue_from=start))
    assert again.raw_output == "afterwards"


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
        from promptkit import GenerationReply

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
