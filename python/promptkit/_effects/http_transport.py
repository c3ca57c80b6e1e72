"""One request, one complete reply, over httpx. The only file that knows the HTTP library."""

from __future__ import annotations

import os
import socket
import ssl
import zlib
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, NamedTuple

import httpx

from promptkit._effects.cancellation import finish
from promptkit.errors import ConnectError, DisconnectedError, GenerationError, MalformedReplyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from promptkit._values.definitions import Backend


MAX_REPLY_BYTES = 64 * 2**20


class _UnreadableError(Exception):
    """A body that is not taken, in words that complete a sentence."""


class HttpReply(NamedTuple):
    """A reply whose last byte has been read."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class HttpTransport:
    """Posts to one backend. Connections are kept between calls, as many as the backend runs at once."""

    def __init__(self, backend: Backend, client: httpx.AsyncClient | None) -> None:
        self._backend = backend
        self._borrowed = client
        self._own: httpx.AsyncClient | None = None

    async def post(self, path: str, headers: dict[str, str], body: bytes) -> HttpReply:
        """Send a body and read the reply to its end. Redirects are not followed.

        Raises ConnectError and DisconnectedError (transient), MalformedReplyError for a body whose encoding lies, and
        GenerationError for a request that cannot be sent. None of them is chained to an error that holds headers.
        """
        client = self._borrowed or self._client()
        url = f"{(self._backend.base_url or '').rstrip('/')}{path}"
        failure: GenerationError
        try:
            sized = {**headers, "accept-encoding": "gzip, deflate", "content-length": str(len(body))}
            request = client.build_request("POST", url, headers=sized, timeout=self._timeout())
            request.stream = _Body(body)
            response = await client.send(request, stream=True, follow_redirects=False)
            raw = await _read_to_end(response)
            body = _decoded(raw, response.headers.get("content-encoding", "identity"))
            return HttpReply(response.status_code, tuple(response.headers.multi_items()), body)
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            httpx.StreamError,
            UnicodeError,
            ssl.SSLError,
            _UnreadableError,
        ) as error:
            failure = _failure_of(error, self._backend)
        # Raised out here, so that the library's error, which holds the headers, is not even its context.
        raise failure

    async def aclose(self) -> None:
        """Close what this transport made."""
        if self._own is not None:
            own, self._own = self._own, None
            await own.aclose()

    def _timeout(self) -> httpx.Timeout:
        # An attempt is bounded as a whole elsewhere; a pool wait cannot happen, permits are no more than connections.
        return httpx.Timeout(None, connect=self._backend.connect_timeout)

    def _client(self) -> httpx.AsyncClient:
        if self._own is None:
            backend = self._backend
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=backend.concurrency)
            self._own = httpx.AsyncClient(limits=limits, trust_env=backend.trust_env, verify=_tls(backend))
            self._own.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # nothing crosses between runs
        return self._own


class _Body(httpx.AsyncByteStream):
    """A body in one piece. Not an async generator, as httpx's own is: one that a cancellation leaves is a warning."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Pieces([self._body])


class _Pieces:
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


def _tls(backend: Backend) -> ssl.SSLContext | bool:
    plain = (backend.base_url or "").lower().startswith("http://") and not backend.trust_env
    return (
        False if plain else _tls_context(trust_env=backend.trust_env)
    )  # a plain connection verifies nothing, and loading trust takes 26 ms


@lru_cache(maxsize=2)
def _tls_context(*, trust_env: bool) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)


async def _read_to_end(response: httpx.Response) -> bytes:
    """Read the raw body, then give the connection back without a moment at which the body could be lost.

    Not ``aread``: it awaits the closing itself, and a native cancellation there loses the reply and the connection.
    """
    chunks: list[bytes] = []
    try:
        size = 0
        async for chunk in response.stream:  # type: ignore[union-attr]  # an async client has an async stream
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                msg = f"has more than {MAX_REPLY_BYTES:,} bytes"
                raise _UnreadableError(msg)
    finally:
        await finish(response.aclose)
    return b"".join(chunks)


def _decoded(raw: bytes, encoding: str) -> bytes:
    """Undo the content encoding, bounded: a small body can unpack to a very large one."""
    if encoding.strip().lower() in {"", "identity"}:
        return raw
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, whichever its head says
    try:
        body = unpacking.decompress(raw, MAX_REPLY_BYTES)
    except zlib.error:
        body = b""
    if not unpacking.eof:
        msg = f"its content-encoding {encoding[:20]!r} does not describe, or that is very large"
        raise _UnreadableError(msg)
    return body


def _failure_of(error: Exception, backend: Backend) -> GenerationError:
    """Say what happened in this library's words; the HTTP library's own text may hold a header's value."""
    where = f"backend {backend.id!r} at {backend.base_url}"
    name = type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        reason = "did not answer within connect_timeout" if "Timeout" in name else _reason(error)
        return ConnectError(f"cannot connect to {where}: {reason}; check base_url and that it runs", transient=True)
    if isinstance(error, _UnreadableError):
        return MalformedReplyError(f"{where} sent a body that {error}")
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError | httpx.TimeoutException):
        return DisconnectedError(f"the connection to {where} was lost before the whole reply arrived", transient=True)
    return GenerationError(f"the request to {where} cannot be sent: {name}")


def _reason(error: BaseException) -> str:
    """Find the operating system's reason under the layers of the libraries."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.reason or type(cause).__name__})"
        if isinstance(cause, socket.gaierror):
            return cause.strerror or "the host's name is not known"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
    return "no connection"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):  # trio tries each address of a host and groups what failed
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__
