"""The capacity of one backend on one event loop: carries out what the admission machine decides.

A run that was started inside a model client may wait for permits that are kept for runs like itself. So it makes its
wait known at the gates of all the clients that it is inside of, and then looks whether the wait can end. What is looked
at is reached from the gate that it waits at: a gate knows the waits inside its clients, and a wait knows its gate.

Such gates may belong to other event loops, when a client runs in another thread. Each wait is one entry that is added
and removed as a whole, and added before anybody looks: of waits that begin at once in several threads, the one that is
added last sees all. Nothing is locked.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Literal

import anyio
from returns.result import Failure, Result, Success

from promptkit._machines.admission import Admission, admit, ask, leave, release, withdraw
from promptkit._machines.deadlock import Permits, ring
from promptkit.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit._values.definitions import Backend

APART = "give runs inside a model client a backend or an engine of their own"

# The model clients that the current code runs inside of. A task that one of them started has them too, even after it.
_inside: ContextVar[tuple[Inside, ...]] = ContextVar("promptkit_inside", default=())


def inside_clients() -> set[Gate]:
    """Give the gates whose permits the model clients hold that the current code runs inside of."""
    return {gate for inside in _inside.get() if (gate := inside.gate) is not None}


class Gate:
    """Admits runs and hands over permits. Used from one event loop, readable from any thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend.id
        self._state = Admission(max_concurrency=backend.concurrency, max_waiting=backend.max_waiting)
        self._waiters: dict[int, anyio.Event] = {}
        self._tickets: Iterator[int] = count()
        self.waits_inside: set[_Wait] = set()  # of runs inside the clients that hold permits of this gate

    @property
    def state(self) -> Admission:
        """The counts at this moment."""
        return self._state

    def admit(self) -> Result[Lease, CapacityError]:
        """Take a lease for a run, or say why there is none."""
        admitted = admit(self._state)
        if admitted is None:
            with self._nested_wait() as endless:
                return Failure(endless or self._refusal("full", "is full", "try again later, or raise max_waiting"))
        self._state = admitted
        return Success(Lease(self))

    def leave(self) -> None:
        """Give a lease back."""
        self._state = leave(self._state)

    async def acquire(self) -> None:
        """Wait for a permit. A waiter that is cancelled, even at the moment of hand-over, loses nothing.

        Raises CapacityError for a run inside a model client, if the wait would never end.
        """
        if not self._state.would_wait:
            self._state, _ = ask(self._state, next(self._tickets))
        elif _inside.get():
            with self._nested_wait() as endless:
                if endless is not None:
                    raise endless
                await self._queue()
        else:
            await self._queue()

    async def _queue(self) -> None:
        ticket = next(self._tickets)
        self._state, _ = ask(self._state, ticket)
        event = self._waiters[ticket] = anyio.Event()
        try:
            await event.wait()
        except BaseException:
            withdrawn = withdraw(self._state, ticket)
            if withdrawn is None:
                self.release()
            else:
                self._state = withdrawn
            raise
        finally:
            del self._waiters[ticket]

    def release(self) -> None:
        """Give a permit back, to the first who waits for one."""
        self._state, granted = release(self._state)
        if granted is not None:
            self._waiters[granted].set()

    @contextmanager
    def _nested_wait(self) -> Iterator[CapacityError | None]:
        """Make known that a run of this context would wait here, and give the error if that would never end."""
        clients = {inside: gate for inside in _inside.get() if (gate := inside.gate) is not None}
        wait = _Wait(self, frozenset(clients))
        gates = set(clients.values()) if self._state.would_wait else set[Gate]()
        for gate in gates:
            gate.waits_inside.add(wait)
        try:
            yield self._endless(gates) if gates else None
        finally:
            for gate in gates:
                gate.waits_inside.discard(wait)

    def _endless(self, gates: set[Gate]) -> CapacityError | None:
        if self in gates:
            return self._refusal(
                "re-entrant", "would wait for itself: this run was started inside its model client", APART
            )
        seen: dict[Gate, Permits[Gate]] | None = None
        while way := ring(now := self._reachable(), self):
            if now == seen:  # nothing moved in another thread while it was looked at
                ways = ", which waits for ".join(gate.name_beside(self) for gate in (*way[1:], self))
                text = f"would wait in a ring of model clients: {self._backend!r} waits for {ways}"
                return self._refusal("re-entrant", text, APART)
            seen = now
        return None

    def name_beside(self, other: Gate) -> str:
        """Give the backend's name for a text about another one, which may have the same in another engine."""
        apart = self is not other and self._backend == other._backend
        return f"{self._backend!r} of another engine" if apart else repr(self._backend)

    def _reachable(self) -> dict[Gate, Permits[Gate]]:
        """Give the permits of this backend, and of those that its clients wait for, as far as none of them moves."""
        found: dict[Gate, Permits[Gate]] = {}
        following = [self]
        for gate in following:
            if gate not in found:
                found[gate] = gate.permits()
                if not found[gate].moving:
                    following.extend(frozenset[Gate]().union(*found[gate].kept))
        return found

    def permits(self) -> Permits[Gate]:
        """Say which of the permits may come back, and what the others are kept for."""
        kept: dict[Inside, set[Gate]] = {}
        for wait in self.waits_inside.copy():
            for client in wait.clients:
                if client.gate is self:
                    kept.setdefault(client, set()).add(wait.gate)
        state = self._state
        # One that was handed over a moment ago, or whose client is not called yet, is at work.
        moving = len(kept) < state.permits or state.permits < state.max_concurrency
        return Permits(moving, frozenset(map(frozenset, kept.values())))

    def _refusal(self, reason: Literal["full", "re-entrant"], text: str, remedy: str) -> CapacityError:
        state = self._state
        counts = f"{state.running} running, {state.waiting} waiting"
        limits = f"max_concurrency {state.max_concurrency}, max_waiting {state.max_waiting}"
        return CapacityError(
            f"backend {self._backend!r} {text}: {counts} ({limits}): {remedy}",
            backend=self._backend,
            running=state.running,
            waiting=state.waiting,
            max_concurrency=state.max_concurrency,
            max_waiting=state.max_waiting,
            reason=reason,
        )


