"""The capacity of one backend on one event loop: carries out what the admission machine decides."""

from __future__ import annotations

from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Literal

import anyio
from returns.result import Failure, Result, Success

from promptkit._machines.admission import Admission, admit, ask, leave, release, withdraw
from promptkit.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit._values.definitions import Backend

# The model clients that the current code runs inside of. A task that one of them started has them too, even after it.
_inside: ContextVar[tuple[Inside, ...]] = ContextVar("promptkit_inside", default=())


class Gate:
    """Admits runs and hands over permits. Used from one event loop, readable from any thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend.id
        self._state = Admission(max_concurrency=backend.concurrency, max_waiting=backend.max_waiting)
        self._waiters: dict[int, anyio.Event] = {}
        self._tickets: Iterator[int] = count()

    @property
    def state(self) -> Admission:
        """The counts at this moment."""
        return self._state

    def admit(self) -> Result[Lease, CapacityError]:
        """Take a lease for a run, or say why there is none."""
        admitted = admit(self._state)
        if admitted is None:
            return Failure(self._refusal(reason="full"))
        self._state = admitted
        return Success(Lease(self))

    def leave(self) -> None:
        """Give a lease back."""
        self._state = leave(self._state)

    async def acquire(self) -> None:
        """Wait for a permit. A waiter that is cancelled, even at the moment of hand-over, loses nothing."""
        if self._state.would_wait and any(inside.gate is self for inside in _inside.get()):
            raise self._refusal(reason="re-entrant")
        ticket = next(self._tickets)
        self._state, granted = ask(self._state, ticket)
        if granted is not None:
            return
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

    def _refusal(self, *, reason: Literal["full", "re-entrant"]) -> CapacityError:
        state = self._state
        counts = f"{state.running} running, {state.waiting} waiting"
        limits = f"max_concurrency {state.max_concurrency}, max_waiting {state.max_waiting}"
        if reason == "full":
            text = f"is full: {counts} ({limits}): try again later, or raise max_waiting"
        else:
            text = f"would wait for itself: this run was started inside its model client; {counts} ({limits})"
        return CapacityError(
            f"backend {self._backend!r} {text}",
            backend=self._backend,
            running=state.running,
            waiting=state.waiting,
            max_concurrency=state.max_concurrency,
            max_waiting=state.max_waiting,
            reason=reason,
        )


class Lease:
    """An admitted run; leaving the context ends it."""

    __slots__ = ("gate",)

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __enter__(self) -> Gate:
        return self.gate

    def __exit__(self, *exc: object) -> None:
        self.gate.leave()


class Inside:
    """Marks the code of a model client, so that a run started there is known to be re-entrant.

    ``gate`` is the one whose permit the client holds, and None when the client has returned.
    """

    __slots__ = ("_token", "gate")

    def __init__(self, gate: Gate) -> None:
        self.gate: Gate | None = gate

    def __enter__(self) -> None:
        self._token = _inside.set((*_inside.get(), self))

    def __exit__(self, *exc: object) -> None:
        self.gate = None
        _inside.reset(self._token)
