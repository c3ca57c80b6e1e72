"""The demo with answers that are known."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from promptkit import BlockingEngine, GenerationReply, ReportedUsage, RunFinished, load_catalog
from promptkit._cli.demo import demo
from promptkit._cli.exits import CancelledError
from promptkit._cli.starter_files import starter_folder
from promptkit._cli.streams import Streams
from promptkit.testing import ScriptedClient
from servers.command_line import interrupting

if TYPE_CHECKING:
    from pathlib import Path

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
    tree = out[out.index("who continued whom") :].splitlines()[1:5]
    assert tree[0].startswith("└── Dear neighbours,")
    assert tree[0].endswith(" → The [oven].")
    assert tree[1:3] == [
        "    ├── Who found the fault? → Maria.",
        "    └── What does the new fan cost? → 420 euros.",
    ]
    assert tree[3].startswith("        └── Answer as JSON")
    assert tree[3].endswith(f" → {FINDING}")
    counts = [line.split(maxsplit=1) for line in out.splitlines()]
    for row in (["runs", "4"], ["attempts", "4"], ["input", "at least 5"], ["reasoning", "unknown"]):
        assert row in counts
    assert "promptkit init" in err
    assert len(trace.read_text(encoding="utf-8").splitlines()) == 12


@pytest.mark.skipif(os.name == "nt", reason="signals are others there")
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_in_the_demo_shows_the_answers_that_had_come(
    capsysbinary: pytest.CaptureFixture[bytes], *, as_json: bool
) -> None:
    with starter_folder() as folder:
        engine = BlockingEngine(load_catalog(folder), client=ScriptedClient("The oven."))
    with pytest.raises(CancelledError, match="interrupted: these are the answers that had come"):
        demo(
            trace=None,
            json=as_json,
            streams=Streams(json=as_json),
            engine=engine,
            observer=interrupting(RunFinished),
        )
    out = capsysbinary.readouterr().out.decode()
    if as_json:
        assert [result["raw_output"] for result in json.loads(out)["results"]] == ["The oven."]
    else:
        assert out.startswith("read: What broke on Monday? The oven. (")
        assert "who continued whom\n└── " in out
