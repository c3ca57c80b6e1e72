"""What a group makes of the events of real runs."""

from __future__ import annotations

from typing import Any

import pytest

from promptkit import (
    AttemptFinished,
    BackendStatusError,
    ConnectError,
    Engine,
    ExecutionEvent,
    ExecutionGroup,
    PromptKitError,
    RejectedRequestError,
    ReportedUsage,
    RunFinished,
    RunRequest,
    RunStarted,
    TokenCount,
    TokenUsage,
    compose_observers,
)
from promptkit import GenerationReply as Reply
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog


def usage(value: int, *, known: bool = True, complete: bool = True) -> TokenUsage:
    count = TokenCount(value=value, known=known, complete=complete)
    return TokenUsage(**dict.fromkeys(TokenUsage.__struct_fields__, count))


ZERO = usage(0)
UNKNOWN = usage(0, known=False, complete=False)


@pytest.mark.anyio
async def test_the_events_of_real_runs_add_up() -> None:
    group = ExecutionGroup()
    recorder = EventRecorder()
    seen: list[tuple[int, bool]] = []

    def looking(_: ExecutionEvent) -> None:
        summary = group.snapshot()
        seen.append((len(summary.members), summary.terminal_coverage_complete))

    client = ScriptedClient(
        Reply(content="Rome.", usage=ReportedUsage(input_tokens=3, output_tokens=0)), "Oslo.", ZeroDivisionError()
    )
    engine = Engine(small_catalog(), client=client)
    request = RunRequest(
        prompt_id="ask",
        variables={"question": "Where?"},
        observer=compose_observers(group.observe, recorder, looking, group.observe),
    )
    await engine.run(request)
    await engine.run(request)
    with pytest.raises(ZeroDivisionError):
        await engine.run(request)
    summary = group.snapshot()
    assert (len(summary.members), summary.attempts, summary.terminal_coverage_complete) == (3, 3, True)
    assert str(summary.usage.input_tokens) == "at least 3"
    assert seen[:3] == [(1, False), (1, False), (1, True)]
    assert seen[-1] == (3, True)
    assert {type(event) for event in recorder.events} == {RunStarted, AttemptFinished, RunFinished}
    again = ExecutionGroup()
    for event in reversed(recorder.events):
        again.observe(event)
    assert again.snapshot().usage == summary.usage


UNAVAILABLE = BackendStatusError("no", status=503, transient=True)
UNREACHABLE = ConnectError("no connection", transient=True)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((UNREACHABLE, UNAVAILABLE, UNREACHABLE), id="no connection, 503"),
        pytest.param((RejectedRequestError("no", status=400),), id="400"),
        pytest.param((), id="sent nothing"),
    ],
)
@pytest.mark.anyio
async def test_a_real_run_that_used_nothing_beside_one_of_unknown_usage_is_unknown(steps: tuple[Any, ...]) -> None:
    group, apart = ExecutionGroup(), ExecutionGroup()
    observer = compose_observers(group.observe, apart.observe)
    engine = Engine(small_catalog(), client=ScriptedClient(*steps, "Rome."))
    variables: dict[str, Any] = {"question": "Where?"} if steps else {}
    with pytest.raises(PromptKitError) as raised:
        await engine.run(RunRequest(prompt_id="ask", variables=variables, observer=observer))
    assert raised.value.attempts == len(steps)
    assert apart.snapshot().usage == raised.value.usage == ZERO
    await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, observer=group.observe))
    assert group.snapshot().usage == UNKNOWN
    assert "input unknown" in str(group.snapshot())


@pytest.mark.anyio
async def test_a_real_run_that_reported_zero_beside_one_of_unknown_usage_is_a_lower_bound() -> None:
    group = ExecutionGroup()
    zeros = ReportedUsage(**dict.fromkeys(ReportedUsage.__struct_fields__, 0))
    engine = Engine(small_catalog(), client=ScriptedClient(Reply(content="", usage=zeros), "Rome."))
    for _ in range(2):
        await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, observer=group.observe))
    assert group.snapshot().usage == usage(0, complete=False)
