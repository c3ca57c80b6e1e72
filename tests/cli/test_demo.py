"""The demo with answers that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit import BlockingEngine, GenerationReply, ReportedUsage, load_catalog
from promptkit._cli.demo import demo
from promptkit._cli.starter_files import starter_folder
from promptkit._cli.streams import Streams
from promptkit.testing import ScriptedClient

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FINDING = '{"sentence": "The oven broke.", "euros": 420}'


def test_the_demo_shows_answers_their_tree_and_what_they_used(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    known = GenerationReply(content="The [oven].", usage=ReportedUsage(input_tokens=5, output_tokens=2))
    with starter_folder() as folder:
        engine = BlockingEngine(load_catalog(folder), client=ScriptedClient(known, "Maria.", "420 euros.", FINDING))
    trace = tmp_path / "trace"
    assert demo(trace=trace, json=False, streams=Streams(), engine=engine) == 0
    out, err = (text.decode() for text in capsysbinary.readouterr())
    assert "read: What broke on Monday? The [oven]. (" in out
    assert (
        "read: What broke on Monday? The [oven].\n"
        "├── ask: Who found the fault? Maria.\n"
        "└── ask: What does the new fan cost? 420 euros.\n"
        f"    └── finding: {FINDING}\n"
    ) in out
    assert "4 runs, 4 attempts\ninput tokens        at least 5\n" in out
    assert "reasoning tokens    unknown\n" in out
    assert "promptkit init" in err
    assert len(trace.read_text(encoding="utf-8").splitlines()) == 12
