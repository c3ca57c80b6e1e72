"""What is true of the package as a whole: nothing unfinished, no dependency that was not decided, nothing to configure
that belongs to a run."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import promptkit
from promptkit import InvalidConfigError, load_catalog

ROOT = Path(__file__).parents[2]
PACKAGE = Path(promptkit.__file__).parent
FILES = {
    "promptkit.toml": '[backends.b]\nkind = "chat_completions"\nbase_url = "http://127.0.0.1:1/v1"\n{backend}'
    '[profiles.f]\nbackend = "b"\nmodel = "m"\n{profile}',
    "prompts/p.toml": 'profile = "f"\n{prompt}[[messages]]\nrole = "user"\ncontent = "Hi"\n',
}


def written(folder: Path, **lines: str) -> Path:
    """Write a catalog with further lines in its definitions."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(**{"backend": "", "profile": "", "prompt": "", **lines}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("key", ["parent_run_id", "run_id", "capture_exchange", "continue_from", "additional_turns"])
@pytest.mark.parametrize("place", ["backend", "profile", "prompt"])
def test_no_file_can_configure_ancestry_or_capture(tmp_path: Path, place: str, key: str) -> None:
    assert list(load_catalog(written(tmp_path)).prompts) == ["p"]
    with pytest.raises(InvalidConfigError, match=key):
        load_catalog(written(tmp_path, **{place: f'{key} = "x"\n'}))


def test_nothing_in_the_package_is_unfinished() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    unfinished = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        raised = [ast.unparse(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
        if any("NotImplementedError" in error for error in raised) or re.search(r"#.*\b(TODO|FIXME|XXX)\b", text):
            unfinished.append(file.name)
    assert unfinished == []


def test_the_package_depends_on_what_its_decision_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    required = {re.split(r"[^\w-]", line)[0] for line in [*project["dependencies"], *extras.get("embedded", [])]}
    decision = (ROOT / "docs" / "adr" / "0003-dependencies.md").read_text(encoding="utf-8")
    decided = set(re.findall(r"^\| ([A-Za-z][\w-]*)(?: \(extra `\w+`\))? \| ", decision, re.MULTILINE)) - {"library"}
    assert len(required) > 5
    assert {name.lower() for name in decided} == required
