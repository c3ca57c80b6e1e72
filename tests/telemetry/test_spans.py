from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from promptkit import (
    AttemptFinished,
    Backend,
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
from promptkit._opentelemetry.attributes import nanoseconds, provider_at
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.surroundings import START, Still, engine_in

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

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


async def test_a_setting_that_no_exporter_can_encode_is_the_largest_that_it_can(telemetry: Telemetry) -> None:
    small = small_catalog()
    profile = msgspec.structs.replace(small.profiles["warm"], seed=2**64 - 1)
    catalog = Catalog(backends=list(small.backends.values()), profiles=[profile])
    await run(telemetry, ANSWER, catalog=catalog)
    assert attributes(telemetry.spans("chat")[0])["gen_ai.request.seed"] == 2**63 - 1


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
