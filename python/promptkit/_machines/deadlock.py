"""Which backends can still be waited for, when model clients run on other backends.

A model client that waits for a run of its own keeps its permit for as long as that run waits. Nothing else holds a
permit for ever, so:

    a backend moves    if one of its permits is free or at work,
                       or is kept for runs that all wait at backends that move
    a wait ends        if its backend moves: the permit goes through the whole queue

The backends that move are the smallest set for which this holds; the others wait for each other. A new wait at a
backend that moves with it leaves every other moving, so it is enough to look at each wait when it begins.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

B = TypeVar("B", bound=Hashable)


class Permits(NamedTuple, Generic[B]):
    """The permits of one backend.

    ``moving`` says that one of them is free, or that its client waits for no run. ``kept`` has for the other clients
    the backends at which the runs inside of each wait.
    """

    moving: bool
    kept: frozenset[frozenset[B]]


def moving(backends: Mapping[B, Permits[B]]) -> frozenset[B]:
    """Give the backends at which a wait ends. What is not among ``backends`` does not move."""
    found = frozenset[B]()
    while True:
        more = frozenset(
            name
            for name, permits in backends.items()
            if permits.moving or any(waited_for <= found for waited_for in permits.kept)
        )
        if more == found:
            return found
        found = more


def ring(backends: Mapping[B, Permits[B]], start: B) -> tuple[B, ...]:
    """Give a shortest way from a backend that does not move back to itself, each waiting for the next, or ().

    One that does not move without being on such a way waits for others' ring, and moves again when that is broken.
    """
    stuck = backends.keys() - moving(backends)
    ways: list[tuple[B, ...]] = [(start,)] if start in stuck else []
    seen: set[B] = set()
    for way in ways:
        waited_for = frozenset[B]().union(*backends[way[-1]].kept) & stuck
        if start in waited_for:
            return way
        following = [name for name in backends if name in waited_for - seen]
        seen.update(following)
        ways.extend((*way, name) for name in following)
    return ()
