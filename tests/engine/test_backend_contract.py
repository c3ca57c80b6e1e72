"""What every backend keeps: the same statements for the model in the process and for one behind an HTTP server.

The server is llama.cpp's own, with the same small model, and speaks both dialects: texts differ between builds, so
shapes and counts are asserted, never words.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from promptkit import (
    JSON,
    AttemptFinished,
    AttemptTimeoutError,
    Backend,
    Catalog,
    EmbeddedOptions,
    Engine,
    ExecutionGroup,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    RejectedRequestError,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunStarted,
)
from promptkit.testing import EventRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

TEXT = "Maria Lind repairs bicycles in Bergen. A new chain costs 42 euros, and it arrives on Thursday. " * 3
SCHEMA: dict[str, JSON] = {
    "type": "object",
    "properties": {"euros": {"type": "integer"}},
    "required": ["euros"],
    "additionalProperties": False,
}


@pytest.fixture(params=["embedded", "chat_completions", "anthropic_messages"])
def backend(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "embedded":
        return {"kind": "embedded", "embedded": EmbeddedOptions(context_tokens=1024, threads=1)}
    url = request.getfixturevalue("llama_url") + ("/v1" if request.param == "chat_completions" else "")
    return {"kind": request.param, "base_url": url, "max_concurrency": 1, "credential_env": "LLAMA_KEY"}


def catalog(backend: dict[str, Any], **settings: Any) -> Catalog:
    asked = MessageTemplate(role="user", content="{{ text }}\n\nWhat does the chain cost?")
    # Anthropic's dialect has no seed; a temperature of 0 needs none.
    profile: dict[str, Any] = {"backend": "model", "model": "m", "temperature": 0}
    return Catalog(
        backends=[Backend(id="model", retry=RetryPolicy(max_retries=0), **backend, **settings)],
        profiles=[
            Profile(id="short", max_output_tokens=24, **profile),
            Profile(id="cut", max_output_tokens=2, **profile),
            Profile(id="long", max_output_tokens=160, **profile),
        ],
        prompts=[
            PromptDefinition(
                id="read",
                profile="short",
                variables=("text",),
                messages=(MessageTemplate(role="system", content="You are a helpful assistant."), asked),
            ),
            PromptDefinition(
                id="ask", profile="short", messages=(MessageTemplate(role="user", content="Where is she?"),)
            ),
            PromptDefinition(
                id="tell", profile="long", messages=(MessageTemplate(role="user", content="Tell a long story."),)
            ),
            PromptDefinition(
                id="finding",
                profile="short",
                messages=(MessageTemplate(role="user", content="The price in euros, as JSON."),),
                output=OutputContract(kind="json_schema", schema=SCHEMA, max_repairs=1),
            ),
        ],
    )


def read(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="read", variables={"text": TEXT}, **fields)


async def test_an_answer_comes_with_its_reason_to_finish_and_its_counts(backend: dict[str, Any]) -> None:
    recorder = EventRecorder()
    async with Engine(catalog(backend)) as engine:
        result = await engine.run(read(observer=recorder))
    assert result.raw_output
    assert result.finish_reason in {"stop", "length", "end_turn", "max_tokens"}
    assert result.model != "m"
    assert result.usage.input_tokens.complete
    assert result.usage.input_tokens.value > 50
    assert 0 < result.usage.output_tokens.value <= 24
    assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished, RunFinished]


async def test_a_continuation_reads_the_shared_prefix_from_the_cache(backend: dict[str, Any]) -> None:
    group = ExecutionGroup()
    async with Engine(catalog(backend)) as engine:
        first = await engine.run(read(capture_exchange=True, observer=group.observe))
        for _ in range(2):
            branch = await engine.run(RunRequest(prompt_id="ask", continue_from=first.exchange, observer=group.observe))
            assert branch.usage.cache_read_tokens.complete
            assert branch.usage.cache_read_tokens.value > 50
            assert branch.usage.input_tokens.value > branch.usage.cache_read_tokens.value
    assert group.snapshot().usage.input_tokens.complete


# llama.cpp's server takes no schema in Anthropic's form; tests/engine/test_real_servers.py says what comes of that.
@pytest.mark.parametrize("backend", ["embedded", "chat_completions"], indirect=True)
async def test_a_schema_is_asked_of_the_backend_and_holds(backend: dict[str, Any]) -> None:
    async with Engine(catalog(backend)) as engine:
        first = await engine.run(read(capture_exchange=True))
        finding = await engine.run(RunRequest(prompt_id="finding", continue_from=first.exchange))
    assert finding.validation.status == "valid"
    assert isinstance(finding.decode(dict[str, int])["euros"], int)


async def test_a_bounded_answer_is_cut_and_says_so(backend: dict[str, Any]) -> None:
    async with Engine(catalog(backend)) as engine:
        result = await engine.run(read(profile="cut"))
    assert result.finish_reason in {"length", "max_tokens"}
    assert result.usage.output_tokens.value == 2


async def test_what_does_not_fit_the_context_is_rejected_with_the_backends_code(backend: dict[str, Any]) -> None:
    async with Engine(catalog(backend)) as engine:
        with pytest.raises(RejectedRequestError) as raised:
            await engine.run(RunRequest(prompt_id="read", variables={"text": TEXT * 40}))
    assert (raised.value.status, raised.value.transient, raised.value.attempts) == (400, False, 1)
    assert "context" in str(raised.value)


async def test_a_cancelled_generation_lets_the_next_one_answer(backend: dict[str, Any]) -> None:
    recorder = EventRecorder()
    async with Engine(catalog(backend)) as engine:
        await engine.run(read())
        with anyio.move_on_after(0.3) as scope:
            await engine.run(RunRequest(prompt_id="tell", observer=recorder))
        assert scope.cancelled_caught
        assert (await engine.run(read())).raw_output
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.usage.output_tokens.complete) == ("cancelled", False)


async def test_an_attempt_that_takes_too_long_is_ended_and_the_next_one_answers(backend: dict[str, Any]) -> None:
    async with Engine(catalog(backend)) as engine:
        await engine.run(read())
        async with Engine(catalog(backend, attempt_timeout=0.2)) as hurried:
            with pytest.raises(AttemptTimeoutError):
                await hurried.run(RunRequest(prompt_id="tell"))
        assert (await engine.run(read())).raw_output


async def test_runs_at_the_same_time_wait_for_each_other_and_all_answer(backend: dict[str, Any]) -> None:
    group = ExecutionGroup()
    async with Engine(catalog(backend)) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(engine.run, read(observer=group.observe, profile="cut"))
    summary = group.snapshot()
    assert (summary.attempts, summary.usage.output_tokens.value) == (3, 6)
