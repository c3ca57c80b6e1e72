"""What the consumers of conversations asked for, assembled: docs/acceptance.md says which line each test answers."""

from __future__ import annotations

import gc
import types
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from promptkit import (
    AuthenticationError,
    Catalog,
    ConversationTurn,
    Engine,
    Exchange,
    GenerationError,
    InputError,
    InvalidRequestError,
    Message,
    MessageTemplate,
    NotCapturedError,
    PreparedExecutionError,
    PromptDefinition,
    PromptKitError,
    RunFinished,
    RunRequest,
    RunResult,
    Secret,
)
from promptkit._effects.gate import Gate, Lease
from promptkit._effects.shared import Shared
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.conversations import ASK, FOLLOW, GOOD, HISTORY, MORE, coordinated, reply, scene, texts, transient

pytestmark = pytest.mark.anyio


def reached(start: object) -> list[object]:
    """Give every value that can be reached, code aside."""
    seen: dict[int, object] = {}
    left: list[object] = [start]
    while left:
        found = left.pop()
        if id(found) not in seen and not isinstance(found, type | types.ModuleType | types.FunctionType):
            seen[id(found)] = found
            left.extend(gc.get_referents(found))
    return list(seen.values())


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
    forbidden = (Engine, Shared, Gate, Lease, Secret, EventRecorder, RunRequest, RunResult, ScriptedClient)
    assert [value for value in reached(exchange) if isinstance(value, forbidden)] == []


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


# ---------------------------------------------------------------- what a request says of history


async def test_a_request_captures_and_continues_nothing_unless_it_says_so() -> None:
    engine, client, first = await scene("alone", "apart")
    assert (MORE.capture_exchange, MORE.continue_from) == (False, None)
    result = await engine.run(MORE)
    assert [message.content for message in client.calls[-1].messages] == ["More?"]
    assert (result.captured, result.parent_run_id) == (False, None)
    with pytest.raises(NotCapturedError):
        _ = result.exchange
    again = await engine.run(msgspec.structs.replace(MORE, continue_from=first.exchange, capture_exchange=False))
    assert again.captured


async def test_what_is_no_captured_exchange_is_refused_before_anything_is_done() -> None:
    engine, client, first = await scene()
    with pytest.raises(TypeError, match="capture_exchange=True"):
        Exchange()
    for wrong in (first, first.exchange.details(), first.run_id, object(), False, object.__new__(Exchange)):
        with pytest.raises(InvalidRequestError, match=r"continue_from: Expected an Exchange"):
            RunRequest(prompt_id="more", continue_from=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match=r"start: Expected an Exchange"):
            coordinated(engine, wrong, lambda _: MORE)  # type: ignore[arg-type]
    assert len(client.calls) == 1


async def test_a_session_id_is_in_two_turns_only_if_both_requests_say_it() -> None:
    engine, client, first = await scene("one", "two", "three")
    after: dict[str, Any] = {"prompt_id": "more", "continue_from": first.exchange}
    results = [await engine.run(RunRequest(**after, session_id=said)) for said in (None, first.session_id)]
    assert [result.session_id for result in results] == [None, "session of Where?"]
    template = RunRequest(prompt_id="ask", variables={"question": "Who?"}, continue_from=first.exchange)
    assert (await engine.run(template)).session_id == "session of Who?"
    assert [call.session_id for call in client.calls[1:]] == [None, "session of Where?", "session of Who?"]


async def test_a_history_changes_the_rendered_hash_and_neither_that_of_the_definition_nor_those_of_inputs() -> None:
    engine, client, first = await scene("another")
    other = await engine.run(ASK)
    requests = [msgspec.structs.replace(ASK, continue_from=start) for start in (None, first.exchange, other.exchange)]
    alone, after, after_other = [await engine.prepare(request) for request in requests]
    assert len({shown.rendered_hash for shown in (alone, after, after_other)}) == 3
    assert alone.definition_hash == after.definition_hash == after_other.definition_hash
    assert alone.input_hashes == after.input_hashes == after_other.input_hashes
    assert msgspec.to_builtins(after)["parent_run_id"] == first.run_id
    assert alone.parent_run_id is None
    assert not [value for value in reached(after) if isinstance(value, Exchange | RunRequest)]
    assert len(client.calls) == 2  # and no preparation asked the model


