"""One request, one complete reply, over httpx. Only this file and that of its connections know the HTTP library."""

from __future__ import annotations

import math
import os
import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple

import anyio
import httpx
from returns.result import Failure

from promptkit._effects.connections import Client, Pools, through_proxies
from promptkit._effects.frames import chain_of
from promptkit._effects.network import expect_backend, switch
from promptkit._wire.content_encoding import unpacked
from promptkit._wire.redaction import excerpt
from promptkit.errors import ConnectError, DisconnectedError, EngineStateError, MalformedReplyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from promptkit._effects.network import Limit
    from promptkit._values.definitions import Backend
    from promptkit._values.secret import Secret
    from promptkit.errors import PromptKitError


MAX_REPLY_BYTES = 64 * 2**20
EXCERPT_READ = 4096
ERROR_BODY = 5.0  # seconds for the body of an error
LARGE_BODY = 64 * 2**10
CUT = (
    "Server disconnected",
    "peer closed connection",
    "peer unexpectedly closed",
)  # how httpcore and h11 begin to say it


class _UnreadableError(Exception):
    """A body that is not taken, in words that complete a sentence."""


class HttpReply(NamedTuple):
    """A reply whose last byte has been read."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Framing(NamedTuple):
    """What the requests of a dialect have around their bodies: a path below base_url, headers, the key's header."""

    path: str
    headers: tuple[tuple[str, str], ...]
    key_header: str
    key_scheme: str


class HttpTransport:
    """Posts to one backend. Connections are kept between calls, as many as the backend runs at once."""

    def __init__(self, backend: Backend, framing: Framing, client: httpx.AsyncClient | None) -> None:
        self._backend = backend
        self._framing = framing
        self._borrowed = None if client is None else Client(client)
        self._own: Pools | Client | None = None
        self._closed = False
        self._target: tuple[httpx.URL, Mapping[str, str]] | None = None
        # An attempt is bounded as a whole elsewhere. Own pools have a connection for each permit; a client of the
        # caller's with fewer makes calls wait inside their attempts.
        self._timeout = httpx.Timeout(None, connect=backend.connect_timeout)

    async def post(self, body: Sequence[bytes], credential: Secret | None) -> HttpReply:
        """Send a body, given in pieces, and read the reply to its end. Redirects are not followed.

        A connection that the server closed while it was idle is not used. One that dies as the request arrives is a
        lost connection like any other: the server may have begun to answer.

        Raises ConnectError (transient unless the request cannot be sent at all) and DisconnectedError (transient),
        MalformedReplyError for what is no HTTP or has a body that cannot be unpacked, and EngineStateError for a client
        that is closed or belongs to another event loop. None of them is chained to an error that holds headers, and a
        cancellation comes without the frames of the library, which hold them too.
        """
        if switch.limit is not None:  # in tests only
            self._expect_allowed(switch.limit)
        failure: PromptKitError
        response: httpx.Response | None = None
        arrived: list[bytes] = []
        connections: Pools | Client | None = None
        try:
            connections = self._usable()
            await connections.tidy()
            with connections.lent(keyed=credential is not None) as send:
                response = await send(self._request(body, credential))
                if not response.is_stream_consumed:
                    await _read_to_end(response, arrived, connections)
            return _reply(response, arrived)
        except EngineStateError:
            raise
        except httpx.HTTPStatusError as error:  # of a hook of the caller's client
            return _reply(error.response, arrived)
        except Exception as error:  # noqa: BLE001  # whatever the library raises, it is not to be seen
            if response is not None and not response.is_success:
                return _reply(response, arrived)  # of an error the status counts, however little of its body came
            seen = excerpt(b"".join(arrived)[:EXCERPT_READ], None if credential is None else credential.reveal())
            failure = _failure_of(error, self._backend, response, seen, borrowed=self._borrowed is not None)
        except BaseException as error:
            for found in chain_of(error):
                found.__traceback__ = None  # these frames hold the request's headers
            raise
        finally:
            if connections is not None:
                await connections.settle()
        # Raised out here, so that the library's error, which holds the headers, is not even its context.
        raise failure

    def _expect_allowed(self, limit: Limit) -> None:
        """Raise NetworkRefusedError where a test allows no connection, and this would open one."""
        url = httpx.URL(self._backend.base_url or "")
        if self._borrowed is None or not _stays_inside(self._borrowed.client, url):
            expect_backend(limit, self._backend, url.host)

    async def aclose(self) -> None:
        """Close what this transport made; it makes no more."""
        self._closed = True
        if self._own is not None:
            own, self._own = self._own, None
            await own.aclose()

    def _request(self, body: Sequence[bytes], credential: Secret | None) -> httpx.Request:
        """Build the request here, so that no frame that an error passes through holds the key."""
        url, fixed = self._target = self._target or self._addressed()
        headers = {**fixed, "content-length": str(sum(map(len, body)))}
        if credential is not None:
            headers[self._framing.key_header] = f"{self._framing.key_scheme}{credential.reveal()}"
        stream = _Body(body)
        if self._borrowed is None:
            extensions = {"timeout": self._timeout.as_dict()}
            return httpx.Request("POST", url, headers=headers, stream=stream, extensions=extensions)
        # The caller's client has headers and cookies of its own.
        request = self._borrowed.client.build_request("POST", url, headers=headers, timeout=self._timeout)
        request.stream = stream
        return request

    def _addressed(self) -> tuple[httpx.URL, Mapping[str, str]]:
        """Give the address and the headers that every request has. The library refuses some addresses."""
        backend = self._backend
        url = httpx.URL(f"{(backend.base_url or '').rstrip('/')}{self._framing.path}")
        return url, {
            "host": httpx.Request("POST", url).headers["host"],
            "user-agent": "promptkit",
            **dict(self._framing.headers),
            **{name.lower(): value for name, value in backend.headers.items()},
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
        }

    def _usable(self) -> Pools | Client:
        if self._borrowed is not None:
            if self._borrowed.client.is_closed:
                msg = "the http_client given to this engine is closed: close it after the engine's last run"
                raise EngineStateError(msg)
            return self._borrowed
        if self._closed:
            msg = "this engine was closed while the run was in flight"
            raise EngineStateError(msg)
        if self._own is None:
            self._own = through_proxies(self._backend) if self._backend.trust_env else Pools(self._backend)
        return self._own


