"""What comes back: replies in Anthropic's form."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from returns.result import Success

from promptkit._values.generation import GenerationReply
from promptkit._values.usage import ReportedUsage
from promptkit._wire.anthropic_messages import read_reply
from promptkit.errors import (
    AuthenticationError,
    BackendStatusError,
    DisconnectedError,
    GenerationError,
    MalformedReplyError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "sk-ant-0123456789"
MARK = "CONTENT-MARK"


def text(value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def message(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7},
        **more,
    }


def read(document: Any, status: int = 200, headers: Any = ()) -> Any:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    framed = [("content-length", str(len(body))), *headers]
    return read_reply(status, framed, body, now=NOW, secret=KEY)


def reply(document: Any) -> GenerationReply:
    found: GenerationReply = read(document).unwrap()
    return found


def error(document: Any, status: int = 200, headers: Any = ()) -> GenerationError:
    found: GenerationError = read(document, status, headers).failure()
    return found


def reported(kind: str, said: str = "No.", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": said, **more}, "request_id": "req_1"}


# ------------------------------------------------------------------ answers


def test_an_ordinary_reply_is_read_whole() -> None:
    assert reply(message(text("Hi.", citations=None))) == GenerationReply(
        content="Hi.",
        finish_reason="end_turn",
        model="claude-x",
        response_id="msg_1",
        status=200,
        usage=ReportedUsage(input_tokens=11, output_tokens=7),
    )


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_the_texts_of_the_text_blocks_are_joined_exactly(texts: list[str]) -> None:
    thought = {"type": "thinking", "thinking": MARK, "signature": "s"}
    blocks = [block for found in texts for block in (thought, text(found))]
    assert reply(message(*blocks)).content == "".join(texts)


@pytest.mark.parametrize(
    "kind", ["thinking", "redacted_thinking", "tool_use", "server_tool_use", "of_tomorrow", None, [1]]
)
def test_blocks_of_other_kinds_are_not_the_answer(kind: Any) -> None:
    assert reply(message({"type": kind, "text": MARK}, text("Hi."))).content == "Hi."
    assert reply(message({"type": kind, "text": MARK})).content == ""


@pytest.mark.parametrize(
    "reason",
    ["max_tokens", "stop_sequence", "tool_use", "pause_turn", "model_context_window_exceeded", "of_tomorrow", None],
)
def test_the_stop_reason_is_an_open_set_and_empty_content_is_an_answer(reason: Any) -> None:
    found = reply(message(stop_reason=reason))
    assert (found.content, found.finish_reason, found.refusal) == ("", reason, None)


def test_a_refusal_is_told_by_its_explanation_and_none_is_invented() -> None:
    details = {"type": "refusal", "category": "x", "explanation": "I cannot."}
    refused = reply(message(stop_reason="refusal", stop_details=details))
    assert (refused.finish_reason, refused.refusal) == ("refusal", "I cannot.")
    for nothing in (None, {}, {"explanation": None}, {"explanation": 1}, "x"):
        assert reply(message(stop_reason="refusal", stop_details=nothing)).refusal is None
    assert reply(message(text("Hi."), stop_details=details)).refusal is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "input_tokens": 3,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 100,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 4},
                "service_tier": "standard",
            },
            ReportedUsage(
                input_tokens=123, output_tokens=9, cache_read_tokens=100, cache_write_tokens=20, reasoning_tokens=4
            ),
        ),
        (
            {"input_tokens": 3, "cache_creation_input_tokens": None, "cache_read_input_tokens": 0, "output_tokens": 9},
            ReportedUsage(input_tokens=3, output_tokens=9, cache_read_tokens=0),
        ),
        (
            {"input_tokens": 3, "cache_read_input_tokens": "many", "output_tokens": 9},
            ReportedUsage(output_tokens=9),
        ),
        ({"output_tokens": 9, "cache_read_input_tokens": 5}, ReportedUsage(output_tokens=9, cache_read_tokens=5)),
        (None, None),
        ([], None),
    ],
)
def test_cache_tokens_are_counted_beside_the_input_and_added_to_it(usage: Any, expected: Any) -> None:
    assert reply(message(text("Hi."), usage=usage)).usage == expected


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("status", "kind", "cls", "transient"),
    [
        (400, "invalid_request_error", RejectedRequestError, False),
        (401, "authentication_error", AuthenticationError, False),
        (402, "billing_error", QuotaError, False),
        (403, "permission_error", AuthenticationError, False),
        (404, "not_found_error", RejectedRequestError, False),
        (413, "request_too_large", RejectedRequestError, False),
        (429, "rate_limit_error", RateLimitError, True),
        (500, "api_error", BackendStatusError, True),
        (504, "timeout_error", BackendStatusError, True),
        (529, "overloaded_error", OverloadedError, True),
    ],
)
def test_every_error_has_the_same_class_by_its_status_and_inside_a_200(
    status: int, kind: str, cls: type[GenerationError], *, transient: bool
) -> None:
    for found in (error(reported(kind), status), error(reported(kind))):
        assert type(found) is cls
        assert (found.status, found.transient, found.provider_code) == (status, transient, kind)
        assert found.response_id == "req_1"


def test_a_spending_limit_is_no_rate_limit_and_the_wait_is_read_from_the_header() -> None:
    spent = error(reported("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}), 429)
    assert type(spent) is QuotaError
    assert not spent.transient
    limited = error(reported("rate_limit_error"), 429, [("retry-after", "17"), ("request-id", "req_2")])
    assert limited.retry_after == 17


def test_an_error_without_an_object_inside_a_200_is_an_error() -> None:
    assert isinstance(error({"type": "error", "message": "No."}), BackendStatusError)
    assert isinstance(error({"error": "No."}), BackendStatusError)


@pytest.mark.parametrize(
    "document",
    [
        [],
        "text",
        7,
        None,
        {},
        {"content": None},
        {"content": "text"},
        {"content": [1]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": None}]},
        {"content": [{"type": "text", "text": MARK + "\ud83d"}]},
        {"content": {}},
        {"type": "completion", "completion": MARK},
        b"<html>not JSON</html>",
        b"",
    ],
)
def test_what_is_no_message_is_a_malformed_reply_that_says_what_it_is(document: Any) -> None:
    found = error(document)
    assert type(found) is MalformedReplyError
    assert not found.transient
    assert MARK not in str(found)
    assert "an Anthropic messages API" in str(found)


def test_a_body_that_nothing_framed_and_that_ends_inside_was_cut() -> None:
    body = json.dumps(message(text("Hi."))).encode()[:-20]
    found = read_reply(200, [], body, now=NOW).failure()
    assert type(found) is DisconnectedError
    assert found.transient


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["content", "type", "text", "error", "usage", "stop_reason", "stop_details", "id", "model"]
                ),
                inner,
                max_size=4,
            )
        ),
    ),
    st.sampled_from([200, 201, 301, 400, 404, 429, 500, 529]),
)
def test_any_document_is_a_reply_or_a_generation_error(document: Any, status: int) -> None:
    found = read_reply(status, [], json.dumps(document).encode(), now=NOW, secret=KEY)
    assert isinstance(found, Success) or isinstance(found.failure(), GenerationError)


@given(st.binary())
def test_any_bytes_are_a_reply_or_a_generation_error(body: bytes) -> None:
    assert isinstance(read_reply(200, [], body, now=NOW, secret=KEY).failure(), GenerationError)


def test_the_key_is_in_nothing_that_is_reported() -> None:
    for document, status in (
        (reported("authentication_error", f"bad key {KEY}"), 401),
        (message(id=KEY, model=KEY), 200),
    ):
        found = read(document, status)
        shown = found.failure() if status != 200 else found.unwrap()
        assert KEY not in repr(shown) + str(shown)
