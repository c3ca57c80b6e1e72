"""Whether promptkit may open connections. Tests limit it; nothing else does."""

from __future__ import annotations

import ipaddress
import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from promptkit._values.definitions import Backend

OFFLINE = "give the engine a model for tests, Engine(catalog, client=ScriptedClient(...))"


class NetworkRefusedError(AssertionError):
    """Raised in place of a connection or an embedded model that a test does not allow; nothing was sent.

    It is an AssertionError, as the failure of a test is, and none of promptkit's own errors: it is never retried, and
    code that handles what a backend does (``except PromptKitError``, ``except OSError``) does not take it for that.
    """


class Limit(NamedTuple):
    """Whether loopback and the embedded model are still allowed, who says so, and what to do to allow these or all."""

    loopback: bool
    said_by: str
    allow_loopback: str
    allow_all: str


class Switch:
    """The limits of this process. ``limit`` is the one that holds: None, so that all is allowed, outside of tests.

    There is one that a test runner sets for all that has no other, and those of blocks, which only add to it: the
    strictest holds, the outermost of several.
    """

    def __init__(self) -> None:
        self.limit: Limit | None = None
        self._general: Limit | None = None
        self._blocks: list[Limit] = []
        self._lock = threading.Lock()

    def set_general(self, limit: Limit | None) -> Limit | None:
        """Set the limit of all that is in no block, and give the one before."""
        with self._lock:
            before, self._general = self._general, limit
            self._choose()
        return before

    def add(self, limit: Limit) -> None:
        """Add the limit of a block that begins."""
        with self._lock:
            self._blocks.append(limit)
            self._choose()

    def remove(self, limit: Limit) -> None:
        """Take away the limit of a block that ends."""
        with self._lock:
            self._blocks.remove(limit)
            self._choose()

    def _choose(self) -> None:
        limits = [each for each in (self._general, *self._blocks) if each is not None]
        self.limit = min(limits, key=lambda each: each.loopback, default=None)


switch = Switch()


def expect_backend(limit: Limit, backend: Backend, host: str) -> None:
    """Raise NetworkRefusedError unless a backend may be asked. Proxies of the environment may be anywhere."""
    near = _is_loopback(host) and not backend.trust_env
    if near and limit.loopback:
        return
    why = " through the proxies of the environment" if backend.trust_env else ""
    what = f"backend {backend.id!r} would be asked at {host or 'no host'}{why}"
    raise _refused(limit, what, f"{OFFLINE}, or {limit.allow_loopback if near else limit.allow_all}")


def expect_embedded(limit: Limit, backend: Backend) -> None:
    """Raise NetworkRefusedError unless the embedded model may be asked.

    It opens no connection once its weights are there. But a test that forgets its scripted model is to fail on every
    machine, not only on those that do not have the weights.
    """
    if not limit.loopback:
        what = f"backend {backend.id!r} would ask the embedded model"
        raise _refused(limit, what, f"{OFFLINE}, or {limit.allow_loopback}", "ask no model")


def expect_download(what: str, remedy: str) -> None:
    """Raise NetworkRefusedError when nothing may be fetched from other machines."""
    limit = switch.limit
    if limit is not None:
        raise _refused(limit, f"{what} would be fetched from the network", f"{OFFLINE}, {remedy}, or {limit.allow_all}")


def _refused(limit: Limit, what: str, remedy: str, allowed: str | None = None) -> NetworkRefusedError:
    allowed = allowed or ("open connections on loopback only" if limit.loopback else "open no connection")
    return NetworkRefusedError(f"{what}, and this test may {allowed} ({limit.said_by}): {remedy}")


def _is_loopback(host: str) -> bool:
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
