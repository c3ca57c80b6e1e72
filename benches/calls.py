"""Measure what a call costs, beside the bare HTTP client and what people use today: part of `make bench`.

One server on one core, all clients on another. promptkit and the bare client live in one process and take turns in
rounds; the peers have a process of their own and are asked in between. Figures are medians of CPU time, user and
system.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from callers import HERE, PEERS, TITLES
from process import PEERS_PYTHON, Process, put_on_page, say
from report import goal_lines, judged, ratio, seconds

FOLDER = Path(__file__).resolve().parent
DEPTHS = (1, 10, 100, 1_000, 10_000)
TASKS = (64, 512)
ALONE = "promptkit_alone"
SENT = "bare_bytes"
OURS, FLOOR = HERE
ROUNDS = 11
SAMPLE = 0.05  # seconds of calls between two looks at the clock
SLOW = 1.0  # of a single call: who is slower is asked three times


def measure(
    processes: dict[str, Process], names: tuple[str, ...], at_a_time: tuple[int, ...] = (1,)
) -> dict[int, dict[str, float]]:
    """Give the CPU seconds of a call of each, so many at a time, in rounds in which all of them take turns."""
    counts: dict[tuple[str, int], int] = {}
    rounds: dict[tuple[str, int], int] = {}
    cases = tuple((name, tasks) for tasks in at_a_time for name in names)
    for name, tasks in cases:
        processes[name]("call", name=name, count=1, tasks=tasks)  # connects
        first = processes[name]("call", name=name, count=1, tasks=tasks)
        if len(first["said"]) != 1 or len(first["said"][0]) < 100:
            msg = f"{name} was answered {first['said']}"
            raise RuntimeError(msg)
        cost = first["wall"] * tasks
        counts[name, tasks] = max(1, int(SAMPLE / cost))
        rounds[name, tasks] = ROUNDS if cost < SLOW else 3
    found: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    for turn in range(ROUNDS):
        first_one = turn % len(cases)
        for name, tasks in cases[first_one:] + cases[:first_one]:
            if turn < rounds[name, tasks]:
                call = processes[name]("call", name=name, count=counts[name, tasks], tasks=tasks)
                found[name, tasks].append(call["cpu"])
    return {tasks: {name: median(found[name, tasks]) for name in names} for tasks in at_a_time}


def by_depth(processes: dict[str, Process], names: tuple[str, ...], base_url: str) -> dict[int, dict[str, float]]:
    """Measure continuations of conversations of many depths, one call at a time."""
    found = {}
    for name in names:
        processes[name]("open", name=name, base_url=base_url, concurrency=8)
    for depth in DEPTHS:
        say(f"calls at depth {depth:,}")
        for name in names:
            processes[name]("hold", name=name, depth=depth)
        found[depth] = measure(processes, names)[1]
    for name in names:
        processes[name]("close", name=name)
    return found


def at_once(processes: dict[str, Process], names: tuple[str, ...], base_url: str) -> dict[int, dict[str, float]]:
    """Measure first turns, many at the same time."""
    say(f"{' and '.join(map(str, TASKS))} calls at a time")
    for name in names:
        processes[name]("open", name=name, base_url=base_url, concurrency=max(TASKS))
        processes[name]("hold", name=name, depth=1)
    found = measure(processes, names, TASKS)
    for name in names:
        processes[name]("close", name=name)
    return found


def goals(depths: dict[int, dict[str, float]], tasks: dict[int, dict[str, float]]) -> list[dict[str, str]]:
    """Judge what was measured."""
    one, thousand, most = (depths[depth] for depth in (1, 1_000, 10_000))
    message, sent = ((thousand[name] - one[name]) / (2 * 999) for name in (OURS, SENT))
    rows = [
        judged("1", "continuation at depth 1, against bare httpx", one[OURS] / one[FLOOR], (1.6, 1.25), ratio),
        judged("2", "depth 1,000, against bare httpx", thousand[OURS] / thousand[FLOOR], (1.0, 0.75), ratio),
        judged("3", "depth 10,000, against bare httpx", most[OURS] / most[FLOOR], (1.0, 0.8), ratio),
        judged("4", "a stored message, sending included *", message, (0.4e-6, 0.25e-6), seconds),
        judged("4", "only to send it, encoded before *", sent, (None, None), seconds),
        judged("12", "64 at a time, against bare httpx", tasks[64][OURS] / tasks[64][FLOOR], (1.5, 1.25), ratio),
        judged("13", "512 at a time, against 64", tasks[512][OURS] / tasks[64][OURS], (1.3, 1.15), ratio),
        judged("14", "promptkit without HTTP and body *", one[ALONE], (200e-6, 100e-6), seconds),
    ]
    for name in PEERS:
        if name in thousand:
            goal = f"depth 1,000, of {TITLES[name]}"
            rows.append(judged("2", goal, thousand[OURS] / thousand[name], (0.01, 0.01), _part))
    return rows


def _part(value: float) -> str:
    return f"1/{1 / value:,.0f}"


def table(names: tuple[str, ...], depths: dict[int, dict[str, float]], tasks: dict[int, dict[str, float]]) -> list[str]:
    """Lay out all of it: CPU of a call, and how many times promptkit's it is."""
    lines = [f"{'':>9}" + "".join(f"{TITLES[name]:>{19 if place else 10}}" for place, name in enumerate(names))]
    for title, cells in (("one call, by turns", depths), ("first turns, so many at a time", tasks)):
        lines.append(title)
        for number, costs in cells.items():
            shown = [f"{seconds(costs[OURS]):>10}"]
            shown += [f"{seconds(costs[n]):>10}{ratio(costs[n] / costs[OURS]):>9}" for n in names[1:] if n in costs]
            lines.append(f"{number:>9,}" + "".join(shown))
    return lines


