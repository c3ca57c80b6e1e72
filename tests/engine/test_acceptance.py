"""What the consumers of conversations asked for, assembled: docs/acceptance.md says which line each test answers."""

from __future__ import annotations

import gc
import types
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from promptkit import (
    AttemptFinished,
    AuthenticationError,
    BackendStatusError,
    CapacityError,
    ConversationTurn,
    CoordinateRequest,
    CoordinationResult,
    Engine,
    Exchange,
    ExecutionGroup,
    GenerationError,
    GenerationReply,
    InvalidRequestError,
    PreparedExecutionError,
    RateLimitError,
    ReportedUsage,
    RunFinished,
    RunRequest,
    RunResult,
    Secret,
    TokenCount,
    compose_observers,
)
from promptkit._effects.gate import Gate, Lease
from promptkit._effects.shared import Shared
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog, team_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)
MORE = RunRequest(prompt_id="more")
FOLLOW = RunRequest(prompt_id="follow")
GOOD = '{"a": 1}'
HISTORY = ["You are terse.", "Where?", "Rome."]


def reply(content: str, given: int = 10, made: int = 2) -> GenerationReply:
    return GenerationReply(content=content, usage=ReportedUsage(input_tokens=given, output_tokens=made))


def transient() -> BackendStatusError:
    return BackendStatusError("503", status=503, transient=True)


def texts(exchange: Exchange) -> list[object]:
    return [message.content for message in exchange.details().messages]


async def scene(*steps: Any, **backend: Any) -> tuple[Engine, ScriptedClient, RunResult]:
    client = ScriptedClient("Rome.", *steps)
    engine = Engine(small_catalog(**backend), client=client)
    return engine, client, await engine.run(ASK)


def coordinated(
    engine: Engine, start: Exchange, choose: Callable[[ConversationTurn], Any], turns: int = 3, **fields: Any
) -> Any:
    return engine.coordinate(CoordinateRequest(start=start, additional_turns=turns, next=choose, **fields))


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
    done: list[str] = []

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


# ---------------------------------------------------------------- groups


async def test_overlapping_groups_count_each_run_once_with_retries_repairs_and_a_failure_after_usage() -> None:
    engine, _, a = await scene(
        *(reply("b"), transient(), reply("no"), reply(GOOD)),  # B; C with a retry and a repair
        *(reply("no", 5, 1), AuthenticationError("401", status=401)),  # the validator: usage, then a failure
        reply("not selected"),
    )
    work, checks, everything = ExecutionGroup(), ExecutionGroup(), ExecutionGroup()
    for prompt in ("more", "follow"):
        await engine.run(
            RunRequest(
                prompt_id=prompt,
                continue_from=a.exchange,
                observer=compose_observers(work.observe, everything.observe),
            )
        )
    with pytest.raises(AuthenticationError):
        await engine.run(RunRequest(prompt_id="follow", observer=compose_observers(everything.observe, checks.observe)))
    await engine.run(MORE)
    totals = [
        (len(s.members), s.attempts, s.transient_retries, s.repair_calls, s.usage.input_tokens)
        for s in (work.snapshot(), checks.snapshot(), everything.snapshot())
    ]
    whole = {"known": True, "complete": True}
    assert totals == [
        (2, 4, 1, 1, TokenCount(value=30, **whole)),
        (1, 2, 0, 1, TokenCount(value=5, **whole)),
        (3, 6, 1, 2, TokenCount(value=35, **whole)),
    ]


async def test_membership_is_what_the_caller_attached_and_nothing_else() -> None:
    engine, _, first = await scene("plain", "prepared", "turn", "nested, chosen", "nested, not chosen")
    group = ExecutionGroup()
    observed = RunRequest(prompt_id="more", observer=group.observe)

    await engine.prepare(observed)
    await engine.validate_request(observed)
    discarded = await engine.prepare_execution(observed)
    discarded.discard()
    with pytest.raises(PreparedExecutionError):
        await engine.run_prepared(discarded)
    kept = await engine.prepare_execution(observed)
    assert group.snapshot().members == ()

    members = [(await engine.run(observed)).run_id, (await engine.run_prepared(kept)).run_id]

    async def choose(turn: ConversationTurn) -> RunRequest | None:
        if turn.result is None:
            return MORE
        members.append(turn.result.run_id)
        members.append((await engine.run(observed)).run_id)
        await engine.run(MORE)
        return None

    await coordinated(engine, first.exchange, choose, observer=group.observe)
    summary = group.snapshot()
    assert sorted(member.run_id for member in summary.members) == sorted(members)
    assert (len(members), summary.attempts, first.run_id in members) == (4, 4, False)


async def test_a_group_shows_a_run_whose_observer_raised_as_one_without_a_terminal() -> None:
    engine, _, _ = await scene("lost")
    group = ExecutionGroup()

    def broken(event: object) -> None:
        if isinstance(event, AttemptFinished):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await engine.run(RunRequest(prompt_id="more", observer=compose_observers(group.observe, broken)))
    summary = group.snapshot()
    assert ([m.terminal_observed for m in summary.members], summary.terminal_coverage_complete) == ([False], False)
    assert str(summary).startswith("1 run (1 not seen to end): at least 0 attempts")
