"""Rules that are easily got wrong, each by its name: what a continuation and a repair cost, what a value is."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import promptkit
from promptkit import Engine, RunFinished, RunRequest
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.conversations import ASK, FOLLOW, GOOD, MORE

LONG = "x" * (16 * 2**20)
STATM = Path("/proc/self/statm")


def resident() -> int:
    """Give the memory of this process in bytes, 0 where the system does not tell it."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if STATM.exists() else 0


@pytest.mark.anyio
async def test_a_continuation_costs_what_its_new_turn_costs() -> None:
    number = 100
    engine = Engine(small_catalog(), client=ScriptedClient(LONG, *["yes"] * (number + 1)))
    start = (await engine.run(ASK)).exchange
    kept = [(await engine.run(msgspec.structs.replace(MORE, continue_from=start))).exchange]  # what is done once
    began = time.process_time()
    hashlib.sha256(LONG.encode()).digest()
    one_reading = time.process_time() - began
    memory = resident()
    began = time.process_time()
    for _ in range(number):
        kept.append((await engine.run(msgspec.structs.replace(MORE, continue_from=kept[-1]))).exchange)
    spent = time.process_time() - began
    grown = resident() - memory
    assert grown < 3 * len(LONG)  # copies would be a hundred times its length
    assert spent < number * one_reading / 2  # as would reading it once a turn
    assert len(kept[-1].details().messages) == 3 + 2 * (number + 1)


@pytest.mark.anyio
async def test_a_repairs_size_does_not_grow_with_the_number_of_repairs() -> None:
    client = ScriptedClient(*['{"a": "no"}'] * 9)
    result = await Engine(small_catalog(max_repairs=8), client=client).run(FOLLOW)
    assert (result.repair_calls, result.validation.status) == (8, "invalid")
    original, *repairs = [call.encoded_messages("chat_completions").messages for call in client.calls]
    assert {repair[: len(original) - 1] for repair in repairs} == {original[:-1]}
    assert len(set(map(len, repairs))) == 1
    assert [message.role for message in client.calls[-1].messages] == ["user", "assistant", "user"]


@pytest.mark.anyio
@pytest.mark.parametrize("repairs", [0, 1, 3])
async def test_a_run_whose_repairs_are_exhausted_is_completed_and_its_output_invalid(repairs: int) -> None:
    recorder = EventRecorder()
    client = ScriptedClient(*[f"no {number}" for number in range(repairs + 1)])
    result = await Engine(small_catalog(max_repairs=repairs), client=client).run(
        RunRequest(prompt_id="follow", observer=recorder)
    )
    assert (result.validation.status, result.value, result.raw_output) == ("invalid", None, f"no {repairs}")
    terminal = recorder.events[-1]
    assert isinstance(terminal, RunFinished)
    assert (terminal.outcome, terminal.error, terminal.validation) == ("completed", None, "invalid")
    assert (terminal.attempts, terminal.repair_calls) == (repairs + 1, repairs)


near_answers = st.text() | st.sampled_from(
    [
        *(GOOD, f"```json\n{GOOD}\n```", f" {GOOD}\n", f"```\n{GOOD}\n```"),
        *(f"Sure: {GOOD}", f"{GOOD} Done.", f"{GOOD}{GOOD}", '{"a": 1,}', "{'a': 1}", '{"a": NaN}', '{"a": 1, "a": 1}'),
        *('{"a": 1', f"```json\n{GOOD}\n``` and ```json\n{GOOD}\n```", '{"a": "1"}', '{"a": 1.5}', "null", ""),
    ]
)


@settings(max_examples=60, deadline=None)
@given(answer=near_answers)
@example(answer=GOOD)
@example(answer=f"```json\n{GOOD}\n```")
@example(answer=f"Sure: {GOOD}")
@example(answer='{"a": 1, "a": 1}')
def test_a_value_is_handed_over_only_if_the_text_says_it(answer: str) -> None:
    engine = Engine(small_catalog(max_repairs=0), client=ScriptedClient(answer))
    result = anyio.run(engine.run, FOLLOW)
    document = answer.strip()
    if document.startswith("```") and document.endswith("```") and document.count("```") == 2:
        document = document.partition("\n")[2].removesuffix("```")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    try:
        said = json.loads(document, object_pairs_hook=once)
    except (ValueError, AssertionError):
        said = None
    valid = isinstance(said, dict) and set(said) == {"a"} and type(said["a"]) is int
    assert (result.value, result.validation.status) == ((said, "valid") if valid else (None, "invalid"))


PROGRAM = """
import sys
import anyio
from promptkit import Engine, Message, RunRequest
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

async def main():
    client = ScriptedClient("Rome. \\u2028\\U0001f642", *["x"] * int(sys.argv[1]), "Yes.")
    engine = Engine(small_catalog(), client=client)
    asked = RunRequest(prompt_id="ask", variables={"question": 'Quo "vadis"?\\n'}, capture_exchange=True)
    start = (await engine.run(asked)).exchange
    for number in range(int(sys.argv[1])):  # siblings
        said = (Message(role="user", content=str(number)),)
        await engine.run(RunRequest(prompt_id="more", continue_from=start, appended_messages=said))
    await engine.run(RunRequest(prompt_id="more", continue_from=start))
    form = "chat_completions"
    first, last = (client.calls[place].encoded_messages(form).messages for place in (0, -1))
    assert last.startswith(first[:-1] + b",")
    sys.stdout.buffer.write(last)

anyio.run(main)
"""


def test_what_is_sent_for_a_history_is_the_same_bytes_whatever_the_process_the_hash_seed_or_the_sibling() -> None:
    places = [str(Path(promptkit.__file__).parents[1]), str(Path(__file__).parents[1])]
    sent = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, siblings],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(places)},
            capture_output=True,
            check=True,
        ).stdout
        for seed, siblings in (("0", "0"), ("1", "3"), ("4294967295", "1"))
    }
    (only,) = sent
    assert [message["content"] for message in json.loads(only)][2:] == ["Rome. \u2028\U0001f642", "More?"]
