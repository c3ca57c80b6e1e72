"""Runs that model clients start: on their own backend, on each other's, from plain, scoped and coordinated calls."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from promptkit import (
    Backend,
    BlockingEngine,
    CapacityError,
    Catalog,
    CoordinateRequest,
    Engine,
    GenerationCall,
    GenerationReply,
    MessageTemplate,
    Profile,
    PromptDefinition,
    RunRequest,
)
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog, team_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

pytestmark = pytest.mark.anyio

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"})
NEVER: dict[str, Any] = {"attempt_timeout": 3600.0}  # a ring would wait until the test times out


def two_backends(**backend: Any) -> Catalog:
    """Give a catalog with a backend "left" and one "right", each with a prompt of its name."""
    names = ("left", "right")
    url = "http://127.0.0.1:1/v1"
    return Catalog(
        backends=[Backend(id=name, kind="chat_completions", base_url=url, **NEVER, **backend) for name in names],
        profiles=[Profile(id=name, backend=name, model="m") for name in names],
        prompts=[
            PromptDefinition(id=name, profile=name, messages=(MessageTemplate(role="user", content=name),))
            for name in names
        ],
    )


def is_free(engine: Engine | BlockingEngine, *backends: str) -> bool:
    details = [engine.inspect_backend(backend) for backend in backends]
    return all((each.running, each.waiting) == (0, 0) for each in details)


# ---------------------------------------------------------------- its own backend


async def plain(engine: Engine) -> str:
    return (await engine.run(ASK)).raw_output


async def scoped(engine: Engine) -> str:
    return (await engine.scoped("team").run(ASK)).raw_output


async def prepared(engine: Engine) -> str:
    return (await engine.run_prepared(await engine.prepare_execution(ASK))).raw_output


async def coordinated(engine: Engine) -> str:
    other = Engine(small_catalog(), client=ScriptedClient("start"))
    start = await other.run(RunRequest(prompt_id="more", capture_exchange=True))
    request = CoordinateRequest(
        start=start.exchange, additional_turns=1, next=lambda turn: ASK if turn.remaining_turns else None
    )
    await engine.coordinate(request)
    return "coordinated"


KINDS = [plain, scoped, prepared, coordinated]


@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("outer", KINDS)
@pytest.mark.parametrize(("concurrency", "waiting"), [(1, 0), (1, 1), (1, 50), (3, 0), (3, 50)])
async def test_a_run_inside_its_own_model_client_that_finds_no_permit_is_re_entrant_however_it_is_started(
    concurrency: int,
    waiting: int,
    outer: Callable[[Engine], Coroutine[Any, Any, str]],
    inner: Callable[[Engine], Coroutine[Any, Any, str]],
) -> None:
    refused: list[CapacityError] = []
    inside = 0
    all_inside, all_refused = anyio.Event(), anyio.Event()

    class Client:
        async def generate(self, _: GenerationCall) -> GenerationReply:
            nonlocal inside
            inside += 1
            if inside == concurrency:
                all_inside.set()
            await all_inside.wait()
            with pytest.raises(CapacityError) as raised:
                await inner(engine)
            refused.append(raised.value)
            if len(refused) == concurrency:
                all_refused.set()
            await all_refused.wait()
            return GenerationReply(content="Rome.")

    engine = Engine(team_catalog(max_concurrency=concurrency, max_waiting=waiting), client=Client())
    async with anyio.create_task_group() as tasks:
        for _ in range(concurrency):
            tasks.start_soon(outer, engine)
    assert len(refused) == concurrency
    for error in refused:
        assert (error.reason, error.attempts) == ("re-entrant", 0)
        assert "give runs inside a model client a backend or an engine of their own" in str(error)
    assert is_free(engine, "server", "team/server")


@pytest.mark.parametrize("contender", KINDS)
@pytest.mark.parametrize("holder", KINDS)
async def test_a_sibling_that_competes_at_concurrency_one_and_waiting_zero_is_refused_until_the_other_has_ended(
    holder: Callable[[Engine], Coroutine[Any, Any, str]], contender: Callable[[Engine], Coroutine[Any, Any, str]]
) -> None:
    inside, free = anyio.Event(), anyio.Event()

    async def hold(_: GenerationCall) -> str:
        inside.set()
        await free.wait()
        return "First."

    engine = Engine(team_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient(hold, "Second."))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(holder, engine)
        await inside.wait()
        with pytest.raises(CapacityError) as raised:
            await contender(engine)
        free.set()
    assert (raised.value.reason, raised.value.running, raised.value.waiting) == ("full", 1, 0)
    assert is_free(engine, "server")
    assert await contender(engine) in ("Second.", "coordinated")


async def test_a_run_inside_its_own_model_client_takes_a_permit_that_is_free() -> None:
    client = ScriptedClient(lambda _: nested(), "Inner.")
    engine = Engine(small_catalog(max_concurrency=2, max_waiting=0), client=client)

    async def nested() -> str:
        return f"Outer. {await plain(engine)}"

    assert await plain(engine) == "Outer. Inner."


# ---------------------------------------------------------------- each other's backends


@pytest.mark.parametrize("waiting", [0, 1, 50])
async def test_of_clients_that_run_on_each_others_backend_one_is_refused_and_the_other_gets_its_answer(
    waiting: int,
) -> None:
    both = anyio.Event()
    inside: list[str] = []
    ended: dict[str, str] = {}

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            name = call.backend.id
            inside.append(name)
            if len(inside) > 2:
                return GenerationReply(content=f"nested {name}")
            if len(inside) == 2:
                both.set()
            await both.wait()
            other = "right" if name == "left" else "left"
            return GenerationReply(content=(await engine.run(RunRequest(prompt_id=other))).raw_output)

    async def run(name: str) -> None:
        try:
            ended[name] = (await engine.run(RunRequest(prompt_id=name))).raw_output
        except CapacityError as error:
            ended[name] = f"{error.reason} at {error.backend}"

    engine = Engine(two_backends(max_concurrency=1, max_waiting=waiting), client=Client())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "left")
        tasks.start_soon(run, "right")
    if waiting:
        assert sorted(end.split()[0] for end in ended.values()) == ["nested", "re-entrant"]
        assert {name for name in ended if ended[name] == f"nested {'right' if name == 'left' else 'left'}"}
    else:  # nobody may wait, so there is no ring
        assert {end.split()[0] for end in ended.values()} <= {"full", "nested"}
    assert is_free(engine, "left", "right")


async def test_many_clients_that_run_on_each_others_backends_all_end() -> None:
    ended: list[str] = []

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            await anyio.lowlevel.checkpoint()
            depth = int(str(call.session_id))
            if depth:
                other = "right" if call.backend.id == "left" else "left"
                try:
                    await engine.run(RunRequest(prompt_id=other, session_id=str(depth - 1)))
                except CapacityError as error:
                    return GenerationReply(content=error.reason)
            return GenerationReply(content="answered")

    engine = Engine(two_backends(max_concurrency=2, max_waiting=200), client=Client())

    async def run(number: int) -> None:
        name = "left" if number % 2 else "right"
        ended.append((await engine.run(RunRequest(prompt_id=name, session_id=str(number % 4)))).raw_output)

    async with anyio.create_task_group() as tasks:
        for number in range(150):
            tasks.start_soon(run, number)
    assert len(ended) == 150
    assert set(ended) == {"answered", "re-entrant"}
    assert is_free(engine, "left", "right")


def test_clients_of_two_engines_in_two_threads_that_run_on_each_other_are_not_stuck() -> None:
    barrier = threading.Barrier(2)
    ended: dict[str, str] = {}

    class Client:
        def __init__(self, other: str) -> None:
            self.other = other

        async def generate(self, call: GenerationCall) -> GenerationReply:
            if call.session_id == "session of nested":
                return GenerationReply(content="nested")
            await asyncio.to_thread(barrier.wait)
            return GenerationReply(content=await asyncio.to_thread(run, self.other, "nested"))

    def run(name: str, question: str) -> str:
        return engines[name].run(RunRequest(prompt_id="ask", variables={"question": question})).raw_output

    def lead(name: str) -> None:
        try:
            ended[name] = run(name, "first")
        except CapacityError as error:
            ended[name] = error.reason

    engines = {
        name: BlockingEngine(small_catalog(max_concurrency=1, max_waiting=5, **NEVER), client=Client(other))
        for name, other in (("left", "right"), ("right", "left"))
    }
    with engines["left"], engines["right"]:
        for _ in range(20):
            threads = [threading.Thread(target=lead, args=(name,)) for name in engines]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert "re-entrant" in ended.values()
            assert set(ended.values()) <= {"re-entrant", "nested"}  # both, if both began to wait at the same time
            assert all(is_free(engine, "server") for engine in engines.values())
