"""What those who watch and count asked for, assembled: docs/acceptance.md says which line each test answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from promptkit import (
    AttemptFinished,
    AuthenticationError,
    ConversationTurn,
    CoordinationResult,
    Engine,
    ExecutionGroup,
    PreparedExecutionError,
    RetryDelayed,
    RunFinished,
    RunRequest,
    RunStarted,
    TokenCount,
    TokenUsage,
    compose_observers,
)
from promptkit.testing import EventRecorder
from servers.catalogs import small_catalog
from servers.conversations import ASK, FOLLOW, GOOD, MORE, coordinated, reply, scene, transient

pytestmark = pytest.mark.anyio


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


AT = datetime(2026, 1, 1, tzinfo=UTC)
UNKNOWN = TokenCount(value=0, known=False, complete=False)


def usage(count: TokenCount) -> TokenUsage:
    return TokenUsage(**dict.fromkeys(TokenUsage.__struct_fields__, count))


def event(kind: type[Any], spent: TokenUsage | None = None) -> Any:
    """Give an event of a kind, of the run "r", with the usage of an attempt or of the whole run."""
    fields: dict[str, Any] = {"at": AT, "run_id": "r", "parent_run_id": "not seen", "usage": spent or usage(UNKNOWN)}
    fields |= {"attempt": 1, "attempts": 1, "transient_retries": 0, "repair_calls": 0, "duration": 0.5, "delay": 0.5}
    fields |= {
        "prompt_id": "p",
        "profile": "f",
        "backend": "b",
        "backend_kind": "embedded",
        "model": "m",
        "queued": 0.0,
    }
    fields |= {"purpose": "generate", "outcome": "failed", "error": "E", "status": 500, "source": "backoff"}
    return kind(**{name: fields.get(name) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", [RunStarted, AttemptFinished, RetryDelayed, RunFinished])
def test_the_first_event_of_any_kind_makes_a_member_and_only_a_terminal_counts(kind: type[Any]) -> None:
    spent = usage(TokenCount(value=5, known=True, complete=True))
    group = ExecutionGroup()
    for _ in range(2):
        group.observe(event(kind, spent))
    summary = group.snapshot()
    ended = kind is RunFinished
    assert [(member.run_id, member.terminal_observed) for member in summary.members] == [("r", ended)]
    assert summary.terminal_coverage_complete == ended
    assert (summary.attempts, summary.usage) == ((1, spent) if ended else (0, usage(UNKNOWN)))


@pytest.mark.parametrize(
    "count",
    [
        TokenCount(value=0, known=True, complete=True),  # a zero that was reported
        TokenCount(value=0, known=False, complete=False),  # nothing was reported
        TokenCount(value=4, known=True, complete=False),  # a part was reported
    ],
)
@pytest.mark.parametrize("field", TokenUsage.__struct_fields__)
def test_a_group_says_of_each_count_what_the_only_terminal_says(field: str, count: TokenCount) -> None:
    group = ExecutionGroup()
    spent = msgspec.structs.replace(usage(TokenCount(value=9, known=True, complete=True)), **{field: count})
    group.observe(event(AttemptFinished, usage(TokenCount(value=77, known=True, complete=True))))
    group.observe(event(RunFinished, spent))
    assert group.snapshot().usage == spent


def test_changing_a_snapshot_changes_no_later_one() -> None:
    group = ExecutionGroup()
    group.observe(event(RunFinished))
    before = group.snapshot()
    taken = group.snapshot()
    msgspec.structs.force_setattr(taken.members[0], "run_id", "changed")
    msgspec.structs.force_setattr(taken.usage.input_tokens, "value", 99)
    msgspec.structs.force_setattr(taken, "members", ())
    assert group.snapshot() == before
    assert before != taken


async def test_one_scenario_with_a_start_two_branches_and_a_validator_in_overlapping_groups() -> None:
    engine, client, _ = await scene(
        reply("a", 7, 1),
        *(transient(), reply("b", 20, 2)),
        *(reply("no", 30, 3), reply(GOOD, 31, 3)),
        *(reply("no", 5, 1), AuthenticationError("401", status=401)),
    )
    work, checks, everything = ExecutionGroup(), ExecutionGroup(), ExecutionGroup()
    told = EventRecorder()
    of_work = compose_observers(told, work.observe, everything.observe)
    a = await engine.run(msgspec.structs.replace(ASK, observer=of_work))
    b = await engine.run(msgspec.structs.replace(MORE, continue_from=a.exchange, observer=of_work))
    c = await engine.run(msgspec.structs.replace(FOLLOW, continue_from=a.exchange, observer=of_work))
    with pytest.raises(AuthenticationError):
        await engine.run(
            msgspec.structs.replace(FOLLOW, observer=compose_observers(checks.observe, everything.observe))
        )
    shown = {
        name: (s.attempts, s.transient_retries, s.repair_calls, s.usage.input_tokens.value, s.usage.output_tokens.value)
        for name, s in (("work", work.snapshot()), ("checks", checks.snapshot()), ("all", everything.snapshot()))
    }
    assert shown == {"work": (5, 1, 1, 88, 9), "checks": (2, 0, 1, 5, 1), "all": (7, 1, 2, 93, 10)}
    assert {member.run_id for member in work.snapshot().members} == {a.run_id, b.run_id, c.run_id}
    assert sum(isinstance(told_event, RetryDelayed) for told_event in told.events) == 1
    assert everything.snapshot().usage.input_tokens.complete
    client.assert_exhausted()


# ---------------------------------------------------------------- observers


async def test_runs_at_the_same_time_share_a_composed_observer_and_each_tells_its_events_once_and_in_order() -> None:
    class Client:
        async def generate(self, call: Any) -> Any:
            for _ in range(int(str(call.messages[-1].content)) % 3):
                await anyio.lowlevel.checkpoint()
            if call.attempt == 1:
                raise transient()
            return reply("yes")

    engine = Engine(small_catalog(max_concurrency=4), client=Client())
    first, second = EventRecorder(), EventRecorder()
    observer = compose_observers(first, None, second, second)
    requests = [RunRequest(prompt_id="ask", variables={"question": str(n)}, observer=observer) for n in range(12)]
    ids: list[str] = []

    async def run(request: RunRequest) -> None:
        ids.append((await engine.run(request)).run_id)

    async with anyio.create_task_group() as tasks:
        for request in requests:
            tasks.start_soon(run, request)
    order = ["RunStarted", "AttemptFinished", "RetryDelayed", "AttemptFinished", "RunFinished"]
    for run_id in ids:
        assert [type(told).__name__ for told in first.events if told.run_id == run_id] == order
    starts = [place for place, told in enumerate(first.events) if isinstance(told, RunStarted)]
    assert starts != [5 * number for number in range(12)]  # they did run at the same time
    assert second.events == [told for told in first.events for _ in range(2)]
    assert len(first.events) == 12 * len(order)


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [RunStarted, AttemptFinished, RetryDelayed, RunFinished])
async def test_what_an_observer_of_a_turn_raises_ends_the_coordination_and_reaches_no_later_observer(
    at: type[Any], kind: type[BaseException]
) -> None:
    engine, _, first = await scene(transient(), "one", "afterwards", "afterwards", max_concurrency=1, max_waiting=0)
    before, later, group = EventRecorder(), EventRecorder(), ExecutionGroup()
    problem = kind("of the observer")

    def broken(told: object) -> None:
        if isinstance(told, at):
            raise problem

    request = msgspec.structs.replace(MORE, observer=compose_observers(before, group.observe, broken))
    coordination = coordinated(engine, first.exchange, lambda _: request, observer=later)
    caught: BaseException | None = None
    try:
        await coordination
    except kind as error:
        caught = error
    assert caught is problem
    assert len(later.events) == len(before.events) - 1
    assert isinstance(before.events[-1], at)
    assert coordination.result == CoordinationResult()
    assert [member.terminal_observed for member in group.snapshot().members] == [at is RunFinished]
    counts = engine.inspect_backend("server")
    assert (counts.running, counts.waiting) == (0, 0)
