"""A prepared execution: frozen, run once, by its own engine, and keeping nothing that it no longer needs."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import socket
import sys
import threading
import tracemalloc
import weakref
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest

from promptkit import (
    Catalog,
    Engine,
    GenerationCall,
    Message,
    MessageTemplate,
    OutputContract,
    PreparedExecution,
    PromptDefinition,
    RunRequest,
    Secret,
    TextPart,
)
from promptkit._effects.prepared_execution import claimed
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit.errors import ConnectError, GenerationError, PreparedExecutionError, PromptKitError
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import error, http, ok

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptkit import Exchange
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio


def ask(**fields: Any) -> RunRequest:
    return RunRequest(**{"prompt_id": "ask", "variables": {"question": "Where?"}, **fields})


def conversation(turns: int) -> Exchange:
    node = None
    for number in range(turns):
        node = Turn(node, [("user", f"question {number}", None)]).capture(f"r{number}", "answer")
    assert node is not None
    return exchange_of(node)


# ---------------------------------------------------------------- details


async def test_details_are_built_when_they_are_asked_for_and_then_kept() -> None:
    engine = Engine(small_catalog())
    request = ask(continue_from=conversation(2_000))
    await engine.prepare_execution(request)
    tracemalloc.start()
    try:
        execution = await engine.prepare_execution(request)
        _, before = tracemalloc.get_traced_memory()
        details = execution.details
        _, after = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert before < 50_000  # bytes
    assert after > 500_000
    assert execution.details is details
    assert details == await engine.prepare(request)


@pytest.mark.parametrize("read_before", [True, False])
@pytest.mark.parametrize("end", ["run", "fail", "discard"])
async def test_details_read_the_same_before_and_after_execution_and_discard(end: str, *, read_before: bool) -> None:
    engine = Engine(small_catalog(), client=ScriptedClient(ValueError("no") if end == "fail" else "Rome."))
    request = ask(credential=Secret("planted"), session_id="mine", continue_from=conversation(3))
    expected = await engine.prepare(request)
    execution = await engine.prepare_execution(request)
    first = execution.details if read_before else None
    match end:
        case "run":
            await engine.run_prepared(execution)
        case "fail":
            with pytest.raises(ValueError, match="no"):
                await engine.run_prepared(execution)
        case _:
            execution.discard()
    assert execution.details == expected
    assert execution.details is execution.details
    assert first is None or execution.details is first


def reachable(start: object) -> list[object]:
    """Give every object that can be reached, code aside."""
    code = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
    seen: dict[int, object] = {}
    left = [start]
    while left:
        found = left.pop()
        if id(found) not in seen and not isinstance(found, code):
            seen[id(found)] = found
            left.extend(gc.get_referents(found))
    return list(seen.values())


@pytest.mark.parametrize("end", ["run", "discard"])
async def test_details_and_a_handle_that_has_ended_reach_no_secret_and_no_observer(end: str) -> None:
    recorder, secret = EventRecorder(), Secret("planted")
    engine = Engine(small_catalog(), client=ScriptedClient(lambda _: "Rome."))
    request = ask(observer=recorder, credential=secret)
    execution = await engine.prepare_execution(request)
    assert not {id(secret), id(recorder), id(request)} & set(map(id, reachable(execution.details)))
    assert {id(secret), id(recorder), id(request)} <= set(map(id, reachable(execution)))
    if end == "run":
        await engine.run_prepared(execution)
    else:
        execution.discard()
    assert not {id(secret), id(recorder), id(request)} & set(map(id, reachable(execution)))


# ---------------------------------------------------------------- what an end drops


class Observer(EventRecorder):
    """An observer that can be watched, and that may fail."""

    fails_at: str | None = None

    def __call__(self, event: Any) -> None:
        super().__call__(event)
        if type(event).__name__ == self.fails_at:
            message = f"at {self.fails_at}"
            raise LookupError(message)


async def planted(
    engine: Engine, key: str, *, fails_at: str | None = None
) -> tuple[PreparedExecution, weakref.ref[Observer]]:
    """Prepare with an observer and a secret that nobody here keeps."""
    observer = Observer()
    observer.fails_at = fails_at
    execution = await engine.prepare_execution(ask(observer=observer, credential=Secret(key), session_id=key))
    return execution, weakref.ref(observer)


def left_behind(key: str) -> list[str]:
    """Name what is alive of a run: its secret, its request, and what holds one of them."""
    gc.collect()
    found = [
        kept
        for kept in gc.get_objects()
        if (type(kept) is Secret and kept.reveal() == key) or (type(kept) is RunRequest and kept.session_id == key)
    ]
    return [f"{type(kept).__name__} in {[type(holder) for holder in gc.get_referrers(kept)]}" for kept in found]


KEYS = itertools.count()


@pytest.mark.parametrize(
    ("step", "fails_at"),
    [
        pytest.param("Rome.", None, id="success"),
        pytest.param(ConnectError("refused", transient=False), None, id="failure"),
        pytest.param(ConnectError("refused", transient=True), None, id="retries that fail"),
        pytest.param(ZeroDivisionError("mine"), None, id="an error of the client"),
        pytest.param("Rome.", "RunStarted", id="an observer at the start"),
        pytest.param("Rome.", "AttemptFinished", id="an observer after an attempt"),
        pytest.param("Rome.", "RunFinished", id="an observer at the end"),
        pytest.param(ConnectError("refused", transient=False), "RunFinished", id="an observer of a failure"),
    ],
)
async def test_a_run_that_has_ended_keeps_no_secret_observer_or_request(step: Any, fails_at: str | None) -> None:
    key = f"planted-{next(KEYS)}"
    client = ForgetfulClient(step)
    engine = Engine(small_catalog(), client=client)
    execution, observer = await planted(engine, key, fails_at=fails_at)
    assert left_behind(key)
    kept: BaseException | None = None
    try:
        await engine.run_prepared(execution)
    except (PromptKitError, ArithmeticError, LookupError) as error:
        kept = error  # with its traceback, as who reports it would
    assert (kept is None) == (step == "Rome." and fails_at is None)
    assert left_behind(key) == []
    assert observer() is None or fails_at is not None  # one that raises is in the traceback with its own frame
    assert execution.details.session_id == key


@pytest.mark.parametrize("way", ["run", "prepare", "validate_request", "prepare_execution"])
@pytest.mark.parametrize("wrong", [{"prompt_id": "none"}, {"variables": {}}, {"prompt_id": "ask"}])
async def test_an_error_of_a_request_keeps_no_secret_observer_or_request(way: str, wrong: dict[str, Any]) -> None:
    key = f"planted-{next(KEYS)}"
    engine = Engine(small_catalog(), client=ForgetfulClient(ConnectError("refused", transient=False)))
    observer = Observer()
    watched = weakref.ref(observer)
    request = ask(observer=observer, session_id=key, credential=Secret(key), **wrong)
    kept: BaseException | None = None
    try:
        await getattr(engine, way)(request)
    except PromptKitError as error:
        kept = error
    assert (kept is not None) == (way == "run" or wrong != {"prompt_id": "ask"})
    del observer, request
    assert left_behind(key) == []
    assert watched() is None


class ForgetfulClient:
    """A client that keeps nothing of its call, whatever it does."""

    def __init__(self, step: Any) -> None:
        self._step = step

    async def generate(self, call: GenerationCall) -> Any:
        assert call.credential is not None
        del call
        await anyio.lowlevel.checkpoint()
        if isinstance(self._step, BaseException):
            raise self._step
        return await ScriptedClient(self._step).generate(None)  # type: ignore[arg-type]  # it only counts


async def test_a_cancelled_run_keeps_no_secret_observer_or_request() -> None:
    key = f"planted-{next(KEYS)}"
    begun = anyio.Event()

    async def hang(call: GenerationCall | None) -> str:
        del call
        begun.set()
        await anyio.sleep_forever()
        return ""

    class Hanging:
        async def generate(self, call: GenerationCall) -> Any:
            del call
            return await hang(None)

    engine = Engine(small_catalog(), client=Hanging())
    execution, observer = await planted(engine, key)
    kept: list[BaseException] = []

    async def run() -> None:
        try:
            await engine.run_prepared(execution)
        except anyio.get_cancelled_exc_class() as error:
            kept.append(error)
            raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert kept
    assert left_behind(key) == []
    assert observer() is None


async def test_a_discarded_execution_keeps_no_secret_observer_or_request() -> None:
    key = f"planted-{next(KEYS)}"
    execution, observer = await planted(Engine(small_catalog()), key)
    execution.discard()
    assert left_behind(key) == []
    assert observer() is None


@pytest.mark.parametrize("reply", ["ok", "status", "refused", "nonsense", "gone"])
async def test_the_built_in_client_keeps_none_either(stub: StubServer, closed_port: int, reply: str) -> None:
    key = f"planted-{next(KEYS)}"
    stub.say({"ok": ok("Rome."), "status": error(400), "nonsense": http(200, b"{")}.get(reply, b""))
    if reply == "gone":
        stub.say(lambda _, connection: connection.shutdown(socket.SHUT_RDWR))
    url = f"http://127.0.0.1:{closed_port}/v1" if reply == "refused" else stub.base_url
    async with Engine(small_catalog(url)) as engine:
        execution, observer = await planted(engine, key)
        kept: BaseException | None = None
        try:
            await engine.run_prepared(execution)
        except GenerationError as caught:
            kept = caught
        assert (kept is None) == (reply == "ok")
        assert left_behind(key) == []
        assert observer() is None
    if reply != "refused":
        assert stub.requests[0].header("authorization") == f"Bearer {key}"


async def test_a_key_of_the_environment_is_dropped_after_a_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    key = f"planted-{next(KEYS)}"
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", key)
    client = ForgetfulClient(ConnectError("refused", transient=False))
    engine = Engine(small_catalog(credential_env="PROMPTKIT_TEST_KEY"), client=client)
    with pytest.raises(ConnectError) as caught:
        await engine.run(ask())
    assert left_behind(key) == []
    assert caught.value.attempts == 1


# ---------------------------------------------------------------- claims


def test_two_threads_that_claim_at_once_have_exactly_one_winner() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient())
    owner = engine._shared  # noqa: SLF001
    rounds = 300

    async def prepare() -> list[PreparedExecution]:
        return [await engine.prepare_execution(ask()) for _ in range(rounds)]

    executions = anyio.run(prepare)
    barrier = threading.Barrier(3, timeout=10)
    outcomes: list[list[str]] = [[] for _ in executions]

    def claim() -> None:
        for execution, outcome in zip(executions, outcomes, strict=True):
            barrier.wait()
            try:
                claimed(execution, owner)
                outcome.append("claimed")
            except PreparedExecutionError as refusal:
                outcome.append(str(refusal))

    def read() -> None:
        for execution in executions:
            barrier.wait()
            assert execution.details is execution.details

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=target, daemon=True) for target in (claim, claim, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    lost = "this prepared execution has run: make another with prepare_execution"
    assert all(sorted(outcome) == ["claimed", lost] for outcome in outcomes)


def test_a_claim_and_a_discard_at_once_have_exactly_one_winner() -> None:
    engine, other = (Engine(small_catalog(), client=ScriptedClient()) for _ in range(2))
    rounds = 300

    async def prepare() -> list[PreparedExecution]:
        return [await engine.prepare_execution(ask()) for _ in range(rounds)]

    executions = anyio.run(prepare)
    barrier = threading.Barrier(3, timeout=10)
    said: list[str] = []

    def claim() -> None:
        for execution in executions:
            barrier.wait()
            try:
                claimed(execution, engine._shared)  # noqa: SLF001
                said.append("claimed")
            except PreparedExecutionError as refusal:
                said.append(str(refusal))

    def discard() -> None:
        for execution in executions:
            barrier.wait()
            execution.discard()

    def claim_elsewhere() -> None:
        for execution in executions:
            barrier.wait()
            with pytest.raises(PreparedExecutionError):
                claimed(execution, other._shared)  # noqa: SLF001

    threads = [threading.Thread(target=target, daemon=True) for target in (claim, discard, claim_elsewhere)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(said) <= {"claimed", "this prepared execution was discarded: make another with prepare_execution"}
    assert len(said) == rounds
    for execution, outcome in zip(executions, said, strict=True):
        with pytest.raises(PreparedExecutionError, match="has run" if outcome == "claimed" else "was discarded"):
            claimed(execution, engine._shared)  # noqa: SLF001


async def test_two_tasks_that_run_it_have_exactly_one_winner_and_the_other_tells_nothing() -> None:
    recorder, free = EventRecorder(), anyio.Event()

    async def answer(_: GenerationCall) -> str:
        await free.wait()
        return "Rome."

    client = ScriptedClient(answer)
    engine = Engine(small_catalog(), client=client)
    execution = await engine.prepare_execution(ask(observer=recorder))
    outcomes: list[str] = []

    async def run() -> None:
        try:
            outcomes.append((await engine.run_prepared(execution)).raw_output)
        except PreparedExecutionError as refusal:
            outcomes.append(str(refusal))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        assert len(outcomes) == 4
        free.set()
    assert outcomes[-1] == "Rome."
    assert {type(event).__name__ for event in recorder.events} == {"RunStarted", "AttemptFinished", "RunFinished"}
    assert len(recorder.events) == 3
    assert len(client.calls) == 1


async def test_a_foreign_engine_claims_nothing() -> None:
    recorder = EventRecorder()
    engine, other = (Engine(small_catalog(), client=ScriptedClient("Rome.")) for _ in range(2))
    execution = await engine.prepare_execution(ask(observer=recorder))
    for _ in range(3):
        with pytest.raises(PreparedExecutionError, match="another engine"):
            await other.run_prepared(execution)
    assert recorder.events == []
    assert (await engine.run_prepared(execution)).raw_output == "Rome."
    with pytest.raises(PreparedExecutionError, match="has run"):
        await other.run_prepared(execution)


async def test_a_handle_is_made_by_an_engine_only_and_neither_copied_nor_pickled() -> None:
    with pytest.raises(TypeError, match=r"engine\.prepare_execution\(request\) makes one"):
        PreparedExecution(1, 2)
    with pytest.raises(TypeError, match="final"):
        type("Mine", (PreparedExecution,), {})
    execution = await Engine(small_catalog()).prepare_execution(ask())
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            refused(execution)
    assert repr(execution) == str(execution) == "<promptkit.PreparedExecution>"
    assert {name for name in dir(execution) if not name.startswith("_")} == {"details", "discard"}


# ---------------------------------------------------------------- frozen

WIDE = PromptDefinition(
    id="wide",
    messages=(MessageTemplate(role="user", content="{{ v.a[0].b }} {{ v.c }} {{ inputs.text }} {{ inputs.data }}"),),
    variables=("v",),
    inputs=("text", "data"),
)


def _variables() -> tuple[Any, Callable[[], None]]:
    inner: dict[str, Any] = {"b": "as given"}
    given: dict[str, Any] = {"v": {"a": [inner], "c": "c"}}

    def change() -> None:
        inner["b"] = "CHANGED"
        given["v"]["a"].append("CHANGED")
        given["v"]["c"] = "CHANGED"
        given["v"] = "CHANGED"

    return given, change


def _inputs() -> tuple[Any, Callable[[], None]]:
    data = bytearray(b"data")
    given: dict[str, Any] = {"text": "text", "data": memoryview(data)}

    def change() -> None:
        data[:] = b"DATA"
        given["text"] = "CHANGED"

    return given, change


def _appended() -> tuple[Any, Callable[[], None]]:
    parts = [TextPart(text="part")]
    given = [Message(role="user", content=parts)]  # type: ignore[arg-type]  # a list is taken for a tuple

    def change() -> None:
        parts.append(TextPart(text="CHANGED"))
        given.append(Message(role="user", content="CHANGED"))

    return given, change


def _output() -> tuple[Any, Callable[[], None]]:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    given = OutputContract(kind="json_schema", schema=schema)

    def change() -> None:
        schema["properties"]["a"]["type"] = "string"
        schema["CHANGED"] = True

    return given, change


def _fixed(value: object) -> Callable[[], tuple[Any, Callable[[], None]]]:
    """Give a row for a value that cannot be changed: text, booleans and promptkit's own handles."""

    def change() -> None:
        for name in ("CHANGED", "_value", "_node"):
            with pytest.raises((AttributeError, TypeError)):
                setattr(value, name, "CHANGED")

    return lambda: (value, change)


