"""The page about performance shows the figures that are kept, and nothing else has to be measured to see that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHES = ROOT / "benches"
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def kept(name: str) -> Any:
    return json.loads((BENCHES / "results" / f"{name}.json").read_text(encoding="utf-8"))


def told(expression: str) -> str:
    """Give a text that a benchmark makes, in a process of its own: its modules have names that tests have, too."""
    program = f"import json, sys; sys.path.insert(0, sys.argv[1]); import history, limits; print({expression}, end='')"
    command = [sys.executable, "-c", program, str(BENCHES)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_limits_on_the_page_are_those_that_were_measured() -> None:
    assert block("limits") == told("'\\n'.join(limits.table(json.loads(limits.RESULTS.read_text())))") + "\n"


def test_the_picture_shows_the_figures_that_were_measured() -> None:
    cells = "json.loads((history.FOLDER / 'results' / 'history.json').read_text())['cells']"
    drawn = told(f"history.picture({cells})")
    assert (BENCHES / "results" / "history.svg").read_text(encoding="utf-8") == drawn
    assert drawn.count(">turns</text>") == drawn.count(">CPU time</text>") == 7


@pytest.mark.parametrize(("name", "goals"), [("history", 10), ("calls", 10)])
def test_the_goals_on_the_page_are_those_that_were_judged(name: str, goals: int) -> None:
    judged = kept(name)["goals"]
    assert len(judged) == goals
    for goal in judged:
        line = rf"^{goal['row']} +{re.escape(goal['goal'])} +{re.escape(goal['measured'])} .*{goal['verdict']}$"
        assert re.search(line, block(name), re.MULTILINE), goal
