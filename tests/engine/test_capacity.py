"""Who is admitted to a backend, and who may call it now, seen from outside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from promptkit import (
    AttemptFinished,
    CapacityError,
    Catalog,
    DisconnectedError,
    Engine,
    GenerationCall,
    MessageTemplate,
    PromptDefinition,
    RejectedRequestError,
    RetryDelayed,
    RunFinished,
    RunRequest,
    RunResult,
    RunStarted,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.surroundings import Still, engine_in

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

pytestmark = pytest.mark.anyio

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"})
GONE = DisconnectedError("gone", transient=True)
ALONE: dict[str, Any] = {"max_concurrency": 1, "max_waiting": 0}


def ask(question: str = "Where?", **fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": question}, **fields)


def counts(engine: Engine) -> tuple[int, int]:
    details = engine.inspect_backend("server")
    return details.running, details.waiting


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


def at_once(run: Coroutine[Any, Any, RunResult]) -> RunResult:
    """Give the result of a run that waits for nothing, from inside plain code."""
    try:
        run.send(None)
    except StopIteration as done:
        result: RunResult = done.value
        return result
    run.close()
    msg = "the run waited"
    raise AssertionError(msg)


class Hold:
    """A step that waits until the test lets it go."""

    def __init__(self, answer: Any = "Rome.") -> None:
        self.answer = answer
        self.inside = anyio.Event()
        self.free = anyio.Event()

    async def __call__(self, _: GenerationCall) -> Any:
        self.inside.set()
        await self.free.wait()
        return self.answer


# ---------------------------------------------------------------- a run that is admitted


async def test_with_nobody_allowed_to_wait_a_second_run_is_refused_while_one_is_in_flight() -> None:
    hold = Hold()
    client = ScriptedClient(hold, "Again.")
    engine = Engine(small_catalog(**ALONE), client=client)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ASK)
        await hold.inside.wait()
        with pytest.raises(CapacityError) as raised:
            at_once(engine.run(ASK))
        hold.free.set()
    refused = raised.value
    assert (refused.reason, refused.running, refused.waiting) == ("full", 1, 0)
    assert (refused.attempts, len(client.calls)) == (0, 1)
    assert at_once(engine.run(ASK)).raw_output == "Again."


async def test_and_during_its_backoff() -> None:
    waits, over = anyio.Event(), anyio.Event()

    async def waiting(_: float) -> None:
        waits.set()
        await over.wait()

    engine = engine_in(Still(waiting=waiting), small_catalog(**ALONE), client=ScriptedClient(GONE, "Rome.", "Again."))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ASK)
        await waits.wait()
        with pytest.raises(CapacityError) as raised:
            at_once(engine.run(ASK))
        over.set()
    assert (raised.value.reason, raised.value.running, raised.value.waiting) == ("full", 0, 1)
    assert at_once(engine.run(ASK)).raw_output == "Again."


async def test_and_between_an_answer_and_its_repair() -> None:
    refused: list[CapacityError] = []

    def observer(event: object) -> None:
        if isinstance(event, AttemptFinished):
            with pytest.raises(CapacityError) as raised:
                at_once(engine.run(ASK))
            refused.append(raised.value)

    client = ScriptedClient("no", '{"a": 1}', "Again.")
    engine = Engine(small_catalog(**ALONE), client=client)
    await engine.run(RunRequest(prompt_id="follow", observer=observer))
    assert [(error.reason, error.running, error.waiting) for error in refused] == [("full", 0, 1)] * 2
    assert at_once(engine.run(ASK)).raw_output == "Again."


async def test_a_run_that_is_still_being_prepared_takes_no_capacity() -> None:
    reading, read = anyio.Event(), anyio.Event()

    class Reader:
        async def read(self, path: object, limit: int) -> bytes:
            reading.set()
            await read.wait()
            return b"text"

    prompt = PromptDefinition(
        id="read", inputs=("note",), messages=(MessageTemplate(role="user", content="{{ inputs.note }}"),)
    )
    engine = Engine(
        small_catalog(**ALONE) | Catalog(prompts=[prompt]),
        client=ScriptedClient("Rome.", "Read."),
        input_reader=Reader(),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, RunRequest(prompt_id="read", profile="warm", inputs={"note": Path("note.txt")}))
        await reading.wait()
        assert counts(engine) == (0, 0)
        assert at_once(engine.run(ASK)).raw_output == "Rome."
        read.set()


# ---------------------------------------------------------------- a run that has ended


async def test_a_run_is_never_refused_because_of_one_that_has_ended() -> None:
    inside: list[str] = []

    def observer(event: object) -> None:
        if isinstance(event, RunFinished):
            # One of them is told in a scope that is cancelled.
            with anyio.CancelScope(shield=True):  # noqa: ASYNC100  # the run looks for it, and waits for nothing
                inside.append(at_once(engine.run(ASK)).raw_output)

    async def cancelled(_: GenerationCall) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    ends: list[Any] = ["Rome.", RejectedRequestError("no"), ZeroDivisionError("mine"), KeyboardInterrupt(), cancelled]
    client = ScriptedClient(*(step for end in ends for step in (end, "Next.")))
    engine = Engine(small_catalog(**ALONE), client=client)
    for end in ends:
        with anyio.CancelScope() as scope:
            try:
                await engine.run(ask(observer=observer))
            except (RejectedRequestError, ZeroDivisionError, KeyboardInterrupt) as error:
                assert type(error) is type(end)  # noqa: PT017  # each end has its own
    assert inside == ["Next."] * len(ends)
    assert counts(engine) == (0, 0)


async def test_nor_because_of_one_that_an_observer_ended() -> None:
    steps: list[Any] = [GONE, "Rome."]
    engine = Engine(small_catalog(**ALONE), client=ScriptedClient(*steps * 8))
    for at in (RunStarted, AttemptFinished, RetryDelayed, RunFinished):

        def observer(event: object, at: type = at) -> None:
            if isinstance(event, at):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await engine.run(ask(observer=observer))
        assert counts(engine) == (0, 0)
        assert (await engine.run(ASK)).raw_output == "Rome."


async def test_nor_because_of_one_that_was_refused() -> None:
    hold = Hold()
    engine = Engine(small_catalog(**ALONE), client=ScriptedClient(hold, "Again."))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ASK)
        await hold.inside.wait()
        for _ in range(5):
            with pytest.raises(CapacityError):
                await engine.run(ASK)
        assert counts(engine) == (1, 0)
        hold.free.set()
    assert at_once(engine.run(ASK)).raw_output == "Again."


# ---------------------------------------------------------------- permits


async def test_with_one_allowed_to_wait_a_second_run_uses_the_permit_during_the_firsts_backoff() -> None:
    second: list[RunResult] = []

    async def waiting(_: float) -> None:
        second.append(at_once(engine.run(ask("second"))))
        with pytest.raises(CapacityError) as raised:
            await _two_more()
        assert (raised.value.running, raised.value.waiting) == (1, 1)

    async def _two_more() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ask("third"))
            await hold.inside.wait()
            try:
                at_once(engine.run(ask("fourth")))
            except CapacityError as error:
                refused.append(error)
            hold.free.set()
        raise refused[0]

    refused: list[CapacityError] = []
    hold = Hold("Third.")
    client = ScriptedClient(GONE, "Second.", hold, "First.")
    engine = engine_in(Still(waiting=waiting), small_catalog(max_concurrency=1, max_waiting=1), client=client)
    first = await engine.run(ask("first"))
    assert (first.raw_output, first.attempts) == ("First.", 2)
    assert [result.raw_output for result in second] == ["Second."]


async def test_no_permit_is_held_between_an_answer_and_its_repair() -> None:
    between: list[str] = []

    def observer(event: object) -> None:
        if isinstance(event, AttemptFinished) and event.attempt == 1:
            assert counts(engine) == (0, 1)
            between.append(at_once(engine.run(ASK)).raw_output)

    client = ScriptedClient("no", "Between.", '{"a": 1}')
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=1), client=client)
    result = await engine.run(RunRequest(prompt_id="follow", observer=observer))
    assert between == ["Between."]
    assert (result.validation.status, result.repair_calls) == ("valid", 1)


async def test_permits_are_handed_over_first_come_first_served_although_newcomers_barge_in() -> None:
    served: list[str] = []
    asked: list[str] = []
    hold = Hold()

    class Client:
        async def generate(self, call: GenerationCall) -> Any:
            served.append(str(call.messages[-1].content))
            return await ScriptedClient(hold if len(served) == 1 else "Rome.").generate(call)

    engine = Engine(small_catalog(max_concurrency=1, max_waiting=200), client=Client())

    async with anyio.create_task_group() as tasks:

        async def run(name: str) -> None:
            asked.append(name)
            await engine.run(ask(name, observer=barge if name.startswith("waiter") else None))

        def barge(event: object) -> None:
            if isinstance(event, AttemptFinished):  # the permit has just been given back
                tasks.start_soon(run, f"newcomer {len(asked)}")

        tasks.start_soon(run, "first")
        await hold.inside.wait()
        for number in range(50):
            tasks.start_soon(run, f"waiter {number}")
            await until(lambda count=number: counts(engine) == (1, count + 1))  # type: ignore[misc]
        hold.free.set()
    assert served == asked
    assert served[:51] == ["first", *(f"waiter {number}" for number in range(50))]
    assert len(served) == 101
    assert counts(engine) == (0, 0)


async def test_a_run_that_comes_back_from_its_backoff_is_served_after_those_who_wait() -> None:
    waits, over = anyio.Event(), anyio.Event()
    served: list[str] = []

    async def waiting(_: float) -> None:
        waits.set()
        await over.wait()

    hold = Hold()
    steps: dict[str, list[Any]] = {"first": [GONE, "First."], "second": [hold], "third": ["Third."]}

    class Client:
        async def generate(self, call: GenerationCall) -> Any:
            name = str(call.messages[-1].content)
            served.append(name)
            return await ScriptedClient(steps[name].pop(0)).generate(call)

    engine = engine_in(Still(waiting=waiting), small_catalog(max_concurrency=1, max_waiting=5), client=Client())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ask("first"))
        await waits.wait()
        tasks.start_soon(engine.run, ask("second"))
        await hold.inside.wait()
        tasks.start_soon(engine.run, ask("third"))
        await until(lambda: counts(engine) == (1, 2))
        over.set()
        await anyio.wait_all_tasks_blocked()
        hold.free.set()
    assert served == ["first", "second", "third", "first"]


async def test_a_run_whose_deadline_passed_in_the_queue_while_other_code_blocked_makes_no_attempt() -> None:
    recorder = EventRecorder()
    hold = Hold()

    async def block(call: GenerationCall) -> Any:
        answer = await hold(call)
        scope.deadline = anyio.current_time() + 0.001
        while anyio.current_time() < scope.deadline:
            pass
        return answer  # the permit is handed over before the event loop has seen that the deadline passed

    client = ScriptedClient(block, "Again.", "never")
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=1), client=client)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ASK)
        await hold.inside.wait()
        scope = anyio.CancelScope()

        async def second() -> None:
            with scope:
                await engine.run(ask(observer=recorder))

        tasks.start_soon(second)
        await until(lambda: counts(engine) == (1, 1))
        hold.free.set()
    assert scope.cancelled_caught
    assert len(client.calls) == 1
    assert [type(event) for event in recorder.events] == [RunStarted, RunFinished]
    assert counts(engine) == (0, 0)
    assert at_once(engine.run(ASK)).raw_output == "Again."


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio has seen that it passed before another task can move it
async def test_a_run_whose_deadline_is_moved_at_the_last_moment_asks_for_its_permit_again() -> None:
    passed = anyio.Event()
    seen: list[tuple[int, int]] = []

    def observer(event: object) -> None:
        if isinstance(event, RunStarted):
            scope.deadline = anyio.current_time() + 0.001
            while anyio.current_time() < scope.deadline:
                pass
            passed.set()

    async def move() -> None:
        await passed.wait()
        seen.append(counts(engine))
        scope.deadline = anyio.current_time() + 60

    engine = Engine(small_catalog(**ALONE), client=ScriptedClient("Rome."))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(move)
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            assert (await engine.run(ask(observer=observer))).raw_output == "Rome."
    assert seen == [(0, 1)]  # no permit is held while the run looks whether it is cancelled
    assert counts(engine) == (0, 0)


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize(("concurrency", "waiting"), [(1, 0), (1, 3), (3, 0), (2, 4)])
async def test_a_refusal_has_the_limits_and_the_current_counts(concurrency: int, waiting: int) -> None:
    holds = [Hold() for _ in range(concurrency)]
    client = ScriptedClient(*holds, *["Rome."] * waiting)
    engine = Engine(small_catalog(max_concurrency=concurrency, max_waiting=waiting), client=client)
    recorder = EventRecorder()
    async with anyio.create_task_group() as tasks:
        for number in range(concurrency + waiting):
            tasks.start_soon(engine.run, ASK)
            await until(lambda admitted=number + 1: sum(counts(engine)) == admitted)  # type: ignore[misc]
        with pytest.raises(CapacityError) as raised:
            at_once(engine.run(ask(observer=recorder)))
        for hold in holds:
            hold.free.set()
    refused = raised.value
    assert (refused.running, refused.waiting) == (concurrency, waiting)
    assert (refused.max_concurrency, refused.max_waiting, refused.backend) == (concurrency, waiting, "server")
    assert f"{concurrency} running, {waiting} waiting" in str(refused)
    assert f"max_concurrency {concurrency}, max_waiting {waiting}" in str(refused)
    started, finished = recorder.events
    assert isinstance(started, RunStarted)
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.error, finished.attempts) == ("failed", "CapacityError", 0)
    assert finished.run_id == refused.run_id
    assert finished.usage.input_tokens.complete
