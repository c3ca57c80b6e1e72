"""Which backends can be waited for, one situation at a time. ``stateful/test_nested_waits.py`` has them all."""

from __future__ import annotations

import pytest

from promptkit._machines.deadlock import Permits, moving, ring

Backends = dict[str, Permits[str]]


def at_work(*kept: str) -> Permits[str]:
    return Permits(moving=True, kept=frozenset(map(frozenset, kept)))


def kept(*clients: str) -> Permits[str]:
    """Give the permits of clients that all wait: for each the letters of the backends that it waits at."""
    return Permits(moving=False, kept=frozenset(map(frozenset, clients)))


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"a": at_work()}, "a", id="one at work"),
        pytest.param({"a": at_work("b"), "b": kept("a")}, "ab", id="one of two permits at work"),
        pytest.param({"a": kept("b"), "b": kept("c"), "c": at_work()}, "abc", id="a chain that ends at one at work"),
        pytest.param({"a": kept("b"), "b": kept("a")}, "", id="two that wait for each other"),
        pytest.param({"a": kept("a")}, "", id="one that waits for itself"),
        pytest.param({"a": kept("b"), "b": kept("c"), "c": kept("a")}, "", id="a ring of three"),
        pytest.param({"a": kept("b", "c"), "b": kept("a"), "c": at_work()}, "abc", id="a way out of the ring"),
        pytest.param({"a": kept("bc"), "b": kept("a"), "c": at_work()}, "c", id="a client that waits at both"),
        pytest.param({"a": kept("b"), "b": kept("c"), "c": kept("b")}, "", id="one that waits for a ring of others"),
        pytest.param({"a": kept("b")}, "", id="one that waits for what is not there"),
    ],
)
def test_a_backend_moves_if_a_permit_is_at_work_or_kept_for_what_moves(backends: Backends, expected: str) -> None:
    assert moving(backends) == set(expected)


@pytest.mark.parametrize(
    ("backends", "way"),
    [
        pytest.param({"a": kept("b"), "b": at_work()}, "", id="what moves is in no ring"),
        pytest.param({"a": kept("a")}, "a", id="itself"),
        pytest.param({"a": kept("b"), "b": kept("a")}, "ab", id="two"),
        pytest.param({"a": kept("b"), "b": kept("c"), "c": kept("a")}, "abc", id="three"),
        pytest.param({"a": kept("b", "c"), "b": kept("c"), "c": kept("a")}, "ac", id="the shorter of two"),
        pytest.param(
            {"a": kept("dc"), "b": kept("a"), "c": kept("b"), "d": at_work()}, "acb", id="past one that moves"
        ),
        pytest.param({"a": kept("b"), "b": kept("c"), "c": kept("b")}, "", id="one that waits for a ring of others"),
        pytest.param({}, "", id="one that is not there"),
    ],
)
def test_the_ring_of_a_backend_is_a_shortest_way_back_to_it(backends: Backends, way: str) -> None:
    assert ring(backends, "a") == tuple(way)


def test_a_ring_may_be_long() -> None:
    names = range(1000)
    backends = {name: Permits(moving=False, kept=frozenset({frozenset({(name + 1) % 1000})})) for name in names}
    assert ring(backends, 0) == tuple(names)
    backends[999] = Permits(moving=True, kept=frozenset())
    assert moving(backends) == set(names)
