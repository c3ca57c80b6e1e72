"""The application's side of a coordination: what it is called with, what its turns cost, and what is left to it."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from promptkit import (
    AuthenticationError,
    ConversationTurn,
    CoordinateRequest,
    CoordinationResult,
    Engine,
    EngineStateError,
    ExecutionGroup,
    ExecutionGroupSummary,
    OutputContract,
    RunRequest,
    RunResult,
    TokenCount,
    compose_observers,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog, team_catalog
from servers.conversations import ASK, FOLLOW, GOOD, HISTORY, MORE, coordinated, reply, scene, texts, transient

pytestmark = pytest.mark.anyio

CHOICES = (
    RunRequest(prompt_id="ask", variables={"question": "Who?"}, profile="cold", session_id="mine"),
    RunRequest(prompt_id="follow", output=OutputContract(kind="text")),
    MORE,
)


async def test_a_loop_of_ones_own_says_what_a_coordination_says() -> None:
    said = []
    for alone in (True, False):
        engine, client, first = await scene("one", "two", "three")
        exchange = first.exchange
        if alone:
            for choice in CHOICES:
                exchange = (await engine.run(msgspec.structs.replace(choice, continue_from=exchange))).exchange
        else:
            turns: list[ConversationTurn] = []

            def choose(turn: ConversationTurn, turns: list[ConversationTurn] = turns) -> RunRequest | None:
                turns.append(turn)
                return CHOICES[len(turns) - 1] if turn.remaining_turns else None

            await coordinated(engine, exchange, choose)
            exchange = turns[-1].exchange
        calls = [(call.messages, call.profile, call.output, call.session_id) for call in client.calls]
        said.append((calls, texts(exchange)))
    assert said[0] == said[1]
    assert said[0][1] == [*HISTORY, "You are terse.", "Who?", "one", "And then?", "two", "More?", "three"]
    assert [call[1].id for call in said[0][0]] == ["warm", "cold", "cold", "cold"]


async def test_the_first_call_can_use_what_the_application_knows_before_anything_is_generated() -> None:
    engine, client, first = await scene("better")
    known = {"finding": first.raw_output}
    seen: list[int] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        seen.append(len(client.calls))
        if turn.result is None:
            return RunRequest(prompt_id="ask", variables={"question": f"Not {known['finding']}"})
        known["finding"] = turn.result.raw_output
        return None

    assert (await coordinated(engine, first.exchange, choose)).outcome == "stopped"
    assert (seen, known) == ([1, 2], {"finding": "better"})
    assert client.calls[1].messages[-1].content == "Not Rome."


@pytest.mark.parametrize("ending", ["stop", "request", "raise"])
async def test_zero_turns_give_the_application_the_start_no_result_and_whatever_it_runs_itself(ending: str) -> None:
    engine, client, first = await scene("of the application", "also", max_concurrency=1, max_waiting=0)
    recorder = EventRecorder()
    turns: list[ConversationTurn] = []
    problem = ZeroDivisionError("mine")

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        turns.append(turn)
        for _ in range(2):
            await engine.run(msgspec.structs.replace(MORE, continue_from=turn.exchange))
        if ending == "raise":
            raise problem
        return MORE if ending == "request" else None

    coordination = coordinated(engine, first.exchange, choose, 0, observer=recorder)
    if ending == "raise":
        with pytest.raises(ZeroDivisionError) as raised:
            await coordination
        assert raised.value is problem
    else:
        await coordination
    outcome = {"stop": "stopped", "request": "exhausted", "raise": None}[ending]
    assert coordination.result == CoordinationResult(outcome=outcome)  # type: ignore[arg-type]
    assert [(turn.exchange, turn.result, turn.remaining_turns) for turn in turns] == [(first.exchange, None, 0)]
    assert (recorder.events, len(client.calls)) == ([], 3)


async def test_nested_runs_retries_and_repairs_spend_no_turn() -> None:
    engine, client, first = await scene(*["nested"] * 3, transient(), "no", GOOD, *["nested"] * 3)
    left: list[int] = []

    async def choose(turn: ConversationTurn) -> RunRequest:
        left.append(turn.remaining_turns)
        for _ in range(3):
            await engine.run(MORE)
        return FOLLOW

    assert (await coordinated(engine, first.exchange, choose, 1)).outcome == "exhausted"
    assert left == [1, 0]
    client.assert_exhausted()


async def test_a_callback_that_raises_is_not_called_again_and_its_response_is_delivered() -> None:
    engine, client, first = await scene("one")
    delivered: list[str | None] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        delivered.append(None if turn.result is None else turn.result.raw_output)
        if turn.result is not None:
            raise LookupError
        return MORE

    coordination = coordinated(engine, first.exchange, choose)
    with pytest.raises(LookupError):
        await coordination
    assert (delivered, coordination.result) == ([None, "one"], CoordinationResult())
    client.assert_exhausted()


async def test_what_was_delivered_before_a_failure_stays_usable() -> None:
    engine, client, first = await scene("one", AuthenticationError("401", status=401), "from there")
    delivered: list[RunResult] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        if turn.result is not None:
            delivered.append(turn.result)
        return MORE

    with pytest.raises(AuthenticationError):
        await coordinated(engine, first.exchange, choose)
    (one,) = delivered
    again = await engine.run(msgspec.structs.replace(MORE, continue_from=one.exchange))
    assert (texts(again.exchange), again.parent_run_id) == (
        [*HISTORY, "More?", "one", "More?", "from there"],
        one.run_id,
    )
    client.assert_exhausted()


@pytest.mark.parametrize("goes_on", [True, False])
async def test_after_an_output_that_no_repair_cured_the_application_stops_or_goes_on(*, goes_on: bool) -> None:
    engine, client, first = await scene("no", "still no", "then")
    statuses: list[str] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return FOLLOW
        statuses.append(turn.result.validation.status)
        return MORE if goes_on and len(statuses) == 1 else None

    assert (await coordinated(engine, first.exchange, choose)).outcome == "stopped"
    assert statuses == (["invalid", "not_requested"] if goes_on else ["invalid"])
    assert len(client.calls) == (4 if goes_on else 3)
    assert [message.content for message in client.calls[-1].messages][3:5] == [
        "And then?",
        "still no" if goes_on else "no",
    ]


async def test_branches_at_the_same_time_stop_are_exhausted_and_fail_each_by_itself() -> None:
    gate = anyio.Event()

    async def fail(_: object) -> Exception:
        gate.set()
        return AuthenticationError("401", status=401)

    async def late(_: object) -> str:
        await gate.wait()  # until the sibling has failed
        return "late"

    client = ScriptedClient("Rome.", late, late, fail)
    engine = Engine(small_catalog(), client=client)
    first = await engine.run(ASK)
    ended: dict[str, object] = {}

    async def lead(name: str, asks_again: bool) -> None:  # noqa: FBT001  # start_soon has no keywords
        coordination = coordinated(
            engine, first.exchange, lambda turn: MORE if asks_again or turn.result is None else None, 1
        )
        try:
            ended[name] = (await coordination).outcome
        except AuthenticationError as error:
            ended[name] = (type(error), coordination.result.outcome)

    async with anyio.create_task_group() as tasks:
        for name, asks_again in (("stops", False), ("asks on", True), ("fails", True)):
            before = len(client.calls)
            tasks.start_soon(lead, name, asks_again)
            while len(client.calls) == before:
                await anyio.lowlevel.checkpoint()
    assert ended == {"stops": "stopped", "asks on": "exhausted", "fails": (AuthenticationError, None)}


# ---------------------------------------------------------------- accounting


async def test_each_run_reports_its_own_usage_and_a_group_counts_shared_work_once() -> None:
    engine, _, _ = await scene(reply("a", 7, 1), reply("b", 11, 2), reply("c", 13, 3))
    group, only_b = ExecutionGroup(), ExecutionGroup()
    a = await engine.run(msgspec.structs.replace(ASK, observer=group.observe))
    observed = msgspec.structs.replace(MORE, continue_from=a.exchange, observer=group.observe)
    b = await engine.run(msgspec.structs.replace(observed, observer=compose_observers(group.observe, only_b.observe)))
    c = await engine.run(observed)
    assert [result.usage.input_tokens.value for result in (a, b, c)] == [7, 11, 13]
    summary = group.snapshot()
    assert (len(summary.members), summary.attempts) == (3, 3)
    assert summary.usage.input_tokens == TokenCount(value=31, known=True, complete=True)
    assert [result.parent_run_id for result in (b, c)] == [a.run_id] * 2
    assert [member.run_id for member in only_b.snapshot().members] == [b.run_id]  # a parent is no member by that
    assert only_b.snapshot().usage.input_tokens.value == 11


async def test_each_turn_reports_its_own_usage_and_no_total() -> None:
    engine, _, first = await scene(reply("one", 5, 1), reply("two", 9, 2))
    used: list[tuple[int, int]] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            used.append((turn.result.usage.input_tokens.value, turn.result.attempts))
        return MORE if turn.remaining_turns else None

    await coordinated(engine, first.exchange, choose, 2)
    assert used == [(5, 1), (9, 1)]


def test_what_a_coordination_takes_and_tells_has_no_total_no_archive_and_no_identity_of_its_own() -> None:
    assert CoordinationResult.__struct_fields__ == ("outcome", "undelivered")
    assert ConversationTurn.__struct_fields__ == ("exchange", "result", "remaining_turns")
    assert CoordinateRequest.__struct_fields__ == ("start", "additional_turns", "next", "observer")
    with pytest.raises(TypeError, match="additional_turns"):
        CoordinateRequest(start=None, next=None)  # type: ignore[call-arg,arg-type]
    grouping = ("conversation", "branch", "sequence", "group", "turn")
    for told in (RunRequest, RunResult, ExecutionGroupSummary):
        assert not [name for name in told.__struct_fields__ if any(word in name for word in grouping)]


async def test_a_callback_groups_the_calls_that_it_makes_at_the_same_time() -> None:
    engine, _, first = await scene(*[reply("yes", 3, 1)] * 5)
    checks, turns = ExecutionGroup(), ExecutionGroup()

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(engine.run, msgspec.structs.replace(MORE, observer=checks.observe))
        return MORE if turn.remaining_turns else None

    await coordinated(engine, first.exchange, choose, 1, observer=turns.observe)
    assert [group.snapshot().usage.input_tokens.value for group in (checks, turns)] == [12, 3]
    assert len(checks.snapshot().members) == 4


# ---------------------------------------------------------------- what leads


async def test_a_coordination_tells_no_event_of_its_own() -> None:
    engine, _, first = await scene("one", "two")
    recorder = EventRecorder()
    results: list[RunResult] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            results.append(turn.result)
        return MORE if turn.remaining_turns else None

    await coordinated(engine, first.exchange, choose, 2, observer=recorder)
    told = ["RunStarted", "AttemptFinished", "RunFinished"]
    assert [type(event).__name__ for event in recorder.events] == told * 2
    assert [event.run_id for event in recorder.events] == [result.run_id for result in results for _ in told]


async def test_a_start_of_an_engine_with_other_prompts_is_coordinated_without_looking_for_them() -> None:
    _, _, first = await scene()
    client = ScriptedClient("there")
    view = Engine(team_catalog(), client=client).scoped("team")
    bare = RunRequest(prompt_id="bare", profile="warm")
    await coordinated(view, first.exchange, lambda turn: bare if turn.remaining_turns else None, 1)
    (call,) = client.calls
    assert [message.content for message in call.messages] == [*HISTORY, "team/ hi"]


async def test_a_closed_engine_runs_no_turn() -> None:
    engine, client, first = await scene("never")
    coordination = coordinated(engine, first.exchange, lambda _: MORE)
    await engine.aclose()
    with pytest.raises(EngineStateError, match="closed"):
        await coordination
    with pytest.raises(EngineStateError, match="closed"):
        coordinated(engine, first.exchange, lambda _: MORE)
    assert (coordination.result, len(client.calls)) == (CoordinationResult(), 1)
