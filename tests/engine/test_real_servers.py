"""The engine before servers that nobody here wrote: llmock with many providers' forms, llama.cpp with a real model.

llmock counts what it is asked and judges how a client retries: no retry of what cannot be cured, none before the server
said, no storm.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest

from promptkit import (
    JSON,
    AttemptFinished,
    AuthenticationError,
    Backend,
    BackendStatusError,
    Catalog,
    CredentialError,
    DisconnectedError,
    Engine,
    ExecutionGroup,
    GenerationError,
    Message,
    MessageTemplate,
    OutputContract,
    OverloadedError,
    Profile,
    PromptDefinition,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
    RetryDelayed,
    RetryPolicy,
    RunRequest,
    Secret,
)
from promptkit._wire.usage import reported_usage
from promptkit.testing import EventRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

FAST = RetryPolicy(max_retries=2, base_delay=0.001, max_delay=0.002)
SCHEMA: dict[str, JSON] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def catalog(kind: Any, base_url: str, *, max_output_tokens: int = 24, max_repairs: int = 0, **backend: Any) -> Catalog:
    settings: dict[str, Any] = {"retry": FAST, **backend}
    return Catalog(
        backends=[Backend(id="server", kind=kind, base_url=base_url, **settings)],
        profiles=[
            Profile(id="p", backend="server", model="m", max_output_tokens=max_output_tokens, temperature=0),
            Profile(id="broken", backend="server", model="m", max_output_tokens=24, extra={"tools": 5}),
        ],
        prompts=[
            PromptDefinition(
                id="ask",
                profile="p",
                messages=(
                    MessageTemplate(role="system", content="You are a helpful assistant."),
                    MessageTemplate(role="user", content="Where is Rome?"),
                ),
            ),
            PromptDefinition(
                id="number",
                profile="p",
                messages=(MessageTemplate(role="user", content="Tell a long story of numbers."),),
                output=OutputContract(kind="json_schema", schema=SCHEMA, max_repairs=max_repairs),
            ),
        ],
    )


# ------------------------------------------------------------------ llmock


class LLMock:
    """What llmock was asked to do, and what it says about it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, trust_env=False)
        self._client.post("/_llmock/reset").raise_for_status()

    def script(self, *behaviors: dict[str, Any]) -> None:
        self._client.post("/_llmock/scenario", json={"behaviors": behaviors}).raise_for_status()

    def fail(self, status: int, times: int, **more: Any) -> None:
        # It says to wait a second by itself.
        waits = {"retry_after": 0.01} if status in {429, 503, 504, 529} else {}
        self.script({"type": "fail", "status": status, "times": times, **waits, **more})

    def verdict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get("/_llmock/verdict").raise_for_status().json()
        return found

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.get("/_llmock/requests").raise_for_status().json()["requests"]
        return found

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def llmock(llmock_server: str) -> Any:
    mock = LLMock(llmock_server)
    yield mock
    mock.close()


PROVIDERS = {
    "openai": ("chat_completions", "/v1"),
    "groq": ("chat_completions", "/groq/openai/v1"),
    "mistral": ("chat_completions", "/mistral/v1"),
    "together": ("chat_completions", "/together/v1"),
    "anthropic": ("anthropic_messages", "/anthropic"),
}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> tuple[str, str]:
    return PROVIDERS[request.param]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_what_waiting_cures_is_asked_again_as_often_as_the_budget_allows(
    llmock: LLMock, provider: tuple[str, str], status: int
) -> None:
    llmock.fail(status, times=2)
    recorder, group = EventRecorder(), ExecutionGroup()
    async with Engine(catalog(provider[0], llmock.url + provider[1])) as engine:
        result = await engine.run(RunRequest(prompt_id="ask", observer=recorder))
    for event in recorder.events:
        group.observe(event)
    assert result.raw_output
    assert result.finish_reason in {"stop", "end_turn", "eos"}
    verdict = llmock.verdict()
    assert verdict["passed"], verdict
    assert (verdict["calls"], verdict["faults_injected"]) == (1, 2)
    assert verdict["attempts"] == result.attempts == group.snapshot().attempts == 3
    assert result.transient_retries == 2
    sources = {event.source for event in recorder.events if isinstance(event, RetryDelayed)}
    assert sources == ({"retry_after"} if status in {429, 503, 504, 529} else {"backoff"})


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, RejectedRequestError),
        (401, AuthenticationError),
        (402, QuotaError),
        (403, AuthenticationError),
        (404, RejectedRequestError),
        (413, RejectedRequestError),
        (422, RejectedRequestError),
        (501, BackendStatusError),
    ],
)
async def test_what_waiting_does_not_cure_is_asked_once(
    llmock: LLMock, provider: tuple[str, str], status: int, cls: type[BackendStatusError]
) -> None:
    llmock.fail(status, times=1)
    async with Engine(catalog(provider[0], llmock.url + provider[1])) as engine:
        with pytest.raises(cls) as raised:
            await engine.run(RunRequest(prompt_id="ask"))
    assert type(raised.value) is cls
    assert (raised.value.status, raised.value.transient, raised.value.attempts) == (status, False, 1)
    verdict = llmock.verdict()
    assert verdict["passed"], verdict
    assert verdict["attempts"] == 1


