"""How a tree of what continues what is laid out in rows, whoever draws it.

What follows without a branch, a stretch, stands on one level, so that a long talk is not moved to the right. Of a long
stretch the ends are shown, and what is around a place. Nothing recurses: a conversation can be deep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

K = TypeVar("K")


class Row(NamedTuple, Generic[K]):
    """One row: a node, or how many nodes of a stretch it stands for, of which ``node`` is the last.

    ``level`` counts the branches above, ``begins`` says whether the row is the first of its stretch, ``last`` whether
    that stretch is the last branch of where it parts.
    """

    node: K
    left_out: int
    level: int
    begins: bool
    last: bool


def rows_of(
    roots: Sequence[K], children: Callable[[K], Sequence[K]], *, first: int, last: int, place: K | None = None
) -> Iterator[Row[K]]:
    """Lay out a tree, depth first. ``first`` and ``last`` say how much of the ends of a long stretch is shown."""
    waiting = [(root, 0, root is roots[-1]) for root in reversed(roots)]
    while waiting:
        begin, level, is_last = waiting.pop()
        stretch = [begin]
        while len(following := children(stretch[-1])) == 1:
            stretch += following
        begins = True
        for node, left_out in _shortened(stretch, first, last, place):
            yield Row(node, left_out, level, begins, is_last)
            begins = False
        waiting += ((node, level + 1, node is following[-1]) for node in reversed(following))


def _shortened(stretch: Sequence[K], first: int, last: int, place: K | None) -> Iterator[tuple[K, int]]:
    """Give the nodes to show, each with 0, and between them how many are left out: one alone is shown."""
    near = stretch.index(place) if place is not None and place in stretch else -2
    shown = [
        index
        for index in range(len(stretch))
        if index < first or index >= len(stretch) - last or abs(index - near) <= 1
    ]
    before = -1
    for index in (*shown, len(stretch)):
        left_out = index - before - 1
        if left_out:
            yield stretch[index - 1], left_out if left_out > 1 else 0
        if index < len(stretch):
            yield stretch[index], 0
        before = index