def _stays_inside(client: httpx.AsyncClient, url: httpx.URL) -> bool:
    """Say whether a client hands its requests to code in this process, as those of tests do."""
    chosen = getattr(client, "_transport_for_url", None)  # if a new version has no such, none is known to
    return chosen is not None and isinstance(chosen(url), httpx.MockTransport | httpx.ASGITransport)


class _Body(httpx.AsyncByteStream):
    """A body in pieces. Not an async generator, as httpx's own is: one that a cancellation leaves is a warning.

    A small body is sent at once; joining a large one would cost more than sending it in pieces.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces if sum(map(len, pieces)) > LARGE_BODY else [b"".join(pieces)]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Pieces(self._pieces)


class _Pieces:
    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


async def _read_to_end(response: httpx.Response, arrived: list[bytes], connections: Pools | Client) -> None:
    """Read the raw body, then give the connection back without a moment at which the body could be lost.

    Not ``aread``: it awaits the closing itself, and a native cancellation there loses the reply and the connection.
    What arrives goes into ``arrived``, and a little more than is taken at most. Of an error the status is known
    already: its body is waited for a short while only.
    """
    size = 0
    deadline = math.inf if response.is_success else anyio.current_time() + ERROR_BODY
    try:
        with anyio.CancelScope(deadline=deadline) as scope:
            async for chunk in response.stream:  # type: ignore[union-attr]  # an async client has an async stream
                if size > MAX_REPLY_BYTES:
                    scope.cancel()  # not a return: that would leave the library's generators unfinished
                else:
                    arrived.append(chunk)
                    size += len(chunk)
    finally:
        await connections.close_response(response)


def _reply(response: httpx.Response, arrived: list[bytes]) -> HttpReply:
    """Unpack a body. The status comes first: of an error only the status counts when its body cannot be read."""
    if response.is_stream_consumed and not arrived:  # a hook of the caller's client has read and unpacked it
        return HttpReply(response.status_code, tuple(response.headers.multi_items()), _read_already(response))
    encoding = response.headers.get("content-encoding", "").strip().lower()
    body = unpacked(b"".join(arrived), encoding, most=MAX_REPLY_BYTES)
    if isinstance(body, Failure) and response.is_success:
        raise _UnreadableError(body.failure())
    return HttpReply(response.status_code, tuple(response.headers.multi_items()), body.value_or(b""))


def _read_already(response: httpx.Response) -> bytes:
    try:
        return response.content
    except httpx.ResponseNotRead:  # it was read in pieces that nobody kept
        return b""


def _failure_of(
    error: Exception, backend: Backend, response: httpx.Response | None, seen: str, *, borrowed: bool
) -> PromptKitError:
    """Say what happened in this library's words; the HTTP library's own text may hold a header's value.

    ``seen`` is the beginning of the body, if there is one.
    """
    where = f"backend {backend.id!r} at {backend.base_url}"
    name = type(error).__name__
    status = None if response is None else response.status_code
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        reason = "it did not answer within connect_timeout" if "Timeout" in name else _reason(error)
        return ConnectError(f"cannot connect to {where}: {reason}; check base_url and that it runs", transient=True)
    if isinstance(error, _UnreadableError):
        return MalformedReplyError(f"{where} sent a body that {error}", status=status, excerpt=seen)
    if isinstance(error, httpx.RemoteProtocolError) and not str(error).startswith(CUT):
        if response is not None:
            return MalformedReplyError(f"{where} sent a body that breaks HTTP", status=status, excerpt=seen)
        return MalformedReplyError(f"{where} does not answer in HTTP: check base_url, its scheme and its port")
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError | httpx.TimeoutException):
        lost = f"the connection to {where} was lost before the whole reply arrived"
        return DisconnectedError(lost, transient=True, status=status)
    if borrowed and isinstance(error, RuntimeError):
        problem = "it is closed, or was used on another event loop"
        return EngineStateError(f"the http_client given to this engine cannot be used ({name}): {problem}")
    if response is not None:
        broken = f"the reply of {where} was lost while it was read: {name}"
        return DisconnectedError(broken, transient=True, status=status)
    others = ", and the variables of the environment for proxies and certificates" if backend.trust_env else ""
    remedy = f"check base_url and headers{others}"
    return ConnectError(f"the request to {where} cannot be sent: {name}; {remedy}", transient=False)


def _reason(error: BaseException) -> str:
    """Find the operating system's reason under the layers of the libraries."""
    for cause in chain_of(error):  # trio tries each address of a host and groups what failed
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.reason or type(cause).__name__})"
        if isinstance(cause, socket.gaierror):
            return cause.strerror or "the host's name is not known"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
    return "no connection"
