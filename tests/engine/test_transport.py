"""The HTTP side: what a lying server, a foreign client or an environment can do to a run."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
import threading
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

import promptkit
from promptkit import (
    AuthenticationError,
    BackendStatusError,
    Catalog,
    ConnectError,
    DisconnectedError,
    Engine,
    EngineStateError,
    InputError,
    MalformedReplyError,
    Message,
    OverloadedError,
    RateLimitError,
    RetryPolicy,
    RunRequest,
    Secret,
)
from promptkit._effects import connections
from promptkit.errors import InvalidRequestError
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import Held, completion, error, http, ok

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

BODY = json.dumps(completion("Rome.")).encode()
ONCE = RetryPolicy(max_retries=0)
PACKAGE = str(Path(promptkit.__file__).parent)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


# ---------------------------------------------------------------- replies


class BadlyClosing(httpx.AsyncBaseTransport):
    """Answers with a whole reply whose closing fails."""

    def __init__(self, problem: Exception, *, whole: bool = True) -> None:
        self._problem = problem
        self._whole = whole

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        problem, whole = self._problem, self._whole

        class Stream(httpx.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield BODY if whole else b"{"
                if not whole:
                    msg = "peer closed connection"
                    raise httpx.RemoteProtocolError(msg)

            async def aclose(self) -> None:
                raise problem

        return httpx.Response(200, stream=Stream(), request=request)


@pytest.mark.parametrize("problem", [httpx.ReadError("x"), OSError("x"), RuntimeError("x")])
async def test_a_reply_in_hand_is_kept_when_closing_the_response_fails(problem: Exception) -> None:
    async with httpx.AsyncClient(transport=BadlyClosing(problem)) as client:
        result = await Engine(small_catalog(), http_client=client).run(ask())
    assert (result.raw_output, result.attempts) == ("Rome.", 1)


async def test_a_failed_closing_does_not_hide_what_failed_first() -> None:
    async with httpx.AsyncClient(transport=BadlyClosing(RuntimeError("x"), whole=False)) as client:
        engine = Engine(small_catalog(retry=ONCE), http_client=client)
        with pytest.raises(Exception, match="lost before the whole reply"):
            await engine.run(ask())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_the_status_counts_when_the_body_of_an_error_cannot_be_unpacked(stub: StubServer, encoding: str) -> None:
    stub.say(
        http(503, b"plain", ("content-encoding", encoding), ("retry-after", "3600")),
        http(401, b"", ("content-encoding", encoding)),
    )
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(OverloadedError) as raised:
            await engine.run(ask())
        assert (raised.value.transient, raised.value.retry_after) == (True, 3600)
        with pytest.raises(AuthenticationError):
            await engine.run(ask())


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(BODY)),
        ("gzip", gzip.compress(BODY[:40]) + gzip.compress(BODY[40:])),
        ("deflate", zlib.compress(BODY)),
        ("deflate", zlib.compress(BODY, wbits=-15)),
        ("identity", BODY),
    ],
)
async def test_a_packed_reply_is_read(stub: StubServer, encoding: str, packed: bytes) -> None:
    stub.say(http(200, packed, ("content-encoding", encoding)))
    async with Engine(small_catalog(stub.base_url)) as engine:
        assert (await engine.run(ask())).raw_output == "Rome."


@pytest.mark.parametrize(
    ("encoding", "packed", "says"),
    [
        ("gzip", b"plain", "does not describe"),
        ("gzip", gzip.compress(BODY)[:-9], "does not describe"),
        ("br", b"x", "was not asked for"),
        ("gzip", gzip.compress(b" " * (65 * 2**20)), "unpacks to more than"),
        ("identity", b" " * (64 * 2**20 + 1), "more than 67,108,864 bytes"),
    ],
    ids=["plain", "cut", "foreign", "bomb", "endless"],
)
async def test_a_body_that_cannot_be_taken_is_malformed(
    stub: StubServer, encoding: str, packed: bytes, says: str
) -> None:
    stub.say(http(200, packed, ("content-encoding", encoding)))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(MalformedReplyError, match=says):
            await engine.run(ask())
    assert len(stub.requests) == 1


async def test_a_server_that_does_not_speak_http_is_told_from_a_lost_connection(stub: StubServer) -> None:
    stub.say(b"SSH-2.0-Server\r\n\r\n")
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(MalformedReplyError, match=r"does not answer in HTTP: check base_url"):
            await engine.run(ask())
    assert len(stub.requests) == 1


def cut(status: int, *headers: str) -> Any:
    """Give a reply whose head promises more than comes."""

    def reply(_: object, connection: socket.socket) -> None:
        head = [f"HTTP/1.1 {status} Said", "content-length: 400", *headers]
        connection.sendall("\r\n".join(head).encode() + b'\r\n\r\n{"error":')
        connection.shutdown(socket.SHUT_WR)

    return reply


async def test_the_status_counts_when_the_body_of_an_error_is_cut(stub: StubServer) -> None:
    stub.say(cut(401), cut(429, "retry-after: 3600"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(AuthenticationError):
            await engine.run(ask())
        with pytest.raises(RateLimitError) as raised:
            await engine.run(ask())
    assert (raised.value.status, raised.value.retry_after, raised.value.attempts) == (429, 3600, 1)
    assert len(stub.requests) == 2


async def test_a_cut_answer_is_a_lost_connection_with_its_status(stub: StubServer) -> None:
    stub.say(cut(200))
    async with Engine(small_catalog(stub.base_url, retry=ONCE)) as engine:
        with pytest.raises(DisconnectedError) as raised:
            await engine.run(ask())
    assert (raised.value.status, raised.value.transient) == (200, True)


async def test_a_body_that_cannot_be_unpacked_is_shown_bounded_with_its_status(stub: StubServer) -> None:
    stub.say(http(200, b"plain text " * 500, ("content-encoding", "gzip")))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(MalformedReplyError) as raised:
            await engine.run(ask())
    assert raised.value.status == 200
    assert (raised.value.excerpt or "").startswith("plain text plain")
    assert len(raised.value.excerpt or "") <= 200


@pytest.mark.parametrize("base_url", ["http://256.1.1.1/v1", "http://xn--a.invalid/v1"])
async def test_an_address_that_the_library_refuses_is_a_request_that_was_never_sent(base_url: str) -> None:
    async with Engine(small_catalog(base_url)) as engine:
        with pytest.raises(ConnectError, match=r"cannot be sent: \w+; check base_url") as raised:
            await engine.run(ask())
    assert (raised.value.transient, raised.value.attempts) == (False, 1)
    usage = raised.value.usage
    assert usage is not None
    assert (usage.input_tokens.value, usage.input_tokens.complete) == (0, True)


async def test_connections_that_a_burst_needed_are_closed_when_they_are_not_used_any_more(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptkit._effects.connections.KEPT", 0.0)
    together = threading.Barrier(20)

    def at_the_same_time(_: object, connection: socket.socket) -> None:
        together.wait(15)
        connection.sendall(ok("Rome."))

    stub.say(*[at_the_same_time] * 20, ok("Rome."))
    async with Engine(small_catalog(stub.base_url, max_concurrency=20)) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(engine.run, ask())
        assert len(stub.connections) == 20
        await engine.run(ask())
        while stub.left < 12:  # noqa: ASYNC110  # all but those of the first pool; they close in other threads
            await anyio.sleep(0.001)
        assert (await engine.run(ask())).raw_output == "Rome."
    assert len(stub.connections) == 20


# ---------------------------------------------------------------- clients


@pytest.mark.parametrize("auth", [("u", "p"), None])
async def test_the_key_goes_before_what_a_client_of_the_caller_would_send(stub: StubServer, auth: Any) -> None:
    stub.say(ok("Rome."))
    async with httpx.AsyncClient(auth=auth) as client:
        await Engine(small_catalog(stub.base_url), http_client=client).run(ask(credential=Secret("sk-MINE")))
    assert stub.requests[0].header("authorization") == "Bearer sk-MINE"


async def test_a_client_of_the_caller_keeps_its_own_credentials_where_there_is_no_key(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    async with httpx.AsyncClient(auth=("u", "p"), headers={"x-own": "1"}) as client:
        await Engine(small_catalog(stub.base_url), http_client=client).run(ask())
    assert stub.requests[0].header("authorization") == "Basic dTpw"
    assert stub.requests[0].header("x-own") == "1"


async def test_a_closed_client_of_the_caller_is_named() -> None:
    client = httpx.AsyncClient()
    await client.aclose()
    with pytest.raises(EngineStateError, match="http_client given to this engine is closed"):
        await Engine(small_catalog(), http_client=client).run(ask())


async def test_whatever_a_client_of_the_caller_raises_is_not_seen_as_itself() -> None:
    class Broken(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise self.problem

        problem: Exception = RuntimeError("Event loop is closed")

    transport = Broken()
    async with httpx.AsyncClient(transport=transport) as client:
        engine = Engine(small_catalog(), http_client=client)
        with pytest.raises(EngineStateError, match="used on another event loop"):
            await engine.run(ask())
        transport.problem = KeyError("secret")
        with pytest.raises(Exception, match="cannot be sent: KeyError") as raised:
            await engine.run(ask())
    assert raised.value.__context__ is None


@pytest.mark.parametrize("read", ["aread", "aiter_bytes"])
async def test_a_reply_that_a_hook_of_the_callers_client_has_read_is_taken_from_it(stub: StubServer, read: str) -> None:
    async def log(response: httpx.Response) -> None:
        if read == "aread":
            await response.aread()
        else:
            async for _ in response.aiter_bytes():
                pass

    packed = gzip.compress(BODY)
    stub.say(ok("Rome."), http(200, packed, ("content-encoding", "gzip")), error(401))
    async with httpx.AsyncClient(event_hooks={"response": [log]}) as client:
        engine = Engine(small_catalog(stub.base_url, retry=ONCE), http_client=client)
        if read == "aread":
            assert [(await engine.run(ask())).raw_output for _ in range(2)] == ["Rome.", "Rome."]
        else:
            for _ in range(2):
                with pytest.raises(MalformedReplyError, match="the body is empty"):  # nobody kept it
                    await engine.run(ask())
        with pytest.raises(AuthenticationError):
            await engine.run(ask())


async def test_a_hook_that_raises_for_a_status_does_not_hide_the_status(stub: StubServer) -> None:
    async def strict(response: httpx.Response) -> None:
        await anyio.lowlevel.checkpoint()
        response.raise_for_status()

    stub.say(error(500), http(429, b"{}", ("retry-after", "3600")))
    async with httpx.AsyncClient(event_hooks={"response": [strict]}) as client:
        engine = Engine(small_catalog(stub.base_url, retry=ONCE), http_client=client)
        with pytest.raises(BackendStatusError) as raised:
            await engine.run(ask())
        assert (raised.value.status, raised.value.transient) == (500, True)
        assert raised.value.usage is not None
        assert not raised.value.usage.input_tokens.complete
        with pytest.raises(RateLimitError) as limited:
            await engine.run(ask())
        assert limited.value.retry_after == 3600


class OddlyClosing(httpx.AsyncBaseTransport):
    """Answers with a whole reply whose closing has a time limit or tasks of its own, or never ends."""

    def __init__(self, how: str) -> None:
        self._how = how

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        how = self._how

        class Stream(httpx.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield BODY

            async def aclose(self) -> None:
                if how == "a time limit":
                    with anyio.move_on_after(0.01):
                        await anyio.sleep_forever()
                elif how == "a failing task":
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(anyio.sleep_forever)
                        tasks.start_soon(self.fail)
                else:
                    await anyio.sleep_forever()

            async def fail(self) -> None:
                raise OSError(how)

        return httpx.Response(200, stream=Stream(), request=request)


@pytest.mark.parametrize("how", ["a time limit", "a failing task", "no end"])
async def test_a_closing_with_limits_and_tasks_of_its_own_ends_and_keeps_the_reply(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptkit._effects.connections.CLOSING", 0.05)
    async with httpx.AsyncClient(transport=OddlyClosing(how)) as client:
        result = await Engine(small_catalog(), http_client=client).run(ask())
    assert (result.raw_output, result.attempts) == ("Rome.", 1)


async def test_the_status_counts_when_the_body_of_an_error_never_comes(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptkit._effects.http_transport.ERROR_BODY", 0.02)

    def stall(_: object, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 401 No\r\ncontent-length: 100\r\n\r\n")

    stub.say(stall)
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(AuthenticationError):
            await engine.run(ask())
    assert len(stub.requests) == 1


# ---------------------------------------------------------------- secrets


@pytest.mark.parametrize("encoding", ["br", "gzip", "sk-MARK"])
async def test_a_body_that_cannot_be_unpacked_shows_no_key(stub: StubServer, encoding: str) -> None:
    stub.say(http(200, b'{"you sent": "Bearer sk-MARK"}', ("content-encoding", encoding)))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(MalformedReplyError) as raised:
            await engine.run(ask(credential=Secret("sk-MARK")))
    assert raised.value.excerpt == '{"you sent": "Bearer ***"}'
    assert "mark" not in repr(raised.value).lower()


async def test_no_frame_of_a_failure_holds_the_key(closed_port: int, stub: StubServer) -> None:
    stub.say(error(401, "bad key sk-MARK"))
    for url in (f"http://127.0.0.1:{closed_port}/v1", stub.base_url):
        async with Engine(small_catalog(url, retry=ONCE)) as engine:
            with pytest.raises(Exception) as raised:  # noqa: PT011  # which one is not the point
                await engine.run(ask(credential=Secret("sk-MARK")))
        shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
        own_frames = [frame for frame in shown.stack if frame.filename.startswith(PACKAGE)]
        assert own_frames
        assert "MARK" not in "".join(str(frame.locals) for frame in own_frames)
        assert "MARK" not in str(raised.value)


async def test_no_frame_of_a_cancellation_holds_the_key(stub: StubServer) -> None:
    asked = threading.Event()
    stub.say(lambda received, connection: asked.set())
    frames: list[str] = []
    async with Engine(small_catalog(stub.base_url)) as engine:

        async def run() -> None:
            try:
                await engine.run(ask(credential=Secret("sk-MARK")))
            except anyio.get_cancelled_exc_class() as cancellation:
                shown = traceback.TracebackException.from_exception(cancellation, capture_locals=True)
                frames.extend(str(f.locals) for f in shown.stack if f.filename.startswith(PACKAGE))
                raise

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.to_thread.run_sync(asked.wait)
            tasks.cancel_scope.cancel()
    assert frames
    assert "MARK" not in "".join(frames)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_frame_of_a_native_cancellation_holds_the_key_wherever_it_comes(
    stub: StubServer, anyio_backend: str
) -> None:
    del anyio_backend
    held = Held(ok("Rome."))
    stub.say(held)
    shown: list[str] = []

    async def run(engine: Engine) -> None:
        try:
            await engine.run(ask(credential=Secret("sk-MARK")))
        except asyncio.CancelledError as cancellation:
            frames = traceback.TracebackException.from_exception(cancellation, capture_locals=True)
            shown.append("".join(str(frame.locals) for frame in frames.stack if frame.filename != __file__))
            raise

    for steps in range(40):
        async with Engine(small_catalog(stub.base_url)) as engine:
            task = asyncio.ensure_future(run(engine))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
    held.free.set()
    assert len(shown) >= 30
    assert "MARK" not in "".join(shown)


async def test_the_requests_own_key_comes_before_the_environments(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "of-the-environment")
    stub.say(ok("Rome."))
    async with Engine(small_catalog(stub.base_url, credential_env="PROMPTKIT_TEST_KEY")) as engine:
        await engine.run(ask(credential=Secret("of-the-request")))
    assert stub.requests[0].header("authorization") == "Bearer of-the-request"


async def test_a_prepared_execution_keeps_the_key_that_it_was_prepared_with(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.say(ok("Rome."))
    async with Engine(small_catalog(stub.base_url, credential_env="PROMPTKIT_TEST_KEY")) as engine:
        monkeypatch.setenv("PROMPTKIT_TEST_KEY", "then")
        execution = await engine.prepare_execution(ask())
        monkeypatch.setenv("PROMPTKIT_TEST_KEY", "now")
        await engine.run_prepared(execution)
    assert stub.requests[0].header("authorization") == "Bearer then"


# ---------------------------------------------------------------- environment and connection


async def test_proxies_of_the_environment_are_used_only_when_the_backend_says_so(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    stub.say(ok("Rome."))
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("NO_PROXY", "")
    async with Engine(small_catalog(stub.base_url, retry=ONCE)) as engine:
        assert (await engine.run(ask())).raw_output == "Rome."
    async with Engine(small_catalog(stub.base_url, retry=ONCE, trust_env=True)) as engine:
        with pytest.raises(ConnectError):
            await engine.run(ask())
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTP_PROXY", "foo://x:1"),
        ("ALL_PROXY", "socks5://127.0.0.1:1"),
        ("SSL_CERT_FILE", "/no/such/file"),
    ],
)
async def test_what_the_environment_says_wrongly_is_a_request_that_cannot_be_sent(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    connections.tls_context.cache_clear()
    monkeypatch.setenv(variable, value)
    async with Engine(small_catalog(stub.base_url, trust_env=True)) as engine:
        with pytest.raises(ConnectError, match=r"cannot be sent: .*variables of the environment") as raised:
            await engine.run(ask())
    assert not raised.value.transient
    connections.tls_context.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog refuses instead of being silent")
async def test_connecting_is_bounded_apart_from_the_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        port = silent.getsockname()[1]
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.settimeout(0.0)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        catalog = small_catalog(f"http://127.0.0.1:{port}/v1", retry=ONCE, connect_timeout=0.2)
        async with Engine(catalog) as engine:
            with pytest.raises(ConnectError, match="within connect_timeout"):
                await engine.run(ask())
        for filler in fillers:
            filler.close()


# ---------------------------------------------------------------- engine state


async def test_closing_that_is_cancelled_while_it_waits_leaves_the_runs_alone(stub: StubServer) -> None:
    free = anyio.Event()

    async def answer(_: object) -> str:
        await free.wait()
        return "Rome."

    engine = Engine(small_catalog(), client=ScriptedClient(answer))
    got: list[str] = []

    async def run() -> None:
        got.append((await engine.run(ask())).raw_output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as scope:
            await engine.aclose()
        assert scope.cancelled_caught
        free.set()
    await engine.aclose()
    assert got == ["Rome."]


async def test_a_prepared_execution_that_could_not_begin_is_not_spent() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    execution = await engine.prepare_execution(ask())
    await engine.aclose()
    for _ in range(2):
        with pytest.raises(EngineStateError, match="closed"):
            await engine.run_prepared(execution)


async def test_files_of_combined_catalogs_need_a_folder_that_is_named(tmp_path: Path) -> None:
    from pathlib import PurePath

    from promptkit import MessageTemplate, PromptDefinition, load_catalog

    for name in ("one", "two"):
        (tmp_path / name / "inputs").mkdir(parents=True)
        (tmp_path / name / "promptkit.toml").touch()
    (tmp_path / "one" / "inputs" / "note.txt").write_text("note")
    read = PromptDefinition(
        id="read", inputs=("note",), messages=(MessageTemplate(role="user", content="{{ inputs.note }}"),)
    )
    combined = (
        load_catalog(tmp_path / "one") | load_catalog(tmp_path / "two") | small_catalog() | Catalog(prompts=[read])
    )
    request = RunRequest(prompt_id="read", profile="warm", inputs={"note": PurePath("note.txt")})
    with pytest.raises(InputError, match=r"several inputs folders; give Engine\(inputs=folder\)"):
        await Engine(combined).prepare(request)
    prepared = await Engine(combined, inputs=tmp_path / "one" / "inputs").prepare(request)
    assert prepared.messages[0].content == "note"


async def test_an_appended_message_with_a_marker_and_no_content_is_refused() -> None:
    from promptkit import CacheControl, TextPart

    engine = Engine(small_catalog())
    contents: list[Any] = ["", (), (TextPart(text="a"), TextPart(text=""))]
    for content in contents:
        marked = Message(role="user", content=content, cache_control=CacheControl())
        with pytest.raises(InvalidRequestError, match=r"appended_messages\[0\] \(user\) has a cache marker"):
            await engine.prepare(ask(appended_messages=(marked,)))
        await engine.prepare(ask(appended_messages=(Message(role="user", content=content),)))


async def test_a_model_client_that_is_not_async_is_told_so() -> None:
    class Plain:
        def generate(self, call: object) -> str:
            return "Rome."

    engine = Engine(small_catalog(), client=Plain())  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="not an async function"):
        await engine.run(ask())


def test_an_async_observer_is_refused() -> None:
    async def observer(event: object) -> None:
        del event

    with pytest.raises(InvalidRequestError, match="observer: Expected a plain function, got an async one"):
        ask(observer=observer)
