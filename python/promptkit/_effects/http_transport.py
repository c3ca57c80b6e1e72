"""One request, one complete reply, over httpx. The only file that knows the HTTP library."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, NamedTuple

import anyio
import httpx

from promptkit._effects.cancellation import finish
from promptkit._effects.frames import chain_of
from promptkit._effects.network import expect_backend, switch
from promptkit._wire.redaction import excerpt
from promptkit.errors import ConnectError, DisconnectedError, EngineStateError, MalformedReplyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from promptkit._effects.network import Limit
    from promptkit._values.definitions import Backend
    from promptkit._values.secret import Secret
    from promptkit.errors import PromptKitError


MAX_REPLY_BYTES = 64 * 2**20
POOL = 8
KEPT = 5.0  # seconds that a pool may go unused, as the library keeps a connection
EXCERPT_READ = 4096
ERROR_BODY = 5.0  # seconds for the body of an error
CLOSING = 10.0  # seconds for the closing of a response by somebody else's transport
MEMBERS = 16  # of a gzip body: each is looked for in what the last one left
LARGE_BODY = 64 * 2**10
_GZIP = zlib.MAX_WBITS | 16
_LAYERS = ("_stream", "_httpcore_stream", "_connection")  # what leads from a response's stream to its connection
_DEPTH = 6
CUT = (
    "Server disconnected",
    "peer closed connection",
    "peer unexpectedly closed",
)  # how httpcore and h11 begin to say it


Send = Callable[[httpx.Request], Awaitable[httpx.Response]]


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


class _Pools:
    """Connections of this package's own. No client around them, since nothing that it does is wanted.

    A client would add cookies, redirects, the credentials of a netrc file, and a third to the cost of a call. Several
    small pools, because the library's looks at each of its connections several times a request: the first one that
    has room is taken, so that few connections serve few calls, and those that are not needed any more are closed.

    A native cancellation can leave a connection of the library's in a state from which it never comes back. So a pool
    in which a call was cancelled takes no other one, and is closed by the last that uses it.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._pools: list[_Pool] = []
        self._spent: list[_Pool] = []

    async def tidy(self) -> None:
        """Close the pools that nobody has used for a while. The library closes connections only of one in use."""
        before = time.monotonic() - KEPT
        idle = [pool for pool in self._pools[1:] if not pool.in_use and pool.used_at < before]
        if idle:
            self._pools = [pool for pool in self._pools if pool not in idle]
            await finish(lambda: _close_all(idle))

    @contextlib.contextmanager
    def lent(self, *, keyed: bool) -> Iterator[Send]:  # noqa: ARG002  # a key is a header like others
        pool = next((pool for pool in self._pools if pool.in_use < POOL), None)
        if pool is None:
            pool = _Pool(verify=_tls(self._backend))
            self._pools.append(pool)
        pool.in_use += 1
        try:
            yield pool.transport.handle_async_request
        except Exception:
            raise
        except BaseException:
            if pool in self._pools:
                self._pools.remove(pool)
                self._spent.append(pool)
            raise
        finally:
            pool.in_use -= 1
            pool.used_at = time.monotonic()

    async def settle(self) -> None:
        """Close the pools in which a call was cancelled and that nobody uses any more."""
        left = [pool for pool in self._spent if not pool.in_use]
        if left:
            self._spent = [pool for pool in self._spent if pool not in left]
            await finish(lambda: _close_all(left))

    async def close_response(self, response: httpx.Response) -> None:
        """Close a response of these pools, whose closing waits for nothing of its own."""
        await finish(lambda: _close(response))

    async def aclose(self) -> None:
        pools, self._pools, self._spent = [*self._pools, *self._spent], [], []
        await _close_all(pools)


class _Pool:
    def __init__(self, *, verify: ssl.SSLContext | bool) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=POOL)
        self.transport = httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
        self.in_use = 0
        self.used_at = 0.0


async def _close_all(pools: Sequence[_Pool]) -> None:
    for pool in pools:
        with contextlib.suppress(Exception):  # one that cannot be closed keeps nothing from the others
            await pool.transport.aclose()


class _Client:
    """A client: the caller's own, or one that goes through the proxies of the environment.

    Its connections are its own: a native cancellation can leave one of them unusable, which a scope of anyio does not.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def tidy(self) -> None:
        """Leave it to the client."""

    @contextlib.contextmanager
    def lent(self, *, keyed: bool) -> Iterator[Send]:
        # The client's own credentials would take the place of the key.
        auth = _no_auth if keyed else httpx.USE_CLIENT_DEFAULT

        async def send(request: httpx.Request) -> httpx.Response:
            return await self.client.send(request, stream=True, follow_redirects=False, auth=auth)

        yield send

    async def settle(self) -> None:
        """Leave it to the client."""

    async def close_response(self, response: httpx.Response) -> None:
        """Close a response. The transport may be anybody's: it may wait, with time limits and tasks of its own."""
        await finish(lambda: _close(response), within=CLOSING)

    async def aclose(self) -> None:
        await self.client.aclose()