@pytest.mark.parametrize(("status", "cls"), [(429, RateLimitError), (503, OverloadedError), (529, OverloadedError)])
async def test_an_overload_that_does_not_end_takes_the_budget_and_no_more(
    llmock: LLMock, provider: tuple[str, str], status: int, cls: type[GenerationError]
) -> None:
    llmock.fail(status, times=20)
    group = ExecutionGroup()
    async with Engine(catalog(provider[0], llmock.url + provider[1])) as engine:
        with pytest.raises(cls) as raised:
            await engine.run(RunRequest(prompt_id="ask", observer=group.observe))
    assert raised.value.retry_after == pytest.approx(0.01)
    verdict = llmock.verdict()
    assert verdict["passed"], verdict
    assert verdict["attempts"] == raised.value.attempts == group.snapshot().attempts == 3


async def test_a_long_demand_ends_the_run_at_once(llmock: LLMock, provider: tuple[str, str]) -> None:
    llmock.fail(429, times=1, retry_after=3600)
    async with Engine(catalog(provider[0], llmock.url + provider[1])) as engine:
        with pytest.raises(RateLimitError) as raised:
            await engine.run(RunRequest(prompt_id="ask"))
    assert (raised.value.retry_after, llmock.verdict()["attempts"]) == (3600, 1)


async def test_a_quota_that_is_used_up_is_not_asked_again_although_it_is_a_429(llmock: LLMock) -> None:
    llmock.fail(429, times=1, code="insufficient_quota")
    async with Engine(catalog("chat_completions", llmock.url + "/v1")) as engine:
        with pytest.raises(QuotaError) as raised:
            await engine.run(RunRequest(prompt_id="ask"))
    assert (raised.value.provider_code, llmock.verdict()["attempts"]) == ("insufficient_quota", 1)


async def test_answers_and_failures_mixed_share_one_budget_and_count_the_same_everywhere(
    llmock: LLMock, provider: tuple[str, str]
) -> None:
    answers: list[dict[str, Any]] = [{"type": "reply", "text": text, "times": 1} for text in ("no JSON", '{"a":1}')]
    llmock.script({"type": "fail", "status": 500, "times": 1}, *answers)
    recorder, group = EventRecorder(), ExecutionGroup()
    async with Engine(catalog(provider[0], llmock.url + provider[1], max_repairs=2)) as engine:
        result = await engine.run(RunRequest(prompt_id="number", observer=recorder))
    for event in recorder.events:
        group.observe(event)
    assert (result.value, result.validation.status) == ({"a": 1}, "valid")
    assert (result.attempts, result.transient_retries, result.repair_calls) == (3, 1, 1)
    assert len(llmock.requests()) == llmock.verdict()["attempts"] == group.snapshot().attempts == 3
    attempts = [event for event in recorder.events if isinstance(event, AttemptFinished)]
    assert [event.outcome for event in attempts] == ["failed", "completed", "completed"]
    assert result.usage.output_tokens.complete is False  # a 500 may have generated
    assert result.usage.output_tokens.value > 0


async def test_a_server_that_breaks_and_drops_its_connections_costs_the_budget_and_no_more(
    llmock: LLMock, provider: tuple[str, str]
) -> None:
    # It does not expect such tools: it answers 500, says that the connection stays, and resets it.
    async with Engine(catalog(provider[0], llmock.url + provider[1])) as engine:
        for _ in range(5):
            with pytest.raises((BackendStatusError, DisconnectedError)) as raised:
                await engine.run(RunRequest(prompt_id="ask", profile="broken"))
            assert (raised.value.transient, raised.value.attempts) == (True, 3)
            result = await engine.run(RunRequest(prompt_id="ask"))
            assert result.raw_output
            assert result.attempts == 1 + result.transient_retries


