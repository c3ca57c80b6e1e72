"""What the consumers of conversations asked for, assembled: docs/acceptance.md says which line each test answers."""

from __future__ import annotations

import gc
import types

import msgspec
import pytest

from promptkit import (
    AuthenticationError,
    ConversationTurn,
    Engine,
    InvalidRequestError,
    RunFinished,
    RunRequest,
    RunResult,
    Secret,
)
from promptkit._effects.gate import Gate, Lease
from promptkit._effects.shared import Shared
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.conversations import ASK, GOOD, HISTORY, MORE, coordinated, reply, scene, texts

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- history and branches


async def test_the_history_of_a_repaired_run_ends_with_its_whole_final_answer_and_has_no_repair_in_it() -> None:
    engine, client, _ = await scene("no number", f"```json\n{GOOD}\n```", "then")
    repaired = await engine.run(RunRequest(prompt_id="follow", capture_exchange=True))
    assert (repaired.repair_calls, repaired.value, repaired.validation.extraction) == (1, {"a": 1}, "fenced")
    await engine.run(RunRequest(prompt_id="more", continue_from=repaired.exchange))
    assert [message.content for message in client.calls[-1].messages] == ["And then?", f"```json\n{GOOD}\n```", "More?"]


async def test_branches_and_a_branch_of_a_branch_keep_their_own_history_and_parents() -> None:
    engine, _, a = await scene("b", "c", "d")
    b, c = [await engine.run(RunRequest(prompt_id="more", continue_from=a.exchange)) for _ in range(2)]
    d = await engine.run(RunRequest(prompt_id="more", continue_from=b.exchange))
    assert [result.parent_run_id for result in (a, b, c, d)] == [None, a.run_id, a.run_id, b.run_id]
    assert [texts(result.exchange) for result in (a, b, c, d)] == [
        HISTORY,
        [*HISTORY, "More?", "b"],
        [*HISTORY, "More?", "c"],
        [*HISTORY, "More?", "b", "More?", "d"],
    ]


async def test_parents_tell_the_turns_of_two_coordinated_branches_apart() -> None:
    engine, _, first = await scene(*["yes"] * 4)
    ways: list[list[str | None]] = []
    for _ in range(2):
        results: list[RunResult] = []

        def choose(turn: ConversationTurn, results: list[RunResult] = results) -> RunRequest | None:
            if turn.result is not None:
                results.append(turn.result)
            return MORE if turn.remaining_turns else None

        recorder = EventRecorder()
        await coordinated(engine, first.exchange, choose, 2, observer=recorder)
        one, two = results
        assert (one.parent_run_id, two.parent_run_id) == (first.run_id, one.run_id)
        assert two.exchange.details().parent_run_id == one.run_id
        assert {event.parent_run_id for event in recorder.events if event.run_id == two.run_id} == {one.run_id}
        ways.append([one.run_id, two.run_id])
    assert not set(ways[0]) & set(ways[1])


async def test_a_prepared_continuation_is_observed_as_it_runs_and_captured() -> None:
    engine, _, first = await scene("later")
    recorder = EventRecorder()
    execution = await engine.prepare_execution(
        RunRequest(prompt_id="more", continue_from=first.exchange, observer=recorder)
    )
    assert execution.details.parent_run_id == first.run_id
    assert recorder.events == []
    result = await engine.run_prepared(execution)
    assert {(event.run_id, event.parent_run_id) for event in recorder.events} == {(result.run_id, first.run_id)}
    assert texts(result.exchange) == [*HISTORY, "More?", "later"]
    assert result.exchange.details().parent_run_id == first.run_id


async def test_an_error_during_a_repair_captures_nothing_and_leaves_the_source_reusable() -> None:
    engine, _, first = await scene(reply("no"), AuthenticationError("401", status=401), "afterwards")
    recorder = EventRecorder()
    with pytest.raises(AuthenticationError) as raised:
        await engine.run(RunRequest(prompt_id="follow", continue_from=first.exchange, observer=recorder))
    assert (raised.value.attempts, raised.value.parent_run_id) == (2, first.run_id)
    terminal = recorder.events[-1]
    assert isinstance(terminal, RunFinished)
    assert (terminal.outcome, terminal.repair_calls, terminal.usage.input_tokens.value) == ("failed", 1, 10)
    again = await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    assert texts(again.exchange) == [*HISTORY, "More?", "afterwards"]


async def test_a_failure_after_selection_keeps_the_parent() -> None:
    engine, _, first = await scene(AuthenticationError("401", status=401))
    recorder = EventRecorder()
    with pytest.raises(AuthenticationError):
        await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange, observer=recorder))
    assert {event.parent_run_id for event in recorder.events} == {first.run_id}
    terminal = recorder.events[-1]
    assert isinstance(terminal, RunFinished)
    assert (terminal.outcome, terminal.backend) == ("failed", "server")


async def test_an_exchange_reaches_no_engine_credential_observer_request_or_lease() -> None:
    engine, _, first = await scene("yes")
    recorder = EventRecorder()
    request = RunRequest(
        prompt_id="more", continue_from=first.exchange, credential=Secret("sk-MARK"), observer=recorder
    )
    exchange = (await engine.run(request)).exchange
    seen: dict[int, object] = {}
    left: list[object] = [exchange]
    while left:
        found = left.pop()
        if id(found) not in seen and not isinstance(found, type | types.ModuleType):
            seen[id(found)] = found
            left.extend(gc.get_referents(found))
    forbidden = (Engine, Shared, Gate, Lease, Secret, EventRecorder, RunRequest, RunResult, ScriptedClient)
    assert [value for value in seen.values() if isinstance(value, forbidden)] == []


async def test_another_engine_continues_with_what_was_said_and_nothing_else() -> None:
    engine, _, _ = await scene("Rome.")
    first = await engine.run(msgspec.structs.replace(ASK, credential=Secret("sk-MARK")))
    client = ScriptedClient("Paris.")
    other = Engine(small_catalog(), client=client).scoped("nowhere")
    with pytest.raises(InvalidRequestError, match="nowhere/more"):
        await other.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    result = await Engine(small_catalog(), client=client).run(
        RunRequest(prompt_id="more", continue_from=first.exchange)
    )
    assert texts(result.exchange) == [*HISTORY, "More?", "Paris."]
    (call,) = client.calls
    assert (call.profile.id, call.session_id, call.credential) == ("cold", None, None)


async def test_details_of_an_exchange_encode_are_detached_and_end_with_the_exact_answer() -> None:
    engine, _, _ = await scene("  \n ")
    blank = (await engine.run(ASK)).exchange
    encoded = msgspec.json.decode(msgspec.json.encode(blank.details()))
    assert encoded["messages"][-1]["content"] == "  \n "
    changed = blank.details()
    msgspec.structs.force_setattr(changed.messages[-1], "content", "changed")
    assert texts(blank)[-1] == "  \n "