class HttpTransport:
    """Posts to one backend. Connections are kept between calls, as many as the backend runs at once."""

    def __init__(self, backend: Backend, framing: Framing, client: httpx.AsyncClient | None) -> None:
        self._backend = backend
        self._framing = framing
        self._borrowed = None if client is None else _Client(client)
        self._own: _Pools | _Client | None = None
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
        connections: _Pools | _Client | None = None
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

    def _usable(self) -> _Pools | _Client:
        if self._borrowed is not None:
            if self._borrowed.client.is_closed:
                msg = "the http_client given to this engine is closed: close it after the engine's last run"
                raise EngineStateError(msg)
            return self._borrowed
        if self._closed:
            msg = "this engine was closed while the run was in flight"
            raise EngineStateError(msg)
        if self._own is None:
            self._own = _through_proxies(self._backend) if self._backend.trust_env else _Pools(self._backend)
        return self._own


def _through_proxies(backend: Backend) -> _Client:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=backend.concurrency)
    client = httpx.AsyncClient(limits=limits, trust_env=True, verify=_tls(backend), auth=_no_auth)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # nothing crosses between runs
    return _Client(client)


def _no_auth(request: httpx.Request) -> httpx.Request:
    """Stand where the credentials of a netrc file would be looked for."""
    return request


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


def _tls(backend: Backend) -> ssl.SSLContext | bool:
    if (backend.base_url or "").lower().startswith("http://") and not backend.trust_env:
        return False  # a plain connection verifies nothing, and loading trust takes 26 ms
    return tls_context(trust_env=backend.trust_env)


@lru_cache(maxsize=2)
def tls_context(*, trust_env: bool) -> ssl.SSLContext:
    """Load the certificates that are trusted, once a process."""
    return httpx.create_ssl_context(trust_env=trust_env)


async def _read_to_end(response: httpx.Response, arrived: list[bytes], connections: _Pools | _Client) -> None:
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


async def _close(response: httpx.Response) -> None:
    """Close a response. When that fails there is still the reply, or the first error, which says more."""
    with contextlib.suppress(Exception):
        _refuse_more(response)
    with contextlib.suppress(Exception):
        await response.aclose()


def _refuse_more(response: httpx.Response) -> None:
    """Let a connection not be used again on which bytes came after the reply.

    The library would read them as the reply to the next request: it looks for them in the socket only, not in what it
    has read already. Nothing public leads to that, so a test says when a new version keeps it elsewhere.
    """
    layer: object = response.stream
    for _ in range(_DEPTH):
        layer = next((inner for name in _LAYERS if (inner := getattr(layer, name, None)) is not None), None)
        protocol = getattr(layer, "_h11_state", None)
        if protocol is not None and protocol.trailing_data[0]:
            protocol.send_failed()  # a connection is used again only when both sides are done


def _reply(response: httpx.Response, arrived: list[bytes]) -> HttpReply:
    """Unpack a body. The status comes first: of an error only the status counts when its body cannot be read."""
    if response.is_stream_consumed and not arrived:  # a hook of the caller's client has read and unpacked it
        return HttpReply(response.status_code, tuple(response.headers.multi_items()), _read_already(response))
    encoding = response.headers.get("content-encoding", "").strip().lower()
    try:
        body = _unpacked(b"".join(arrived), encoding)
    except _UnreadableError:
        if response.is_success:
            raise
        body = b""
    return HttpReply(response.status_code, tuple(response.headers.multi_items()), body)


def _read_already(response: httpx.Response) -> bytes:
    try:
        return response.content
    except httpx.ResponseNotRead:  # it was read in pieces that nobody kept
        return b""


def _unpacked(raw: bytes, encoding: str) -> bytes:
    """Undo the content encoding, bounded: a small body can unpack to a very large one."""
    if len(raw) > MAX_REPLY_BYTES:
        msg = f"has more than {MAX_REPLY_BYTES:,} bytes"
        raise _UnreadableError(msg)
    if encoding in {"", "identity"} or not raw:
        return raw
    window = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}.get(encoding)
    if window is None:
        msg = "has a content-encoding that was not asked for"
        raise _UnreadableError(msg)
    try:
        return _inflated(raw, window)
    except zlib.error:
        if encoding == "deflate":
            with contextlib.suppress(zlib.error):
                return _inflated(raw, -zlib.MAX_WBITS)  # without its head, as some servers send it
        msg = f"its content-encoding {encoding!r} does not describe"
        raise _UnreadableError(msg) from None


def _inflated(raw: bytes, window: int) -> bytes:
    pieces: list[bytes] = []
    room = MAX_REPLY_BYTES
    for _ in range(MEMBERS):
        unpacking = zlib.decompressobj(window)
        pieces.append(unpacking.decompress(raw, room + 1))
        room -= len(pieces[-1])
        if room < 0:
            msg = f"unpacks to more than {MAX_REPLY_BYTES:,} bytes"
            raise _UnreadableError(msg)
        if not unpacking.eof:
            raise zlib.error
        raw = unpacking.unused_data.lstrip(b"\0")  # gzip may have several members, and padding
        if not raw:
            return b"".join(pieces)
    msg = f"is packed in more than {MEMBERS} pieces"
    raise _UnreadableError(msg)


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
