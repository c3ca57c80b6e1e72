"""Streamed replies, put together."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from promptkit._wire.streamed import read_streamed
from promptkit.errors import BackendStatusError, DisconnectedError, MalformedReplyError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def chunk(**fields: Any) -> bytes:
    return json.dumps({"id": "c-1", "model": "m", "choices": [], **fields}).encode()


def test_chunks_become_one_reply() -> None:
    parts = [
        {"delta": {"role": "assistant", "content": None}},
        {"delta": {"content": "a"}},
        {"delta": {"content": "\u00e9"}},
    ]
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
    end = chunk(choices=[{"delta": {}, "finish_reason": "stop"}])
    reply = read_streamed([*(chunk(choices=[part]) for part in parts), end, chunk(usage=usage)], now=NOW).unwrap()
    assert (reply.content, reply.finish_reason, reply.model, reply.response_id) == ("a\u00e9", "stop", "m", "c-1")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cache_read_tokens) == (5, 2, 0)


def test_a_reply_without_an_end_is_a_lost_one() -> None:
    for chunks in ([], [chunk(choices=[{"delta": {"content": "a"}}])]):
        lost = read_streamed(chunks, now=NOW).failure()
        assert isinstance(lost, DisconnectedError)
        assert lost.transient


def test_an_error_of_the_library_keeps_its_status() -> None:
    error = {"code": 500, "message": "compute error", "type": "server_error"}
    failed = read_streamed([chunk(error=error)], now=NOW).failure()
    assert isinstance(failed, BackendStatusError)
    assert (failed.status, failed.transient) == (500, True)


@pytest.mark.parametrize("unreadable", [b"{", b"\xff", b"[]", b'{"choices": 5}'])
def test_what_cannot_be_read_is_malformed(unreadable: bytes) -> None:
    assert isinstance(read_streamed([unreadable], now=NOW).failure(), MalformedReplyError)
