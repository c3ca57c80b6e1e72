"""What the code of other people, model clients and observers, does to a run and cannot do to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from promptkit import (
    AttemptFinished,
    DisconnectedError,
    Engine,
    EngineStateError,
    GenerationCall,
    GenerationError,
    GenerationReply,
    RetryDelayed,
    RunFinished,
    RunRequest,
    RunStarted,
    compose_observers,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import Held, ok

if TYPE_CHECKING:
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

GONE = DisconnectedError("gone", transient=True)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


# ---------------------------------------------------------------- errors of a client that are used again


async def test_an_error_that_a_client_raises_in_two_runs_at_once_tells_each_run_its_own_facts() -> None:
    shared = DisconnectedError("gone", transient=True)
    both = anyio.Event()
    inside = 0

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            nonlocal inside
            inside += 1
            if inside == 2:
                both.set()
            await both.wait()
            raise shared

    engine = Engine(small_catalog(), client=Client())
    recorders = [EventRecorder(), EventRecorder()]
    raised: list[GenerationError] = []

    async def run(recorder: EventRecorder) -> None:
        with pytest.raises(DisconnectedError) as caught:
            await engine.run(ask(observer=recorder))
        raised.append(caught.value)

    async with anyio.create_task_group() as tasks:
        for recorder in recorders:
            tasks.start_soon(run, recorder)
    assert {error.run_id for error in raised} == {recorder.events[0].run_id for recorder in recorders}
    assert [str(error) for error in raised] == ["gone (given up after 3 attempts)"] * 2
    assert (shared.args, shared.run_id, shared.attempts) == (("gone",), None, None)


async def test_an_error_that_a_client_keeps_is_what_it_was_and_what_is_raised_has_all_of_it() -> None:
    class MineError(GenerationError):
        def __init__(self, code: int, hint: str) -> None:
            super().__init__(f"failed with {code}", transient=True, status=500)
            self.code = code
            self.hint = hint

    cause = ValueError("why")
    mine = MineError(7, "wait")
    mine.__cause__ = cause
    mine.add_note("a note")
    before = {**mine.__dict__, "__notes__": ["a note"]}
    engine = Engine(small_catalog(), client=ScriptedClient(*[mine] * 6))
    for _ in range(2):
        with pytest.raises(MineError) as raised:
            await engine.run(ask())
        error = raised.value
        assert str(error) == "failed with 7 (given up after 3 attempts)"
        assert (error.code, error.hint, error.attempts, error.__cause__) == (7, "wait", 3, cause)
        error.add_note("of this run")
        assert error.__notes__ == ["a note", "of this run"]
        assert "generate" in [entry.name for entry in raised.traceback]
    assert (mine.args, mine.__dict__) == (("failed with 7",), before)


async def test_an_error_of_a_class_that_cannot_be_made_again_is_raised_as_it_is() -> None:
    class OddError(GenerationError):
        def __new__(cls, *, code: int) -> Any:
            made = super().__new__(cls)
            made.code = code
            return made

        def __init__(self, *, code: int) -> None:
            super().__init__("odd")

        code: int

    odd = OddError(code=7)
    engine = Engine(small_catalog(), client=ScriptedClient(odd))
    with pytest.raises(OddError, match="odd") as raised:
        await engine.run(ask())
    assert raised.value is odd
    assert (odd.code, odd.attempts) == (7, 1)


async def test_a_group_of_errors_that_a_client_raises_ends_the_run_unchanged() -> None:
    cause = ValueError("why")
    problem = ExceptionGroup("several", [GONE, ZeroDivisionError("mine")])

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            raise problem from cause

    recorder = EventRecorder()
    with pytest.raises(ExceptionGroup) as raised:
        await Engine(small_catalog(), client=Client()).run(ask(observer=recorder))
    assert raised.value is problem
    assert problem.__cause__ is cause
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.error, finished.attempts) == ("failed", "ExceptionGroup", 1)


# ---------------------------------------------------------------- what ends a program

ENDINGS = [KeyboardInterrupt, SystemExit]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_what_ends_a_program_leaves_a_model_client_at_once_and_the_engine_usable(
    ending: type[BaseException],
) -> None:
    recorder = EventRecorder()
    problem = ending("now")
    client = ScriptedClient(GONE, problem, "Rome.")
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=client)
    with pytest.raises(ending) as raised:
        await engine.run(ask(observer=recorder))
    assert raised.value is problem
    assert len(client.calls) == 2
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.error, finished.attempts) == ("failed", ending.__name__, 2)
    assert (await engine.run(ask())).raw_output == "Rome."


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("at", "asked"), [(RunStarted, 0), (AttemptFinished, 1), (RetryDelayed, 1), (RunFinished, 2)])
async def test_what_ends_a_program_leaves_an_observer_at_once_and_no_further_event_is_delivered(
    ending: type[BaseException], at: type, asked: int
) -> None:
    recorder = EventRecorder()
    problem = ending("now")

    def observer(event: object) -> None:
        recorder(event)  # type: ignore[arg-type]
        if isinstance(event, at):
            raise problem

    client = ScriptedClient(GONE, "Rome.", "Rome.", "Rome.")
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=client)
    with pytest.raises(ending) as raised:
        await engine.run(ask(observer=observer))
    assert raised.value is problem
    assert [isinstance(event, at) for event in recorder.events] == [False] * (len(recorder.events) - 1) + [True]
    assert len(client.calls) == asked
    assert (await engine.run(ask())).raw_output == "Rome."
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)


@pytest.mark.parametrize("ending", ENDINGS)
async def test_what_ends_a_program_goes_before_the_cancellation_that_an_observer_is_told_of(
    ending: type[BaseException],
) -> None:
    def observer(event: object) -> None:
        if isinstance(event, AttemptFinished):
            raise ending

    async def wait(_: GenerationCall) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient(wait, "Rome."))
    with pytest.raises(ending):
        with anyio.CancelScope() as scope:
            await engine.run(ask(observer=observer))
    assert (await engine.run(ask())).raw_output == "Rome."


async def test_an_engine_that_is_left_by_what_ends_a_program_is_closed(stub: StubServer) -> None:
    stub.say(ok("Rome."))

    def observer(event: object) -> None:
        if isinstance(event, RunFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        async with Engine(small_catalog(stub.base_url)) as engine:
            await engine.run(ask(observer=observer))
    with pytest.raises(EngineStateError, match="closed"):
        await engine.run(ask())
    assert await anyio.to_thread.run_sync(stub.disconnected.wait, 5)


# ---------------------------------------------------------------- closing


async def test_an_engine_that_is_closed_in_a_cancelled_scope_lets_its_runs_end_and_can_be_closed_again(
    stub: StubServer,
) -> None:
    held = [Held(ok("Rome.")) for _ in range(3)]
    stub.say(*held)
    got: list[str] = []
    engine = Engine(small_catalog(stub.base_url))

    async def run() -> None:
        got.append((await engine.run(ask())).raw_output)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run)
        for reply in held:
            await anyio.to_thread.run_sync(reply.asked.wait)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await engine.aclose()
        assert scope.cancelled_caught
        with pytest.raises(EngineStateError, match="closed"):
            await engine.run(ask())
        for reply in held:
            reply.free.set()
    assert got == ["Rome."] * 3
    await engine.aclose()
    await engine.aclose()
    assert await anyio.to_thread.run_sync(stub.disconnected.wait, 5)


async def test_an_engine_that_is_left_in_a_cancelled_scope_with_its_runs_is_closed(stub: StubServer) -> None:
    held = [Held(ok("Rome.")) for _ in range(3)]
    stub.say(*held)
    recorders = [EventRecorder() for _ in held]
    with anyio.CancelScope() as scope:
        async with Engine(small_catalog(stub.base_url)) as engine, anyio.create_task_group() as tasks:
            for recorder in recorders:
                tasks.start_soon(engine.run, ask(observer=recorder))
            for reply in held:
                await anyio.to_thread.run_sync(reply.asked.wait)
            scope.cancel()
    assert scope.cancelled_caught
    for reply in held:
        reply.free.set()
    assert [recorder.events[-1].outcome for recorder in recorders] == ["cancelled"] * 3  # type: ignore[union-attr]
    with pytest.raises(EngineStateError, match="closed"):
        await engine.run(ask())


# ---------------------------------------------------------------- observers


async def test_nested_runs_inherit_no_observer() -> None:
    recorder = EventRecorder()
    nested: list[str] = []

    async def nest(_: GenerationCall) -> str:
        nested.append((await engine.run(ask())).run_id)
        return "outer"

    engine = Engine(small_catalog(max_concurrency=2), client=ScriptedClient(nest, "inner"))
    result = await engine.run(ask(observer=recorder))
    assert {event.run_id for event in recorder.events} == {result.run_id}
    assert nested != [result.run_id]
    assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished, RunFinished]


async def test_composition_copies_its_arguments_and_calls_each_as_often_as_it_was_given() -> None:
    seen: list[str] = []
    observers: list[Any] = [lambda _: seen.append("a"), None, lambda _: seen.append("b")]
    composed = compose_observers(*observers, observers[0])
    observers[0] = observers[2] = lambda _: seen.append("later")
    await Engine(small_catalog(), client=ScriptedClient("Rome.")).run(ask(observer=composed))
    assert seen == ["a", "b", "a"] * 3


@pytest.mark.parametrize("status", [None, 201])
async def test_an_attempt_has_the_status_that_the_client_gives_its_reply_and_none_otherwise(status: int | None) -> None:
    recorder = EventRecorder()
    client = ScriptedClient(GenerationReply(content="Rome.", status=status))
    await Engine(small_catalog(), client=client).run(ask(observer=recorder))
    attempt = recorder.events[1]
    assert isinstance(attempt, AttemptFinished)
    assert attempt.status == status


async def test_nothing_but_what_a_reply_or_a_generation_error_says_gets_into_an_event() -> None:
    class StrangeError(Exception):
        status = "a text"
        response_id = ("no", "text")

    recorder = EventRecorder()
    with pytest.raises(StrangeError):
        await Engine(small_catalog(), client=ScriptedClient(StrangeError())).run(ask(observer=recorder))
    attempt = recorder.events[1]
    assert isinstance(attempt, AttemptFinished)
    assert (attempt.status, attempt.response_id) == (None, None)