class KeepsEvents:
    """An observer with an attribute, which is the caller's own."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)


GIVEN: dict[str, Callable[[], tuple[Any, Callable[[], None]]]] = {
    "prompt_id": _fixed("wide"),
    "variables": _variables,
    "inputs": _inputs,
    "profile": _fixed("cold"),
    "output": _output,
    "session_id": _fixed("mine"),
    "credential": _fixed(Secret("planted")),
    "appended_messages": _appended,
    "observer": lambda: (KeepsEvents(), lambda: None),
    "capture_exchange": _fixed(True),  # noqa: FBT003
    "continue_from": _fixed(conversation(1)),
}


def test_every_field_of_a_request_has_a_row() -> None:
    assert GIVEN.keys() == set(RunRequest.__struct_fields__)


@pytest.mark.parametrize("prepared", [True, False])
async def test_later_mutation_of_what_the_caller_passed_changes_nothing(stub: StubServer, *, prepared: bool) -> None:
    stub.say(ok('{"a": 1}'))
    catalog = small_catalog(stub.base_url) | Catalog(prompts=[WIDE])
    async with Engine(catalog) as engine:
        untouched = RunRequest(**{name: make()[0] for name, make in GIVEN.items()})
        expected = await engine.prepare(untouched)
        await engine.run(untouched)
        rows = {name: make() for name, make in GIVEN.items()}
        request = RunRequest(**{name: given for name, (given, _) in rows.items()})
        execution = await engine.prepare_execution(request)
        for _, change in rows.values():
            change()
        result = await (engine.run_prepared(execution) if prepared else engine.run(request))
        assert execution.details == expected
    assert stub.requests[0].body == stub.requests[1].body
    assert b"CHANGED" not in stub.requests[1].body
    assert b"as given" in stub.requests[1].body
    assert result.value == {"a": 1}
    assert result.rendered_hash == expected.rendered_hash
    assert "CHANGED" not in repr(result.exchange.details())
    assert result.exchange.details().messages[:-1] == expected.messages
    assert len(rows["observer"][0].events) == 3


async def test_what_a_catalog_was_made_of_can_change_and_it_does_not(stub: StubServer) -> None:
    from promptkit import Backend, Profile

    stub.say(ok("Rome."))
    headers, extra, stop = {"x-team": "given"}, {"metadata": {"a": ["given"]}}, ["given"]
    variables, messages = ["q"], [MessageTemplate(role="user", content="{{ q }}")]
    schemas: dict[str, Any] = {"s": {"properties": {"a": {"type": "integer"}}}}
    made: Any = {
        "backends": [
            Backend(id="b", kind="chat_completions", base_url=stub.base_url, headers=headers, session_parameter="user")
        ],
        "profiles": [Profile(id="f", backend="b", model="m", extra=extra, stop=stop)],  # type: ignore[arg-type]
        "prompts": [PromptDefinition(id="p", messages=messages, variables=variables, profile="f")],  # type: ignore[arg-type]
        "schemas": schemas,
    }
    catalog = Catalog(**made)
    before = msgspec.json.encode([catalog.backends, catalog.profiles, catalog.prompts, catalog.schemas])
    headers["x-team"] = extra["metadata"]["a"][0] = stop[0] = variables[0] = "CHANGED"
    messages.clear()
    schemas["s"]["properties"]["a"]["type"] = "CHANGED"
    for kind in made.values():
        kind.clear()
    assert msgspec.json.encode([catalog.backends, catalog.profiles, catalog.prompts, catalog.schemas]) == before
    async with Engine(catalog) as engine:
        await engine.run(RunRequest(prompt_id="p", variables={"q": "Where?"}))
    assert stub.requests[0].header("x-team") == "given"
    assert stub.requests[0].json["metadata"] == {"a": ["given"]}
    assert stub.requests[0].json["stop"] == ["given"]


# ---------------------------------------------------------------- preparation itself


async def test_preparation_takes_no_capacity_calls_no_model_and_tells_no_event() -> None:
    free, recorder = anyio.Event(), EventRecorder()

    async def answer(_: GenerationCall) -> str:
        await free.wait()
        return "Rome."

    client = ScriptedClient(answer, "Again.")
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=client)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, ask())
        await anyio.wait_all_tasks_blocked()
        await engine.validate_request(ask(observer=recorder))
        await engine.prepare(ask(observer=recorder))
        held = [await engine.prepare_execution(ask(observer=recorder)) for _ in range(5)]
        assert len(client.calls) == 1
        free.set()
    assert recorder.events == []
    assert (await engine.run(ask())).raw_output == "Again."  # the five hold nothing
    assert len(held) == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt_id": "aks"},
        {"prompt_id": "ask", "profile": "none"},
        {"variables": {}},
        {"variables": {"question": None}},
        {"variables": {"question": "x", "other": 1}},
        {"inputs": {"doc": "x"}},
        {"output": OutputContract(kind="json_schema", schema="none")},
        {"output": OutputContract(kind="json_schema", schema={"type": "no"})},
    ],
)
async def test_all_four_ways_refuse_a_request_with_the_same_words(fields: dict[str, Any]) -> None:
    engine = Engine(small_catalog(), client=ScriptedClient())
    request = ask(**fields)
    said = set()
    ways: tuple[Callable[[RunRequest], Awaitable[Any]], ...] = (
        engine.validate_request,
        engine.prepare,
        engine.prepare_execution,
        engine.run,
    )
    for way in ways:
        with pytest.raises(PromptKitError) as caught:
            await way(request)
        said.add((type(caught.value), str(caught.value)))
    assert len(said) == 1
