"""Runs in the order of their tree: each run is followed by those that continue it.

A parent may be absent from the trace, and in a file that was tampered with a chain of parents may lead back to itself:
then its earliest run is taken for the first.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit._report.runs import Run

Parent = Literal["none", "shown", "absent", "circular"]


class Place(NamedTuple):
    """A run and its place in the tree: its number (from 1), its depth (from 0), and its parent, if that is shown."""

    run: Run
    number: int
    depth: int
    parent: Parent
    parent_number: int | None


def in_tree_order(runs: Sequence[Run]) -> tuple[Place, ...]:
    """Order runs as a tree; runs without a parent, and those of one parent, in the order that they have."""
    present = {run.run_id for run in runs}
    children: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.parent_run_id in present:
            children[run.parent_run_id].append(run)
    numbers: dict[str, int] = {}
    places: list[Place] = []
    roots = [run for run in runs if run.parent_run_id not in present]
    # Whatever the roots do not reach is in a circle or hangs on one.
    for root in (*roots, *runs):
        for run, depth in _walk(root, children, numbers):
            numbers[run.run_id] = len(places) + 1
            above = numbers.get(run.parent_run_id) if run.parent_run_id is not None and depth else None
            places.append(Place(run, len(places) + 1, depth, _parent(run, depth, present), above))
    return tuple(places)


def _walk(root: Run, children: dict[str, list[Run]], numbers: dict[str, int]) -> Iterator[tuple[Run, int]]:
    """Give a run and all below it that have no number yet, parents first. The caller numbers each that it is given."""
    waiting = [(root, 0)]
    while waiting:
        run, depth = waiting.pop()
        if run.run_id in numbers:
            continue
        yield run, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(run.run_id, []))]


def _parent(run: Run, depth: int, present: set[str]) -> Parent:
    if run.parent_run_id is None:
        return "none"
    if run.parent_run_id not in present:
        return "absent"
    return "shown" if depth else "circular"
