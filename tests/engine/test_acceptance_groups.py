"""What those who watch and count asked for, assembled: docs/acceptance.md says which line each test answers."""

from __future__ import annotations

import pytest

from promptkit import (
    AttemptFinished,
    AuthenticationError,
    ConversationTurn,
    ExecutionGroup,
    PreparedExecutionError,
    RunRequest,
    TokenCount,
    compose_observers,
)
from servers.conversations import GOOD, MORE, coordinated, reply, scene, transient

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
