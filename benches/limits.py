"""Measure the store where it should end: a million turns, a million branches, a hundred thousand members of a group.

Run by `make bench`. Each measurement has a process of its own, since memory is part of it; times are wall times. On
systems without /proc the memory is left out.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from process import put_on_page
from promptkit import ExecutionGroup, RunFinished, RunStarted
from promptkit._history import Node, Turn
from promptkit._values.usage import NO_USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS = Path(__file__).resolve().parent / "results" / "limits.json"
QUESTION, ANSWER = "q" * 400, "a" * 800
TEXT = len(QUESTION) + len(ANSWER)
STATUS = Path("/proc/self/status")


def memory(name: str) -> int:
    """Give a figure of this process in bytes: VmRSS, what is resident, or VmHWM, the most that was."""
    if not STATUS.exists():
        return 0
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def conversation(turns: int) -> Node | None:
    """Build turn by turn, with run ids as the engine makes them."""
    node = None
    for number in range(turns):
        node = Turn(node, [("user", QUESTION, None)]).capture(f"{number:032x}", ANSWER)
    return node


def long_conversation(turns: int) -> dict[str, float]:
    """Build, encode, read and drop, in a thread with a 256 KiB stack.

    ``touch`` is the time for nothing but writing as many bytes as the body has into fresh memory.
    """
    found: dict[str, float] = {}

    def measure() -> None:
        before = memory("VmRSS")
        instants = [time.perf_counter()]
        node = conversation(turns)
        instants.append(time.perf_counter())
        body = Turn(node, []).encode_chat("omit")
        instants.append(time.perf_counter())
        peak_encode, bytes_sent = memory("VmHWM") - before, len(body)
        del body
        instants.append(time.perf_counter())
        messages = Turn(node, []).messages()
        instants.append(time.perf_counter())
        peak_details = memory("VmHWM") - before
        del messages
        instants.append(time.perf_counter())
        del node
        instants.append(time.perf_counter())
        touched = b"x" * bytes_sent
        instants.append(time.perf_counter())
        del touched
        build, encode, _, details, _, drop, touch = (b - a for a, b in pairwise(instants))
        found.update(build=build, encode=encode, details=details, drop=drop, touch=touch)
        found.update(megabytes_sent=bytes_sent / 1e6)
        found.update(peak_encode=peak_encode / (turns * TEXT), peak_details=peak_details / (turns * TEXT))

    threading.stack_size(256 * 1024)
    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    return found


def many_branches(branches: int) -> dict[str, float]:
    """Make and drop branches on one root of 1,000 turns, and look at what stays."""
    root = conversation(1_000)
    resident: dict[str, float] = {}
    for number in range(1, branches + 1):
        Turn(root, [("user", "q", None)]).capture(f"{number:032x}", ANSWER)
        if number in {10_000, branches // 10, branches}:
            gc.collect()
            resident[f"megabytes_after_{number}"] = memory("VmRSS") / 1e6
    return resident


def event(run_id: str) -> RunStarted:
    """Give an ordinary event."""
    return RunStarted(at=datetime.now(UTC), run_id=run_id, parent_run_id=None, prompt_id="p")


def terminal(run_id: str) -> RunFinished:
    """Give a terminal event."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("parent_run_id", "profile", "backend", "model", "definition_hash", "error")
    )
    return RunFinished(
        at=datetime.now(UTC),
        run_id=run_id,
        prompt_id="p",
        outcome="completed",
        validation="valid",
        attempts=1,
        transient_retries=0,
        repair_calls=0,
        usage=NO_USAGE,
        duration=0.1,
        **nothing,
    )


def large_group(members: int) -> dict[str, float]:
    """Observe alone and from 8 threads, and take a snapshot."""
    group = ExecutionGroup()
    for number in range(members):
        group.observe(terminal(f"{number:032x}"))
    known = [event(f"{number:032x}") for number in range(0, members, max(1, members // 1_000))]
    rounds = 100
    begun = time.perf_counter()
    for _ in range(rounds):
        for told in known:
            group.observe(told)
    alone = (time.perf_counter() - begun) / (rounds * len(known))

    def observe_all() -> None:
        for told in known * 10:
            group.observe(told)

    threads = [threading.Thread(target=observe_all) for _ in range(8)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = (time.perf_counter() - begun) / (8 * 10 * len(known))
    begun = time.perf_counter()
    assert len(group.snapshot().members) == members  # noqa: S101  # a measurement of the wrong thing is none
    taken = time.perf_counter() - begun
    return {
        "observe_us": alone * 1e6,
        "observe_8_threads_us": together * 1e6,
        "snapshot_ms": taken * 1e3,
        "snapshot_us_a_member": taken / members * 1e6,
    }


MEASUREMENTS = {"long_conversation": long_conversation, "many_branches": many_branches, "large_group": large_group}
RUNS = (
    ("long_conversation", 100_000),
    ("long_conversation", 1_000_000),
    ("many_branches", 1_000_000),
    ("large_group", 1_000),
    ("large_group", 10_000),
    ("large_group", 100_000),
)


def table(kept: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lay out the results for people. Times are wall times."""
    lines = [f"{'a conversation of':<34}{'100,000 turns':>15}{'1,000,000 turns':>17}"]
    both = [kept[f"long_conversation {size}"] for size in (100_000, 1_000_000)]
    for key, title, unit in (
        ("build", "built turn by turn", "s"),
        ("encode", "encoded into one body", "s"),
        ("details", "read, every message an object", "s"),
        ("drop", "dropped", "s"),
        ("touch", "as many bytes written, no more", "s"),
        ("megabytes_sent", "its body", "MB"),
        ("peak_encode", "most memory, encoding: its text", "x"),
        ("peak_details", "most memory, reading: its text", "x"),
    ):
        if all(key in found for found in both):
            told = [f"{_digits(found[key])}{'' if unit == 'x' else ' '}{unit}" for found in both]
            lines.append(f"{title:<34}{told[0]:>15}{told[1]:>17}")
    branches = kept["many_branches 1000000"]
    lines += ["", "resident after branches that were made and dropped on one root of 1,000 turns"]
    lines += [f"{made:>12,}  {branches[f'megabytes_after_{made}']:.3g} MB" for made in (10_000, 100_000, 1_000_000)]
    lines += ["", f"{'a group of':>12}{'an event':>12}{'from 8 threads':>16}{'a snapshot':>13}{'of it a member':>16}"]
    for size in (1_000, 10_000, 100_000):
        group = kept[f"large_group {size}"]
        times = (f"{group['observe_us']:.2f} us", f"{group['observe_8_threads_us']:.2f} us")
        shot = (f"{group['snapshot_ms']:.3g} ms", f"{group['snapshot_us_a_member']:.2f} us")
        lines.append(f"{size:>12,}{times[0]:>12}{times[1]:>16}{shot[0]:>13}{shot[1]:>16}")
    return lines


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Run each measurement in a process of its own, print it, and keep the results."""
    kept: dict[str, Any] = {}
    for name, size in RUNS:
        command = [sys.executable, __file__, name, str(size)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
        kept[f"{name} {size}"] = found
        print(f"{name} {size:,}: " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()), flush=True)
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    put_on_page("limits", table(kept))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(MEASUREMENTS[sys.argv[1]](int(sys.argv[2]))))
    else:
        main()
