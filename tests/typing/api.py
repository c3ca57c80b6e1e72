"""What a type checker must see of the public API. Checked by basedpyright strict and mypy strict; never run."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import assert_type

import promptkit
from promptkit import (
    Backend,
    BackendDetails,
    BlockingCoordination,
    BlockingEngine,
    Catalog,
    ConversationTurn,
    CoordinateRequest,
    CoordinationResult,
    Engine,
    Exchange,
    ExchangeDetails,
    ExecutionEvent,
    ExecutionGroup,
    ExecutionGroupSummary,
    GenerationCall,
    GenerationReply,
    Message,
    MessageTemplate,
    ModelClient,
    OutputContract,
    PreparedExecution,
    PreparedRun,
    Profile,
    ProfileDetails,
    PromptDefinition,
    PromptDetails,
    RunRequest,
    RunResult,
    Secret,
    Setting,
    TokenCount,
    load_catalog,
    summary_table,
)
from promptkit.coordination import Check, Clear, start, step
from promptkit.testing import (
    EventRecorder,
    Gate,
    ManualClock,
    ScriptedClient,
    assert_prefix_stable,
    no_network,
    with_backend,
)


class Finding:
    """A type to decode into."""


class Mine:
    """A model client of one's own."""

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Answer."""
        assert_type(call.messages, tuple[Message, ...])
        assert_type(call.encoded_messages("chat_completions").messages, bytes)
        return GenerationReply(content=call.profile.model)


def configure() -> Catalog:
    """Configure."""
    catalog = Catalog(
        backends=[Backend(id="b", kind="chat_completions", base_url="http://localhost:8080/v1")],
        profiles=(Profile(id="p", backend="b", model="m", temperature=0),),
        prompts=[
            PromptDefinition(
                id="q",
                messages=(MessageTemplate(role="user", content="{{ x }}", attachments=("photo",)),),
                variables=("x",),
                output=OutputContract.of(Finding, max_repairs=1),
            )
        ],
        schemas={"s": {"type": "object"}},
    )
    assert_type(load_catalog(Path()), Catalog)
    return catalog | catalog


async def converse(catalog: Catalog) -> None:
    """Run, continue, branch, coordinate, count."""
    client: ModelClient = Mine()
    group = ExecutionGroup()
    async with Engine(catalog, client=client) as engine:
        request = RunRequest(
            prompt_id="q",
            variables={"x": ["a", 1, None, {"b": True}]},
            inputs={"text": "inline", "data": b"inline", "file": Path("file.txt")},
            credential=Secret("key"),
            observer=group.observe,
            capture_exchange=True,
        )
        result = await engine.run(request)
        assert_type(result, RunResult)
        assert_type(result.exchange, Exchange)
        assert_type(result.exchange.details(), ExchangeDetails)
        assert_type(result.decode(Finding), Finding)
        assert_type(result.decode(dict[str, int]), dict[str, int])
        assert_type(result.usage.input_tokens, TokenCount)
        assert_type(await engine.prepare(request), PreparedRun)
        execution = await engine.prepare_execution(request)
        assert_type(execution, PreparedExecution)
        assert_type(await engine.run_prepared(execution), RunResult)

        def plain(turn: ConversationTurn) -> RunRequest | None:
            assert_type(turn.result, RunResult | None)
            return request if turn.remaining_turns else None

        async def waiting(turn: ConversationTurn) -> RunRequest | None:
            return plain(turn)

        first = engine.coordinate(CoordinateRequest(start=result.exchange, additional_turns=2, next=plain))
        assert_type(await first, CoordinationResult)
        second = engine.coordinate(CoordinateRequest(start=result.exchange, additional_turns=2, next=waiting))
        assert_type(await second.run(), CoordinationResult)
        assert_type(first.result.outcome == "stopped", bool)
    assert_type(group.snapshot(), ExecutionGroupSummary)
    assert_type(summary_table({"all": group.snapshot()}), str)


def block(catalog: Catalog, request: RunRequest, start: Exchange) -> None:
    """Do the same without an event loop."""
    with BlockingEngine(catalog, client=Mine(), inputs=Path(), max_input_bytes=3) as engine:
        assert_type(engine, BlockingEngine)
        assert_type(engine.scoped("team"), BlockingEngine)
        assert_type(engine.run(request), RunResult)
        assert_type(engine.run(request, timeout=3), RunResult)
        assert_type(engine.prepare(request), PreparedRun)
        assert_type(engine.prepare_execution(request), PreparedExecution)
        assert_type(engine.run_prepared(engine.prepare_execution(request), timeout=0.5), RunResult)
        assert_type(engine.inspect_prompt("q"), PromptDetails)
        assert_type(engine.inspect_profile("p"), ProfileDetails)
        assert_type(engine.inspect_backend("b"), BackendDetails)
        coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=2, next=lambda _: None))
        assert_type(coordination, BlockingCoordination)
        assert_type(coordination.run(timeout=None), CoordinationResult)
        assert_type(coordination.result, CoordinationResult)


async def look(engine: Engine, request: RunRequest) -> None:
    """Narrow and inspect."""
    async with engine.scoped("team").scoped("research") as view:
        assert_type(view, Engine)
        assert_type(await view.run(request), RunResult)
        assert_type(view.inspect_prompt("q"), PromptDetails)
        assert_type(view.inspect_prompt("q").fragments, Mapping[str, str])
        assert_type(view.inspect_profile("p"), ProfileDetails)
        assert_type(view.inspect_profile("p").settings, Mapping[str, Setting])
        assert_type(view.inspect_backend("b"), BackendDetails)
        assert_type(view.inspect_backend("b").running, int)


def observe(event: ExecutionEvent) -> str:
    """Tell events apart: the match is exhaustive."""
    match event:
        case promptkit.RunStarted():
            return event.prompt_id
        case promptkit.AttemptFinished():
            return event.outcome
        case promptkit.RetryDelayed():
            return event.source
        case promptkit.RunFinished():
            return event.outcome


def test_offline() -> None:
    """Use the doubles."""
    recorder = EventRecorder()
    assert_type(recorder.events, list[ExecutionEvent])
    client = ScriptedClient("text", GenerationReply(content="x"), ValueError(), lambda call: call.profile.model)
    assert_type(client.calls, list[GenerationCall])
    begun = start(3)
    if isinstance(begun.command, Check):
        step(begun.state, Clear())


def wrong_uses() -> None:
    """Hold that a checker refuses each of these: an unused ignore is an error."""
    RunRequest("q")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    RunRequest(prompt_id=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Message(role="tool", content="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_kit(engine: Engine, blocking: BlockingEngine, catalog: Catalog) -> None:
    gate = Gate(lambda call: GenerationReply(content=call.run_id))
    with ScriptedClient(gate, "text") as client, no_network(allow_loopback=True):
        await gate.reached(within=1)
        gate.wait_until_reached()
        gate.release()
        assert_type(gate.cancelled, bool)
        assert_prefix_stable(*client.calls)
    with ManualClock(engine, autoadvance=True) as clock:
        clock.advance(await clock.waiting(runs=2))
        assert_type(clock.wait_until_waiting(), float)
        assert_type(clock.waits, list[float])
    assert_type(ManualClock(blocking).now, datetime)
    assert_type(with_backend(catalog, "main", credential_env=None), Catalog)


@no_network()
def decorated(number: int) -> str:
    return str(number)


@no_network()
async def awaited(number: int) -> str:
    return str(number)


async def use_decorated() -> None:
    assert_type(decorated(1), str)
    assert_type(await awaited(1), str)
