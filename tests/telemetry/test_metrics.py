from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from promptkit import (
    Engine,
    GenerationReply,
    OverloadedError,
    RejectedRequestError,
    ReportedUsage,
    RunRequest,
    UnknownPromptError,
)
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from telemetry.conftest import Telemetry

pytestmark = pytest.mark.anyio

ANSWER = GenerationReply(content="In Rome.", usage=ReportedUsage(input_tokens=50, output_tokens=20))
BUSY = OverloadedError("busy", status=503)
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
TARGET = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai_compatible",
    "gen_ai.request.model": "warm-model",
    "server.address": "127.0.0.1",
    "server.port": 1,
}


async def run(telemetry: Telemetry, *steps: Any, prompt_id: str = "ask") -> None:
    engine = Engine(small_catalog(), client=ScriptedClient(*steps))
    variables = {"question": "Where?"} if prompt_id == "ask" else {}
    observer = telemetry.observer(catalog=small_catalog())
    await engine.run(RunRequest(prompt_id=prompt_id, variables=variables, observer=observer))


async def test_the_duration_of_each_attempt_is_measured_with_the_buckets_of_the_conventions(
    telemetry: Telemetry,
) -> None:
    await run(telemetry, BUSY, BUSY, ANSWER)
    failed, completed = telemetry.points("gen_ai.client.operation.duration")
    assert (failed.count, completed.count) == (2, 1)
    assert failed.attributes == {**TARGET, "error.type": "OverloadedError"}
    assert completed.attributes == {**TARGET, "gen_ai.response.model": "warm-model"}
    assert tuple(completed.explicit_bounds) == SECONDS


async def test_tokens_are_measured_by_type_and_never_those_of_a_cache_a_second_time(telemetry: Telemetry) -> None:
    cached = ReportedUsage(input_tokens=50, output_tokens=20, cache_read_tokens=30, reasoning_tokens=5)
    await run(telemetry, GenerationReply(content="x", usage=cached))
    points = telemetry.points("gen_ai.client.token.usage")
    shared = {**TARGET, "gen_ai.response.model": "warm-model"}
    assert [dict(point.attributes or {}) for point in points] == [
        {**shared, "gen_ai.token.type": "input"},
        {**shared, "gen_ai.token.type": "output"},
    ]
    assert [(point.sum, point.count) for point in points] == [(50, 1), (20, 1)]
    assert tuple(points[0].explicit_bounds) == TOKENS


async def test_an_unknown_count_is_not_measured_and_a_reported_zero_is(telemetry: Telemetry) -> None:
    await run(telemetry, GenerationReply(content="x", usage=ReportedUsage(output_tokens=0)))
    (point,) = telemetry.points("gen_ai.client.token.usage")
    assert (point.sum, point.count, (point.attributes or {})["gen_ai.token.type"]) == (0, 1, "output")


async def test_the_zeros_of_attempts_that_cannot_have_generated_are_not_measured(telemetry: Telemetry) -> None:
    with pytest.raises(RejectedRequestError):
        await run(telemetry, RejectedRequestError("no", status=400))
    assert telemetry.points("gen_ai.client.token.usage") == []
    span = telemetry.spans("chat")[0]
    assert (span.attributes or {})["gen_ai.usage.output_tokens"] == 0


async def test_the_duration_of_a_run_is_measured_by_prompt_outcome_and_validation(telemetry: Telemetry) -> None:
    await run(telemetry, ANSWER)
    await run(telemetry, "not JSON", "nor this", prompt_id="follow")
    with pytest.raises(RejectedRequestError):
        await run(telemetry, RejectedRequestError("no", status=400))
    found = [dict(point.attributes or {}) for point in telemetry.points("promptkit.run.duration")]
    asked = {"gen_ai.prompt.name": "ask"}
    failed = {**asked, "promptkit.outcome": "failed", "error.type": "RejectedRequestError"}
    assert len(found) == 3
    assert failed in found
    assert {**asked, "promptkit.outcome": "completed", "promptkit.validation": "not_requested"} in found
    invalid = {"gen_ai.prompt.name": "follow", "promptkit.outcome": "completed", "promptkit.validation": "invalid"}
    assert invalid in found


async def test_a_prompt_that_does_not_exist_makes_no_series_of_its_own(telemetry: Telemetry) -> None:
    for name in ("one", "two"):
        with pytest.raises(UnknownPromptError):
            await run(telemetry, prompt_id=name)
    (point,) = telemetry.points("promptkit.run.duration")
    assert (point.count, point.attributes) == (
        2,
        {"promptkit.outcome": "failed", "error.type": "UnknownPromptError"},
    )


async def test_the_wait_for_a_permit_is_measured_by_backend(telemetry: Telemetry) -> None:
    await run(telemetry, BUSY, ANSWER)
    (point,) = telemetry.points("promptkit.queue.duration")
    assert (point.count, point.attributes) == (2, {"promptkit.backend": "server"})


@pytest.mark.parametrize(
    ("name", "measured"),
    [("gen_ai.client.operation.duration", "chat"), ("promptkit.run.duration", "run_prompt")],
)
async def test_an_example_of_a_measurement_is_the_span_that_it_is_measured_of(
    telemetry: Telemetry, name: str, measured: str
) -> None:
    await run(telemetry, ANSWER)
    (point,) = telemetry.points(name)
    (span,) = telemetry.spans(measured)
    assert span.context is not None
    assert [example.span_id for example in point.exemplars] == [span.context.span_id]


async def test_nothing_that_is_measured_has_the_id_of_a_run(telemetry: Telemetry) -> None:
    await run(telemetry, BUSY, ANSWER)
    for name in (
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "promptkit.run.duration",
        "promptkit.queue.duration",
    ):
        points = telemetry.points(name)
        assert points
        for point in points:
            assert not [key for key in point.attributes or {} if key.endswith(("_id", ".id"))]
