"""The page that maps what was asked for to tests: no line is missing, every named test is run and asserts something."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "acceptance.md").read_text(encoding="utf-8")

# How many lines each part has: what was asked for, counted. A line that is taken out of the page has to be here too.
PARTS: dict[str, tuple[str, int]] = {
    "A": ("What is captured, and what a follow-up brings itself", 12),
    "B": ("Who leads, and where the application works", 13),
    "C": ("Next actions and outcomes", 33),
    "D": ("Relations and usage", 11),
    "E": ("What consumers check", 15),
    "1": ("The store of exchanges", 11),
    "2": ("Preparation with a history", 21),
    "3": ("Capture", 22),
    "4": ("Ancestry in events", 12),
    "5": ("Continuation from outside", 18),
    "6": ("The progression", 20),
    "7": ("The coordinator from outside", 18),
    "8": ("Capacity and cancellation", 13),
    "9": ("Observers", 12),
    "10": ("Groups: the arithmetic", 18),
    "11": ("Groups: the membership", 17),
    "12": ("Workflows", 13),
    "13": ("The whole", 13),
    "R": ("The rules that others get wrong", 20),
}
NOT_TESTED = {"13.13"}  # says why instead
ROW = re.compile(r"^\| (?P<line>\w+\.\d+) \| (?P<text>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")

# Runs in a pytest of its own: what is collected, and whether it would be run.
COLLECTING = """
import sys
import msgspec, pytest

class Plugin:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        self.found = {}
        for item in session.items:
            name = item.nodeid.split("[")[0]
            off = any(
                mark.name in ("skip", "xfail") or (mark.name == "skipif" and any(mark.args))
                for mark in item.iter_markers()
            )
            self.found[name] = self.found.get(name, True) and off

plugin = Plugin()
code = pytest.main(["--collect-only", "-qq", "--no-header", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[plugin])
with open(sys.argv[1], "wb") as file:
    file.write(msgspec.json.encode([int(code), plugin.found]))
"""


class Row(NamedTuple):
    line: str
    text: str
    tests: tuple[tuple[str, str], ...]


def rows_of(page: str) -> list[Row]:
    return [Row(row["line"], row["text"], tuple(TEST.findall(row["tests"]))) for row in ROW.finditer(page)]


def faults_of(page: str) -> list[str]:
    """Say what is wrong with the page by itself: its parts, their lines and what stands in them."""
    faults = []
    headings = [f"## {title}" if part == "R" else f"## {part}. {title}" for part, (title, _) in PARTS.items()]
    if re.findall(r"^## .*$", page, re.MULTILINE) != headings:
        faults.append("the parts are others")
    rows = rows_of(page)
    wanted = [f"{part}.{number}" for part, (_, count) in PARTS.items() for number in range(1, count + 1)]
    if [row.line for row in rows] != wanted:
        faults.append("lines are missing, added, doubled or out of order")
    tables = [line for line in page.splitlines() if line.startswith("|") and not re.match(r"\| line \||\|---", line)]
    if len(tables) != len(rows):
        faults.append("a line is not of the form | number | requirement | tests |")
    if len({row.text for row in rows}) != len(rows):
        # The same sentence in two parts would hide that one of them is not about its own.
        faults += [row.line for row in rows if sum(other.text == row.text for other in rows) > 1]
    faults += [f"{row.line} names no test" for row in rows if not row.tests and row.line not in NOT_TESTED]
    faults += [f"{row.line} names a test twice" for row in rows if len(set(row.tests)) != len(row.tests)]
    return faults


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse((TESTS / file).read_text(encoding="utf-8"))


def function_of(file: str, test: str) -> ast.AST | None:
    if not (TESTS / file).exists():
        return None
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in tree_of(file).body if isinstance(node, functions) and node.name == test]
    return found[0] if found else None


def asserts(function: ast.AST) -> bool:
    """Say whether a test can fail: by an assertion about something, or by what has to be raised."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "raises" and getattr(node.value, "id", "") == "pytest":
            return True
    return False


def gives_up(function: ast.AST) -> bool:
    """Say whether a test may skip itself while it runs."""
    skipping = {"skip", "importorskip", "xfail"}
    return any(
        isinstance(node, ast.Attribute) and node.attr in skipping and getattr(node.value, "id", "") == "pytest"
        for node in ast.walk(function)
    )


def named(page: str = PAGE) -> list[tuple[str, str]]:
    return sorted({test for row in rows_of(page) for test in row.tests})


def test_the_page_has_every_line_of_every_part() -> None:
    assert faults_of(PAGE) == []


def test_a_line_that_is_deleted_doubled_renumbered_broken_or_emptied_is_noticed() -> None:
    for row in rows_of(PAGE):
        whole = next(line for line in PAGE.splitlines(keepends=True) if line.startswith(f"| {row.line} |"))
        changed = ["", whole * 2, whole.replace(f"| {row.line} |", f"| {row.line}0 |"), whole[2:]]
        if row.tests:
            changed.append(f"| {row.line} | {row.text} | nothing |\n")
        for instead in changed:
            assert faults_of(PAGE.replace(whole, instead)) != [], (row.line, instead)


def test_a_part_that_is_deleted_is_noticed() -> None:
    for part in PAGE.split("\n## ")[1:]:
        assert faults_of(PAGE.replace(f"\n## {part}", "")) != [], part


def test_every_named_test_is_there_and_asserts_something() -> None:
    wrong = []
    for file, test in named():
        function = function_of(file, test)
        if function is None or not asserts(function) or gives_up(function):
            wrong.append(f"{file}::{test}")
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("def test_a(): assert one == two", (True, False)),
        ("def test_a():\n with pytest.raises(ValueError): one()", (True, False)),
        ("def test_a(): one()", (False, False)),
        ("def test_a(): assert True", (False, False)),
        ("def test_a():\n pytest.skip('no')\n assert one", (True, True)),
        ("def test_a():\n one = pytest.importorskip('one')\n assert one", (True, True)),
    ],
)
def test_a_test_that_cannot_fail_is_told_from_one_that_can(source: str, wanted: tuple[bool, bool]) -> None:
    function = ast.parse(source).body[0]
    assert (asserts(function), gives_up(function)) == wanted


