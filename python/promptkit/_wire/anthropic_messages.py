"""The Anthropic messages dialect: a call to a request body, a reply's bytes to a value or an error.

Decisions where no standard speaks:

- The leading system and developer messages are the ``system`` blocks, in order. A later one is sent as the backend's
  ``late_system`` says.
- A reply is a 2xx whose body is a JSON object with a list of content blocks. The texts of its text blocks are the
  answer, in order, with nothing between; blocks of other kinds (thoughts, tool calls, kinds to come) are not. A list
  without a text is empty content.
- ``stop_reason`` is passed on as it is, up to 256 characters, like ``id`` and ``model``. The explanation of a refusal,
  where there is one, is the refusal; none is invented.
- Tokens read from a cache or written to one are counted beside the input, and added to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from returns.result import Failure, Result, Success

from promptkit._wire.documents import kind_of, member, text_member
from promptkit._wire.replies import Arrival, reader, reply, reported, sendable, unreadable
from promptkit._wire.requests import model_of, rest_of, stated

if TYPE_CHECKING:
    from promptkit._values.generation import GenerationCall, GenerationReply
    from promptkit.errors import GenerationError


def request_pieces(call: GenerationCall) -> tuple[bytes, ...]:
    """Encode a call in pieces that follow each other. The messages are a piece of their own, as in every dialect."""
    encoded = call.encoded_messages("anthropic_messages")
    # The system text first: it is the beginning of what a provider's cache keeps.
    system = b"" if encoded.system is None else b'"system":' + encoded.system + b","
    rest = rest_of(call, {**_settings(call), **_output_config(call)})
    return model_of(call) + system + b'"messages":', encoded.messages, rest


# ------------------------------------------------------------------ requests


def _settings(call: GenerationCall) -> dict[str, Any]:
    profile = call.profile
    settings = {
        "max_tokens": profile.max_output_tokens,
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "stop_sequences": profile.stop or None,
    }
    return stated(settings)


def _output_config(call: GenerationCall) -> dict[str, Any]:
    """Ask for the contract's schema and for an effort; what ``extra`` says of the same field stays beside them."""
    contract = call.output
    config: dict[str, Any] = {}
    if call.profile.reasoning_effort is not None:
        config["effort"] = call.profile.reasoning_effort
    if call.profile.native_output == "json_schema" and contract.kind == "json_schema":
        config["format"] = {"type": "json_schema", "schema": contract.schema}
    further = call.profile.extra.get("output_config")
    if not config:
        return {}
    return {"output_config": {**further, **config} if isinstance(further, dict) else config}


# ------------------------------------------------------------------ replies


def _answer(arrival: Arrival, document: object) -> Result[GenerationReply, GenerationError]:
    error = member(document, "error")
    if error is not None or member(document, "type") == "error":
        return Failure(reported(arrival, document, document if error is None else error, None))
    found: Result[GenerationReply, str] = Result.do(
        reply(arrival, document, content=content, finish_reason=member(document, "stop_reason"), refusal=refusal)
        for content in _content(document)
        for refusal in _refusal(document)
    )
    return found.lash(lambda problem: Failure(unreadable(arrival, document, problem)))


def _content(document: object) -> Result[str, str]:
    if not isinstance(document, dict):
        return Failure(f"the body is {kind_of(document)}, not an object")
    if "content" not in document:
        return Failure('"content" is missing')
    blocks = document["content"]
    if not isinstance(blocks, list):
        return Failure(f'"content" is {kind_of(blocks)}, not an array of blocks')
    if not all(isinstance(block, dict) for block in blocks):
        return Failure('"content" has a block that is not an object')
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        return Failure('"content" has a text block without a text')
    return sendable("".join(texts), "content")


def _refusal(document: object) -> Result[str | None, str]:
    if member(document, "stop_reason") != "refusal":
        return Success(None)
    explained = text_member(member(document, "stop_details"), "explanation")
    return Success(None) if explained is None else sendable(explained, "stop_details")


read_reply = reader("an Anthropic messages API", _answer)
