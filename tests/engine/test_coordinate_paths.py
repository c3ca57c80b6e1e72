"""Every path of the coordination machine, through an engine: what it decides is what happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest

from promptkit import CoordinateRequest, Engine, GenerationError, RunFinished, RunRequest
from promptkit.coordination import (
    Cancelled,
    Chose,
    Clear,
    Command,
    Completed,
    Finish,
    Input,
    NotInTableError,
    Propagate,
    Raised,
    Withhold,
    start,
    step,
)
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from promptkit import ConversationTurn

pytestmark = pytest.mark.anyio

INPUTS: tuple[Input, ...] = (Clear(), Cancelled(), Chose(stop=True), Chose(stop=False), Raised(), Completed())
MECHANISMS = [
    *((loop, mechanism) for loop in ("asyncio", "trio") for mechanism in ("scope", "deadline", "task group")),
    ("asyncio", "native"),
    ("asyncio", "asyncio.timeout"),
]


def paths(budget: int) -> Iterator[tuple[Input, ...]]:
    """Give every sequence of inputs that leads to an end."""
    open_ones: list[tuple[tuple[Input, ...], Any, Command]] = [((), *start(budget))]
    while open_ones:
        inputs, state, command = open_ones.pop()
        if isinstance(command, Finish | Propagate | Withhold):
            yield inputs
            continue
        for event in INPUTS:
            try:
                reached, following = step(state, event)
            except NotInTableError:
                continue
            open_ones.append(((*inputs, event), reached, following))


class Happened(NamedTuple):
    delivered: list[tuple[str | None, int]]  # each call of the application: the answer, and the turns left
    runs: int
    outcome: str | None
    undelivered: str | None
    left: str  # how it left: "returned", "cancelled", "next", "run"


def expected(budget: int, inputs: tuple[Input, ...]) -> Happened:
    """Read a sequence of inputs as the text of the progression does, without the machine."""
    delivered: list[tuple[str | None, int]] = []
    runs = 0
    pending: str | None = None
    events = iter(inputs)
    while True:
        if next(events) == Cancelled():
            return Happened(delivered, runs, None, pending, "cancelled")
        delivered.append((pending, budget - runs))
        pending = None
        chosen = next(events)
        if next(events) == Cancelled():
            return Happened(delivered, runs, None, None, "cancelled")
        if chosen == Raised():
            return Happened(delivered, runs, None, None, "next")
        if chosen == Chose(stop=True):
            return Happened(delivered, runs, "stopped", None, "returned")
        if runs == budget:
            return Happened(delivered, runs, "exhausted", None, "returned")
        runs += 1
        if next(events) == Raised():
            return Happened(delivered, runs, None, None, "run")
        pending = f"answer {runs}"


class Script:
    """Plays the application, the backend and whoever cancels, as a sequence of inputs has it."""

    def __init__(self, inputs: tuple[Input, ...]) -> None:
        self.inputs = list(inputs)
        self.cancel: Callable[[], object] = lambda: None
        self.delivered: list[tuple[str | None, int]] = []
        self.runs = 0
        self.of_next, self.of_run = ZeroDivisionError("of next"), GenerationError("of the run")

    def check(self) -> None:
        """Take what the next check will find, and see to it that it does."""
        if self.inputs.pop(0) == Cancelled():
            self.cancel()

    def next(self, turn: ConversationTurn) -> RunRequest | None:
        self.delivered.append((None if turn.result is None else turn.result.raw_output, turn.remaining_turns))
        assert turn.result is None or turn.exchange is turn.result.exchange
        chosen = self.inputs.pop(0)
        self.check()
        if chosen == Raised():
            raise self.of_next
        return RunRequest(prompt_id="more", observer=self.observe) if chosen == Chose(stop=False) else None

    def generate(self, _: object) -> str | BaseException:
        self.runs += 1
        return self.of_run if self.inputs.pop(0) == Raised() else f"answer {self.runs}"

    def observe(self, event: object) -> None:
        if isinstance(event, RunFinished) and event.outcome == "completed":
            self.check()


async def happened(budget: int, inputs: tuple[Input, ...], mechanism: str) -> Happened:
    script = Script(inputs)
    client = ScriptedClient("Rome.", *[script.generate] * 4)
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=client)
    first = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True))
    request = CoordinateRequest(start=first.exchange, additional_turns=budget, next=script.next)
    coordination = engine.coordinate(request)
    left = "returned"

    async def lead() -> None:
        nonlocal left
        script.check()
        try:
            await coordination
        except anyio.get_cancelled_exc_class():
            left = "cancelled"
            raise
        except (ZeroDivisionError, GenerationError) as error:
            left = "next" if error is script.of_next else "run" if str(error) == str(script.of_run) else "wrongly"

    await led(mechanism, script, lead)
    assert script.inputs == []
    undelivered = coordination.result.undelivered
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)
    assert len(client.calls) == 1 + script.runs
    return Happened(
        script.delivered,
        script.runs,
        coordination.result.outcome,
        None if undelivered is None else undelivered.raw_output,
        left,
    )


async def led(mechanism: str, script: Script, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let it be cancelled by the mechanism, which must see a cancellation exactly when there was one."""
    cancelled = Cancelled() in script.inputs
    if mechanism == "scope":
        with anyio.CancelScope() as scope:
            script.cancel = scope.cancel
            await lead()
        assert scope.cancelled_caught == cancelled
    elif mechanism == "deadline":
        with anyio.CancelScope() as scope:
            script.cancel = lambda: setattr(scope, "deadline", anyio.current_time())
            await lead()
        assert scope.cancelled_caught == cancelled
    elif mechanism == "task group":
        async with anyio.create_task_group() as tasks:
            script.cancel = tasks.cancel_scope.cancel
            tasks.start_soon(lead)
    elif mechanism == "native":
        task = asyncio.ensure_future(lead())
        script.cancel = task.cancel
        await asyncio.wait([task])
        assert task.cancelled() == cancelled
    else:
        timeout = asyncio.timeout(None)
        with contextlib.suppress(TimeoutError):
            async with timeout:
                script.cancel = lambda: timeout.reschedule(asyncio.get_running_loop().time())
                await lead()
        assert timeout.expired() == cancelled


@pytest.mark.parametrize(("anyio_backend", "mechanism"), MECHANISMS)
@pytest.mark.parametrize("budget", range(4))
async def test_every_path_of_the_machine_is_what_an_engine_does(budget: int, mechanism: str) -> None:
    ways = [inputs for inputs in paths(budget) if Cancelled() in inputs or mechanism == "scope"]
    assert len(ways) == (7 if mechanism == "scope" else 4) * (budget + 1)
    for inputs in ways:
        assert await happened(budget, inputs, mechanism) == expected(budget, inputs), inputs
