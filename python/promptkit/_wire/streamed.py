"""A chat completion that is streamed, so that it can be stopped, and read like one that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._wire.chat_completions import read_reply, request_body
from promptkit._wire.redaction import excerpt
from promptkit.errors import (
    DisconnectedError,
    GenerationError,
    MalformedReplyError,
    RejectedRequestError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from promptkit._values.generation import GenerationCall, GenerationReply

_OVERFLOW = "exceed_context_size_error"


def streaming_body(call: GenerationCall, bound: int) -> bytes:
    """Give the chat-completions body of a call, streamed so that it can be stopped, and bounded.

    ``bound`` is the number of tokens of an answer that the profile does not bound. The messages stay the bytes that
    they are.
    """
    fields = msgspec.json.decode(request_body(call), type=dict[str, msgspec.Raw])
    if "max_tokens" not in fields and "max_completion_tokens" not in fields:
        fields["max_tokens"] = msgspec.Raw(str(bound).encode())
    fields["stream"] = fields["return_progress"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(b'{"include_usage":true}')
    return msgspec.json.encode(fields)


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] = []
    usage: Any = None
    error: dict[str, Any] | None = None


def read_streamed(chunks: Iterable[bytes], *, now: datetime) -> Result[GenerationReply, GenerationError]:
    """Read the documents of a streamed reply, put together to the one that an unstreamed call answers with."""
    read: list[_Chunk] = []
    for chunk in chunks:
        try:
            read.append(msgspec.json.decode(chunk, type=_Chunk))
        except msgspec.DecodeError:  # of what is written wrongly and of what has other types
            message = "a part of the embedded model's reply cannot be read"
            return Failure(MalformedReplyError(message, excerpt=excerpt(chunk, None)))
    error = next((chunk.error for chunk in read if chunk.error is not None), None)
    if error is not None:
        return (
            Failure(_overflow(error))
            if error.get("type") == _OVERFLOW
            else _reply(_status(error), {"error": error}, now)
        )
    return _whole(read).bind(lambda document: _reply(200, document, now))


def _reply(status: int, document: dict[str, Any], now: datetime) -> Result[GenerationReply, GenerationError]:
    body = msgspec.json.encode(document)
    return read_reply(status, [("content-length", str(len(body)))], body, now=now)


def _whole(chunks: list[_Chunk]) -> Result[dict[str, Any], GenerationError]:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    finish_reason = next((choice.finish_reason for choice in reversed(choices) if choice.finish_reason), None)
    if finish_reason is None:
        return Failure(DisconnectedError("the embedded model stopped before the end of its answer", transient=True))
    content = "".join(choice.delta.content or "" for choice in choices)
    document = {
        "id": chunks[-1].id,
        "model": chunks[-1].model,
        "choices": [{"index": 0, "message": {"content": content}, "finish_reason": finish_reason}],
        "usage": next((chunk.usage for chunk in reversed(chunks) if chunk.usage is not None), None),
    }
    return Success(document)


def _status(error: dict[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def _overflow(error: dict[str, Any]) -> RejectedRequestError:
    msg = (
        f"the messages have {error.get('n_prompt_tokens')} tokens, but the embedded model's context has "
        f"{error.get('n_ctx')}: raise the backend's embedded.context_tokens, or make the conversation shorter"
    )
    return RejectedRequestError(msg, status=400, provider_code=_OVERFLOW)