# ------------------------------------------------------------------ llama.cpp


@pytest.fixture(params=["chat_completions", "anthropic_messages"])
def llama(request: pytest.FixtureRequest, llama_url: str) -> dict[str, Any]:
    url = llama_url + ("/v1" if request.param == "chat_completions" else "")
    return {"kind": request.param, "base_url": url, "max_concurrency": 1}


async def test_a_key_is_wanted_and_taken_in_each_dialects_header(llama: dict[str, Any]) -> None:
    async with Engine(catalog(**llama, credential_env="LLAMA_KEY")) as engine:
        assert (await engine.run(RunRequest(prompt_id="ask"))).raw_output
        with pytest.raises(AuthenticationError) as raised:
            await engine.run(RunRequest(prompt_id="ask", credential=Secret("sk-of-nobody")))
    assert (raised.value.status, raised.value.transient, raised.value.attempts) == (401, False, 1)
    assert "sk-of-nobody" not in str(raised.value)
    assert "credential_env" in str(raised.value)


async def test_a_run_without_the_key_that_it_needs_sends_nothing(
    llama: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLAMA_KEY")
    async with Engine(catalog(**llama, credential_env="LLAMA_KEY")) as engine:
        with pytest.raises(CredentialError, match="set the environment variable LLAMA_KEY"):
            await engine.run(RunRequest(prompt_id="ask"))


async def test_what_does_not_fit_the_context_is_a_typed_error_with_the_servers_own_code(llama: dict[str, Any]) -> None:
    group = ExecutionGroup()
    async with Engine(catalog(**llama, credential_env="LLAMA_KEY")) as engine:
        long = Message(role="user", content="one more word " * 2000)
        with pytest.raises(RejectedRequestError, match="make the conversation shorter") as raised:
            await engine.run(RunRequest(prompt_id="ask", appended_messages=(long,), observer=group.observe))
    assert (raised.value.status, raised.value.transient, raised.value.attempts) == (400, False, 1)
    assert raised.value.provider_code in {"400", "exceed_context_size_error", "invalid_request_error"}
    usage = group.snapshot().usage
    assert (usage.output_tokens.value, usage.output_tokens.complete) == (0, True)


async def test_both_dialects_count_the_same_prompt_the_same(llama_url: str) -> None:
    usages = []
    for kind, path in (("chat_completions", "/v1"), ("anthropic_messages", ""), ("chat_completions", "/v1")):
        async with Engine(catalog(kind, llama_url + path, credential_env="LLAMA_KEY", max_concurrency=1)) as engine:
            usages.append((await engine.run(RunRequest(prompt_id="ask"))).usage)
    assert len({(usage.input_tokens, usage.output_tokens) for usage in usages}) == 1
    for usage in usages[1:]:  # the first one may find an empty cache
        assert usage.cache_read_tokens.complete
        assert 0 < usage.cache_read_tokens.value <= usage.input_tokens.value


def test_the_timings_of_llama_cpp_say_the_same_as_its_usage(llama_url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Where is Rome?"}], "max_tokens": 4, "temperature": 0}
    headers = {"authorization": f"Bearer {os.environ['LLAMA_KEY']}"}
    cached = []
    for _ in range(2):
        reply = httpx.post(f"{llama_url}/v1/chat/completions", json=body, headers=headers, trust_env=False).json()
        assert reported_usage({"timings": reply["timings"]}) == reported_usage({"usage": reply["usage"]})
        cached.append(reply["timings"]["cache_n"])
    assert cached[1] > 0


async def test_an_answer_without_the_schema_that_was_asked_for_is_invalid_and_never_a_value(llama_url: str) -> None:
    # In Anthropic's form llama.cpp does not read the schema.
    settings: dict[str, Any] = {"max_output_tokens": 4, "max_repairs": 1, "credential_env": "LLAMA_KEY"}
    async with Engine(catalog("anthropic_messages", llama_url, **settings)) as engine:
        result = await engine.run(RunRequest(prompt_id="number"))
    assert result.finish_reason == "max_tokens"
    assert (result.validation.status, result.value, result.repair_calls) == ("invalid", None, 0)  # cut: no repair helps
    assert result.usage.output_tokens.value == 4
