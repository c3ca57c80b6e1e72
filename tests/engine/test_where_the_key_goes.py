"""The key goes to the backend and nowhere else: to no other server, and into nothing that people see or keep."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import socket
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from promptkit import (
    AttemptTimeoutError,
    AuthenticationError,
    BackendStatusError,
    ConnectError,
    DisconnectedError,
    Engine,
    GenerationError,
    MalformedReplyError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
    RetryPolicy,
    RunRequest,
    Secret,
)
from promptkit.testing import EventRecorder
from servers.dialects import ASK, DIALECTS, Dialect
from servers.stub import StubServer, error, http

if TYPE_CHECKING:
    import logging
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from servers.stub import Received

    Act = Callable[[Received, socket.socket], None]

pytestmark = pytest.mark.anyio

KEY = "sk-MARK-0123456789"
VARIABLE = "PROMPTKIT_TEST_KEY"


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


@pytest.fixture
def other() -> Iterator[StubServer]:
    """Serve at another address."""
    server = StubServer()
    server.say(http(200, b"{}"))
    yield server
    server.close()


@pytest.fixture(autouse=True)
def key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


@contextlib.asynccontextmanager
async def engine_with(
    dialect: Dialect, base_url: str, client: dict[str, Any] | None, **backend: Any
) -> AsyncIterator[Engine]:
    """Give an engine with a client of the caller's, or with its own."""
    async with contextlib.AsyncExitStack() as stack:
        lent = None if client is None else await stack.enter_async_context(httpx.AsyncClient(**client))
        catalog = dialect.catalog(base_url, credential_env=VARIABLE, **backend)
        yield await stack.enter_async_context(Engine(catalog, http_client=lent))


# ------------------------------------------------------------------ to other servers


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("client", [None, {"follow_redirects": True}], ids=["own", "lent"])
async def test_redirects_are_never_followed_and_the_other_server_sees_nothing(
    stub: StubServer, other: StubServer, dialect: Dialect, client: Any, status: int
) -> None:
    stub.say(error(status, "elsewhere", ("location", other.base_url.removesuffix("/v1") + dialect.path)))
    async with engine_with(dialect, stub.base_url, client, retry=RetryPolicy(max_retries=2)) as engine:
        with pytest.raises(BackendStatusError, match="put the final address into the backend's base_url") as raised:
            await engine.run(ASK)
    assert (type(raised.value), raised.value.status, raised.value.transient) == (BackendStatusError, status, False)
    assert [(request.method, request.path) for request in stub.requests] == [("POST", dialect.path)]
    assert other.connections == []


async def test_a_redirect_to_another_path_of_the_same_server_is_not_followed_either(
    stub: StubServer, dialect: Dialect
) -> None:
    stub.say(error(308, "moved", ("location", "/v2" + dialect.path)))
    async with engine_with(dialect, stub.base_url, {"follow_redirects": True}) as engine:
        with pytest.raises(BackendStatusError, match="308"):
            await engine.run(ASK)
    assert len(stub.requests) == 1


async def test_the_key_of_the_environment_goes_to_the_backends_host_whatever_address_a_lent_client_has(
    stub: StubServer, other: StubServer, dialect: Dialect
) -> None:
    stub.say(http(200, dialect.answer))
    lent = {"base_url": other.base_url, "params": {"of": "the client"}}
    async with engine_with(dialect, stub.base_url, lent) as engine:
        await engine.run(ASK)
    assert (stub.requests[0].header(dialect.key_header) or "").endswith(KEY)
    assert other.connections == []


@pytest.mark.parametrize("client", [None, {"trust_env": False}], ids=["own", "lent"])
async def test_a_proxy_of_the_environment_sees_nothing(
    stub: StubServer, other: StubServer, dialect: Dialect, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, other.base_url.removesuffix("/v1"))
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    stub.say(http(200, dialect.answer))
    async with engine_with(dialect, stub.base_url, client) as engine:
        assert (await engine.run(ASK)).raw_output == "Rome."
    assert other.connections == []


