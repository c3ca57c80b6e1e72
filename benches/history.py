"""Measure what a long history costs, beside what people use today: `make bench`.

Every implementation runs in a process of its own; one is asked at a time, in rounds that take turns. Figures are
medians of CPU time. A cell is left out where it would take longer than its budget.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import report
from picture import draw
from process import PEERS_PYTHON, Process, put_on_page, say
from promptkit import _history
from subjects import HERE, PEERS, TITLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER = Path(__file__).resolve().parent
DEPTHS = (1, 10, 100, 1_000, 10_000, 100_000)
BODY_EVERY_TURN = 1_000  # 10,000 turns are 64 GB of bodies
BUDGET = {"build": 30.0, "build_body": 30.0}
BUDGET_ELSE = 2.0
BUDGET_LOAD = 5.0
COLD_ROUNDS = 15
ENGINE_ROUNDS = 5


def worker_of(name: str) -> Process:
    """Start the process of an implementation."""
    return Process("worker.py", name, peer=name in PEERS)


class Bench:
    """One run."""

    def __init__(self, workers: dict[str, Process]) -> None:
        self.workers = workers
        self.cells: report.Cells = {}
        self._loads: dict[str, float] = {}

    def times(self) -> None:
        """Fill the table, depth by depth."""
        for depth in DEPTHS:
            say(f"depth {depth:,}")
            for name, ask in self.workers.items():
                if self._loads.get(name, 0.0) * 10 <= BUDGET_LOAD:
                    self._loads[name] = ask("hold", depth=depth)["cpu"]
                else:
                    self._loads[name] = float("inf")
            for what in report.WHAT:
                if what != "build_body" or depth <= BODY_EVERY_TURN:
                    self._rounds(what, depth)
            if depth == 1_000:
                self._floors(depth)
            for ask in self.workers.values():
                ask("release")

    def _rounds(self, what: str, depth: int) -> None:
        budget = BUDGET.get(what, BUDGET_ELSE)
        plans: dict[str, tuple[int, int]] = {}  # how many times a sample, how many samples
        samples: dict[str, list[dict[str, float]]] = {}
        for name, ask in self.workers.items():
            if self._expected(what, depth, name) > budget or self._loads[name] > BUDGET_LOAD:
                self.cells[what, depth, name] = {"late": budget}
                continue
            first = ask("measure", what=what, depth=depth, count=1, limit=budget)
            samples[name] = [first]
            if "late" in first:
                self.cells[what, depth, name] = first
                continue
            most = max(1, 2_000 // depth) if what in ("build", "build_body", "drop") else 2_000
            cost = max(first["wall"], 1e-6)
            plans[name] = (min(most, max(1, int(0.02 / cost))), 5 if cost < 0.2 else 3 if cost < 1 else 0)
        for turn in range(max((rounds for _, rounds in plans.values()), default=0)):
            names = list(plans)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                count, rounds = plans[name]
                if turn < rounds:
                    ask = self.workers[name]
                    samples[name].append(ask("measure", what=what, depth=depth, count=count, limit=budget * 4))
        for name, (_, rounds) in plans.items():
            kept = samples[name][1:] or samples[name]  # the first one only says how long it takes
            self.cells[what, depth, name] = {
                "cpu": median(sample["cpu"] for sample in kept),
                "wall": median(sample["wall"] for sample in kept),
                "rounds": max(1, rounds),
            }

    def _expected(self, what: str, depth: int, name: str) -> float:
        """Say how long a thing will at least take at this depth, by how it grew."""
        before = [self.cells.get((what, depth // step, name), {}) for step in (10, 100)]
        if "late" in before[0]:
            return float("inf")
        last, previous = before[0].get("wall", 0.0), before[1].get("wall", 0.0)
        quadratic = what in BUDGET and previous > 0 and last / previous > 15
        return last * (100 if quadratic else 10)

    def _floors(self, depth: int) -> None:
        """Measure what the goals compare with: a plain copy, and both encoders with cold caches."""
        for turn in range(COLD_ROUNDS):
            asked = [("cold_body", report.OURS), ("cold_body", "plain_list"), ("cold_copy", "plain_list")]
            asked += [("copy", "plain_list"), ("body", report.OURS)]
            first = turn % len(asked)
            for what, name in asked[first:] + asked[:first]:
                count = 1 if what.startswith("cold") else 100
                sample = self.workers[name]("measure", what=what, depth=depth, count=count, limit=60)
                self.cells.setdefault((f"floor {what}", depth, name), {}).setdefault(str(turn), sample["cpu"])

    def floor(self, what: str, name: str) -> float:
        """Give the median of one of them."""
        return median(self.cells[f"floor {what}", 1_000, name].values())


def memory(names: tuple[str, ...]) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Measure resident memory in fresh processes, and how many branches the time was enough for."""
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in names} for kind in report.MEMORY}
    made: dict[str, float] = {}
    for turn in range(3):
        say(f"memory, round {turn + 1} of 3")
        for name in names:
            if turn and name in PEERS:
                continue  # theirs is far from any goal, and takes long
            with worker_of(name) as ask:
                found["message"][name].append(ask("message_memory", depth=20_000)["bytes"])
            with worker_of(name) as ask:
                answer = ask("branch_memory", depth=1_000, branches=1_000, limit=3)
            found["branches"][name].append(answer["bytes"])
            made[name] = answer["branches"]
    medians = {kind: {name: median(values) for name, values in of.items()} for kind, of in found.items()}
    return medians, made


