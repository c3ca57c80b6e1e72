"""Whatever a server does: a correct result or one of promptkit's errors, and a next run that works.

The server writes raw bytes, so that heads, bodies and timing can be anything.
"""

from __future__ import annotations

import socket
import struct
import warnings
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptkit import (
    AttemptTimeoutError,
    AuthenticationError,
    BackendStatusError,
    DisconnectedError,
    Engine,
    GenerationError,
    MalformedReplyError,
    Message,
    OverloadedError,
    RateLimitError,
    RejectedRequestError,
    RetryPolicy,
    RunRequest,
    RunResult,
)
from servers.dialects import ASK, DIALECTS, Dialect
from servers.stub import StubServer, http

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.stub import Received

    Act = Callable[[Received, socket.socket], None]

BODY = b"BODY"  # in the replies below: the good answer of the dialect
LENGTH = b"LENGTH"


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *lines]).encode("latin-1") + b"\r\n\r\n"


WHOLE = "content-length: LENGTH"
CHUNKED = "transfer-encoding: chunked"
ANSWERS: dict[str, bytes] = {
    "no reason phrase": head(WHOLE, status="HTTP/1.1 200") + BODY,
    "HTTP/1.0 that ends with the connection": head(status="HTTP/1.0 200 OK") + BODY,
    "nothing that says where the body ends": head() + BODY,
    "lines that end with a line feed": head(WHOLE).replace(b"\r\n", b"\n") + BODY,
    "informational replies before it": head(status="HTTP/1.1 100 Continue") * 3
    + head("link: x", status="HTTP/1.1 103 Early Hints")
    + head(WHOLE)
    + BODY,
    "2xx of another kind": head(WHOLE, status="HTTP/1.1 299 Odd") + BODY,
    "the same length twice": head(WHOLE, WHOLE) + BODY,
    "a header of 50 kB": head(WHOLE, "x: " + "y" * 50_000) + BODY,
    "hundreds of headers": head(WHOLE, *(f"x-{n}: y" for n in range(500))) + BODY,
    "a header that is not ASCII": head(WHOLE, "x-odd: \xe9\xff") + BODY,
    "a folded header": head(WHOLE, "x-odd: a\r\n  b") + BODY,
    "a header without a value": head(WHOLE, "x-odd:") + BODY,
    "chunks": head(CHUNKED) + b"LENGTH_HEX\r\nBODY\r\n0\r\n\r\n",
    "chunks with extensions and trailers": head(CHUNKED) + b'LENGTH_HEX;a="b"\r\nBODY\r\n0\r\nx-t: 1\r\n\r\n',
    "more bytes than the length": head(WHOLE) + BODY + b"junk",
    "blank lines and a byte-order mark": head() + b"\r\n\n\t \n\xef\xbb\xbf" + BODY + b"\n\n",
    "another content type": head(WHOLE, "content-type: image/png; charset=utf-16") + BODY,
    "a charset that does not exist": head(WHOLE, "content-type: application/json; charset=\xff") + BODY,
    "cookies, redirects and upgrades offered": head(
        WHOLE, "set-cookie: a=b", "location: http://example.invalid/", "upgrade: h2c", "alt-svc: h3", "refresh: 0"
    )
    + BODY,
    "a demand to wait beside an answer": head(WHOLE, "retry-after: 9999", "x-should-retry: true") + BODY,
    "headers of limits that make no sense": head(WHOLE, "x-ratelimit-reset: nan", "retry-after: -1") + BODY,
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_read_however_it_is_wrapped(stub: StubServer, dialect: Dialect, name: str) -> None:
    stub.say(filled(ANSWERS[name], dialect), http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        for _ in range(2):
            result = await engine.run(ASK)
            assert (result.raw_output, result.attempts) == ("Rome.", 1)


def filled(reply: bytes, dialect: Dialect) -> bytes | Act:
    """Put the dialect's answer into its place. Where nothing else says where it ends, the connection ends."""
    length = len(dialect.answer)
    whole = reply.replace(b"LENGTH_HEX", b"%x" % length).replace(LENGTH, b"%d" % length).replace(BODY, dialect.answer)
    return whole if b"content-length" in whole or b"chunked" in whole else closing(whole)


def closing(raw: bytes) -> Act:
    def act(_: Received, connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)

    return act


def reset(*pieces: bytes) -> Act:
    def act(_: Received, connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(connection.detach())  # closing alone would wait for the file that the server reads from

    return act


def raw(status: int | str, body: bytes = b"", *headers: str) -> bytes:
    return head(f"content-length: {len(body)}", *headers, status=f"HTTP/1.1 {status} Said") + body


DEEP = b'{"error":' * 5_000 + b"0" + b"}" * 5_000
NOT_ANSWERS: dict[str, tuple[bytes | Act, type[GenerationError]]] = {
    # No HTTP at all, or not to its end.
    "nothing": (closing(b""), DisconnectedError),
    "a reset": (reset(), DisconnectedError),
    "a reset in the head": (reset(b"HTTP/1.1 200 OK\r\nconte"), DisconnectedError),
    "a reset in the body": (reset(head("content-length: 400") + b'{"id"'), DisconnectedError),
    "half a head": (closing(b"HTTP/1.1 200 OK\r\ncontent-le"), DisconnectedError),
    "half a body": (closing(head("content-length: 400") + b'{"id"'), DisconnectedError),
    "half a chunk": (closing(head(CHUNKED) + b'64\r\n{"id"'), DisconnectedError),
    "chunks without an end": (closing(head(CHUNKED) + b'5\r\n{"id"\r\n'), DisconnectedError),
    "half of an unframed body": (closing(head() + b'{"choices":[{"message":{"content":"Ro'), DisconnectedError),
    "another protocol": (closing(b"SSH-2.0-Server\r\n\r\n"), MalformedReplyError),
    "bytes": (closing(bytes(range(256)) * 8), MalformedReplyError),
    "TLS": (closing(b"\x15\x03\x01\x00\x02\x02\x50"), MalformedReplyError),
    "a blank line before the status": (closing(b"\r\n" + head("content-length: 4") + b"null"), MalformedReplyError),
    "a status that is no number": (closing(head(status="HTTP/1.1 abc OK")), MalformedReplyError),
    "a status of two digits": (closing(head(status="HTTP/1.1 20 OK")), MalformedReplyError),
    "a header without a colon": (closing(head("content-length 4") + b"null"), MalformedReplyError),
    "a header with a NUL": (closing(head("x: a\0b", "content-length: 4") + b"null"), MalformedReplyError),
    "a head that never ends": (closing(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 60_000), MalformedReplyError),
    "two lengths": (closing(head("content-length: 4", "content-length: 5") + b"null"), MalformedReplyError),
    "a negative length": (closing(head("content-length: -4") + b"null"), MalformedReplyError),
    "a length that is no number": (closing(head("content-length: four") + b"null"), MalformedReplyError),
    "an unknown transfer encoding": (closing(head("transfer-encoding: gzip") + b"null"), MalformedReplyError),
    "a chunk size that is no number": (closing(head(CHUNKED) + b"zz\r\nnull\r\n0\r\n\r\n"), MalformedReplyError),
    "a chunk size without an end": (closing(head(CHUNKED) + b"f" * 40), DisconnectedError),
    # HTTP, whose body is no reply.
    "no body": (raw(200), MalformedReplyError),
    "no content": (head(status="HTTP/1.1 204 No Content"), MalformedReplyError),
    "a page": (raw(200, b"<!DOCTYPE html><html>"), MalformedReplyError),
    "a stream": (raw(200, b'data: {"choices":[]}\n\ndata: [DONE]\n\n'), MalformedReplyError),
    "a deep body": (raw(200, b"[" * 100_000), MalformedReplyError),
    "a deep error": (raw(200, DEEP), MalformedReplyError),
    "a body that is not UTF-8": (raw(200, b'{"choices":"\xff\xfe"}'), MalformedReplyError),
    "a body of another charset": (raw(200, '{"choices":[]}'.encode("utf-16")), MalformedReplyError),
    "two documents": (raw(200, b"{}{}"), MalformedReplyError),
    "a scalar": (raw(200, b"7"), MalformedReplyError),
    "an unknown content encoding": (raw(200, b"{}", "content-encoding: br"), MalformedReplyError),
    "an encoding twice": (raw(200, b"{}", "content-encoding: gzip, gzip"), MalformedReplyError),
    "an upgrade that nobody asked for": (
        closing(head("upgrade: websocket", "connection: upgrade", status="HTTP/1.1 101 Switching Protocols")),
        MalformedReplyError,
    ),
    # Statuses, whatever their bodies are.
    "a choice of addresses": (raw(300), BackendStatusError),
    "not modified": (head(status="HTTP/1.1 304 Not Modified"), BackendStatusError),
    "a wrong request without a body": (raw(400), RejectedRequestError),
    "a wrong request with a deep body": (raw(400, DEEP), RejectedRequestError),
    "a wrong key with a page": (raw(401, b"<html>"), AuthenticationError),
    "a limit with demands that make no sense": (
        raw(429, b"\xff", "retry-after: inf", "retry-after: 7", "retry-after-ms: 1e999"),
        RateLimitError,
    ),
    "an overload with a body of another charset": (raw(503, '{"error":"x"}'.encode("utf-16")), OverloadedError),
    "a status of nobody": (raw(599, b"null"), BackendStatusError),
    "a status above all": (raw(999, b"null"), BackendStatusError),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", NOT_ANSWERS)
async def test_what_is_no_answer_is_a_typed_error_and_the_next_run_works(
    stub: StubServer, dialect: Dialect, name: str
) -> None:
    act, cls = NOT_ANSWERS[name]
    stub.say(act, http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        with pytest.raises(GenerationError) as raised:
            await engine.run(ASK)
        assert type(raised.value) is cls, raised.value
        assert raised.value.transient is (
            issubclass(cls, DisconnectedError | RateLimitError | OverloadedError)
            or (cls is BackendStatusError and (raised.value.status or 0) >= 500)
        )
        assert raised.value.attempts == 1
        assert raised.value.retry_after is None
        assert len(str(raised.value)) <= 400
        assert raised.value.__cause__ is raised.value.__context__ is None
        assert (await engine.run(ASK)).raw_output == "Rome."


@pytest.mark.anyio
@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize("lent", [False, True], ids=["own", "lent"])
async def test_what_follows_a_reply_is_never_taken_for_the_answer_to_the_next_request(
    stub: StubServer, dialect: Dialect, *, lent: bool, status: int
) -> None:
    stray = http(200, dialect.answer.replace(b"Rome.", b"Of another request."))
    stub.say(http(status, dialect.answer) + stray, http(200, dialect.answer))
    retry = RetryPolicy(max_retries=1, base_delay=0.0, max_delay=0.0)
    async with httpx.AsyncClient() as client:
        engine = Engine(dialect.catalog(stub.base_url, retry=retry), http_client=client if lent else None)
        results = [await engine.run(ASK) for _ in range(2)]
        await engine.aclose()
    assert [result.raw_output for result in results] == ["Rome.", "Rome."]
    assert results[0].attempts == (1 if status == 200 else 2)
    assert len(stub.connections) == 2


# ------------------------------------------------------------------ timing


def dripping(reply: bytes) -> Act:
    """Send byte by byte."""

    def act(_: Received, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in reply:
            connection.sendall(bytes([byte]))

    return act


@pytest.mark.anyio
async def test_an_answer_that_comes_byte_by_byte_is_read(stub: StubServer, dialect: Dialect) -> None:
    stub.say(dripping(http(200, dialect.answer)))
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        assert (await engine.run(ASK)).raw_output == "Rome."


@pytest.mark.anyio
async def test_blank_lines_that_keep_a_connection_alive_come_before_the_answer(
    stub: StubServer, dialect: Dialect
) -> None:
    blank = head(CHUNKED) + b"1\r\n\n\r\n" * 5
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(dialect.answer), dialect.answer)

    def keeping_alive(_: Received, connection: socket.socket) -> None:
        for piece in (blank[:60], blank[60:], chunk):
            connection.sendall(piece)

    stub.say(keeping_alive)
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        result = await engine.run(ASK)
    assert (result.raw_output, result.attempts) == ("Rome.", 1)


def for_ever(start: bytes, again: bytes) -> Act:
    def act(_: Received, connection: socket.socket) -> None:
        connection.sendall(start)
        gone = False
        while not gone:
            connection.settimeout(0.005)
            try:
                gone = not connection.recv(1)
            except TimeoutError:
                connection.sendall(again)

    return act


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"", head(status="HTTP/1.1 102 Processing")),
        (head(CHUNKED), b"1\r\n\n\r\n"),
        (head("content-length: 1000000"), b"\n"),
        (head(), b" "),
    ],
    ids=["silence", "headers", "informational replies", "blank chunks", "blanks", "unframed blanks"],
)
async def test_the_whole_attempt_is_bounded_whatever_keeps_coming(
    stub: StubServer, dialect: Dialect, start: bytes, again: bytes
) -> None:
    stub.say(for_ever(start, again), http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url, attempt_timeout=0.05)) as engine:
        with pytest.raises(AttemptTimeoutError) as raised:
            await engine.run(ASK)
        assert (raised.value.transient, raised.value.attempts) == (True, 1)
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        assert (await engine.run(ASK)).raw_output == "Rome."


@pytest.mark.anyio
async def test_a_callers_deadline_holds_while_blank_lines_come(stub: StubServer, dialect: Dialect) -> None:
    stub.say(for_ever(head(CHUNKED), b"1\r\n\n\r\n"), http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        with anyio.move_on_after(0.05) as scope:
            await engine.run(ASK)
        assert scope.cancelled_caught
        assert (await engine.run(ASK)).raw_output == "Rome."


@pytest.mark.anyio
async def test_an_error_that_comes_before_the_request_was_read_is_that_error(dialect: Dialect) -> None:
    """A server may refuse a large body unread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        base_url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        large = Message(role="user", content="x" * 2**20)

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(http(413, b""))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(2**20):
                    pass

        async with Engine(dialect.catalog(base_url)) as engine, anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, refuse)
            with pytest.raises(RejectedRequestError) as raised:
                await engine.run(RunRequest(prompt_id="ask", appended_messages=(large,)))
            assert raised.value.status == 413


# ------------------------------------------------------------------ anything


@st.composite
def damaged(draw: st.DrawFn, dialect: Dialect) -> bytes:
    """Draw a reply that something happened to."""
    good = http(draw(st.sampled_from([200, 200, 201, 400, 429, 503])), dialect.answer, ("retry-after", "0"))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(good)))
        end = draw(st.integers(start, min(len(good), start + 40)))
        put = draw(st.binary(max_size=6) | st.sampled_from([b"\r\n", b"\r\n\r\n", b"{", b'"', b"NaN", b"\\ud800"]))
        good = good[:start] + put + good[end:]
    return good


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_a_reply_leaves_a_result_or_a_typed_error(
    dialect: Dialect, loop: str, data: st.DataObject
) -> None:
    reply = data.draw(damaged(dialect))
    server = StubServer()
    server.say(closing(reply))

    async def run() -> RunResult | GenerationError:
        async with Engine(dialect.catalog(server.base_url, attempt_timeout=5)) as engine:
            try:
                return await engine.run(ASK)
            except GenerationError as error:
                return error

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outcome = anyio.run(run, backend=loop)
    finally:
        server.close()
    assert isinstance(outcome, RunResult | GenerationError)
    assert not isinstance(outcome, AttemptTimeoutError)
