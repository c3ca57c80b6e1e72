"""Figures as text: the table, and the goals with what was reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subjects import TITLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OURS = "promptkit_store"
WHAT = {
    "build": "build turn by turn",
    "build_body": "build, with the body of every turn",
    "body": "body of the next request",
    "digest": "digest of the next request",
    "details": "details: every message an object",
    "branch": "branch: append a turn",
    "drop": "drop",
}
Cells = dict[tuple[str, int, str], dict[str, float]]


def seconds(value: float) -> str:
    """Three digits and a unit."""
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value / size < 1000 else f"{value / size:,.0f} {unit}"
    return f"{value / 1e-9:.3g} ns"


def octets(value: float) -> str:
    """Bytes, or megabytes."""
    if abs(value) >= 1e9:
        return f"{value / 1e9:.3g} GB"
    return f"{value / 1e6:.3g} MB" if abs(value) >= 1e5 else f"{value:.0f} B"


def ratio(value: float) -> str:
    """Two digits and an x."""
    return f"{value:,.0f}x" if value >= 10 else f"{value:.2g}x"


def table(cells: Cells, memory: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> Iterator[str]:
    """Lay out everything in one table: CPU medians, and how many times promptkit's they are."""
    yield f"{'':>9}" + _row([TITLES[name] for name in names])
    for what, title in WHAT.items():
        yield title
        for depth in sorted({depth for kind, depth, _ in cells if kind == what}):
            ours = cells[what, depth, OURS].get("cpu")
            shown = [_cell(cells.get((what, depth, name), {}), None if name == OURS else ours) for name in names]
            yield f"{depth:>9,}" + _row(shown)
    for kind, title in MEMORY.items():
        ours = memory[kind][OURS]
        shown = [
            octets(memory[kind][name]) + _against(memory[kind][name], None if name == OURS else ours) for name in names
        ]
        yield title
        yield f"{'':>9}" + _row(shown)


MEMORY = {
    "message": "memory of a stored message beyond its UTF-8 text",
    "branches": "memory of 1,000 branches of a turn on 1,000 turns, their text included",
}


def _cell(cell: Mapping[str, float], ours: float | None) -> str:
    if "cpu" not in cell:
        return f"> {cell['late']:.0f} s" if "late" in cell else "-"
    return seconds(cell["cpu"]) + _against(cell["cpu"], ours)


def _against(value: float, ours: float | None) -> str:
    return f" {ratio(value / ours):>8}" if ours else ""


def _row(texts: Sequence[str]) -> str:
    return "".join(f"{text:>{19 if place else 10}}" for place, text in enumerate(texts))


def goals(figures: Mapping[str, float]) -> list[dict[str, str]]:
    """Judge each goal: what was measured, the gate and the target."""
    f = figures
    copies = f["body warm"] / f["memcpy"]
    against = f["body cold"] / f["msgspec cold"]
    bound = f["copy cold"] / f["msgspec cold"]
    flat = f["branch 10000"] / f["branch 10"]
    slowest = max(f["branch 10"], f["branch 10000"])
    growth = f["engine turn 1000"] / f["engine turn 15"]
    rows = (
        ("5", "body of 1,000 turns, warm, against memcpy", ratio(copies), "4x", "2x", copies <= 4, copies <= 2),
        ("5", "the same, cold, against msgspec cold", ratio(against), "-", "0.15x", True, against <= 0.15),
        ("5", "only to copy its bytes, cold, against the same", ratio(bound), "-", "-", True, True),
        ("6", "1,000 turns through the engine *", seconds(f["engine"]), "0.5 s", "0.2 s", f["engine"] <= 0.5,
         f["engine"] <= 0.2),
        ("7", "a turn through the engine, turn 1,000 : 15", ratio(growth), "3x", "1.5x", growth <= 3, growth <= 1.5),
        ("8", "branch *", seconds(slowest), "10 us", "3 us", slowest <= 10e-6, slowest <= 3e-6),
        ("8", "branch, depth 10,000 : 10", ratio(flat), "1.2x", "1.2x", flat <= 1.2, flat <= 1.2),
        ("9", "1,000 branches on 1,000 turns", octets(f["branches"]), "3 MB", "2 MB", f["branches"] <= 3e6,
         f["branches"] <= 2e6),
        ("10", "a message beyond its UTF-8 text", octets(f["message"]), "160 B", "100 B", f["message"] <= 160,
         f["message"] <= 100),
        ("11", "digest of a continuation at 1,000 turns *", seconds(f["digest"]), "20 us", "5 us",
         f["digest"] <= 20e-6, f["digest"] <= 5e-6),
    )  # fmt: skip
    return [
        {
            "row": row,
            "goal": goal,
            "measured": measured,
            "gate": gate,
            "target": target,
            "verdict": "what the machine allows"
            if target == "-"
            else "PASS, target"
            if best
            else "FAIL"
            if not enough
            else "target missed"
            if gate == "-"
            else "PASS, gate",
        }
        for row, goal, measured, gate, target, enough, best in rows
    ]


def goal_lines(judged: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Lay out the goals."""
    yield f"{'goal':<4}  {'':<46}{'measured':>10}{'gate':>8}{'target':>8}"
    for goal in judged:
        yield (
            f"{goal['row']:<4}  {goal['goal']:<46}{goal['measured']:>10}{goal['gate']:>8}{goal['target']:>8}  "
            f"{goal['verdict']}"
        )
    yield "* a time, not a ratio: it says as much about the machine"
