from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from promptkit import (
    AttemptFinished,
    Backend,
    BlockingEngine,
    Catalog,
    Engine,
    GenerationCall,
    GenerationReply,
    MessageTemplate,
    OverloadedError,
    Profile,
    PromptDefinition,
    RateLimitError,
    RejectedRequestError,
    ReportedUsage,
    RunRequest,
    RunResult,
    UnknownPromptError,
)
from promptkit.opentelemetry import OpenTelemetryObserver
from promptkit.opentelemetry.attributes import nanoseconds, provider_at
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.surroundings import START, Still, engine_in

if TYPE_CHECKING:
    from telemetry.conftest import Telemetry

pytestmark = pytest.mark.anyio

USAGE = ReportedUsage(
    input_tokens=50, output_tokens=20, cache_read_tokens=30, cache_write_tokens=10, reasoning_tokens=5
)
ANSWER = GenerationReply(content="In Rome.", model="warm-model-0613", response_id="resp-1", usage=USAGE)
BUSY = OverloadedError("busy", status=503)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


async def run(telemetry: Telemetry, *steps: Any, catalog: Catalog | None = None, **options: Any) -> RunResult:
    engine = Engine(small_catalog(), client=ScriptedClient(*steps))
    return await engine.run(ask(observer=telemetry.observer(catalog=catalog, **options)))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parents_by_run(telemetry: Telemetry) -> dict[str, int | None]:
    return {
        attributes(span)["promptkit.run_id"]: span.parent and span.parent.span_id
        for span in telemetry.spans("run_prompt")
    }


# ---------------------------------------------------------------- what they say


async def test_a_run_is_an_internal_span_with_its_prompt_and_totals(telemetry: Telemetry) -> None:
    result = await run(telemetry, ANSWER)
    (span,) = telemetry.spans("run_prompt")
    assert (span.name, span.kind, span.status.status_code) == ("run_prompt ask", SpanKind.INTERNAL, StatusCode.UNSET)
    assert attributes(span) == {
        "gen_ai.prompt.name": "ask",
        "gen_ai.prompt.version": result.definition_hash,
        "promptkit.run_id": result.run_id,
        "promptkit.profile": "warm",
        "promptkit.backend": "server",
        "promptkit.outcome": "completed",
        "promptkit.validation": "not_requested",
        "promptkit.attempts": 1,
        "promptkit.transient_retries": 0,
        "promptkit.repair_calls": 0,
        "promptkit.usage.input_tokens": 50,
        "promptkit.usage.output_tokens": 20,
        "promptkit.usage.cache_read_tokens": 30,
        "promptkit.usage.cache_write_tokens": 10,
        "promptkit.usage.reasoning_tokens": 5,
    }
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "promptkit"
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.41.0"


async def test_an_attempt_is_a_client_span_below_its_run_with_the_names_of_the_conventions(
    telemetry: Telemetry,
) -> None:
    result = await run(telemetry, ANSWER, catalog=small_catalog())
    (span,) = telemetry.spans("chat")
    (above,) = telemetry.spans("run_prompt")
    assert (span.name, span.kind, span.status.status_code) == ("chat warm-model", SpanKind.CLIENT, StatusCode.UNSET)
    assert span.parent is not None
    assert span.parent.span_id == above.get_span_context().span_id  # type: ignore[union-attr]
    found = attributes(span)
    assert found.pop("promptkit.queued") >= 0
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai_compatible",
        "gen_ai.request.model": "warm-model",
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.seed": 5,
        "gen_ai.response.model": "warm-model-0613",
        "gen_ai.response.id": "resp-1",
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": 1,
        "promptkit.run_id": result.run_id,
        "promptkit.profile": "warm",
        "promptkit.backend": "server",
        "promptkit.attempt": 1,
        "promptkit.purpose": "generate",
        "promptkit.outcome": "completed",
    }


