"""What a shell completes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servers.command_line import environment

pytestmark = pytest.mark.usefixtures("catalog")


def _completed(*words: str, shell: str = "bash", **changes: str) -> list[str]:
    environ = environment(
        _PROMPTKIT_COMPLETE=f"complete_{shell}",
        COMP_WORDS=" ".join(["promptkit", *words]),
        COMP_CWORD=str(len(words)),
        **changes,
    )
    ended = subprocess.run(
        [sys.executable, "-m", "promptkit"], capture_output=True, text=True, env=environ, timeout=15, check=False
    )
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "a"), ["ask"]),
        (("render", ""), ["ask", "bare", "count", "look", "number", "read"]),
        (("run", "ask", "--profile", ""), ["cold", "warm"]),
        (("run", "ask", "--schema", "n"), ["number"]),
        (("show", "p"), ["prompt", "profile"]),
        (("show", "profile", "w"), ["warm"]),
        (("show", "schema", ""), ["number"]),
        (("show", "s"), ["schema"]),
        (("show", "backend", ""), ["server"]),
    ],
)
def test_ids_of_the_catalog_are_completed(words: tuple[str, ...], offered: list[str]) -> None:
    assert _completed(*words) == offered


def test_the_catalog_that_is_named_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert _completed("run", "a") == []
    assert _completed("run", "-C", str(tmp_path / "catalog"), "a") == ["ask"]
    assert _completed("-C", str(tmp_path / "catalog"), "--json", "run", "a") == ["ask"]
    assert _completed("run", "a", PROMPTKIT_CATALOG=str(tmp_path / "catalog")) == ["ask"]


def test_a_broken_catalog_completes_nothing_and_says_nothing() -> None:
    Path("promptkit.toml").write_text("[", encoding="utf-8")
    assert _completed("run", "a") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    environ = environment(_PROMPTKIT_COMPLETE=f"source_{shell}")
    ended = subprocess.run(
        [sys.executable, "-m", "promptkit"], capture_output=True, text=True, env=environ, timeout=15, check=False
    )
    assert "_PROMPTKIT_COMPLETE=complete_" in ended.stdout