def engine() -> dict[str, float]:
    """Measure a conversation through the engine, in fresh processes."""
    say("1,000 turns through the engine")
    runs = []
    for _ in range(ENGINE_ROUNDS):
        command = [sys.executable, str(FOLDER / "engine_turns.py")]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))  # noqa: S603
    return {key: median(run[key] for run in runs) for key in runs[0]}


def branches() -> dict[str, float]:
    """Measure a branch of a short and of a long history, in turns: the goal is that they cost the same."""
    found: dict[str, list[float]] = {"branch 10": [], "branch 10000": []}
    with worker_of(report.OURS) as short, worker_of(report.OURS) as long:
        short("hold", depth=10)
        long("hold", depth=10_000)
        for turn in range(COLD_ROUNDS + 1):
            for name, ask, depth in (("branch 10", short, 10), ("branch 10000", long, 10_000)):
                sample = ask("measure", what="branch", depth=depth, count=2_000, limit=60)
                if turn:  # the first one warms up
                    found[name].append(sample["cpu"])
    return {name: median(costs) for name, costs in found.items()}


def main() -> None:
    """Measure, print, keep."""
    names = HERE + (PEERS if PEERS_PYTHON.exists() else ())
    if names == HERE:
        say("pydantic-ai, LangGraph and llm are left out: `make bench-peers` makes the environment they run in")
    build = built()
    workers = {name: worker_of(name) for name in names}
    try:
        versions = {package: version for ask in workers.values() for package, version in ask("versions").items()}
        bench = Bench(workers)
        bench.times()
    finally:
        for worker in workers.values():
            worker.__exit__(None, None, None)
    stored, made = memory(names)
    through = engine()
    ours = {
        (what, depth): cell.get("cpu", 0.0) for (what, depth, name), cell in bench.cells.items() if name == report.OURS
    }
    judged = report.goals(
        {
            "body warm": bench.floor("body", report.OURS),
            "memcpy": bench.floor("copy", "plain_list"),
            "body cold": bench.floor("cold_body", report.OURS),
            "msgspec cold": bench.floor("cold_body", "plain_list"),
            "copy cold": bench.floor("cold_copy", "plain_list"),
            "engine": through["whole"],
            "engine turn 15": through["turn 15"],
            "engine turn 1000": through["turn 1000"],
            **branches(),
            "branches": stored["branches"][report.OURS],
            "message": stored["message"][report.OURS],
            "digest": ours["digest", 1_000],
        }
    )
    machine = f"{os.cpu_count()} {platform.machine()} cores, CPython {platform.python_version()}"
    lines = [
        f"CPU time, medians; N x: so many times promptkit's. {machine}",
        *report.table({key: cell for key, cell in bench.cells.items() if key[0] in report.WHAT}, stored, names),
        "> N s: not measured, since it takes longer than the N s of its budget",
        *(f"{TITLES[n]}: {k:.0f} branches made, their memory scaled to 1,000" for n, k in made.items() if k < 1_000),
        "",
        *report.goal_lines(judged),
    ]
    print(*lines, sep="\n")
    if built() != build:
        sys.exit("bench: the history store was built anew in the meantime: these are figures of two, and are not kept")
    keep(bench.cells, {"machine": machine, "versions": versions, "memory": stored, "branches made": made,
                       "engine": through, "goals": judged})  # fmt: skip
    if names != HERE:
        put_on_page("history", lines)  # the page has a whole run


def built() -> str:
    """Say which build of the history store there is."""
    return sha256(Path(str(_history.__file__)).read_bytes()).hexdigest()


def keep(cells: report.Cells, rest: dict[str, Any]) -> None:
    """Write the figures and the picture."""
    results = FOLDER / "results"
    results.mkdir(exist_ok=True)
    rows = [{"what": what, "depth": depth, "who": TITLES[name], **cell} for (what, depth, name), cell in cells.items()]
    (results / "history.json").write_text(json.dumps({**rest, "cells": rows}, indent=1) + "\n")
    (results / "history.svg").write_text(picture(rows))


def picture(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw the figures that are kept."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        if row["what"] in report.WHAT and "cpu" in row:
            panels.setdefault(report.WHAT[row["what"]], {}).setdefault(row["who"], {})[row["depth"]] = row["cpu"]
    return draw(panels)


if __name__ == "__main__":
    main()