def main() -> None:
    """Measure, print, keep."""
    peers = PEERS if PEERS_PYTHON.exists() else ()
    if not peers:
        say("openai and pydantic-ai are left out: `make bench-peers` makes the environment they run in")
    command = [sys.executable, str(FOLDER / "server.py")]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,  # noqa: S603
        Process("call_worker.py", OURS, FLOOR, ALONE, SENT) as here,
    ):
        there = {name: Process("call_worker.py", name, peer=True) for name in peers}
        processes = {OURS: here, FLOOR: here, ALONE: here, SENT: here, **there}
        try:
            base_url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"  # type: ignore[union-attr]  # it is a pipe
            versions = {name: number for ask in processes.values() for name, number in ask("versions").items()}
            depths = by_depth(processes, (*HERE, ALONE, SENT, *peers), base_url)
            tasks = at_once(processes, (*HERE, *peers), base_url)
        finally:
            for process in there.values():
                process.__exit__(None, None, None)
            server.terminate()
    machine = f"{os.cpu_count()} {platform.machine()} cores, CPython {platform.python_version()}"
    found = goals(depths, tasks)
    lines = [
        f"CPU time of a call, medians; N x: so many times promptkit's. {machine}",
        *table((*HERE, *peers), depths, tasks),
        "",
        *goal_lines(found),
    ]
    print(*lines, sep="\n")
    results: dict[str, Any] = {
        "machine": machine,
        "versions": versions,
        "depths": {depth: {TITLES.get(n, n): cost for n, cost in costs.items()} for depth, costs in depths.items()},
        "tasks": {count: {TITLES.get(n, n): cost for n, cost in costs.items()} for count, costs in tasks.items()},
        "goals": found,
    }
    (FOLDER / "results" / "calls.json").write_text(json.dumps(results, indent=1) + "\n")
    if peers:
        put_on_page("calls", lines)  # the page has a whole run


if __name__ == "__main__":
    main()
