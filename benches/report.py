"""Figures as text: the table, and the goals with what was reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subjects import TITLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


def judged(
    row: str, goal: str, value: float, bounds: tuple[float | None, float | None], shown: Callable[[float], str]
) -> dict[str, str]:
    """Judge a value that should be small by its gate and its target. Without a target it is there to be compared."""
    gate, target = bounds
    verdict = "PASS, gate" if gate is not None else "target missed"
    if target is None:
        verdict = "what the machine allows"
    elif value <= target:
        verdict = "PASS, target"
    elif gate is not None and value > gate:
        verdict = "FAIL"
    said = ["-" if bound is None else shown(bound) for bound in bounds]
    return {
        "row": row,
        "goal": goal,
        "measured": shown(value),
        "gate": said[0],
        "target": said[1],
        "verdict": verdict,
    }


def goals(figures: Mapping[str, float]) -> list[dict[str, str]]:
    """Judge each goal: what was measured, the gate and the target."""
    f = figures
    warm, cold = f["body warm"] / f["memcpy"], f["body cold"] / f["msgspec cold"]
    growth = f["engine turn 1000"] / f["engine turn 15"]
    flat, slowest = f["branch 10000"] / f["branch 10"], max(f["branch 10"], f["branch 10000"])
    bound = f["copy cold"] / f["msgspec cold"]
    return [
        judged("5", "body of 1,000 turns, warm, against memcpy", warm, (4, 2), ratio),
        judged("5", "the same, cold, against msgspec cold", cold, (None, 0.15), ratio),
        judged("5", "only to copy its bytes, cold, against the same", bound, (None, None), ratio),
        judged("6", "1,000 turns through the engine *", f["engine"], (0.5, 0.2), seconds),
        judged("7", "a turn through the engine, turn 1,000 : 15", growth, (3, 1.5), ratio),
        judged("8", "branch *", slowest, (10e-6, 3e-6), seconds),
        judged("8", "branch, depth 10,000 : 10", flat, (1.2, 1.2), ratio),
        judged("9", "1,000 branches on 1,000 turns", f["branches"], (3e6, 2e6), octets),
        judged("10", "a message beyond its UTF-8 text", f["message"], (160, 100), octets),
        judged("11", "digest of a continuation at 1,000 turns *", f["digest"], (20e-6, 5e-6), seconds),
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
