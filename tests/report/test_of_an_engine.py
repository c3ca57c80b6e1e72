"""Traces that an engine has written: of a server that fails, waits in a queue, repairs, and conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest

from promptkit import (
    ConversationTurn,
    CoordinateRequest,
    Engine,
    ExecutionEvent,
    GenerationReply,
    OverloadedError,
    RateLimitError,
    ReportedUsage,
    RunRequest,
)
from promptkit._report.report import report_of
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import Held, error, ok
from servers.surroundings import Still, engine_in

if TYPE_CHECKING:
    from promptkit._report.summary import Summary
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio


class Trace:
    """An observer that writes a trace."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def __call__(self, event: ExecutionEvent) -> None:
        self.lines.append(msgspec.json.encode(event) + b"\n")

    def summary(self) -> Summary:
        return report_of(self.lines, "trace.jsonl").unwrap().summary


def ask(trace: Trace, **fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, observer=trace, **fields)


async def test_retries_waits_and_repairs_are_those_of_the_run() -> None:
    trace = Trace()
    client = ScriptedClient(
        OverloadedError("busy", status=503),
        RateLimitError("slow", status=429, retry_after=3.0),
        "no JSON",
        GenerationReply(content='{"a": 1}', usage=ReportedUsage(input_tokens=5, output_tokens=2)),
    )
    engine = engine_in(Still(), small_catalog(max_repairs=1), client=client)
    result = await engine.run(RunRequest(prompt_id="follow", observer=trace))
    (run,) = trace.summary().runs
    assert (run.state, run.validation, run.duration) == ("completed", "valid", result.timing.duration)
    assert [(attempt.purpose, attempt.outcome, attempt.retry) for attempt in run.attempts] == [
        ("generate", "failed", False),
        ("generate", "failed", True),
        ("generate", "completed", True),
        ("repair", "completed", False),
    ]
    assert [(wait.attempt, wait.source, (wait.ended - wait.started).total_seconds()) for wait in run.waits] == [
        (1, "backoff", 0.0),
        (2, "retry_after", 3.0),
    ]
    assert (run.attempts_made, run.transient_retries, run.repair_calls) == (4, 2, 1)
    assert run.usage == result.usage
    assert str(run.usage.input_tokens) == "at least 5"


async def test_conversations_are_a_tree_of_runs() -> None:
    trace = Trace()
    async with Engine(small_catalog(), client=ScriptedClient(*["Rome."] * 5)) as engine:
        first = await engine.run(ask(trace, capture_exchange=True))

        def more(turn: ConversationTurn) -> RunRequest:
            return RunRequest(prompt_id="more", observer=trace)

        await engine.coordinate(CoordinateRequest(start=first.exchange, additional_turns=2, next=more))
        await engine.run(RunRequest(prompt_id="more", observer=trace, continue_from=first.exchange))
        await engine.run(ask(trace))
    runs = trace.summary().runs
    assert [run.prompt_id for run in runs] == ["ask", "more", "more", "more", "ask"]
    ids = [None, *(run.run_id for run in runs)]
    assert [ids.index(run.parent_run_id) for run in runs] == [0, 1, 2, 1, 0]


async def test_queueing_failure_and_cancellation_are_told_apart(stub: StubServer) -> None:
    trace, held = Trace(), Held(ok("Rome."))
    stub.say(held, ok("Oslo."), error(400), Held(ok("never")))
    async with Engine(small_catalog(stub.base_url, max_concurrency=1)) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ask(trace))
            await anyio.to_thread.run_sync(held.asked.wait)
            tasks.start_soon(engine.run, ask(trace))
            while engine.inspect_backend("server").waiting == 0:
                await anyio.lowlevel.checkpoint()
            held.free.set()
        with pytest.raises(Exception, match="400"):
            await engine.run(ask(trace))
        with anyio.CancelScope() as scope:

            def cancel(event: ExecutionEvent) -> None:
                trace(event)
                scope.cancel()

            await engine.run(RunRequest(prompt_id="more", observer=cancel))
    first, second, third, fourth = trace.summary().runs
    assert [run.state for run in (first, second, third, fourth)] == ["completed", "completed", "failed", "cancelled"]
    assert second.queued > 0
    assert second.attempts[0].asked < first.attempts[0].ended < second.attempts[0].ended
    assert (third.error, third.attempts[0].status) == ("RejectedRequestError", 400)
    assert fourth.error is not None


async def test_a_run_whose_observer_failed_did_not_end() -> None:
    trace = Trace()

    def full(event: ExecutionEvent) -> None:
        if len(trace.lines) == 2:
            msg = "the disk is full"
            raise OSError(msg)
        trace(event)

    with pytest.raises(OSError, match="full"):
        await Engine(small_catalog(), client=ScriptedClient("Rome.")).run(RunRequest(prompt_id="more", observer=full))
    assert [run.state for run in trace.summary().runs] == ["did_not_end"]
