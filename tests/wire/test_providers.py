"""What each provider really sends: a reply, its usage and its errors, each in the provider's own form."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pytest

from promptkit._values.generation import GenerationReply
from promptkit._values.usage import ReportedUsage
from promptkit._wire import anthropic_messages, chat_completions
from promptkit.errors import (
    AuthenticationError,
    BackendStatusError,
    GenerationError,
    MalformedReplyError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READERS: dict[str, Any] = {"chat": chat_completions.read_reply, "messages": anthropic_messages.read_reply}


def read(body: Any, status: int = 200, headers: dict[str, str] | None = None, dialect: str = "chat") -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    listed = [("content-length", str(len(content))), *(headers or {}).items()]
    return READERS[dialect](status, listed, content, now=NOW)


# ------------------------------------------------------------------ replies


class Reply(NamedTuple):
    document: dict[str, Any]
    read: GenerationReply
    dialect: str = "chat"


def choice(content: Any, finish_reason: Any, message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **(message or {})}
    return {"index": 0, "message": said, "finish_reason": finish_reason, **more}


OPENAI = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x-2026-01-01",
    "choices": [choice("hi", "stop", {"refusal": None, "annotations": []}, logprobs=None)],
    "usage": {
        "prompt_tokens": 1200,
        "completion_tokens": 80,
        "total_tokens": 1280,
        "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 64,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    },
    "service_tier": "default",
    "system_fingerprint": None,
}
ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        {"type": "text", "text": "h", "citations": None},
        {"type": "text", "text": "i"},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 20,
        "cache_creation_input_tokens": 300,
        "cache_read_input_tokens": 4000,
        "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 9,
        "server_tool_use": None,
        "service_tier": "standard",
    },
}

REPLIES = {
    "openai": Reply(
        OPENAI,
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="gpt-x-2026-01-01",
            response_id="chatcmpl-1",
            usage=ReportedUsage(input_tokens=1200, output_tokens=80, cache_read_tokens=1024, reasoning_tokens=64),
        ),
    ),
    "openai refuses": Reply(
        {
            **OPENAI,
            "choices": [choice(None, "stop", {"refusal": "I can't help with that."})],
            "usage": {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17},
        },
        GenerationReply(
            content="",
            finish_reason="stop",
            refusal="I can't help with that.",
            model="gpt-x-2026-01-01",
            response_id="chatcmpl-1",
            usage=ReportedUsage(input_tokens=9, output_tokens=8),
        ),
    ),
    "azure": Reply(
        {
            **OPENAI,
            "choices": [
                choice("hi", "stop", content_filter_results={"hate": {"filtered": False, "severity": "safe"}}),
            ],
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_tokens_details": None},
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="gpt-x-2026-01-01",
            response_id="chatcmpl-1",
            usage=ReportedUsage(input_tokens=9, output_tokens=1),
        ),
    ),
    "openrouter": Reply(
        {
            "id": "gen-1",
            "provider": "P",
            "model": "vendor/model",
            "object": "chat.completion",
            "created": 1,
            "error": None,
            "choices": [
                choice(
                    "hi",
                    "stop",
                    {
                        "refusal": None,
                        "reasoning": "hmm",
                        "reasoning_details": [{"type": "reasoning.text", "text": "hmm"}],
                    },
                    native_finish_reason="STOP",
                    logprobs=None,
                ),
            ],
            "usage": {
                "prompt_tokens": 500,
                "completion_tokens": 30,
                "total_tokens": 530,
                "cost": 0.00123,
                "is_byok": False,
                "cost_details": {"upstream_inference_cost": None},
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 480, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": None},
            },
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="vendor/model",
            response_id="gen-1",
            usage=ReportedUsage(input_tokens=500, output_tokens=30, cache_read_tokens=0, cache_write_tokens=480),
        ),
    ),
    "openrouter with an upstream that counts cached tokens beside the prompt": Reply(
        {
            "choices": [choice([{"type": "text", "text": "hi"}], None)],
            "usage": {
                "prompt_tokens": 12,
                "completion_tokens": 30,
                "total_tokens": 42,
                "prompt_tokens_details": {"cached_tokens": 4000},
            },
        },
        GenerationReply(content="hi", usage=ReportedUsage(output_tokens=30, cache_read_tokens=4000)),
    ),
    "gemini": Reply(
        {
            "id": "r",
            "object": "chat.completion",
            "created": 1,
            "model": "gemini-x",
            "choices": [choice("hi", "stop")],
            "usage": {"prompt_tokens": 572, "completion_tokens": 126, "total_tokens": 1278},
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="gemini-x",
            response_id="r",
            usage=ReportedUsage(input_tokens=572, output_tokens=126),
        ),
    ),
    "gemini that only thought": Reply(
        {
            "model": "gemini-x",
            "choices": [{"index": 0, "message": {"role": "assistant"}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81},
        },
        GenerationReply(
            content="",
            finish_reason="length",
            model="gemini-x",
            usage=ReportedUsage(input_tokens=21, output_tokens=0),
        ),
    ),
    "ollama": Reply(
        {
            "id": "chatcmpl-7",
            "object": "chat.completion",
            "created": 1,
            "model": "small",
            "system_fingerprint": "fp_ollama",
            "choices": [choice("hi", None, {"reasoning": "hmm"})],
            "usage": {"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 5},
        },
        GenerationReply(
            content="hi",
            model="small",
            response_id="chatcmpl-7",
            usage=ReportedUsage(input_tokens=0, output_tokens=5),
        ),
    ),
    "llama.cpp": Reply(
        {
            "choices": [choice("hi", "stop", {"reasoning_content": "hmm"})],
            "created": 1,
            "model": "served",
            "system_fingerprint": "b1-abc",
            "object": "chat.completion",
            "usage": {
                "completion_tokens": 4,
                "prompt_tokens": 120,
                "total_tokens": 124,
                "prompt_tokens_details": {"cached_tokens": 100},
            },
            "id": "chatcmpl-8",
            "__verbose": {"content": "not this"},
            "timings": {"cache_n": 100, "prompt_n": 20, "prompt_ms": 1.5, "predicted_n": 4, "predicted_ms": 9.5},
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="served",
            response_id="chatcmpl-8",
            usage=ReportedUsage(input_tokens=120, output_tokens=4, cache_read_tokens=100),
        ),
    ),
    "llama.cpp without details": Reply(
        {
            "choices": [choice("hi", "stop")],
            "usage": {"completion_tokens": 4, "prompt_tokens": 120, "total_tokens": 124},
            "timings": {"cache_n": 100, "prompt_n": 20, "predicted_n": 4},
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            usage=ReportedUsage(input_tokens=120, output_tokens=4, cache_read_tokens=100),
        ),
    ),
    "llama.cpp without usage": Reply(
        {"choices": [choice("hi", "stop")], "timings": {"cache_n": 100, "prompt_n": 20, "predicted_n": 4}},
        GenerationReply(
            content="hi",
            finish_reason="stop",
            usage=ReportedUsage(input_tokens=120, output_tokens=4, cache_read_tokens=100),
        ),
    ),
    "an old llama.cpp without usage": Reply(
        {"choices": [choice("hi", "stop")], "timings": {"prompt_n": 20, "predicted_n": 4}},
        GenerationReply(content="hi", finish_reason="stop", usage=ReportedUsage(output_tokens=4)),
    ),
    "vllm": Reply(
        {
            "id": "chatcmpl-9",
            "object": "chat.completion",
            "created": 1,
            "model": "org/model",
            "choices": [
                choice("hi", "stop", {"reasoning_content": None, "tool_calls": []}, stop_reason=None, logprobs=None),
            ],
            "usage": {
                "prompt_tokens": 40,
                "total_tokens": 42,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 32},
            },
            "prompt_logprobs": None,
            "kv_transfer_params": None,
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="org/model",
            response_id="chatcmpl-9",
            usage=ReportedUsage(input_tokens=40, output_tokens=2, cache_read_tokens=32),
        ),
    ),
    "an old vllm": Reply(
        {
            "id": "cmpl-9",
            "model": "org/model",
            "choices": [choice("hi", "length", {"reasoning": "hmm"}, stop_reason=7)],
            "usage": {
                "prompt_tokens": 40,
                "total_tokens": 42,
                "completion_tokens": None,
                "prompt_tokens_details": None,
            },
        },
        GenerationReply(
            content="hi",
            finish_reason="length",
            model="org/model",
            response_id="cmpl-9",
            usage=ReportedUsage(input_tokens=40),
        ),
    ),
    "deepseek": Reply(
        {
            "id": "d-1",
            "object": "chat.completion",
            "created": 1,
            "model": "deepseek-x",
            "choices": [choice("hi", "insufficient_system_resource", {"reasoning_content": "hmm"}, logprobs=None)],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 40},
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
            },
            "system_fingerprint": "fp",
        },
        GenerationReply(
            content="hi",
            finish_reason="insufficient_system_resource",
            model="deepseek-x",
            response_id="d-1",
            usage=ReportedUsage(input_tokens=100, output_tokens=50, cache_read_tokens=64, reasoning_tokens=40),
        ),
    ),
    "deepseek whose budget went into thinking": Reply(
        {
            "id": "d-2",
            "choices": [choice(None, "length", {"reasoning_content": "hmm"})],
            "usage": {
                "prompt_tokens": 30,
                "completion_tokens": 1024,
                "total_tokens": 1054,
                "prompt_cache_hit_tokens": 0,
                "prompt_cache_miss_tokens": 30,
            },
        },
        GenerationReply(
            content="",
            finish_reason="length",
            response_id="d-2",
            usage=ReportedUsage(input_tokens=30, output_tokens=1024, cache_read_tokens=0),
        ),
    ),
    "groq": Reply(
        {
            "id": "chatcmpl-g",
            "object": "chat.completion",
            "created": 1,
            "model": "llama-x",
            "choices": [choice("hi", "stop", {"reasoning": "hmm", "executed_tools": None}, logprobs=None)],
            "usage": {
                "queue_time": 0.01,
                "prompt_tokens": 300,
                "prompt_time": 0.02,
                "completion_tokens": 20,
                "completion_time": 0.03,
                "total_tokens": 320,
                "total_time": 0.05,
                "prompt_tokens_details": {"cached_tokens": 256},
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            "usage_breakdown": {"models": [{"model": "llama-x", "usage": {"prompt_tokens": 300}}]},
            "x_groq": {"id": "req_g", "usage": {"dram_cached_tokens": 256, "sram_cached_tokens": 0}},
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="llama-x",
            response_id="chatcmpl-g",
            usage=ReportedUsage(input_tokens=300, output_tokens=20, cache_read_tokens=256, reasoning_tokens=10),
        ),
    ),
    "mistral": Reply(
        {
            "id": "m-1",
            "object": "chat.completion",
            "created": 1,
            "model": "mistral-x",
            "choices": [
                choice(
                    [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}], "closed": True},
                        {"type": "text", "text": "h"},
                        {"type": "thinking", "thinking": []},
                        {"type": "text", "text": ""},
                        {"type": "text", "text": "i"},
                        {"type": "reference", "reference_ids": [1]},
                    ],
                    "model_length",
                    {"tool_calls": None, "prefix": False},
                ),
            ],
            # Its server writes 0 where it does not know a count; what is written is what is reported.
            "usage": {
                "prompt_tokens": 70,
                "completion_tokens": 0,
                "total_tokens": 70,
                "prompt_audio_seconds": None,
                "prompt_tokens_details": {"cached_tokens": 48},
            },
        },
        GenerationReply(
            content="hi",
            finish_reason="model_length",
            model="mistral-x",
            response_id="m-1",
            usage=ReportedUsage(input_tokens=70, output_tokens=0, cache_read_tokens=48),
        ),
    ),
    "anthropic": Reply(
        ANTHROPIC,
        GenerationReply(
            content="hi",
            finish_reason="end_turn",
            model="claude-x",
            response_id="msg_1",
            usage=ReportedUsage(input_tokens=4320, output_tokens=9, cache_read_tokens=4000, cache_write_tokens=300),
        ),
        "messages",
    ),
    "anthropic refuses": Reply(
        {
            **ANTHROPIC,
            "content": [],
            "stop_reason": "refusal",
            "stop_details": {"type": "refusal", "category": "x", "explanation": "I cannot."},
            "usage": {"input_tokens": 20, "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 0}},
        },
        GenerationReply(
            content="",
            finish_reason="refusal",
            refusal="I cannot.",
            model="claude-x",
            response_id="msg_1",
            usage=ReportedUsage(input_tokens=20, output_tokens=1, reasoning_tokens=0),
        ),
        "messages",
    ),
    "llama.cpp in anthropic's form": Reply(
        {
            "id": "chatcmpl-5",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "hi"}],
            "model": "served",
            "stop_reason": "max_tokens",
            "stop_sequence": None,
            "usage": {"cache_read_input_tokens": 100, "input_tokens": 20, "output_tokens": 4},
        },
        GenerationReply(
            content="hi",
            finish_reason="max_tokens",
            model="served",
            response_id="chatcmpl-5",
            usage=ReportedUsage(input_tokens=120, output_tokens=4, cache_read_tokens=100),
        ),
        "messages",
    ),
    "anthropic through a gateway that speaks chat completions": Reply(
        {
            "id": "chatcmpl-6",
            "object": "chat.completion",
            "created": 1,
            "model": "claude-x",
            "choices": [choice("hi", "stop")],
            "usage": {
                "prompt_tokens": 4320,
                "completion_tokens": 9,
                "total_tokens": 4329,
                "cache_read_input_tokens": 4000,
                "cache_creation_input_tokens": 300,
            },
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            model="claude-x",
            response_id="chatcmpl-6",
            usage=ReportedUsage(input_tokens=4320, output_tokens=9, cache_read_tokens=4000, cache_write_tokens=300),
        ),
    ),
    "anthropic through a gateway that keeps its counts": Reply(
        {
            "choices": [choice("hi", "stop")],
            "usage": {"input_tokens": 20, "output_tokens": 9, "cache_read_input_tokens": 4000},
        },
        GenerationReply(
            content="hi",
            finish_reason="stop",
            usage=ReportedUsage(input_tokens=4020, output_tokens=9, cache_read_tokens=4000),
        ),
    ),
}


@pytest.mark.parametrize("name", REPLIES)
def test_each_providers_reply_is_read_whole_with_its_counts_in_the_inclusive_form(name: str) -> None:
    case = REPLIES[name]
    read_whole = msgspec.structs.replace(case.read, status=200)
    assert read(case.document, dialect=case.dialect).unwrap() == read_whole


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_without_an_id_is_found_by_the_id_of_its_request(name: str) -> None:
    case = REPLIES[name]
    for header in ("x-request-id", "Request-Id"):
        nameless = {key: value for key, value in case.document.items() if key != "id"}
        assert read(nameless, headers={header: "req-1"}, dialect=case.dialect).unwrap().response_id == "req-1"


# ------------------------------------------------------------------ errors


class Error(NamedTuple):
    status: int
    body: Any
    cls: type[GenerationError]
    transient: bool
    code: str | None
    says: str  # what the provider said
    remedy: str
    headers: dict[str, str] | None = None
    retry_after: float | None = None
    dialect: str = "chat"
    effective: int | None = None  # the status on the error, where it is not the HTTP one


def openai(message: str, kind: str, code: Any = None, param: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic(message: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36.5s"}
QUOTA_FAILURE = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "PerMinute"}]}
LIMITS = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "6m0s",
}
ERRORS = {
    "openai: a limit": Error(
        429,
        openai("Rate limit reached for gpt-x. Please try again in 20s.", "requests", "rate_limit_exceeded"),
        RateLimitError,
        transient=True,
        code="rate_limit_exceeded",
        says="Rate limit reached",
        remedy="max_concurrency",
        headers={**LIMITS, "retry-after-ms": "250", "retry-after": "1", "x-request-id": "req_1"},
        retry_after=0.25,
    ),
    "openai: no credit": Error(
        429,
        openai("You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
        QuotaError,
        transient=False,
        code="insufficient_quota",
        says="exceeded your current quota",
        remedy="waiting does not cure this",
    ),
    "openai: an unknown parameter": Error(
        400,
        openai("Unsupported parameter: 'max_tokens'.", "invalid_request_error", "unsupported_parameter", "max_tokens"),
        RejectedRequestError,
        transient=False,
        code="unsupported_parameter",
        says="Unsupported parameter",
        remedy='token_limit_parameter to "max_completion_tokens"',
    ),
    "openai: a long conversation": Error(
        400,
        openai("This model's maximum context length is 8 tokens.", "invalid_request_error", "context_length_exceeded"),
        RejectedRequestError,
        transient=False,
        code="context_length_exceeded",
        says="maximum context length",
        remedy="make the conversation shorter",
    ),
    "openai: a wrong key": Error(
        401,
        openai("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
        AuthenticationError,
        transient=False,
        code="invalid_api_key",
        says="Incorrect API key",
        remedy="credential_env",
    ),
    "azure: headers that say nothing": Error(
        429,
        openai("Requests have exceeded the call rate limit.", "requests", "429"),
        RateLimitError,
        transient=True,
        code="429",
        says="exceeded the call rate limit",
        remedy="max_concurrency",
        headers={
            "x-ratelimit-remaining-requests": "-1",
            "x-ratelimit-reset-tokens": "0",
            "retry-after-ms": "0",
            "retry-after": "-1",
        },
    ),
    "openrouter: an upstream's error as JSON text": Error(
        502,
        {
            "error": {
                "message": "Provider returned error",
                "code": 502,
                "metadata": {"provider_name": "P", "raw": '{"error":{"message":"model is on fire","code":"x"}}'},
            },
            "user_id": "u",
        },
        BackendStatusError,
        transient=True,
        code="502",
        says="Provider returned error (model is on fire)",
        remedy="try again later",
    ),
    "openrouter: an upstream's overflow as JSON text": Error(
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": '[{"error":{"code":400,"message":"exceeds the context window"}}]'},
            },
        },
        RejectedRequestError,
        transient=False,
        code="400",
        says="Provider returned error (exceeds the context window)",
        remedy="make the conversation shorter",
    ),
    "openrouter: an upstream's error as text": Error(
        503,
        {"error": {"message": "Provider returned error", "code": 503, "metadata": {"raw": "{not JSON"}}},
        OverloadedError,
        transient=True,
        code="503",
        says="Provider returned error ({not JSON)",
        remedy="try again later",
        headers={"retry-after": "12"},
        retry_after=12,
    ),
    "openrouter: a failure after the model began": Error(
        200,
        {"id": "gen-1", "error": {"code": 429, "message": "upstream is busy", "metadata": None}},
        RateLimitError,
        transient=True,
        code="429",
        says="upstream is busy",
        remedy="max_concurrency",
        effective=429,
    ),
    "openrouter: a limit of its own": Error(
        429,
        {
            "error": {
                "message": "Rate limit exceeded: free-models-per-min.",
                "code": 429,
                "metadata": {"headers": {"X-RateLimit-Limit": "20", "X-RateLimit-Reset": "1767225600000"}},
            },
        },
        RateLimitError,
        transient=True,
        code="429",
        says="free-models-per-min",
        remedy="max_concurrency",
    ),
    "openrouter: no credit": Error(
        402,
        {"error": {"code": 402, "message": "Insufficient credits"}},
        QuotaError,
        transient=False,
        code="402",
        says="Insufficient credits",
        remedy="add credit",
    ),
    "openrouter: moderation": Error(
        403,
        {"error": {"code": 403, "message": "Flagged", "metadata": {"reasons": ["x"], "flagged_input": "PROMPT"}}},
        AuthenticationError,
        transient=False,
        code="403",
        says="Flagged",
        remedy="what it may use",
    ),
    "gemini: a quota by the minute": Error(
        429,
        [
            {
                "error": {
                    "code": 429,
                    "message": "You exceeded your current quota. Please retry in 36.5s.",
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [QUOTA_FAILURE, RETRY_INFO],
                },
            },
        ],
        RateLimitError,
        transient=True,
        code="429",
        says="exceeded your current quota",
        remedy="max_concurrency",
        retry_after=36.5,
    ),
    "gemini: a wrong key": Error(
        400,
        [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}],
        RejectedRequestError,
        transient=False,
        code="400",
        says="API key not valid",
        remedy="credential_env",
    ),
    "gemini: overloaded": Error(
        503,
        [{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}],
        OverloadedError,
        transient=True,
        code="503",
        says="overloaded",
        remedy="try again later",
    ),
    "ollama: its queue is full": Error(
        503,
        {"error": "server busy, please try again.  maximum pending requests exceeded"},
        OverloadedError,
        transient=True,
        code=None,
        says="maximum pending requests exceeded",
        remedy="try again later",
    ),
    "ollama: an unknown model": Error(
        404,
        openai("model 'x' not found", "not_found_error"),
        RejectedRequestError,
        transient=False,
        code="not_found_error",
        says="model 'x' not found",
        remedy="the profile's model",
    ),
    "llama.cpp: loading": Error(
        503,
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        OverloadedError,
        transient=True,
        code="503",
        says="Loading model",
        remedy="try again later",
    ),
    "llama.cpp: a long conversation": Error(
        400,
        {
            "error": {
                "code": 400,
                "message": "request (2000 tokens) exceeds the available context size (1024 tokens)",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 2000,
                "n_ctx": 1024,
            },
        },
        RejectedRequestError,
        transient=False,
        code="400",
        says="exceeds the available context size",
        remedy="make the conversation shorter",
    ),
    "llama.cpp: not supported": Error(
        501,
        {"error": {"code": 501, "message": "no embeddings", "type": "not_supported_error"}},
        BackendStatusError,
        transient=False,
        code="501",
        says="no embeddings",
        remedy="this server cannot do this",
    ),
    "vllm: a late system message": Error(
        400,
        {"error": {"message": "System message must be at the beginning.", "type": "BadRequestError", "code": 400}},
        RejectedRequestError,
        transient=False,
        code="400",
        says="System message must be",
        remedy='late_system to "as_user"',
    ),
    "an old vllm": Error(
        400,
        {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
        RejectedRequestError,
        transient=False,
        code="400",
        says="too long",
        remedy="the profile's settings",
    ),
    "vllm: a validation": Error(
        422,
        {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Field required", "type": "missing"}]},
        RejectedRequestError,
        transient=False,
        code=None,
        says="body.messages.role: Field required",
        remedy="the prompt's messages",
    ),
    "deepseek: no balance": Error(
        402,
        openai("Insufficient Balance", "unknown_error", "invalid_request_error"),
        QuotaError,
        transient=False,
        code="invalid_request_error",
        says="Insufficient Balance",
        remedy="add credit",
    ),
    "groq: a limit that only its text puts a time to": Error(
        429,
        openai("Rate limit reached. Please try again in 5.289s.", "tokens", "rate_limit_exceeded"),
        RateLimitError,
        transient=True,
        code="rate_limit_exceeded",
        says="try again in 5.289s",
        remedy="max_concurrency",
        headers={"x-ratelimit-reset-tokens": "7.66s", "x-ratelimit-reset-requests": "2m59.56s"},
    ),
    "groq: a limit": Error(
        429,
        openai("Rate limit reached. Please try again in 5.289s.", "tokens", "rate_limit_exceeded"),
        RateLimitError,
        transient=True,
        code="rate_limit_exceeded",
        says="Rate limit reached",
        remedy="max_concurrency",
        headers={"retry-after": "6"},
        retry_after=6,
    ),
    "groq: flex capacity": Error(
        498,
        openai("Flex tier capacity exceeded", "capacity", "capacity_exceeded"),
        RejectedRequestError,
        transient=False,
        code="capacity_exceeded",
        says="Flex tier",
        remedy="the profile's settings",
    ),
    "mistral: a validation": Error(
        422,
        {
            "object": "error",
            "message": {"detail": [{"type": "extra", "loc": ["body", "seed"], "msg": "not permitted", "input": 7}]},
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
        RejectedRequestError,
        transient=False,
        code="invalid_request_error",
        says="body.seed: not permitted",
        remedy="the profile's settings",
    ),
    "mistral: its gateway": Error(
        401,
        {"message": "Unauthorized", "request_id": "q-1"},
        AuthenticationError,
        transient=False,
        code=None,
        says="Unauthorized",
        remedy="check the key",
    ),
    "mistral: a limit": Error(
        429,
        {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "param": None, "code": "1300"},
        RateLimitError,
        transient=True,
        code="1300",
        says="Rate limit exceeded",
        remedy="max_concurrency",
        headers={"ratelimitbysize-reset": "41", "x-ratelimit-remaining-req-minute": "0"},
    ),
    "anthropic: overloaded": Error(
        529,
        anthropic("Overloaded", "overloaded_error"),
        OverloadedError,
        transient=True,
        code="overloaded_error",
        says="Overloaded",
        remedy="try again later",
        dialect="messages",
    ),
    "anthropic: a limit": Error(
        429,
        anthropic("This would exceed your organization's rate limit.", "rate_limit_error"),
        RateLimitError,
        transient=True,
        code="rate_limit_error",
        says="exceed your organization",
        remedy="max_concurrency",
        headers={"retry-after": "17", "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:30Z"},
        retry_after=17,
        dialect="messages",
    ),
    "anthropic: a spending limit": Error(
        429,
        anthropic("Limit.", "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
        QuotaError,
        transient=False,
        code="enforced_spend_limit_reached",
        says="Limit.",
        remedy="raise the account's limit",
        dialect="messages",
    ),
    **{
        f"anthropic: {said}": Error(
            400,
            anthropic(said, "invalid_request_error"),
            RejectedRequestError,
            transient=False,
            code="invalid_request_error",
            says=said[:40],
            remedy=remedy,
            dialect="messages",
        )
        for said, remedy in (
            ("prompt is too long: 210000 tokens > 200000 maximum", "make the conversation shorter"),
            ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", "conversation shorter"),
            ("output_config: Extra inputs are not permitted", "native_output"),
            ("output_config.effort: This model does not support effort", "reasoning_effort"),
            ("A maximum of 4 blocks with cache_control may be provided. Found 5.", "fewer messages a cache_control"),
            ("messages: text content blocks must be non-empty", "takes no empty message"),
            ("messages.1: all messages must have non-empty content", "takes no empty message"),
            ("system.0: cache_control cannot be set for empty text blocks", "takes no empty message"),
            ('messages: Unexpected role "system".', "late_system"),
            ("max_tokens: Field required", "max_output_tokens"),
        )
    },
    "llmock in anthropic's form": Error(
        422,
        anthropic("max_tokens: Field required", "invalid_request_error"),
        RejectedRequestError,
        transient=False,
        code="invalid_request_error",
        says="max_tokens: Field required",
        remedy="set the profile's max_output_tokens",
        dialect="messages",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_each_providers_error_has_its_class_its_retry_its_code_and_what_to_do(name: str) -> None:
    case = ERRORS[name]
    found = read(case.body, case.status, case.headers, case.dialect).failure()
    assert type(found) is case.cls
    assert (found.transient, found.retry_after) == (case.transient, case.retry_after)
    assert (found.status, found.provider_code) == (case.effective or case.status, case.code)
    assert case.says in str(found)
    assert case.remedy in str(found)
    assert "PROMPT" not in str(found)
    assert len(str(found)) <= 300


@pytest.mark.parametrize("choices", [[], None])
def test_a_model_that_is_still_warming_up_sends_no_choices_and_that_is_malformed_and_not_asked_again(
    choices: Any,
) -> None:
    found = read({"id": "gen-1", "choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 0}}).failure()
    assert (type(found), found.transient) == (MalformedReplyError, False)
    assert found.reported == ReportedUsage(input_tokens=5, output_tokens=0)


def test_every_text_of_a_router_is_taken_as_what_it_is_when_it_is_no_error_in_json() -> None:
    for raw, said in (("[]", "([])"), ("{}", "({})"), ('"x"', '("x")'), ("[" * 5000, "([["), ("{\ud800", "({")):
        body = {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": raw}}}
        assert f"Provider returned error {said}" in str(read(body, 502).failure())
