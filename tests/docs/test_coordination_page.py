"""The table and the diagram of the coordination machine are those of the machine."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from promptkit.coordination import (
    Cancelled,
    Checking,
    Choosing,
    Chose,
    Clear,
    Completed,
    Deciding,
    Ended,
    Input,
    NotInTableError,
    Raised,
    Running,
    State,
    step,
)

ROOT = Path(__file__).parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("draw_coordination", ROOT / "scripts" / "draw_coordination.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_and_the_diagram_of_today() -> None:
    drawing = script()
    page = drawing.PAGE.read_text(encoding="utf-8")
    assert drawing.renewed(page) == page
    assert all(f"| {' | '.join(row)} |" in page for row in drawing.rows())
    assert len(list(drawing.rows())) == 12


def named(state: State) -> str:
    match state:
        case Deciding(choice=choice):
            return f"Deciding_{choice}"
        case Ended(end=end):
            return f"Ended_{end}"
        case _:
            return type(state).__name__


def test_the_arrows_of_the_diagram_are_the_steps_of_the_machine() -> None:
    drawn = re.findall(
        r"^ +(\w+) --> (\w+): (\w+(?:\(\w+\))?)(?: \[(.*)\])? / (\w+)$", "\n".join(script().diagram()), re.MULTILINE
    )
    inputs: dict[str, Input] = {
        "Clear": Clear(),
        "Cancelled": Cancelled(),
        "Chose(request)": Chose(stop=False),
        "Chose(stop)": Chose(stop=True),
        "Raised": Raised(),
        "Completed": Completed(),
    }
    states: list[Checking | Choosing | Deciding | Running] = [
        *(state for left in (0, 1) for state in (Choosing(remaining=left), Running(remaining=left))),
        *(Checking(remaining=1, pending=pending) for pending in (False, True)),
        *(Deciding(remaining=left, choice=choice) for left in (0, 1) for choice in ("request", "stop", "raised")),
    ]
    taken = set()
    for state in states:
        for label, event in inputs.items():
            try:
                reached, command = step(state, event)
            except NotInTableError:
                continue
            condition = ""
            if named(state) == "Deciding_request" and label == "Clear":
                condition = "turns left" if state.remaining else "no turns left"
            taken.add((named(state), named(reached), label, condition, type(command).__name__))
    assert set(drawn) == taken