async def test_without_a_catalog_the_asked_model_is_not_made_up(telemetry: Telemetry) -> None:
    await run(telemetry, BUSY, ANSWER)
    failed, completed = telemetry.spans("chat")
    assert (failed.name, completed.name) == ("chat warm-model", "chat warm-model-0613")
    assert attributes(failed)["gen_ai.request.model"] == "warm-model"
    assert "gen_ai.response.model" not in attributes(failed)
    assert "gen_ai.request.model" not in attributes(completed)


async def test_what_is_unknown_has_no_attribute_and_what_is_partial_says_so(telemetry: Telemetry) -> None:
    silent = GenerationReply(content="no number", usage=ReportedUsage(input_tokens=7, output_tokens=0))
    lost = GenerationReply(content='{"a": 1}', usage=ReportedUsage(output_tokens=2))
    engine = Engine(small_catalog(), client=ScriptedClient(silent, lost))
    await engine.run(RunRequest(prompt_id="follow", observer=telemetry.observer()))
    (span,) = telemetry.spans("run_prompt")
    usage = {name: value for name, value in attributes(span).items() if name.startswith("promptkit.usage.")}
    assert usage == {
        "promptkit.usage.input_tokens": 7,
        "promptkit.usage.output_tokens": 2,
        "promptkit.usage.partial": ("input_tokens",),
    }
    first, second = ({name for name in attributes(span) if ".usage." in name} for span in telemetry.spans("chat"))
    assert first == {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"}
    assert second == {"gen_ai.usage.output_tokens"}
    assert [attributes(span)["promptkit.purpose"] for span in telemetry.spans("chat")] == ["generate", "repair"]


async def test_a_retry_is_an_event_of_the_run_and_a_failed_attempt_an_error_with_its_class_and_status(
    telemetry: Telemetry,
) -> None:
    await run(telemetry, RateLimitError("slow down", status=429, transient=True, retry_after=0.0), ANSWER)
    (above,) = telemetry.spans("run_prompt")
    (event,) = above.events
    assert event.name == "promptkit.retry"
    found = dict(event.attributes or {})
    assert found.pop("promptkit.retry.source") in {"backoff", "retry_after"}
    assert found == {"promptkit.attempt": 1, "promptkit.retry.delay": 0.0}
    assert (above.status.status_code, attributes(above)["promptkit.transient_retries"]) == (StatusCode.UNSET, 1)
    assert "error.type" not in attributes(above)
    failed, _ = telemetry.spans("chat")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description is None
    assert attributes(failed)["error.type"] == "RateLimitError"
    assert attributes(failed)["http.response.status_code"] == 429


async def test_a_failed_run_is_an_error_of_its_class(telemetry: Telemetry) -> None:
    with pytest.raises(RejectedRequestError):
        await run(telemetry, RejectedRequestError("no", status=400))
    (span,) = telemetry.spans("run_prompt")
    assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "RejectedRequestError")
    assert attributes(span)["promptkit.outcome"] == "failed"


async def test_a_prompt_that_does_not_exist_makes_no_span_name_of_its_own(telemetry: Telemetry) -> None:
    engine = Engine(small_catalog(), client=ScriptedClient())
    with pytest.raises(UnknownPromptError):
        await engine.run(RunRequest(prompt_id="nowhere", observer=telemetry.observer()))
    (span,) = telemetry.spans()
    assert span.name == "run_prompt"
    assert attributes(span)["gen_ai.prompt.name"] == "nowhere"
    assert "gen_ai.prompt.version" not in attributes(span)


async def test_a_cancelled_run_is_no_error_and_has_one_type_on_both_loops(telemetry: Telemetry) -> None:
    with anyio.CancelScope() as scope:

        class Client:
            async def generate(self, call: GenerationCall) -> GenerationReply:
                scope.cancel()
                await anyio.lowlevel.checkpoint()
                return ANSWER

        await Engine(small_catalog(), client=Client()).run(ask(observer=telemetry.observer()))
    assert len(telemetry.spans()) == 2
    for span in telemetry.spans():
        assert span.status.status_code is StatusCode.UNSET
        assert attributes(span)["error.type"] == attributes(span)["promptkit.outcome"] == "cancelled"


