"""A view is its engine under shorter names, and nothing else."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import (
    CapacityError,
    ConversationTurn,
    CoordinateRequest,
    Engine,
    EngineStateError,
    ExecutionEvent,
    InvalidRequestError,
    Message,
    MissingProfileError,
    OutputContract,
    PreparedExecutionError,
    PreparedRun,
    PromptKitError,
    RunFinished,
    RunRequest,
    RunResult,
    RunStarted,
    UnknownBackendError,
    UnknownProfileError,
    UnknownPromptError,
    UnknownSchemaError,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import team_catalog
from servers.stub import StubServer, ok

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"})
NAMESPACES = ("team", "team/research")
NAMES = st.text("ab-.", min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})


@pytest.fixture(scope="module")
def recording() -> Iterator[StubServer]:
    server = StubServer()
    server.say(ok('{"a": 1}'))
    yield server
    server.close()


def contract_of(schema: str | None) -> OutputContract | None:
    return None if schema is None else OutputContract(kind="json_schema", schema=schema)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, RunRequest, RunRequest]:
    """Give a namespace, a request for its view, and the same request with full ids."""
    namespace = draw(st.sampled_from(NAMESPACES))
    prompt = draw(st.sampled_from(["ask", "number", "bare", "missing"]))
    profile = draw(st.sampled_from([None, "warm", "missing"]))
    schema = draw(st.sampled_from([None, "number", "missing"]))
    inline = draw(st.booleans())
    rest: dict[str, Any] = {
        "variables": {"question": draw(st.text(max_size=5))} if prompt in {"ask", "number"} else {},
        "session_id": draw(st.none() | st.text(min_size=1, max_size=3)),
        "appended_messages": draw(st.sampled_from([(), (Message(role="user", content="and"),)])),
        "capture_exchange": draw(st.booleans()),
    }
    full: dict[str, Any] = {
        "prompt_id": f"{namespace}/{prompt}",
        "profile": profile and f"{namespace}/{profile}",
        "output": contract_of(schema and f"{namespace}/{schema}"),
    }
    short: dict[str, Any] = {"prompt_id": prompt, "profile": profile, "output": contract_of(schema)}
    if inline:
        full["output"] = short["output"] = OutputContract(kind="json_schema", schema={"type": "object"})
    return namespace, RunRequest(**short, **rest), RunRequest(**full, **rest)


class Seen:
    """All that a request shows of itself, but for what no two runs share: run ids and times."""

    def __init__(self) -> None:
        self.details: PreparedRun | None = None
        self.result: dict[str, Any] | None = None
        self.refused: list[tuple[type[PromptKitError], str]] = []
        self.events: list[dict[str, Any]] = []

    def note(self, event: ExecutionEvent) -> None:
        shown: dict[str, Any] = msgspec.to_builtins(event)
        self.events.append({k: v for k, v in shown.items() if k not in {"at", "run_id", "duration", "queued"}})

    async def run(self, engine: Engine, request: RunRequest) -> None:
        request = msgspec.structs.replace(request, observer=self.note)
        try:
            self.details = await engine.prepare(request)
        except PromptKitError as error:
            self._refuse(error)
        try:
            shown: dict[str, Any] = msgspec.to_builtins(await engine.run(request))
            self.result = {key: value for key, value in shown.items() if key not in {"run_id", "timing"}}
        except PromptKitError as error:
            self._refuse(error)

    def _refuse(self, error: PromptKitError) -> None:
        self.refused.append((type(error), str(error).partition(": ")[0]))  # what follows is suggested within the view


@settings(max_examples=60, deadline=None)
@given(chosen=requests(), backend=st.sampled_from(["asyncio", "trio"]))
def test_a_request_on_a_view_is_the_request_with_full_ids_on_the_engine(
    recording: StubServer, chosen: tuple[str, RunRequest, RunRequest], backend: str
) -> None:
    namespace, short, full = chosen
    on_view, on_engine = Seen(), Seen()

    async def both() -> None:
        async with Engine(team_catalog(recording.base_url)) as engine:
            await on_view.run(engine.scoped(namespace), short)
            await on_engine.run(engine, full)

    recording.requests.clear()
    anyio.run(both, backend=backend)
    assert vars(on_view) == vars(on_engine)
    assert on_view.events
    bodies = [request.body for request in recording.requests]
    assert len(bodies) == (0 if on_view.refused else 2)
    assert len(set(bodies)) <= 1
    assert on_view.refused in ([], [error for error in on_view.refused[:1] for _ in range(2)])


@given(names=st.lists(NAMES, min_size=1, max_size=5), cuts=st.lists(st.booleans(), min_size=4, max_size=4))
def test_views_nest_however_the_namespace_is_cut(names: list[str], cuts: list[bool]) -> None:
    whole = "/".join(names)
    pieces = [names[0]]
    for cut, name in zip(cuts, names[1:], strict=False):
        if cut:
            pieces.append(name)
        else:
            pieces[-1] += f"/{name}"
    engine = Engine(team_catalog())
    nested = engine
    for piece in pieces:
        nested = nested.scoped(piece)
    with pytest.raises(UnknownPromptError) as by_pieces:
        nested.inspect_prompt("x")
    with pytest.raises(UnknownPromptError) as at_once:
        engine.scoped(whole).inspect_prompt("x")
    assert by_pieces.value == at_once.value
    assert f"there is no prompt '{whole}/x': " in str(at_once.value)


def test_nested_views_reach_what_the_whole_namespace_reaches() -> None:
    engine = Engine(team_catalog())
    nested, at_once = engine.scoped("team").scoped("research"), engine.scoped("team/research")
    assert nested.inspect_prompt("ask") == at_once.inspect_prompt("ask") == engine.inspect_prompt("team/research/ask")
    assert nested.inspect_profile("warm") == engine.inspect_profile("team/research/warm")
    assert nested.inspect_backend("server") == engine.inspect_backend("team/research/server")
    assert engine.scoped("team").inspect_prompt("research/ask") == nested.inspect_prompt("ask")


@pytest.mark.parametrize(
    "namespace", ["", "/", "team/", "/team", "a//b", ".", "..", "team/..", "../x", " team", "te\nam", "\ud800", "\0"]
)
def test_what_is_no_beginning_of_an_id_is_no_namespace(namespace: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^scoped: .*, such as 'team' or 'team/research'$") as refused:
        Engine(team_catalog()).scoped(namespace)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("namespace", [None, 3, b"team", ("team",)])
def test_a_namespace_is_text(namespace: Any) -> None:
    with pytest.raises(InvalidRequestError, match="scoped: Expected a namespace such as 'team', got"):
        Engine(team_catalog()).scoped(namespace)


# ---------------------------------------------------------------- what is unknown


@pytest.mark.parametrize("outside", ["../ask", "/ask", "team/ask", "", ".", "x\ud800\n"])
async def test_an_id_outside_of_the_view_is_an_unknown_id(outside: str) -> None:
    view = Engine(team_catalog(), client=ScriptedClient()).scoped("team")
    with pytest.raises(UnknownPromptError) as unknown:
        view.inspect_prompt(outside)
    assert f"there is no prompt {f'team/{outside}'!r}: " in str(unknown.value)
    assert str(unknown.value).isprintable()
    if "\ud800" not in outside:
        with pytest.raises(UnknownPromptError):
            await view.run(RunRequest(prompt_id=outside))


async def test_an_unknown_id_is_named_in_full_and_the_suggestion_is_of_the_view() -> None:
    view = Engine(team_catalog(), client=ScriptedClient()).scoped("team/research")
    choice = "ids of this view leave out 'team/research/', and its "
    for error, request in (
        (UnknownPromptError, RunRequest(prompt_id="asq")),
        (UnknownProfileError, RunRequest(prompt_id="bare", profile="wrm")),
        (UnknownSchemaError, RunRequest(prompt_id="bare", profile="warm", output=contract_of("nmber"))),
    ):
        with pytest.raises(error) as unknown:
            await view.prepare(request)
        assert "'team/research/" in str(unknown.value).partition(":")[0]
        assert re.search(r": did you mean '(ask|warm|number)'\? ", str(unknown.value))
        assert choice in str(unknown.value)
        assert "'team/ask'" not in str(unknown.value)
        with pytest.raises(error) as by_run:
            await view.run(request)
        assert str(by_run.value) == str(unknown.value)
    with pytest.raises(UnknownBackendError, match=r"did you mean 'server'\?"):
        view.inspect_backend("servr")
    with pytest.raises(MissingProfileError, match=r"'team/research/bare' names no profile.*'warm'$"):
        await view.prepare(RunRequest(prompt_id="bare"))


async def test_the_full_id_in_a_view_is_told_what_to_write_instead() -> None:
    view = Engine(team_catalog(), client=ScriptedClient()).scoped("team/research")
    with pytest.raises(UnknownPromptError, match=r"'team/research/team/research/ask': did you mean 'ask'\?"):
        await view.prepare(RunRequest(prompt_id="team/research/ask"))


def test_what_ids_have_in_common_by_their_namespace_suggests_nothing() -> None:
    with pytest.raises(UnknownPromptError) as unknown:
        Engine(team_catalog()).scoped("team/research").inspect_prompt("zzz")
    assert "did you mean" not in str(unknown.value)


def test_a_view_with_nothing_in_it_says_so() -> None:
    with pytest.raises(UnknownPromptError, match=r"^there is no prompt 'taem/ask': there is no prompt below 'taem/'$"):
        Engine(team_catalog()).scoped("taem").inspect_prompt("ask")


@pytest.mark.parametrize("identifier", [None, 3, b"ask", ["ask"]])
@pytest.mark.parametrize("function", ["inspect_prompt", "inspect_profile", "inspect_backend"])
def test_an_id_is_text(function: str, identifier: Any) -> None:
    for engine in (Engine(team_catalog()), Engine(team_catalog()).scoped("team")):
        with pytest.raises(InvalidRequestError, match=f"{function}: Expected an id, got `{type(identifier).__name__}`"):
            getattr(engine, function)(identifier)


# ---------------------------------------------------------------- what is reported and what crosses


async def test_what_is_reported_has_the_full_id_before_selection_too() -> None:
    recorder = EventRecorder()
    view = Engine(team_catalog(), client=ScriptedClient()).scoped("team")
    with pytest.raises(UnknownPromptError):
        await view.run(RunRequest(prompt_id="missing", observer=recorder))
    started, finished = recorder.events
    assert isinstance(started, RunStarted)
    assert isinstance(finished, RunFinished)
    assert started.prompt_id == finished.prompt_id == "team/missing"


async def test_references_inside_definitions_are_absolute() -> None:
    view = Engine(team_catalog()).scoped("team")
    prepared = await view.prepare(RunRequest(prompt_id="number", variables={"question": ""}))
    assert (prepared.profile, prepared.backend, prepared.model) == ("warm", "server", "model")
    assert isinstance(prepared.output.schema, dict)
    assert prepared.output.schema["description"] == ""


async def test_a_request_is_not_changed_by_the_view_that_takes_it() -> None:
    request = RunRequest(prompt_id="bare", profile="warm", output=contract_of("number"))
    before = msgspec.structs.astuple(request)
    await Engine(team_catalog()).scoped("team").prepare(request)
    assert msgspec.structs.astuple(request) == before


async def test_captured_history_is_the_same_on_the_engine_and_on_every_view() -> None:
    client = ScriptedClient("one", "two", "three")
    engine = Engine(team_catalog(), client=client)
    view = engine.scoped("team")
    first = await view.run(msgspec.structs.replace(ASK, capture_exchange=True))
    second = await engine.run(msgspec.structs.replace(ASK, continue_from=first.exchange))
    third = await view.scoped("research").run(msgspec.structs.replace(ASK, continue_from=second.exchange))
    assert [message.content for message in third.exchange.details().messages] == [
        *("team/: Where?", "one"),
        *(": Where?", "two"),
        *("team/research/: Where?", "three"),
    ]
    assert second.parent_run_id == first.run_id


async def test_a_coordination_on_a_view_resolves_the_requests_of_its_callback_below_it() -> None:
    engine = Engine(team_catalog(), client=ScriptedClient("one", "two", "three"))
    view = engine.scoped("team")
    start = await view.run(msgspec.structs.replace(ASK, capture_exchange=True))
    delivered: list[RunResult | None] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        delivered.append(turn.result)
        return ASK if turn.remaining_turns else None

    await view.coordinate(CoordinateRequest(start=start.exchange, additional_turns=2, next=choose))
    assert [result and result.prompt_id for result in delivered] == [None, "team/ask", "team/ask"]


# ---------------------------------------------------------------- one engine


async def test_a_view_and_its_engine_have_one_capacity() -> None:
    gate, inside = anyio.Event(), anyio.Event()

    async def hold(_: object) -> str:
        inside.set()
        await gate.wait()
        return "done"

    engine = Engine(team_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient(hold, hold))
    view = engine.scoped("team")
    for first, first_id, second, second_id in ((view, "ask", engine, "ask"), (engine, "team/ask", view, "ask")):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.run, msgspec.structs.replace(ASK, prompt_id=first_id))
            await inside.wait()
            with pytest.raises(CapacityError) as refused:
                await second.run(msgspec.structs.replace(ASK, prompt_id=second_id))
            assert (refused.value.backend, refused.value.running) == ("server", 1)
            gate.set()
        gate, inside = anyio.Event(), anyio.Event()


async def test_an_engine_and_its_views_are_one_owner_of_what_is_prepared() -> None:
    engine = Engine(team_catalog(), client=ScriptedClient("one", "two", "three"))
    view, sibling = engine.scoped("team"), engine.scoped("elsewhere")
    for maker, prompt_id, runner in ((engine, "team/ask", view), (view, "ask", engine), (view, "ask", sibling)):
        execution = await maker.prepare_execution(msgspec.structs.replace(ASK, prompt_id=prompt_id))
        with pytest.raises(PreparedExecutionError, match="belongs to another engine"):
            await Engine(team_catalog(), client=ScriptedClient()).scoped("team").run_prepared(execution)
        result = await runner.run_prepared(execution)
        assert result.prompt_id == execution.details.prompt_id == "team/ask"


async def test_closing_a_view_or_leaving_it_closes_nothing(stub: StubServer) -> None:
    stub.say(ok("one"))
    async with Engine(team_catalog(stub.base_url)) as engine:
        async with engine.scoped("team") as view:
            await view.run(ASK)
        await view.aclose()
        assert not stub.disconnected.is_set()
        await view.run(ASK)
        await engine.run(ASK)
    assert len(stub.requests) == 3


async def test_a_view_of_a_closed_engine_runs_nothing_and_still_shows() -> None:
    engine = Engine(team_catalog(), client=ScriptedClient())
    view = engine.scoped("team")
    execution = await view.prepare_execution(ASK)
    await engine.aclose()
    for late in (view, engine.scoped("team"), view.scoped("research")):
        with pytest.raises(EngineStateError, match="closed"):
            await late.run(ASK)
        with pytest.raises(EngineStateError, match="closed"):
            await late.run_prepared(execution)
    assert view.inspect_prompt("ask").id == "team/ask"


async def test_closing_an_engine_waits_for_the_runs_of_its_views() -> None:
    inside, order = anyio.Event(), list[str]()

    async def slow(_: object) -> str:
        inside.set()
        for _step in range(20):
            await anyio.lowlevel.checkpoint()
        order.append("answered")
        return "one"

    engine = Engine(team_catalog(), client=ScriptedClient(slow))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.scoped("team").run, ASK)
        await inside.wait()
        await engine.aclose()
        order.append("closed")
    assert order == ["answered", "closed"]


async def test_an_engine_and_its_views_serve_one_event_loop_at_a_time() -> None:
    inside, over = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with pytest.raises(EngineStateError, match="another event loop"):
            anyio.run(view.run, ASK)

    async def hold(_: object) -> str:
        inside.set()
        await anyio.to_thread.run_sync(over.wait)
        return "one"

    engine = Engine(team_catalog(), client=ScriptedClient(hold))
    view = engine.scoped("team")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ASK)
        await anyio.to_thread.run_sync(inside.wait)
        try:
            await anyio.to_thread.run_sync(elsewhere)
        finally:
            over.set()


def test_an_engine_and_a_view_have_one_constant_repr() -> None:
    engine = Engine(team_catalog("http://secret-host/v1"))
    for shown in (repr(engine), str(engine), repr(engine.scoped("team")), str(engine.scoped("team/research"))):
        assert shown == "<promptkit.Engine>"