def collected(result: Path, *where: str) -> dict[str, bool]:
    """Collect tests as a run of them would; say of each whether every case of it is switched off."""
    command = [sys.executable, "-c", COLLECTING, str(result), *where]
    ended = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert result.exists(), ended.stderr
    code, found = msgspec.json.decode(result.read_bytes(), type=tuple[int, dict[str, bool]])
    assert code == 0, ended.stdout
    return found


@pytest.mark.timeout(180)
def test_every_named_test_is_collected_with_all_others_and_is_not_skipped(tmp_path: Path) -> None:
    found = collected(tmp_path / "found.json", str(TESTS))
    assert len(found) > 1000
    off = [f"{file}::{test}" for file, test in named() if found.get(f"tests/{file}::{test}", True)]
    assert off == []


@pytest.mark.timeout(60)
def test_a_test_that_is_not_run_is_told_from_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_run(): assert 1\n"
        "@pytest.mark.skip\ndef test_skipped(): assert 1\n"
        "@pytest.mark.skipif(True, reason='r')\ndef test_skipped_if(): assert 1\n"
        "@pytest.mark.skipif(False, reason='r')\ndef test_run_if(): assert 1\n"
        "@pytest.mark.xfail\ndef test_expected_to_fail(): assert 0\n"
        "@pytest.mark.parametrize('a', [1, pytest.param(2, marks=pytest.mark.skip)])\ndef test_partly(a): assert a\n",
        encoding="utf-8",
    )
    found = collected(tmp_path / "found.json", "-c", str(tmp_path / "pytest.ini"), str(tmp_path / "test_some.py"))
    assert {name.rpartition("::")[2]: off for name, off in found.items()} == {
        "test_run": False,
        "test_skipped": True,
        "test_skipped_if": True,
        "test_run_if": False,
        "test_expected_to_fail": True,
        "test_partly": False,
    }
