"""The tables and the diagrams of the state machines are those of the machines."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from promptkit import AuthenticationError, ConnectError, RateLimitError, RetryPolicy
from promptkit._machines import run
from promptkit._values.usage import NO_USAGE
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
    spec = importlib.util.spec_from_file_location("draw_machines", ROOT / "scripts" / "draw_machines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWING = script()
COORDINATION, RUN = DRAWING.MACHINES


@pytest.mark.parametrize(("machine", "rows"), [(COORDINATION, 12), (RUN, 6)], ids=["coordination", "run"])
def test_a_page_has_the_table_and_the_diagram_of_today(machine: Any, rows: int) -> None:
    page = machine.page.read_text(encoding="utf-8")
    assert machine.renewed(page) == page
    assert len(machine.rows()) == rows
    assert all(f"| {' | '.join(row)} |" in page for row in machine.rows())
    assert sorted(machine.drawn()) == sorted([("start", *machine.begins), *machine.ways()])
    assert f"concepts/{machine.name}.svg" in page or f"]({machine.name}.svg)" in page


def named(state: State) -> str:
    match state:
        case Deciding(choice=choice):
            return f"Deciding({choice})"
        case Ended(end=end):
            return f"Ended({end})"
        case Checking():
            return "Checking(pending)"
        case _:
            return type(state).__name__


def test_the_arrows_of_the_coordination_diagram_are_the_steps_of_the_machine() -> None:
    drawn = set()
    for source, reached, label in COORDINATION.ways():
        parts = re.fullmatch(r"(\w+(?:\(\w+\))?)(?: \[(.*)\])? / (\w+)", label)
        assert parts is not None
        drawn.add((source, reached, *(part or "" for part in parts.groups())))
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
            if named(state) == "Deciding(request)" and label == "Clear":
                condition = "turns left" if state.remaining else "no turns left"
            taken.add((named(state), named(reached), label, condition, type(command).__name__))
    assert drawn == taken


def test_the_arrows_of_the_run_diagram_are_the_steps_of_the_machine() -> None:
    refused, demanding = AuthenticationError("no", status=401), RateLimitError("busy", status=429, retry_after=1e6)
    inputs: dict[str, tuple[run.Input, ...]] = {
        "Sent": (run.Sent(),),
        "Elapsed": (run.Elapsed(),),
        "Answered": tuple(
            run.Answered(NO_USAGE, valid, curable) for valid in (True, False) for curable in (True, False)
        ),
        "Broke": tuple(run.Broke(error, NO_USAGE, 0.5) for error in (refused, demanding, ConnectError("away"))),
    }
    phases: tuple[run.Phase, ...] = ("queued", "in_flight", "waiting", "ended")
    taken = set()
    for phase, retries, repairs in itertools.product(phases, (0, 2), (0, 1)):
        policy = RetryPolicy(max_retries=2)
        state = run.Run(policy=policy, max_repairs=1, phase=phase, transient_retries=retries, repair_calls=repairs)
        for label, events in inputs.items():
            for event in events:
                with contextlib.suppress(ValueError):
                    reached, command = run.step(state, event)
                    taken.add((phase, reached.phase, label, type(command).__name__))
    drawn = {(source, reached, label.split(" ")[0], label.split(" / ")[1]) for source, reached, label in RUN.ways()}
    assert drawn == taken
