"""The Anthropic dialect through the whole engine, seen from the server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import (
    Backend,
    Catalog,
    Engine,
    InvalidRequestError,
    Message,
    MessageTemplate,
    OutputContract,
    OverloadedError,
    Profile,
    PromptDefinition,
    RetryPolicy,
    RunRequest,
    Secret,
)
from servers.stub import http

if TYPE_CHECKING:
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

CONTRACT = OutputContract(kind="json", max_repairs=1)


def catalog(stub: StubServer, **backend: Any) -> Catalog:
    retry = RetryPolicy(base_delay=0.0, max_delay=0.0)
    return Catalog(
        backends=[
            Backend(
                id="a",
                kind="anthropic_messages",
                base_url=stub.base_url.removesuffix("/v1"),
                retry=retry,
                **backend,
            )
        ],
        profiles=[Profile(id="p", backend="a", model="claude-x", max_output_tokens=99)],
        prompts=[
            PromptDefinition(
                id="ask",
                messages=(
                    MessageTemplate(role="system", content="Be terse."),
                    MessageTemplate(role="user", content="{{ question }}"),
                ),
                variables=("question",),
                profile="p",
            ),
            PromptDefinition(id="more", messages=(MessageTemplate(role="user", content="More?"),), profile="p"),
        ],
    )


def said(text: str, **more: Any) -> bytes:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 7}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x-1", "stop_reason": "end_turn"}
    return http(200, json.dumps({**body, "content": [{"type": "text", "text": text}], "usage": usage, **more}).encode())


def failed(status: int, kind: str) -> bytes:
    return http(status, json.dumps({"type": "error", "error": {"type": kind, "message": "no"}}).encode())


ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)


async def test_a_request_has_the_path_the_headers_and_the_key_of_the_dialect(stub: StubServer) -> None:
    stub.say(said("Rome."))
    request = RunRequest(prompt_id="ask", variables={"question": "Where?"}, credential=Secret("sk-ant-1"))
    async with Engine(catalog(stub, headers={"anthropic-beta": "x"})) as engine:
        result = await engine.run(request)
    (sent,) = stub.requests
    assert (sent.method, sent.path) == ("POST", "/v1/messages")
    assert sent.header("x-api-key") == "sk-ant-1"
    assert sent.header("authorization") is None
    assert sent.header("anthropic-version") == "2023-06-01"
    assert sent.header("anthropic-beta") == "x"
    assert sent.json == {
        "model": "claude-x",
        "system": [{"type": "text", "text": "Be terse."}],
        "messages": [{"role": "user", "content": "Where?"}],
        "max_tokens": 99,
    }
    assert (result.raw_output, result.finish_reason, result.model) == ("Rome.", "end_turn", "claude-x-1")
    assert (result.usage.input_tokens.value, result.usage.cache_read_tokens.value) == (103, 100)


async def test_the_version_of_the_dialect_can_be_another(stub: StubServer) -> None:
    stub.say(said("Rome."))
    async with Engine(catalog(stub, headers={"Anthropic-Version": "2030-01-01"})) as engine:
        await engine.run(ASK)
    assert stub.requests[0].header("anthropic-version") == "2030-01-01"


async def test_a_continuation_begins_with_the_bytes_of_what_it_continues(stub: StubServer) -> None:
    stub.say(said("Rome."), said("Yes."))
    async with Engine(catalog(stub)) as engine:
        first = await engine.run(ASK)
        await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    before, after = (request.body for request in stub.requests)
    shared = before.index(b'],"max_tokens"')
    assert after.startswith(before[:shared] + b",")
    assert stub.requests[1].json["messages"] == [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "Rome."},
        {"role": "user", "content": "More?"},
    ]


async def test_a_late_system_message_is_refused_unless_the_backend_says_how_to_send_it(stub: StubServer) -> None:
    stub.say(said("Rome."), said("Yes."))
    async with Engine(catalog(stub)) as engine:
        first = await engine.run(ASK)
        with pytest.raises(InvalidRequestError, match=r"position 4 has a system or developer role after .*as_user"):
            await engine.run(RunRequest(prompt_id="ask", variables={"question": "And?"}, continue_from=first.exchange))
    assert len(stub.requests) == 1
    async with Engine(catalog(stub, late_system="as_user")) as engine:
        await engine.run(RunRequest(prompt_id="ask", variables={"question": "And?"}, continue_from=first.exchange))
    assert [message["role"] for message in stub.requests[1].json["messages"]] == ["user", "assistant", "user", "user"]


async def test_a_retry_sends_the_same_bytes_and_a_repair_follows_them(stub: StubServer) -> None:
    stub.say(failed(529, "overloaded_error"), said("not JSON"), said('{"a": 1}'))
    async with Engine(catalog(stub)) as engine:
        result = await engine.run(
            RunRequest(prompt_id="ask", variables={"question": "Where?"}, output=CONTRACT, capture_exchange=True)
        )
    first, second, third = (request.body for request in stub.requests)
    assert second == first
    assert third.startswith(first[: first.index(b'],"max_tokens"')] + b",")
    assert [message["role"] for message in json.loads(third)["messages"]] == ["user", "assistant", "user"]
    assert (result.value, result.attempts, result.transient_retries, result.repair_calls) == ({"a": 1}, 3, 1, 1)
    assert result.exchange.details().messages == (
        Message(role="system", content="Be terse."),
        Message(role="user", content="Where?"),
        Message(role="assistant", content='{"a": 1}'),
    )


async def test_an_overloaded_backend_is_told_as_such_and_generated_nothing(stub: StubServer) -> None:
    stub.say(failed(529, "overloaded_error"))
    async with Engine(catalog(stub)) as engine:
        with pytest.raises(OverloadedError) as raised:
            await engine.run(ASK)
    assert (raised.value.status, raised.value.provider_code, raised.value.attempts) == (529, "overloaded_error", 3)
    assert raised.value.usage is not None
    assert (raised.value.usage.input_tokens.value, raised.value.usage.input_tokens.complete) == (0, True)


async def test_a_refusal_is_no_valid_answer_and_is_not_repaired(stub: StubServer) -> None:
    stub.say(said('{"a": 1}', stop_reason="refusal", stop_details={"type": "refusal", "explanation": "I cannot."}))
    async with Engine(catalog(stub)) as engine:
        result = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, output=CONTRACT))
    assert (result.validation.status, result.refusal, result.attempts) == ("invalid", "I cannot.", 1)