async def test_a_proxy_that_the_backend_trusts_is_asked_for_the_backends_host_and_has_its_own_credentials(
    stub: StubServer, other: StubServer, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy reads what goes to a plain http address: with https it sees the host alone.
    monkeypatch.setenv("HTTP_PROXY", other.base_url.removesuffix("/v1").replace("http://", "http://me:pass@"))
    for name in ("http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    other.say(http(200, dialect.answer))
    async with engine_with(dialect, stub.base_url, None, trust_env=True) as engine:
        assert (await engine.run(ASK)).raw_output == "Rome."
    assert stub.connections == []
    assert other.requests[0].path == stub.base_url.removesuffix("/v1") + dialect.path
    assert (other.requests[0].header("proxy-authorization") or "").startswith("Basic ")


@pytest.mark.parametrize("trust_env", [False, True])
async def test_netrc_is_ignored(
    stub: StubServer, dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trust_env: bool
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password of-netrc\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    stub.say(http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url, trust_env=trust_env)) as engine:
        await engine.run(ASK)
        await engine.run(RunRequest(prompt_id="ask", credential=Secret(KEY)))
    first, second = stub.requests
    assert (first.header("authorization"), first.header("x-api-key")) == (None, None)
    assert (second.header(dialect.key_header) or "").endswith(KEY)
    assert "Basic" not in str(second.headers)


async def test_each_dialect_sends_the_key_in_its_own_header_and_no_other(stub: StubServer, dialect: Dialect) -> None:
    stub.say(http(200, dialect.answer))
    async with engine_with(dialect, stub.base_url, None) as engine:
        await engine.run(ASK)
    holding = [name.lower() for name, value in stub.requests[0].headers if KEY in value]
    assert holding == [dialect.key_header]
    assert KEY.encode() not in stub.requests[0].body


# ------------------------------------------------------------------ into what is seen


def echo(status: int, **more: Any) -> bytes:
    """Answer with the key in every field that an error can have."""
    inner = {"message": f"bad {KEY}", "type": KEY, "param": KEY, "code": KEY, "status": KEY, "metadata": {"raw": KEY}}
    body = {"id": KEY, "request_id": KEY, "type": KEY, "object": KEY, "model": KEY, "error": inner, "detail": KEY}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, KEY: KEY}
    listed = [("x-request-id", KEY), ("request-id", KEY), ("set-cookie", KEY)]
    return http(status, json.dumps({**body, "usage": usage, **more}).encode(), *listed)


def cut(_: Received, connection: socket.socket) -> None:
    connection.sendall(http(200, KEY.encode() * 20)[:-9])
    connection.shutdown(socket.SHUT_WR)


def silent(_: Received, connection: socket.socket) -> None:
    connection.recv(1)


FAILURES: dict[type[GenerationError], bytes | Act] = {
    AttemptTimeoutError: silent,
    DisconnectedError: cut,
    BackendStatusError: echo(500),
    AuthenticationError: echo(401),
    RateLimitError: http(429, json.dumps({"error": f"slow down {KEY}"}).encode(), ("retry-after", "3600")),
    QuotaError: echo(402),
    OverloadedError: echo(503),
    RejectedRequestError: echo(422),
    MalformedReplyError: http(200, f"<html>{KEY} {json.dumps(KEY)}".encode(), ("x-request-id", KEY)),
}


def seen(error: GenerationError, caplog: pytest.LogCaptureFixture, recorder: EventRecorder) -> str:
    """Give everything about a failure that people can see: its texts, its fields, its frames, the log, the events."""
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    stack = "".join(str(frame.locals) for frame in frames.stack if frame.filename != __file__)
    log = "".join(f"{record.getMessage()} {record.exc_info}" for record in caplog.records)
    texts = [repr(error), str(error), str(vars(error)), str(error.__notes__ if hasattr(error, "__notes__") else "")]
    events = msgspec.json.encode(recorder.events).decode() + repr(recorder.events)
    return "".join([*texts, stack, log, events, repr(pickle.dumps(error)), "".join(traceback.format_exception(error))])


@pytest.mark.parametrize("cls", [ConnectError, *FAILURES])
@pytest.mark.parametrize("client", [None, {}], ids=["own", "lent"])
async def test_every_failure_of_a_run_is_a_value_that_keeps_its_facts_and_shows_no_key(
    stub: StubServer,
    dialect: Dialect,
    closed_port: int,
    client: Any,
    cls: type[GenerationError],
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(1)
    for name in ("httpx", "httpcore", "anyio", "asyncio", "promptkit"):
        caplog.set_level(1, name)
    caplog.handler.addFilter(_not_what_the_server_wrote)
    base_url = f"http://127.0.0.1:{closed_port}/v1" if cls is ConnectError else stub.base_url
    stub.say(FAILURES.get(cls, b""))
    recorder = EventRecorder()
    retry = RetryPolicy(max_retries=1, base_delay=0.0, max_delay=0.0)
    timeout = 0.05 if cls is AttemptTimeoutError else 30
    async with engine_with(dialect, base_url, client, retry=retry, attempt_timeout=timeout) as engine:
        with pytest.raises(GenerationError) as raised:
            await engine.run(RunRequest(prompt_id="ask", observer=recorder))
    error = raised.value
    assert type(error) is cls
    assert "MARK" not in seen(error, caplog, recorder)
    asked_again = error.transient and cls is not RateLimitError  # its demand is too long
    assert error.attempts == (2 if asked_again else 1)
    assert error.retry_after == (3600 if cls is RateLimitError else None)
    assert error.run_id
    assert error.usage is not None
    for same in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert same == error
        assert vars(same) == vars(error)
        assert str(same) == str(error)


def _not_what_the_server_wrote(record: logging.LogRecord) -> bool:
    """Leave out httpcore's record of the head that came back: it is the server's, and nothing of ours writes it."""
    return not record.getMessage().startswith("receive_response_headers.complete")


async def test_a_key_that_comes_back_in_an_answer_is_in_no_field_but_the_answer(
    stub: StubServer, dialect: Dialect
) -> None:
    body = dialect.answer.replace(b"r-1", KEY.encode()).replace(b"said-model", KEY.encode())
    for reason in (b"stop", b"end_turn"):
        body = body.replace(b'"' + reason + b'"', b'"' + KEY.encode() + b'"')
    stub.say(http(200, body), http(200, body.replace(b'"id"', b'"no"'), ("request-id", KEY)))
    recorder = EventRecorder()
    async with engine_with(dialect, stub.base_url, None) as engine:
        for _ in range(2):
            result = await engine.run(RunRequest(prompt_id="ask", observer=recorder))
            assert result.raw_output == "Rome."
            assert "MARK" not in repr(result) + msgspec.json.encode(result).decode()
    assert "MARK" not in repr(recorder.events)
