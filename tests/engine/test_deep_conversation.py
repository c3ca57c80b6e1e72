"""A very long conversation through the public API, in a thread with a very small stack."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest

from promptkit import Engine, RunRequest
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from promptkit import Exchange, GenerationCall
    from promptkit._history import Node

TURNS = 100_000


def _conversation(turns: int) -> Exchange:
    node: Node | None = None
    for number in range(turns):
        node = Turn(node, [("user", f"question {number}", None)]).capture(f"run-{number}", f"answer {number}")
    assert node is not None
    return exchange_of(node)


def _continue(seen: dict[str, Any]) -> None:
    exchange = _conversation(TURNS)

    def answer(call: GenerationCall) -> str:
        seen["sent"] = call.encoded_messages("chat_completions").messages
        return "the end"

    engine = Engine(small_catalog(), client=ScriptedClient(answer))
    result = anyio.run(engine.run, RunRequest(prompt_id="more", continue_from=exchange))
    seen["parent"] = result.parent_run_id
    details = result.exchange.details()
    seen["messages"] = len(details.messages)
    seen["encoded"] = len(msgspec.json.encode(details))
    seen["last"] = [message.content for message in details.messages[-3:]]
    del exchange, result, engine, details


@pytest.mark.timeout(120)
def test_a_conversation_of_100_000_turns_continues_in_a_thread_with_a_256_kib_stack() -> None:
    seen: dict[str, Any] = {}
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=_continue, args=(seen,))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert seen["parent"] == f"run-{TURNS - 1}"
    assert seen["messages"] == 2 * TURNS + 2
    assert seen["last"] == [f"answer {TURNS - 1}", "More?", "the end"]
    sent = json.loads(seen["sent"])
    assert len(sent) == 2 * TURNS + 1
    assert sent[0] == {"role": "user", "content": "question 0"}
    assert seen["encoded"] > len(seen["sent"])
