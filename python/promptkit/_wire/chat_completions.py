"""The chat-completions dialect: a call to a request body, a reply's bytes to a value or an error.

Decisions where no standard speaks:

- A reply is a 2xx whose body is a JSON object with choices. The choice with index 0 is read, else the first. Without a
  choice, as from a model that is still warming up, it is malformed and not asked for again.
- Missing or null content is empty content. Of a list, the text parts are the answer, in order, with nothing between;
  parts of other kinds and parts marked as thought are not. ``reasoning_content`` and its like are never looked at.
- ``finish_reason`` is passed on as it is, up to 256 characters, like ``id`` and ``model``. A number or a boolean
  becomes its JSON text, a list or an object None.
- ``refusal`` of "" (some gateways send it for none) is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from returns.result import Failure, Result, Success

from promptkit._wire.documents import kind_of, member
from promptkit._wire.replies import Arrival, reader, reply, reported, sendable, unreadable
from promptkit._wire.requests import model_of, rest_of, stated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._values.contracts import OutputContract
    from promptkit._values.generation import GenerationCall, GenerationReply
    from promptkit.errors import GenerationError

_TEXT_KINDS = ("text", "output_text")  # not a set: a kind that cannot be hashed is another kind too
_COMPLAINTS = ("message", "detail")  # of vLLM and Mistral, of FastAPI
_ENDED_IN_ERROR = {"message": "the generation ended with an error, which is not described"}


def request_body(call: GenerationCall) -> bytes:
    """Encode a call in one piece."""
    return b"".join(request_pieces(call))


def request_pieces(call: GenerationCall) -> tuple[bytes, bytes, bytes]:
    """Encode a call in three pieces that follow each other.

    The messages are the piece in the middle, the bytes that they are: a long history is neither decoded nor copied.
    """
    messages = call.encoded_messages("chat_completions").messages
    rest = rest_of(call, {**_settings(call), **_session(call), **_native_output(call)})
    return model_of(call) + b'"messages":', messages, rest


# ------------------------------------------------------------------ requests


def _settings(call: GenerationCall) -> dict[str, Any]:
    profile = call.profile
    settings = {
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "stop": profile.stop or None,
        "seed": profile.seed,
        "reasoning_effort": profile.reasoning_effort,
        call.backend.token_limit_parameter: profile.max_output_tokens,
    }
    return stated(settings)


def _session(call: GenerationCall) -> dict[str, Any]:
    name = call.backend.session_parameter
    return {} if name is None or call.session_id is None else {name: call.session_id}


def _native_output(call: GenerationCall) -> dict[str, Any]:
    contract, native = call.output, call.profile.native_output
    if contract.kind == "text" or native == "none":
        return {}
    if native == "json_schema" and contract.kind == "json_schema":
        return {"response_format": _schema_format(contract)}
    return {"response_format": {"type": "json_object"}}


def _schema_format(contract: OutputContract) -> Mapping[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": contract.name or "output", "schema": contract.schema}}


# ------------------------------------------------------------------ replies


def _answer(arrival: Arrival, document: object) -> Result[GenerationReply, GenerationError]:
    error = _error_in(document)
    if error is not None:
        return Failure(reported(arrival, document, error, None))
    read: Result[GenerationReply, str] = Result.do(
        reply(arrival, document, content=content, finish_reason=choice.get("finish_reason"), refusal=refusal)
        for choice in _choice(document)
        for message in _message(choice)
        for content in _content(message)
        for refusal in _refusal(message)
    )
    return read.lash(lambda problem: Failure(unreadable(arrival, document, problem)))


def _error_in(document: object) -> object:
    """Find the error inside a 200: of the whole reply, or of the choice that would be the answer."""
    holder = document[0] if isinstance(document, list) and len(document) == 1 else document
    error = member(holder, "error")
    if error is None and _says_an_error(holder):
        return holder
    return _choice(holder).map(_choice_error).value_or(None) if error is None else error


def _says_an_error(document: object) -> bool:
    """Say whether a body without choices is an error in one of the forms that have no ``error``."""
    if not isinstance(document, dict) or document.get("choices") is not None:
        return False
    return document.get("object") == "error" or any(isinstance(document.get(key), str | list) for key in _COMPLAINTS)


def _choice_error(choice: dict[str, Any]) -> object:
    error = choice.get("error")
    return _ENDED_IN_ERROR if error is None and choice.get("finish_reason") == "error" else error


def _choice(document: object) -> Result[dict[str, Any], str]:
    if not isinstance(document, dict):
        return Failure(f"the body is {kind_of(document)}, not an object")
    if "choices" not in document:
        return Failure('"choices" is missing')
    choices = document["choices"]
    if not isinstance(choices, list):
        return Failure(f'"choices" is {kind_of(choices)}, not an array')
    if not choices:
        return Failure('"choices" is empty: there is no choice to read')
    chosen = next((choice for choice in choices if _is_first(choice)), choices[0])
    if not isinstance(chosen, dict):
        return Failure(f'"choices[0]" is {kind_of(chosen)}, not an object')
    return Success(chosen)


def _is_first(choice: object) -> bool:
    index = member(choice, "index")
    return type(index) is int and index == 0


def _message(choice: dict[str, Any]) -> Result[dict[str, Any], str]:
    message = choice.get("message")
    if isinstance(message, dict):
        return Success(message)
    where = '"message" of the choice'
    return Failure(f"{where} is {kind_of(message)}, not an object" if "message" in choice else f"{where} is missing")


def _content(message: dict[str, Any]) -> Result[str, str]:
    content = message.get("content")
    if content is None:
        return Success("")
    if isinstance(content, str):
        return sendable(content, "content")
    if not isinstance(content, list):
        return Failure(f'"content" of the message is {kind_of(content)}, neither a text nor an array of parts')
    if not all(isinstance(part, dict | str) for part in content):
        return Failure('"content" of the message has a part that is neither an object nor a text')
    texts = [_text_of(part) for part in content]
    if not all(isinstance(text, str) for text in texts):
        return Failure('"content" of the message has a text part without a text')
    return sendable("".join(texts), "content")


def _text_of(part: dict[str, Any] | str) -> Any:
    """Give the text of a text part, and nothing of any other: kinds are an open set, and thoughts are no answer."""
    if isinstance(part, str):
        return part
    if part.get("thought") or (part.get("type") or "text") not in _TEXT_KINDS:
        return ""
    text = part.get("text")
    return "" if text is None else text


def _refusal(message: dict[str, Any]) -> Result[str | None, str]:
    refusal = message.get("refusal") or _refusal_part(message.get("content"))
    if not refusal:
        return Success(None)
    if not isinstance(refusal, str):
        return Failure(f'"refusal" of the message is {kind_of(refusal)}, not a text')
    return sendable(refusal, "refusal")


def _refusal_part(content: object) -> Any:
    parts = content if isinstance(content, list) else []
    return next((part["refusal"] for part in parts if member(part, "type") == "refusal" and part.get("refusal")), None)


read_reply = reader("a chat-completions API", _answer)
