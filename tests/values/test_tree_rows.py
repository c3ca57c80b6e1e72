from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptkit._values.tree_rows import Row, rows_of

PARENTS = st.lists(st.integers(0, 30), max_size=60).map(lambda given: [p % (n + 1) for n, p in enumerate(given)])


def _children(parents: list[int]) -> list[list[int]]:
    """Give what follows each node, where node n + 1 follows parents[n]."""
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for number, parent in enumerate(parents, 1):
        children[parent].append(number)
    return children


def test_a_stretch_stands_on_one_level_and_branches_begin_the_next() -> None:
    children = _children([0, 1, 1, 3])
    assert list(rows_of([0], children.__getitem__, first=2, last=2)) == [
        Row(0, 0, level=0, begins=True, last=True),
        Row(1, 0, level=0, begins=False, last=True),
        Row(2, 0, level=1, begins=True, last=False),
        Row(3, 0, level=1, begins=True, last=True),
        Row(4, 0, level=1, begins=False, last=True),
    ]


def test_of_a_long_stretch_the_ends_and_what_is_around_the_place_are_shown() -> None:
    children = _children(list(range(20)))
    rows = list(rows_of([0], children.__getitem__, first=2, last=3, place=10))
    assert [(row.node, row.left_out) for row in rows] == [
        (0, 0), (1, 0), (8, 7), (9, 0), (10, 0), (11, 0), (17, 6), (18, 0), (19, 0), (20, 0),
    ]  # fmt: skip


def test_an_end_of_which_nothing_is_shown_is_counted() -> None:
    children = _children(list(range(5)))
    rows = list(rows_of([0], children.__getitem__, first=2, last=0))
    assert [(row.node, row.left_out) for row in rows] == [(0, 0), (1, 0), (5, 4)]


def test_one_node_alone_is_never_left_out() -> None:
    children = _children(list(range(5)))
    rows = list(rows_of([0], children.__getitem__, first=2, last=3))
    assert [(row.node, row.left_out) for row in rows] == [(number, 0) for number in range(6)]


def test_several_roots_are_laid_out_one_after_the_other() -> None:
    rows = rows_of(["a", "b"], lambda node: ["c"] if node == "b" else [], first=1, last=1)
    assert [(row.node, row.begins, row.last) for row in rows] == [
        ("a", True, False),
        ("b", True, True),
        ("c", False, True),
    ]


@given(PARENTS, st.integers(1, 3), st.integers(0, 3), st.integers(0, 60))
def test_every_node_is_in_one_row(parents: list[int], first: int, last: int, place: int) -> None:
    children = _children(parents)
    rows = list(rows_of([0], children.__getitem__, first=first, last=last, place=place))
    assert sum(row.left_out or 1 for row in rows) == len(children)
    assert len({row.node for row in rows}) == len(rows)
    if place < len(children):
        assert [row.left_out for row in rows if row.node == place] == [0]
    assert {row.level for row in rows} == set(range(max(row.level for row in rows) + 1))