# ---------------------------------------------------------------- what is captured


@pytest.mark.parametrize("repairs", [0, 2])
async def test_an_invalid_output_is_captured_as_it_is_with_repairs_and_without(repairs: int) -> None:
    answers = ["no", "not yet", "still not"][: repairs + 1]
    client = ScriptedClient(*answers, "then")
    engine = Engine(small_catalog(max_repairs=repairs), client=client)
    result = await engine.run(RunRequest(prompt_id="follow", capture_exchange=True))
    assert (result.validation.status, result.attempts) == ("invalid", repairs + 1)
    assert texts(result.exchange) == ["And then?", answers[-1]]
    await engine.run(msgspec.structs.replace(MORE, continue_from=result.exchange))
    assert [message.content for message in client.calls[-1].messages] == ["And then?", answers[-1], "More?"]


async def test_a_prepared_continuation_has_the_budgets_of_an_ordinary_one_and_is_freed_with_its_observer() -> None:
    engine, client, first = await scene(transient(), "no", transient(), GOOD)
    recorder = EventRecorder()
    execution = await engine.prepare_execution(
        msgspec.structs.replace(FOLLOW, continue_from=first.exchange, observer=recorder)
    )
    assert [value for value in reached(execution) if isinstance(value, EventRecorder)] == [recorder]
    result = await engine.run_prepared(execution)
    assert (result.attempts, result.transient_retries, result.repair_calls, result.value) == (4, 2, 1, {"a": 1})
    assert texts(result.exchange) == [*HISTORY, "And then?", GOOD]
    assert not [value for value in reached(execution) if isinstance(value, EventRecorder | Exchange)]
    told = len(recorder.events)
    with pytest.raises(PreparedExecutionError):
        await engine.run_prepared(execution)
    assert len(recorder.events) == told
    client.assert_exhausted()


async def test_a_cancelled_continuation_captures_nothing_and_leaves_the_source_reusable() -> None:
    async def never(_: object) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    engine, _, first = await scene(never, "afterwards")
    before = first.exchange.details()
    with anyio.CancelScope() as scope:
        await engine.run(msgspec.structs.replace(MORE, continue_from=first.exchange))
    assert scope.cancelled_caught
    again = await engine.run(msgspec.structs.replace(MORE, continue_from=first.exchange))
    assert texts(again.exchange) == [*HISTORY, "More?", "afterwards"]
    assert first.exchange.details() == before


async def test_an_exchange_reaches_nothing_but_its_history() -> None:
    _, _, first = await scene()
    assert {type(found).__name__ for found in reached(first.exchange)} == {"Exchange", "Node"}
    details = first.exchange.details()
    assert details.__struct_fields__ == ("run_id", "parent_run_id", "messages")


# ---------------------------------------------------------------- ancestry


@pytest.mark.parametrize(
    ("prompt_id", "steps", "kinds", "error"),
    [
        ("follow", [transient(), "no", GOOD], "RunStarted AttemptFinished RetryDelayed AttemptFinished", None),
        ("more", [AuthenticationError("401", status=401)], "RunStarted AttemptFinished", "AuthenticationError"),
        ("moer", [], "RunStarted RunFinished", "UnknownPromptError"),  # before anything is selected
    ],
)
async def test_every_kind_of_event_names_the_parent(
    prompt_id: str, steps: list[Any], kinds: str, error: str | None
) -> None:
    engine, _, first = await scene(*steps)
    recorder = EventRecorder()
    request = RunRequest(prompt_id=prompt_id, continue_from=first.exchange, observer=recorder)
    if error is None:
        assert (await engine.run(request)).parent_run_id == first.run_id
    else:
        with pytest.raises(PromptKitError) as raised:
            await engine.run(request)
        assert (type(raised.value).__name__, raised.value.parent_run_id) == (error, first.run_id)
    assert [type(event).__name__ for event in recorder.events][: len(kinds.split())] == kinds.split()
    assert [event.parent_run_id for event in recorder.events] == [first.run_id] * len(recorder.events)
    terminal = recorder.events[-1]
    assert isinstance(terminal, RunFinished)
    assert terminal.error == error


