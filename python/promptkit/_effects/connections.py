"""Connections over httpx: small pools of this package's own, or a client of somebody else's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING

import httpx

from promptkit._effects.cancellation import finish

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence

    from promptkit._values.definitions import Backend

POOL = 8
KEPT = 5.0  # seconds that a pool may go unused, as the library keeps a connection
CLOSING = 10.0  # seconds for the closing of a response by somebody else's transport
_LAYERS = ("_stream", "_httpcore_stream", "_connection")  # what leads from a response's stream to its connection
_DEPTH = 6

Send = Callable[[httpx.Request], Awaitable[httpx.Response]]


class Pools:
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


class Client:
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


def through_proxies(backend: Backend) -> Client:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=backend.concurrency)
    client = httpx.AsyncClient(limits=limits, trust_env=True, verify=_tls(backend), auth=_no_auth)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # nothing crosses between runs
    return Client(client)


def _no_auth(request: httpx.Request) -> httpx.Request:
    """Stand where the credentials of a netrc file would be looked for."""
    return request


def _tls(backend: Backend) -> ssl.SSLContext | bool:
    if (backend.base_url or "").lower().startswith("http://") and not backend.trust_env:
        return False  # a plain connection verifies nothing, and loading trust takes 26 ms
    return tls_context(trust_env=backend.trust_env)


@lru_cache(maxsize=2)
def tls_context(*, trust_env: bool) -> ssl.SSLContext:
    """Load the certificates that are trusted, once a process."""
    return httpx.create_ssl_context(trust_env=trust_env)


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