async def test_spans_begin_and_end_when_the_events_say(telemetry: Telemetry) -> None:
    time = Still()

    class Client:
        async def generate(self, call: GenerationCall) -> GenerationReply:
            time.passed += 2.5
            return ANSWER

    await engine_in(time, small_catalog(), client=Client()).run(ask(observer=telemetry.observer()))
    (above,) = telemetry.spans("run_prompt")
    (attempt,) = telemetry.spans("chat")
    start = int(START.timestamp()) * 10**9
    assert (above.start_time, above.end_time) == (start, start + 2_500_000_000)
    assert (attempt.start_time, attempt.end_time) == (start, start + 2_500_000_000)


def test_an_instant_keeps_its_microseconds() -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 123_457, tzinfo=UTC)
    assert nanoseconds(at) % 10**9 == 123_457_000
    assert nanoseconds(at + timedelta(microseconds=1)) - nanoseconds(at) == 1_000


async def test_an_embedded_model_is_an_internal_span_of_a_provider_of_its_own(telemetry: Telemetry) -> None:
    catalog = Catalog(
        backends=[Backend(id="here", kind="embedded")],
        profiles=[Profile(id="p", backend="here", model="tiny")],
        prompts=[PromptDefinition(id="hi", messages=(MessageTemplate(role="user", content="Hi"),), profile="p")],
    )
    engine = Engine(catalog, client=ScriptedClient("Hello"))
    await engine.run(RunRequest(prompt_id="hi", observer=telemetry.observer(catalog=catalog)))
    (span,) = telemetry.spans("chat")
    assert (span.kind, attributes(span)["gen_ai.provider.name"]) == (SpanKind.INTERNAL, "embedded")
    assert "server.address" not in attributes(span)


@pytest.mark.parametrize(
    ("url", "provider", "port"),
    [
        ("https://api.openai.com/v1", "openai", 443),
        ("https://mine.openai.azure.com:8443/openai/v1", "azure.ai.openai", 8443),
        ("https://API.Groq.com/openai/v1", "groq", 443),
        ("http://localhost/v1", "openai_compatible", 80),
        ("https://api.openai.com.evil.example/v1", "openai_compatible", 443),
    ],
)
async def test_the_provider_is_told_from_the_address_in_the_catalog(
    telemetry: Telemetry, url: str, provider: str, port: int
) -> None:
    await run(telemetry, ANSWER, catalog=small_catalog(url))
    found = attributes(telemetry.spans("chat")[0])
    assert (found["gen_ai.provider.name"], found["server.port"]) == (provider, port)


async def test_what_the_program_says_about_a_provider_comes_first(telemetry: Telemetry) -> None:
    await run(telemetry, ANSWER, catalog=small_catalog("https://api.openai.com/v1"), providers={"server": "my.proxy"})
    assert attributes(telemetry.spans("chat")[0])["gen_ai.provider.name"] == "my.proxy"


def test_a_host_that_only_ends_like_a_provider_is_none() -> None:
    assert provider_at("notapi.openai.com") is None
    assert provider_at("") is None


# ---------------------------------------------------------------- what they belong to


async def test_the_span_of_the_application_is_the_parent_and_is_current_afterwards(telemetry: Telemetry) -> None:
    tracer = trace.get_tracer("app", tracer_provider=telemetry.tracers)
    before = context.get_current()
    with tracer.start_as_current_span("request") as mine:
        inside = context.get_current()
        await run(telemetry, ANSWER)
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


async def test_names_that_a_backend_makes_up_are_bounded_and_can_be_encoded(telemetry: Telemetry) -> None:
    recorder = EventRecorder()
    await Engine(small_catalog(), client=ScriptedClient(ANSWER)).run(ask(observer=recorder))
    observer = telemetry.observer()
    for event in recorder.events:
        if isinstance(event, AttemptFinished):
            observer(msgspec.structs.replace(event, model="\ud800" + "m" * 10_000, response_id="ü" * 10_000))
        else:
            observer(event)
    found = attributes(telemetry.spans("chat")[0])
    assert found["gen_ai.response.model"] == "?" + "m" * 255
    assert found["gen_ai.response.id"] == "ü" * 256
    telemetry.everything().encode()
