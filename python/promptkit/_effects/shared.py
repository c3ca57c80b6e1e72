"""What an engine holds: clients, capacity, and the one event loop that it serves at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio

from promptkit._effects.cancellation import finish
from promptkit._effects.event_loop import current_loop, has_ended
from promptkit._effects.gate import Gate, inside_clients
from promptkit._effects.surroundings import Surroundings
from promptkit.errors import EngineStateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from promptkit._effects.embedded import EmbeddedClient
    from promptkit._values.catalog import Definitions
    from promptkit._values.definitions import Backend
    from promptkit._values.generation import InputReader, ModelClient

CLOSED_INSIDE = "a model client of this engine closes it, and would wait for itself: close it after the run"
CLOSED = "this engine is closed: make a new one"
FORKED = "this engine was made before a fork: make a new one in the child"


async def _close_all(clients: list[ClosableClient]) -> None:
    for client in clients:
        with contextlib.suppress(Exception):  # one that cannot be closed keeps nothing from the others
            await client.aclose()


class ClosableClient(Protocol):
    """A built-in client."""

    async def aclose(self) -> None:
        """Close what it holds."""


class LoopState:
    """What is bound to one event loop: gates, clients, and the runs in flight."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.gates: dict[str, Gate] = {}
        self.clients: dict[str, ModelClient] = {}
        self.active = 0
        self.idle: anyio.Event | None = None

    def leave(self) -> None:
        """Count a run out, and wake who waits for the last."""
        self.active -= 1
        if self.active == 0 and self.idle is not None:
            self.idle.set()

    def gate(self, backend: Backend) -> Gate:
        """Give the gate of a backend."""
        found = self.gates.get(backend.id)
        if found is None:
            found = self.gates[backend.id] = Gate(backend)
        return found


class Shared:
    """One per engine, of which its views have a part."""

    def __init__(
        self,
        definitions: Definitions,
        *,
        client: ModelClient | None,
        http_client: httpx.AsyncClient | None,
        reader: InputReader,
        max_input_bytes: int,
    ) -> None:
        self.definitions = definitions
        self.reader = reader
        self.max_input_bytes = max_input_bytes
        self.surroundings = Surroundings()
        self._client = client
        self._http_client = http_client
        self._http_loop: Any = None
        self._state: LoopState | None = None
        self._embedded: EmbeddedClient | None = None
        self._closed = False
        self._process = os.getpid()
        self._lock = threading.Lock()

    @contextmanager
    def entered(self) -> Iterator[LoopState]:
        """Do a piece of work on the running event loop; closing waits for it.

        Raises EngineStateError when the engine is closed, was made before a fork, or serves another loop that still
        runs.
        """
        if os.getpid() != self._process:  # the lock may have been held when the process was forked
            raise EngineStateError(FORKED)
        loop = current_loop()
        with self._lock:
            if self._closed:
                raise EngineStateError(CLOSED)
            state = self._state
            if state is None or (state.loop is not loop and has_ended(state.loop)):
                state = self._state = LoopState(loop)
            elif state.loop is not loop:
                msg = "this engine serves another event loop that is still running: make an engine for each loop"
                raise EngineStateError(msg)
            state.active += 1
        try:
            yield state
        finally:
            state.leave()

    def expect_usable(self) -> None:
        """Raise EngineStateError when the engine is closed or was made before a fork. In a loop or out of one."""
        if os.getpid() != self._process:
            raise EngineStateError(FORKED)
        if self._closed:
            raise EngineStateError(CLOSED)

    def expect_usable_here(self) -> None:
        """Raise EngineStateError when the engine could not do a piece of work on the running event loop now."""
        with self.entered():
            pass

    def counts(self, backend_id: str) -> tuple[int, int]:
        """Say how many attempts of a backend are in flight, and how many other runs are admitted. From any thread."""
        state = self._state
        gate = None if state is None or has_ended(state.loop) else state.gates.get(backend_id)
        if gate is None:
            return 0, 0
        now = gate.state  # one value, so that the two belong together
        return now.running, now.waiting

    def client_for(self, state: LoopState, backend: Backend) -> ModelClient:
        """Give the client for a backend: the caller's own, or the built-in one of its kind."""
        if self._client is not None:
            return self._client
        if backend.kind == "embedded":
            return self._embedded_client()
        found = state.clients.get(backend.id)
        if found is None:
            found = state.clients[backend.id] = self._built_in(state, backend)
        return found

    def _embedded_client(self) -> EmbeddedClient:
        """Give the one client of embedded models. It is bound to no event loop."""
        from promptkit._effects.embedded import EmbeddedClient

        with self._lock:
            if self._embedded is None:
                self._embedded = EmbeddedClient()
            return self._embedded

    def _built_in(self, state: LoopState, backend: Backend) -> ModelClient:
        from promptkit._effects.http_client import HttpClient

        if self._http_client is not None:
            if self._http_loop is not None and self._http_loop is not state.loop:
                msg = "the http_client of this engine belongs to an event loop that has ended: make a new engine"
                raise EngineStateError(msg)
            self._http_loop = state.loop
        return HttpClient(backend, self._http_client, self.surroundings)

    async def aclose(self) -> None:
        """Refuse new runs, wait for those that were admitted, then close the built-in clients.

        In the child of a fork it does nothing: what there is to close is the parent's.
        """
        if os.getpid() != self._process:
            return
        loop = current_loop()
        if self._state is not None and inside_clients() & set(self._state.gates.values()):
            raise EngineStateError(CLOSED_INSIDE)
        with self._lock:
            self._closed = True
            state = self._state
        if state is not None and state.loop is not loop:
            if not has_ended(state.loop):
                msg = "this engine serves another event loop that is still running: close it there"
                raise EngineStateError(msg)
            state = None  # its connections ended with it
        if state is not None and state.active:
            state.idle = state.idle or anyio.Event()
            await state.idle.wait()
        with self._lock:
            embedded, self._embedded = self._embedded, None
        clients = [] if state is None else list(state.clients.values())
        built_in = [cast("ClosableClient", client) for client in (*clients, *([] if embedded is None else [embedded]))]
        await finish(lambda: _close_all(built_in))
