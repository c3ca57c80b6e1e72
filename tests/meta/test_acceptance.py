"""The page that maps what was asked for to tests names only tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "acceptance.md").read_text(encoding="utf-8")


def test_every_requirement_names_a_test_that_exists() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "requirement | test" not in line]
    assert len(rows) > 50
    missing = []
    for row in rows:
        names = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert names, row
        for file, test in names:
            text = (TESTS / file).read_text(encoding="utf-8") if (TESTS / file).exists() else ""
            if not re.search(rf"^(async )?def {test}\(", text, re.MULTILINE):
                missing.append(f"{file}::{test}")
    assert missing == []


def test_every_stage_has_its_requirements() -> None:
    assert re.findall(r"^## (\d+)\.", PAGE, re.MULTILINE) == [str(number) for number in range(1, 14)]
    assert all("| requirement | test |" in part for part in PAGE.split("\n## ")[1:])