async def test_a_run_inside_a_continuation_or_a_callback_has_no_parent_but_that_of_its_own_request() -> None:
    inner, outer = EventRecorder(), EventRecorder()

    async def nest(_: object) -> str:
        await engine.run(msgspec.structs.replace(MORE, observer=inner))
        return "outer"

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        await engine.run(msgspec.structs.replace(MORE, observer=inner))
        return MORE if turn.result is None else None

    engine, _, first = await scene("in the first callback", nest, "in the client", "in the second callback")
    await coordinated(engine, first.exchange, choose, observer=outer)
    assert {event.parent_run_id for event in inner.events} == {None}
    assert {event.parent_run_id for event in outer.events} == {first.run_id}
    assert len({event.run_id for event in inner.events}) == 3
    assert not {event.run_id for event in inner.events} & {event.run_id for event in outer.events}


async def test_no_text_of_a_conversation_gets_into_an_event() -> None:
    said = {"system": "You are terse.", "follow": "And then?", "answer": "MARK-answer", "no": "MARK-invalid"}
    engine, _, _ = await scene(said["answer"], transient(), said["no"], f"MARK{GOOD}", GenerationError("MARK-error"))
    recorder = EventRecorder()
    fields: dict[str, Any] = {"observer": recorder, "session_id": "MARK-session", "credential": Secret("MARK-key")}
    appended = (Message(role="user", content="MARK-appended"),)
    first = await engine.run(msgspec.structs.replace(ASK, variables={"question": "MARK-question"}, **fields))
    invalid = await engine.run(
        RunRequest(prompt_id="follow", continue_from=first.exchange, appended_messages=appended, **fields)
    )
    with pytest.raises(GenerationError):
        await engine.run(RunRequest(prompt_id="more", continue_from=invalid.exchange, **fields))
    assert {type(event).__name__ for event in recorder.events} == {
        *("RunStarted", "AttemptFinished", "RetryDelayed", "RunFinished")
    }
    told = msgspec.json.encode(recorder.events).decode() + repr(recorder.events)
    assert not [text for text in ("MARK", *said.values()) if text in told]


# ---------------------------------------------------------------- branches from outside


async def test_each_branch_sends_its_own_history_and_changes_neither_its_parent_nor_its_sibling() -> None:
    engine, client, a = await scene("b", "c", "d", "e")
    b, c = [await engine.run(msgspec.structs.replace(MORE, continue_from=a.exchange)) for _ in range(2)]
    before = [result.exchange.details() for result in (a, b, c)]
    d = await engine.run(msgspec.structs.replace(MORE, continue_from=b.exchange))
    await engine.run(msgspec.structs.replace(MORE, continue_from=a.exchange))
    assert [[message.content for message in call.messages] for call in client.calls] == [
        HISTORY[:2],
        [*HISTORY, "More?"],
        [*HISTORY, "More?"],
        [*HISTORY, "More?", "b", "More?"],
        [*HISTORY, "More?"],
    ]
    assert [message.role for message in client.calls[3].messages] == [
        *("system", "user", "assistant", "user", "assistant", "user")
    ]
    assert [result.exchange.details() for result in (a, b, c)] == before
    assert (d.parent_run_id, c.exchange.details().run_id) == (b.run_id, c.run_id)


async def test_inputs_of_a_follow_up_are_read_when_it_is_prepared_and_fail_as_ever(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    look = PromptDefinition(
        id="look",
        messages=(MessageTemplate(role="user", content="{{ inputs.note }}"),),
        inputs=("note",),
    )
    client = ScriptedClient("Rome.", "of the prepared", "of the ordinary", "after all")
    engine = Engine(small_catalog() | Catalog(prompts=[look]), client=client, inputs=tmp_path)
    first = await engine.run(ASK)
    request = RunRequest(
        prompt_id="look", profile="cold", inputs={"note": Path("note.txt")}, continue_from=first.exchange
    )
    note.write_text("as it was")
    execution = await engine.prepare_execution(request)
    note.write_text("as it is")
    await engine.run_prepared(execution)
    await engine.run(request)
    assert [[message.content for message in call.messages] for call in client.calls[1:]] == [
        [*HISTORY, "as it was"],
        [*HISTORY, "as it is"],
    ]
    note.unlink()
    with pytest.raises(InputError, match=r"note\.txt"):
        await engine.run(request)
    assert (await engine.run(msgspec.structs.replace(MORE, continue_from=first.exchange))).raw_output == "after all"
