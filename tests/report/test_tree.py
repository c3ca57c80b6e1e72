"""The tree of runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptkit._report.runs import runs_of
from promptkit._report.tree import Place, in_tree_order
from report.traces import started


def tree(*pairs: tuple[str, str | None]) -> tuple[Place, ...]:
    """Place runs that start one after the other, each given with its parent."""
    events = [started(run_id, float(n), parent_run_id=parent) for n, (run_id, parent) in enumerate(pairs)]
    return in_tree_order(runs_of(events).runs)


def test_a_run_is_followed_by_those_that_continue_it() -> None:
    places = tree(("a", None), ("b", None), ("a1", "a"), ("b1", "b"), ("a2", "a"), ("a11", "a1"))
    assert [(place.run.run_id, place.depth, place.parent_number) for place in places] == [
        ("a", 0, None),
        ("a1", 1, 1),
        ("a11", 2, 2),
        ("a2", 1, 1),
        ("b", 0, None),
        ("b1", 1, 5),
    ]
    assert [place.number for place in places] == [1, 2, 3, 4, 5, 6]


def test_a_parent_that_is_not_in_the_trace_is_absent() -> None:
    assert [(place.parent, place.depth) for place in tree(("a", "gone"), ("b", "a"))] == [("absent", 0), ("shown", 1)]


def test_a_parent_may_come_after_its_child() -> None:
    assert [place.run.run_id for place in tree(("child", "parent"), ("parent", None))] == ["parent", "child"]


def test_parents_that_lead_back_to_themselves_begin_with_the_earliest() -> None:
    places = tree(("root", None), ("a", "b"), ("b", "a"), ("self", "self"), ("below", "b"))
    assert [(place.run.run_id, place.parent, place.depth) for place in places] == [
        ("root", "none", 0),
        ("a", "circular", 0),
        ("b", "shown", 1),
        ("below", "shown", 2),
        ("self", "circular", 0),
    ]


def test_a_chain_of_ten_thousand_runs_is_placed() -> None:
    places = tree(("0", None), *((str(n), str(n - 1)) for n in range(1, 10_000)))
    assert (len(places), places[-1].depth, places[-1].parent_number) == (10_000, 9_999, 9_999)


@given(st.lists(st.one_of(st.none(), st.integers(0, 25)), max_size=20))
def test_every_run_has_one_place_after_its_parent(parents: list[int | None]) -> None:
    places = tree(*((str(n), None if parent is None else str(parent)) for n, parent in enumerate(parents)))
    assert sorted(int(place.run.run_id) for place in places) == list(range(len(parents)))
    numbers = {place.run.run_id: place.number for place in places}
    for place in places:
        if place.parent == "shown":
            assert place.parent_number == numbers[str(place.run.parent_run_id)] < place.number
        else:
            assert place.parent_number is None
