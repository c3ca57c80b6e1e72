"""The chat-completions dialect: a call to a request body, a reply's bytes to a value or an error.

Decisions where no standard speaks:

- A reply is a 2xx whose body is a JSON object with choices. The choice with index 0 is read, else the first.
- Missing or null content is empty content. Of a list, the text parts are the answer, in order, with nothing between;
  parts of other kinds and parts marked as thought are not. ``reasoning_content`` and its like are never looked at.
- ``finish_reason`` is passed on as it is, up to 256 characters, like ``id`` and ``model``. A number or a boolean
  becomes its JSON text, a list or an object None.
- A lone surrogate in the answer or the refusal makes the reply malformed, elsewhere the field is dropped.
- ``refusal`` of "" (some gateways send it for none) is None.
- A body that begins as JSON and ends inside it was cut if nothing framed it: no content-length and no
  transfer-encoding, so the end of the connection was the end of the body. That is a DisconnectedError and transient,
  like any other cut body. Where HTTP says that the body is whole, the backend wrote it so, and asking again would give
  the same: a MalformedReplyError, not transient. An empty body shows no cut and is malformed in either case.
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.frozen import text_fault
from promptkit._values.generation import GenerationReply
from promptkit._values.usage import ReportedUsage
from promptkit._wire.documents import TOO_DEEP, ends_inside, kind_of, member, read_document, text_member
from promptkit._wire.failures import error_object, failure, reply_id
from promptkit._wire.redaction import excerpt, plain, redacted
from promptkit._wire.retry_after import Headers, demand
from promptkit._wire.usage import read_usage
from promptkit.errors import DisconnectedError, GenerationError, MalformedReplyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._values.contracts import OutputContract
    from promptkit._values.generation import GenerationCall

_KEYS_SHOWN = 12
_LABEL = 256  # of a name or a reason; they go into events, and a backend may send a megabyte
_KEY = 40
_KEYS = 120
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_TEXT_KINDS = ("text", "output_text")  # not a set: a kind that cannot be hashed is another kind too
_ENDED_IN_ERROR = {"message": "the generation ended with an error, which is not described"}


def request_body(call: GenerationCall) -> bytes:
    """Encode a call in one piece."""
    return b"".join(request_pieces(call))


def request_pieces(call: GenerationCall) -> tuple[bytes, bytes, bytes]:
    """Encode a call in three pieces that follow each other.

    The messages are the piece in the middle, the bytes that they are: a long history is neither decoded nor copied.
    """
    fields: dict[str, Any] = {**_settings(call), **_session(call), **_native_output(call)}
    for name, value in call.profile.extra.items():
        fields.setdefault(name, value)  # a name twice in one object is read differently by every server
    messages = call.encoded_messages("chat_completions").messages
    rest = b"," + msgspec.json.encode(fields)[1:] if fields else b"}"
    return b'{"model":' + msgspec.json.encode(call.profile.model) + b',"messages":', messages, rest


def read_reply(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    now: datetime,
    secret: str | None = None,
) -> Result[GenerationReply, GenerationError]:
    """Read a complete reply. ``now`` is aware; ``secret`` is the key that was sent, kept out of what is reported."""
    arrival = _Arrival(status=status, headers=headers, body=body, now=now, secret=secret)
    decoded: Result[Any, str] = read_document(body)
    if not arrival.successful:
        shown = decoded.lash(lambda _: Success(body.decode(errors="replace"))).unwrap()
        unreadable = excerpt(body, secret) or None
        return Failure(_reported(arrival, shown, shown, None if isinstance(decoded, Success) else unreadable))
    return decoded.lash(lambda problem: Failure(_unreadable(arrival, None, problem))).bind(
        lambda document: _answer(arrival, document),
    )


class _Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: Headers
    body: bytes
    now: datetime
    secret: str | None

    @property
    def successful(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def framed(self) -> bool:
        return any(name.lower() in _FRAMING for name, _ in self.headers)

    def __repr__(self) -> str:
        return f"_Arrival(status={self.status})"  # neither the key nor what the model wrote


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
    return {name: value for name, value in settings.items() if value is not None}


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


def _answer(arrival: _Arrival, document: object) -> Result[GenerationReply, GenerationError]:
    error = _error_in(document)
    if error is not None:
        return Failure(_reported(arrival, document, error, None))
    read: Result[GenerationReply, str] = Result.do(
        GenerationReply(
            content=content,
            finish_reason=_finish_reason(choice),
            refusal=refusal,
            model=_label(arrival, document, "model"),
            response_id=_label(arrival, document, "id"),
            usage=read_usage(member(document, "usage")),
        )
        for choice in _choice(document)
        for message in _message(choice)
        for content in _content(message)
        for refusal in _refusal(message)
    )
    return read.lash(lambda problem: Failure(_unreadable(arrival, document, problem)))


def _error_in(document: object) -> object:
    """Find the error inside a 200: of the whole reply, or of the choice that would be the answer."""
    holder = document[0] if isinstance(document, list) and len(document) == 1 else document
    error = member(holder, "error")
    return _choice(holder).map(_choice_error).value_or(None) if error is None else error


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
        return _sendable(content, "content")
    if not isinstance(content, list):
        return Failure(f'"content" of the message is {kind_of(content)}, neither a text nor an array of parts')
    if not all(isinstance(part, dict | str) for part in content):
        return Failure('"content" of the message has a part that is neither an object nor a text')
    texts = [_text_of(part) for part in content]
    if not all(isinstance(text, str) for text in texts):
        return Failure('"content" of the message has a text part without a text')
    return _sendable("".join(texts), "content")


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
    return _sendable(refusal, "refusal").map(_optional)


def _optional(text: str) -> str | None:
    return text


def _refusal_part(content: object) -> Any:
    parts = content if isinstance(content, list) else []
    return next((part["refusal"] for part in parts if member(part, "type") == "refusal" and part.get("refusal")), None)


def _sendable(text: str, name: str) -> Result[str, str]:
    fault = text_fault(text)
    return Success(text) if fault is None else Failure(f'"{name}" of the message {fault}')


def _finish_reason(choice: dict[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    if isinstance(reason, str):
        return reason[:_LABEL] if text_fault(reason) is None else None
    return msgspec.json.encode(reason).decode() if isinstance(reason, bool | int | float) else None


def _label(arrival: _Arrival, document: object, name: str) -> str | None:
    """Read a name that goes into events, where a backend that echoes the key must not put it."""
    label = text_member(document, name)
    return None if label is None or text_fault(label) is not None else redacted(label, arrival.secret)[:_LABEL]


# ------------------------------------------------------------------ failures


def _reported(arrival: _Arrival, document: object, error: object, piece: str | None) -> GenerationError:
    """Make the error that a status or an error object says. ``document`` is the body around ``error``."""
    holder = document[0] if isinstance(document, list) and document else document
    usage = read_usage(member(holder, "usage"))
    if usage is None and arrival.successful:
        usage = (
            ReportedUsage()
        )  # generation had begun whatever status the error names: its counts are unknown, not none
    return failure(
        arrival.status,
        error,
        retry_after=demand(arrival.headers, error_object(error), arrival.now),
        secret=arrival.secret,
        reported=usage,
        response_id=reply_id(holder, arrival.headers, arrival.secret),
        excerpt=piece,
    )


def _unreadable(arrival: _Arrival, document: object, problem: str) -> GenerationError:
    undecoded = document is None and problem != TOO_DEEP
    cut = undecoded and not arrival.framed and ends_inside(arrival.body)
    cls = DisconnectedError if cut else MalformedReplyError
    advice = (
        "the connection ended before the reply did"
        if cut
        else "check that base_url is the address of a chat-completions API"
    )
    return cls(
        f"the reply of status {arrival.status} cannot be read: {problem}{_keys(arrival, document)}; {advice}",
        transient=cut,
        status=arrival.status,
        excerpt=excerpt(arrival.body, arrival.secret),
        response_id=reply_id(document, arrival.headers, arrival.secret),
        reported=read_usage(member(document, "usage")),
    )


def _keys(arrival: _Arrival, document: object) -> str:
    """Name the top-level keys, never what stands below them."""
    if not isinstance(document, dict):
        return ""
    shown = ", ".join(plain(key, _KEY, arrival.secret) for key in list(document)[:_KEYS_SHOWN])
    more = f" and {len(document) - _KEYS_SHOWN} more" if len(document) > _KEYS_SHOWN else ""
    return f" (its keys: {plain(shown, _KEYS, arrival.secret) or 'none'}{more})"
