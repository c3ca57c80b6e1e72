from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from promptkit import (
    BlockingEngine,
    Engine,
    GenerationReply,
    OverloadedError,
    ReportedUsage,
    RunRequest,
)
from promptkit.opentelemetry import OpenTelemetryObserver
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from telemetry.conftest import Telemetry

pytestmark = pytest.mark.anyio

ANSWER = GenerationReply(content="In Rome.", usage=ReportedUsage(input_tokens=50, output_tokens=20))
BUSY = OverloadedError("busy", status=503)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parents_by_run(telemetry: Telemetry) -> dict[str, int | None]:
    return {
        attributes(span)["promptkit.run_id"]: span.parent and span.parent.span_id
        for span in telemetry.spans("run_prompt")
    }


async def test_the_span_of_the_application_is_the_parent_and_is_current_afterwards(telemetry: Telemetry) -> None:
    tracer = trace.get_tracer("app", tracer_provider=telemetry.tracers)
    before = context.get_current()
    with tracer.start_as_current_span("request") as mine:
        inside = context.get_current()
        await Engine(small_catalog(), client=ScriptedClient(ANSWER)).run(ask(observer=telemetry.observer()))
        assert context.get_current() == inside
        assert trace.get_current_span() is mine
    assert context.get_current() == before
    (above,) = telemetry.spans("run_prompt")
    assert above.parent == mine.get_span_context()


async def test_runs_side_by_side_have_the_span_of_their_own_task(telemetry: Telemetry) -> None:
    tracer = trace.get_tracer("app", tracer_provider=telemetry.tracers)
    parents: dict[str, int] = {}
    engine = Engine(small_catalog(), client=ScriptedClient(*["x"] * 8))
    observer = telemetry.observer()

    async def one(number: int) -> None:
        with tracer.start_as_current_span(f"request {number}") as mine:
            result = await engine.run(ask(observer=observer))
            parents[result.run_id] = mine.get_span_context().span_id

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    found = {
        attributes(span)["promptkit.run_id"]: span.parent and span.parent.span_id for span in telemetry.spans("run_")
    }
    assert found == parents


def test_under_a_blocking_engine_the_span_of_the_calling_thread_is_the_parent(telemetry: Telemetry) -> None:
    tracer = trace.get_tracer("app", tracer_provider=telemetry.tracers)
    observer = telemetry.observer()
    parents: dict[str, int] = {}
    with BlockingEngine(small_catalog(), client=ScriptedClient(*["x"] * 4)) as engine:

        def one(number: int) -> None:
            with tracer.start_as_current_span(f"request {number}") as mine:
                parents[engine.run(ask(observer=observer)).run_id] = mine.get_span_context().span_id

        threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = {
        attributes(span)["promptkit.run_id"]: span.parent and span.parent.span_id for span in telemetry.spans("run_")
    }
    assert found == parents
    assert len(found) == 4


async def test_the_continued_run_is_a_link(telemetry: Telemetry) -> None:
    engine = Engine(small_catalog(), client=ScriptedClient(ANSWER, "Because.", "Since."))
    observer = telemetry.observer()
    first = await engine.run(ask(observer=observer, capture_exchange=True))
    await engine.run(ask(observer=observer, continue_from=first.exchange))
    one, two = telemetry.spans("run_prompt")
    assert one.links == ()
    assert [link.context for link in two.links] == [one.get_span_context()]
    assert attributes(two)["promptkit.parent_run_id"] == first.run_id
    assert one.get_span_context().trace_id != two.get_span_context().trace_id  # type: ignore[union-attr]


async def test_a_run_of_elsewhere_is_no_link_but_its_id_is_there(telemetry: Telemetry) -> None:
    engine = Engine(small_catalog(), client=ScriptedClient(ANSWER, "Because."))
    first = await engine.run(ask(capture_exchange=True))
    await engine.run(ask(observer=telemetry.observer(), continue_from=first.exchange))
    (span,) = telemetry.spans("run_prompt")
    assert span.links == ()
    assert attributes(span)["promptkit.parent_run_id"] == first.run_id


async def test_processors_see_the_baggage_and_what_sampling_needs_when_an_attempt_starts() -> None:
    seen: list[tuple[object, dict[str, Any]]] = []

    class Processor(SpanProcessor):
        def on_start(self, span: Any, parent_context: context.Context | None = None) -> None:
            seen.append((baggage.get_baggage("tenant", parent_context), dict(span.attributes)))

    tracers = TracerProvider()
    tracers.add_span_processor(Processor())
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        observer = OpenTelemetryObserver(catalog=small_catalog(), tracer_provider=tracers)
        await Engine(small_catalog(), client=ScriptedClient(ANSWER)).run(ask(observer=observer))
    finally:
        context.detach(token)
    assert [tenant for tenant, _ in seen] == ["acme", "acme"]
    at_start = seen[1][1]
    needed = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "server.address", "server.port"}
    assert needed <= set(at_start)


async def test_events_that_are_told_twice_count_once(telemetry: Telemetry) -> None:
    observer = telemetry.observer()

    def twice(event: Any) -> None:
        observer(event)
        observer(event)

    engine = Engine(small_catalog(), client=ScriptedClient(BUSY, ANSWER))
    await engine.run(ask(observer=twice))
    assert [span.name.split()[0] for span in telemetry.spans()] == ["chat", "chat", "run_prompt"]
    assert len(telemetry.spans("run_prompt")[0].events) == 1
    assert [point.count for point in telemetry.points("promptkit.run.duration")] == [1]
    assert sum(point.count for point in telemetry.points("gen_ai.client.operation.duration")) == 2
