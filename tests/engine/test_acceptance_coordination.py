"""What those who lead a conversation asked for, assembled: docs/acceptance.md says which line each test answers."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from promptkit import (
    AuthenticationError,
    CapacityError,
    ConversationTurn,
    CoordinateRequest,
    CoordinationResult,
    Engine,
    Exchange,
    ExecutionGroup,
    GenerationError,
    GenerationReply,
    RateLimitError,
    RunRequest,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog, team_catalog
from servers.conversations import ASK, FOLLOW, GOOD, HISTORY, MORE, coordinated, reply, scene, texts, transient

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- coordination


async def test_one_coordinator_fails_and_the_exchange_stays_usable_for_its_sibling() -> None:
    engine, _, first = await scene("one", AuthenticationError("401", status=401), "other", "other still")
    with pytest.raises(AuthenticationError):
        await coordinated(engine, first.exchange, lambda _: MORE)
    reached: list[Exchange] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        reached.append(turn.exchange)
        return MORE if turn.remaining_turns else None

    assert (await coordinated(engine, first.exchange, choose, 2)).outcome == "stopped"
    assert texts(reached[-1]) == [*HISTORY, "More?", "other", "More?", "other still"]


@pytest.mark.parametrize(
    "problem",
    [
        AuthenticationError("401", status=401),
        RateLimitError("429", status=429, transient=False),
        GenerationError("of the client"),
        ZeroDivisionError("of the client"),
    ],
    ids=lambda problem: type(problem).__name__,
)
async def test_an_error_of_the_provider_crosses_the_coordinator_as_it_crosses_run(problem: Exception) -> None:
    engine, _, first = await scene(problem, problem)
    with pytest.raises(type(problem)) as alone:
        await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    with pytest.raises(type(problem)) as raised:
        await coordinated(engine, first.exchange, lambda _: MORE)
    assert type(raised.value) is type(alone.value) is type(problem)
    assert str(raised.value) == str(alone.value) == str(problem)
    assert getattr(raised.value, "status", None) == getattr(problem, "status", None)


async def test_a_capacity_error_crosses_the_coordinator_as_it_crosses_run() -> None:
    released = anyio.Event()

    async def held(_: object) -> str:
        await released.wait()
        return "held"

    engine, client, first = await scene(held, max_concurrency=1, max_waiting=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, MORE)
        while len(client.calls) < 2:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(CapacityError) as alone:
            await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
        with pytest.raises(CapacityError) as raised:
            await coordinated(engine, first.exchange, lambda _: MORE)
        released.set()
    assert (str(raised.value), raised.value.reason, raised.value.running) == (str(alone.value), "full", 1)


async def test_retries_and_repairs_inside_a_turn_give_one_delivery_and_spend_no_turn() -> None:
    engine, client, first = await scene(transient(), "no number", transient(), GOOD, GOOD)
    seen: list[tuple[int, int, int]] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        if turn.result is not None:
            seen.append((turn.remaining_turns, turn.result.transient_retries, turn.result.repair_calls))
        return FOLLOW

    assert (await coordinated(engine, first.exchange, choose, 2)).outcome == "exhausted"
    assert seen == [(1, 2, 1), (0, 0, 0)]
    client.assert_exhausted()


async def test_a_failure_in_the_second_turn_of_three_ends_with_it_and_starts_no_third() -> None:
    engine, client, first = await scene("one")
    seen: list[int] = []

    def choose(turn: ConversationTurn) -> RunRequest:
        seen.append(turn.remaining_turns)
        return MORE if turn.result is None else RunRequest(prompt_id="ask")  # its variable is missing

    coordination = coordinated(engine, first.exchange, choose)
    with pytest.raises(Exception, match="question"):
        await coordination
    assert seen == [3, 2]
    assert coordination.result == CoordinationResult()
    client.assert_exhausted()


async def test_the_request_that_next_returned_is_not_changed_and_changing_it_afterwards_changes_nothing() -> None:
    engine, client, first = await scene("one", "two")
    variables: dict[str, Any] = {"question": "mine"}
    recorder = EventRecorder()
    chosen = RunRequest(prompt_id="ask", variables=variables, observer=recorder)
    before = msgspec.structs.asdict(chosen)

    def choose(turn: ConversationTurn) -> RunRequest | None:
        variables["question"] = "changed"
        return chosen if turn.remaining_turns else None

    await coordinated(engine, first.exchange, choose, 2, observer=EventRecorder())
    assert msgspec.structs.asdict(chosen) == before
    assert (chosen.continue_from, chosen.observer) == (None, recorder)
    assert [call.messages[-1].content for call in client.calls[1:]] == ["mine", "mine"]


async def test_changing_everything_that_was_delivered_changes_neither_the_branch_nor_its_ancestry() -> None:
    engine, client, first = await scene(GOOD, GOOD, "last")
    parents: list[str | None] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            parents.append(turn.result.parent_run_id)
            kept = turn.result.run_id
            assert isinstance(turn.result.value, dict)
            turn.result.value["a"] = "changed"
            details = turn.exchange.details()
            for owner, name, value in (
                (turn, "exchange", first.exchange),
                (turn, "remaining_turns", 99),
                (turn.result, "run_id", "changed"),
                (turn.result, "raw_output", "changed"),
                (details, "run_id", "changed"),
                (details.messages[-1], "content", "changed"),
            ):
                msgspec.structs.force_setattr(owner, name, value)
            expected.append(kept)
        return FOLLOW if len(parents) < 2 else None

    expected = [first.run_id]
    await coordinated(engine, first.exchange, choose)
    assert parents == expected[:2]
    assert [message.content for message in client.calls[-1].messages] == [*HISTORY, "And then?", GOOD, "And then?"]


@pytest.mark.parametrize("backend", [{"max_concurrency": 1, "max_waiting": 0}])
async def test_a_consumer_assesses_each_turn_with_nested_calls_at_capacity_one_and_groups_them_itself(
    backend: dict[str, int],
) -> None:
    engine, client, first = await scene(
        *(reply(text) for text in ("one", '{"a": 0}', "two", "bad", '{"a": 1}')), **backend
    )
    turns, assessments = ExecutionGroup(), ExecutionGroup()
    verdicts: list[object] = []

    async def assess(turn: ConversationTurn) -> bool:
        assessed = await engine.run(
            RunRequest(prompt_id="follow", continue_from=turn.exchange, observer=assessments.observe)
        )
        verdicts.append(assessed.value)
        return assessed.value == {"a": 1}

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        return MORE if turn.result is None or not await assess(turn) else None

    ended = await coordinated(engine, first.exchange, choose, observer=turns.observe)
    assert (ended.outcome, verdicts) == ("stopped", [{"a": 0}, {"a": 1}])
    assert [len(group.snapshot().members) for group in (turns, assessments)] == [2, 2]
    assert [group.snapshot().usage.input_tokens.value for group in (turns, assessments)] == [20, 30]
    assert assessments.snapshot().repair_calls == 1
    client.assert_exhausted()


async def test_a_callback_may_run_coordinate_and_use_a_view_inside_itself_at_capacity_one() -> None:
    engine = Engine(team_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient(*["yes"] * 5))
    team = engine.scoped("team")
    bare = RunRequest(prompt_id="bare", profile="warm", capture_exchange=True)
    first = await team.run(bare)
    done: list[str | None] = []

    async def inner(turn: ConversationTurn) -> RunRequest | None:
        done.append((await team.run(bare)).prompt_id)
        return bare if turn.remaining_turns else None

    async def outer(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            return None
        nested = await coordinated(team, turn.exchange, inner, 1)
        done.append(nested.outcome)
        return bare

    assert (await coordinated(team, first.exchange, outer)).outcome == "stopped"
    assert done == ["team/bare", "team/bare", "stopped"]


async def test_siblings_that_compete_for_one_permit_with_nested_runs_all_finish() -> None:
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=4), client=ScriptedClient(*["yes"] * 21))
    start = (await engine.run(ASK)).exchange
    group = ExecutionGroup()

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is not None:
            await engine.run(RunRequest(prompt_id="more", continue_from=turn.exchange, observer=group.observe))
        return MORE if turn.remaining_turns else None

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(coordinated(engine, start, choose, 2, observer=group.observe).run)
    assert (len(group.snapshot().members), group.snapshot().attempts) == (20, 20)


async def test_two_hundred_coordinators_at_concurrency_four_finish_with_the_right_totals() -> None:
    busy = most = 0

    class Client:
        async def generate(self, _: object) -> GenerationReply:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await anyio.lowlevel.checkpoint()
            busy -= 1
            return reply("yes", 7, 3)

    engine = Engine(small_catalog(max_concurrency=4, max_waiting=200), client=Client())
    start = (await engine.run(ASK)).exchange
    group = ExecutionGroup()
    outcomes: list[str | None] = []

    async def lead(number: int) -> None:
        turns = number % 4
        request = CoordinateRequest(
            start=start,
            additional_turns=turns,
            next=lambda turn: MORE if turn.remaining_turns or number % 2 else None,
            observer=group.observe,
        )
        outcomes.append((await engine.coordinate(request)).outcome)

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(lead, number)
    runs = sum(number % 4 for number in range(200))
    summary = group.snapshot()
    assert (len(summary.members), summary.attempts, summary.terminal_coverage_complete) == (runs, runs, True)
    assert (summary.usage.input_tokens.value, summary.usage.output_tokens.value) == (7 * runs, 3 * runs)
    assert sorted(filter(None, outcomes)) == ["exhausted"] * 100 + ["stopped"] * 100
    assert most == 4
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)


async def test_observers_run_without_a_permit_and_with_a_lease_only_between_the_attempts_and_next_with_neither() -> (
    None
):
    engine, _, first = await scene(transient(), "one", max_concurrency=1, max_waiting=0)
    held: list[tuple[str, int, int]] = []

    def note(where: str) -> None:
        counts = engine.inspect_backend("server")
        held.append((where, counts.running, counts.waiting))

    def choose(turn: ConversationTurn) -> RunRequest | None:
        note("next")
        return MORE if turn.result is None else None

    await coordinated(engine, first.exchange, choose, observer=lambda event: note(type(event).__name__))
    assert held == [
        ("next", 0, 0),
        ("RunStarted", 0, 0),
        ("AttemptFinished", 0, 1),
        ("RetryDelayed", 0, 1),
        ("AttemptFinished", 0, 1),
        ("RunFinished", 0, 0),
        ("next", 0, 0),
    ]
