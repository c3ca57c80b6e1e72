"""Who may run on a backend, and who may call it now.

A *lease* admits a run: there are ``max_concurrency + max_waiting`` of them, and the next one is refused. A *permit* is
one active attempt: there are ``max_concurrency`` of them, handed over first come, first served.

    input      lease free      no lease
    admit      a lease         refused, state unchanged

    input      permit free and nobody waits      otherwise
    ask        granted                           queued at the end

    release    the permit goes to the first in the queue, if there is one; else it is free
    withdraw   leaves the queue; whoever was granted in the meantime must release instead
    leave      the lease is free
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one backend. ``queue`` holds the tickets of those who wait for a permit, oldest first."""

    max_concurrency: int
    max_waiting: int
    leases: int = 0
    permits: int = 0
    queue: tuple[int, ...] = ()

    @property
    def running(self) -> int:
        """How many attempts are in flight."""
        return self.permits

    @property
    def waiting(self) -> int:
        """How many other runs are admitted: queued, between attempts, or waiting to retry."""
        return self.leases - self.permits

    @property
    def would_wait(self) -> bool:
        """Whether a permit asked for now would not be granted at once."""
        return self.permits >= self.max_concurrency or bool(self.queue)


class Handover(NamedTuple):
    """The state after a permit came free, and the ticket that has it now, if any."""

    state: Admission
    granted: int | None


def admit(state: Admission) -> Admission | None:
    """Take a lease, or None when there is none."""
    if state.leases >= state.max_concurrency + state.max_waiting:
        return None
    return msgspec.structs.replace(state, leases=state.leases + 1)


def leave(state: Admission) -> Admission:
    """Give the lease back. Raises ValueError when there is none to give back."""
    if state.leases <= state.permits:
        msg = "a lease is given back that nobody holds"
        raise ValueError(msg)
    return msgspec.structs.replace(state, leases=state.leases - 1)


def ask(state: Admission, ticket: int) -> Handover:
    """Ask for a permit: granted at once, or queued under ``ticket``."""
    if state.would_wait:
        return Handover(msgspec.structs.replace(state, queue=(*state.queue, ticket)), None)
    return Handover(msgspec.structs.replace(state, permits=state.permits + 1), ticket)


def release(state: Admission) -> Handover:
    """Give a permit back: it goes to the first in the queue, without being free in between.

    Raises ValueError when there is none to give back.
    """
    if state.permits == 0:
        msg = "a permit is given back that nobody holds"
        raise ValueError(msg)
    if not state.queue:
        return Handover(msgspec.structs.replace(state, permits=state.permits - 1), None)
    first, *rest = state.queue
    return Handover(msgspec.structs.replace(state, queue=tuple(rest)), first)


def withdraw(state: Admission, ticket: int) -> Admission | None:
    """Leave the queue, or None when the ticket is not in it because it was granted."""
    if ticket not in state.queue:
        return None
    return msgspec.structs.replace(state, queue=tuple(waiter for waiter in state.queue if waiter != ticket))