class _Wait:
    """A run that waits at a gate, inside these model clients. Two of them are never equal."""

    __slots__ = ("clients", "gate")

    def __init__(self, gate: Gate, clients: frozenset[Inside]) -> None:
        self.gate = gate
        self.clients = clients


class Lease:
    """An admitted run, and the permit that it may have; leaving the context gives both back."""

    __slots__ = ("_has_permit", "gate")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._has_permit = False

    def __enter__(self) -> Gate:
        return self.gate

    def __exit__(self, *exc: object) -> None:
        # An interrupt can come between any two steps: just after the permit was taken, nobody was told of it yet. It is
        # one that is left behind, for sure, where as many permits are out as leases.
        state = self.gate.state
        if self._has_permit or state.leases == state.permits:
            self.release()
        self.gate.leave()

    async def acquire(self) -> None:
        """Wait for a permit, as ``Gate.acquire`` does."""
        await self.gate.acquire()
        self._has_permit = True

    def release(self) -> None:
        """Give the permit back."""
        self._has_permit = False  # first: a permit that is given back twice is another run's
        self.gate.release()


class Inside:
    """Marks the code of a model client, so that a run started there is known to be re-entrant.

    ``gate`` is the one whose permit the client holds, and None when the client has returned.
    """

    __slots__ = ("_token", "gate")

    def __init__(self, gate: Gate) -> None:
        self.gate: Gate | None = gate

    def __enter__(self) -> None:
        outer = _inside.get()
        if outer:  # clients that have returned are forgotten, or tasks that start each other would pile them up
            outer = tuple(inside for inside in outer if inside.gate is not None)
        self._token = _inside.set((*outer, self))

    def __exit__(self, *exc: object) -> None:
        self.gate = None
        try:
            _inside.reset(self._token)
        except ValueError:  # whoever closes a coroutine does it in a context of his own, which was never marked
            return
