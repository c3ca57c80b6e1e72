"""The page about performance shows the figures that are kept, and nothing else has to be measured to see that."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHES = ROOT / "benches"
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def kept(name: str) -> Any:
    return json.loads((BENCHES / "results" / f"{name}.json").read_text(encoding="utf-8"))


def bench(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHES))
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCHES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_limits_on_the_page_are_those_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert block("limits") == "\n".join(bench("limits", monkeypatch).table(kept("limits"))) + "\n"


def test_the_picture_shows_the_figures_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = bench("history", monkeypatch).picture(kept("history")["cells"])
    assert (BENCHES / "results" / "history.svg").read_text(encoding="utf-8") == drawn
    assert drawn.count(">turns</text>") == drawn.count(">CPU time</text>") == 7


@pytest.mark.parametrize(("name", "goals"), [("history", 10), ("calls", 10)])
def test_the_goals_on_the_page_are_those_that_were_judged(name: str, goals: int) -> None:
    judged = kept(name)["goals"]
    assert len(judged) == goals
    for goal in judged:
        line = rf"^{goal['row']} +{re.escape(goal['goal'])} +{re.escape(goal['measured'])} .*{goal['verdict']}$"
        assert re.search(line, block(name), re.MULTILINE), goal
