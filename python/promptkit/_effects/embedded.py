"""The client for the model that runs inside the process."""

from __future__ import annotations

import logging
import os
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
from returns.result import Failure

from promptkit._effects.embedded_model import EmbeddedModel, ModelOptions, borrow, give_back
from promptkit._effects.model_weights import fetch_default_model
from promptkit._values.definitions import EmbeddedOptions
from promptkit._wire.chat_completions import read_reply, request_body
from promptkit._wire.redaction import excerpt
from promptkit.errors import DisconnectedError, MalformedReplyError, RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from promptkit._values.definitions import Backend
    from promptkit._values.generation import GenerationCall, GenerationReply

DEFAULT_OUTPUT_TOKENS = 1024  # bounds an answer whose profile does not; an endless one would keep the model busy

_LOGGER = logging.getLogger("promptkit.embedded")
_OVERFLOW = "exceed_context_size_error"


class EmbeddedClient:
    """Answers with a model in this process. Clients with the same options share it, on any event loop.

    One generation runs at a time; another waits for it inside its own attempt. A cancelled one lets its caller go at
    once and the model within one batch of the prompt or one token of the answer. An answer has at most
    ``max_output_tokens`` of the profile, else DEFAULT_OUTPUT_TOKENS, and ends with the context in any case.
    """

    def __init__(self) -> None:
        self._models: dict[ModelOptions, EmbeddedModel] = {}

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Make one attempt. The first one loads the model, and fetches the default one if it is not there yet.

        Raises ConnectError when there is no model to ask, RejectedRequestError when the messages do not fit its context
        or it does not take a setting.
        """
        model = self._model(model_options(call.backend))
        body = streaming_body(call)
        stop = threading.Event()
        try:
            chunks = await anyio.to_thread.run_sync(
                partial(model.answer, body, stop),
                abandon_on_cancel=True,
                limiter=anyio.CapacityLimiter(1),  # its own: a thread that still waits takes nobody's place
            )
        finally:
            stop.set()
        # Nothing is awaited from here on, so a reply that is here arrives.
        return reply_of(chunks)

    async def aclose(self) -> None:
        """Give the models back; the memory of each is freed when no other client has it."""
        models, self._models = self._models, {}
        for model in models.values():
            await anyio.to_thread.run_sync(give_back, model, limiter=anyio.CapacityLimiter(1))

    def _model(self, options: ModelOptions) -> EmbeddedModel:
        found = self._models.get(options)
        if found is None:
            found = self._models[options] = borrow(options, _default_path)
        return found


def _default_path() -> Path:
    return fetch_default_model(_LOGGER.info)


def model_options(backend: Backend) -> ModelOptions:
    """Resolve the defaults of a backend."""
    options = backend.embedded or EmbeddedOptions()
    path = options.model_path
    return ModelOptions(
        path=None if path is None else os.path.abspath(os.path.expanduser(path)),  # noqa: PTH100, PTH111  # reads no disk
        context_tokens=options.context_tokens,
        threads=options.threads or max(1, _cores() - 1),
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def streaming_body(call: GenerationCall) -> bytes:
    """Give the chat-completions body of a call, streamed so that it can be stopped, and bounded.

    The messages stay the bytes that they are.
    """
    fields = msgspec.json.decode(request_body(call), type=dict[str, msgspec.Raw])
    if "max_tokens" not in fields and "max_completion_tokens" not in fields:
        bound = min(DEFAULT_OUTPUT_TOKENS, model_options(call.backend).context_tokens)
        fields["max_tokens"] = msgspec.Raw(str(bound).encode())
    fields["stream"] = fields["return_progress"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(b'{"include_usage":true}')
    return msgspec.json.encode(fields)


# ------------------------------------------------------------------ the streamed reply


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


def reply_of(chunks: Iterable[bytes]) -> GenerationReply:
    """Read the documents of a streamed reply, put together to the one that an unstreamed call answers with."""
    read = [_read(chunk) for chunk in chunks]
    error = next((chunk.error for chunk in read if chunk.error is not None), None)
    if error is not None and error.get("type") == _OVERFLOW:
        raise _overflow(error)
    status, document = (200, _whole(read)) if error is None else (_status(error), {"error": error})
    body = msgspec.json.encode(document)
    reply = read_reply(status, [("content-length", str(len(body)))], body, now=datetime.now(UTC))
    if isinstance(reply, Failure):
        raise reply.failure()
    return reply.unwrap()


def _read(chunk: bytes) -> _Chunk:
    try:
        return msgspec.json.decode(chunk, type=_Chunk)
    except msgspec.DecodeError:  # of what is written wrongly and of what has other types
        msg = "a part of the embedded model's reply cannot be read"
        raise MalformedReplyError(msg, excerpt=excerpt(chunk, None)) from None


def _whole(chunks: list[_Chunk]) -> dict[str, Any]:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    finish_reason = next((choice.finish_reason for choice in reversed(choices) if choice.finish_reason), None)
    if finish_reason is None:
        msg = "the embedded model stopped before the end of its answer"
        raise DisconnectedError(msg, transient=True)
    content = "".join(choice.delta.content or "" for choice in choices)
    return {
        "id": chunks[-1].id,
        "model": chunks[-1].model,
        "choices": [{"index": 0, "message": {"content": content}, "finish_reason": finish_reason}],
        "usage": next((chunk.usage for chunk in reversed(chunks) if chunk.usage is not None), None),
    }


def _status(error: dict[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def _overflow(error: dict[str, Any]) -> RejectedRequestError:
    msg = (
        f"the messages have {error.get('n_prompt_tokens')} tokens, but the embedded model's context has "
        f"{error.get('n_ctx')}: raise the backend's embedded.context_tokens, or make the conversation shorter"
    )
    return RejectedRequestError(msg, status=400, provider_code=_OVERFLOW)
