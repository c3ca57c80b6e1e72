"""A complete HTTP reply to a value or an error: what the dialects have in common.

- A reply is a 2xx whose body is a JSON object without an error in it. What its answer is, the dialect says.
- A body that begins as JSON and ends inside it was cut if nothing framed it: no content-length and no
  transfer-encoding, so the end of the connection was the end of the body. That is a DisconnectedError and transient,
  like any other cut body. Where HTTP says that the body is whole, the backend wrote it so, and asking again would give
  the same: a MalformedReplyError, not transient. An empty body shows no cut and is malformed in either case.
- A reply without an id is found by the id that a header gives to its request.
- A lone surrogate in the answer or the refusal makes the reply malformed, elsewhere the field is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.frozen import text_fault
from promptkit._values.generation import GenerationReply
from promptkit._values.usage import ReportedUsage
from promptkit._wire.documents import TOO_DEEP, ends_inside, read_document, text_member
from promptkit._wire.failures import error_object, failure, reply_id, request_id
from promptkit._wire.redaction import excerpt, plain, redacted
from promptkit._wire.retry_after import Headers, demand
from promptkit._wire.usage import reported_usage
from promptkit.errors import DisconnectedError, GenerationError, MalformedReplyError

_KEYS_SHOWN = 12
_LABEL = 256  # of a name or a reason; they go into events, and a backend may send a megabyte
_KEY = 40
_KEYS = 120
_FRAMING = frozenset({"content-length", "transfer-encoding"})


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. ``now`` is aware; ``secret`` is the key that was sent, kept out of what is reported.

    ``api`` says what was expected to answer, such as "a chat-completions API".
    """

    status: int
    headers: Headers
    body: bytes
    now: datetime
    secret: str | None
    api: str

    @property
    def successful(self) -> bool:
        """Whether the status is a 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def framed(self) -> bool:
        """Whether HTTP said where the body ends."""
        return any(name.lower() in _FRAMING for name, _ in self.headers)

    def __repr__(self) -> str:
        """Name neither the key nor what the model wrote."""
        return f"Arrival(status={self.status})"


Answer = Callable[[Arrival, Any], Result[GenerationReply, GenerationError]]


class ReadReply(Protocol):
    """How a dialect reads a complete reply."""

    def __call__(
        self, status: int, headers: Headers, body: bytes, *, now: datetime, secret: str | None = None
    ) -> Result[GenerationReply, GenerationError]:
        """Read it. ``now`` is aware; ``secret`` is the key that was sent, kept out of what is reported."""


def reader(api: str, answer: Answer) -> ReadReply:
    """Make the reader of a dialect. ``api`` names what should have answered, ``answer`` reads the document of a 2xx."""

    def read_reply(
        status: int, headers: Headers, body: bytes, *, now: datetime, secret: str | None = None
    ) -> Result[GenerationReply, GenerationError]:
        return _read(Arrival(status=status, headers=headers, body=body, now=now, secret=secret, api=api), answer)

    return read_reply


def _read(arrival: Arrival, answer: Answer) -> Result[GenerationReply, GenerationError]:
    decoded: Result[Any, str] = read_document(arrival.body)
    if not arrival.successful:
        shown = decoded.lash(lambda _: Success(arrival.body.decode(errors="replace"))).unwrap()
        unread = excerpt(arrival.body, arrival.secret) or None
        return Failure(reported(arrival, shown, shown, None if isinstance(decoded, Success) else unread))
    return decoded.lash(lambda problem: Failure(unreadable(arrival, None, problem))).bind(
        lambda document: answer(arrival, document),
    )


def sendable(text: str, name: str) -> Result[str, str]:
    """Refuse a text that has no UTF-8 form, and that no message could carry."""
    fault = text_fault(text)
    return Success(text) if fault is None else Failure(f'"{name}" of the message {fault}')


def reply(
    arrival: Arrival, document: object, *, content: str, finish_reason: object, refusal: str | None
) -> GenerationReply:
    """Make the reply of a document. ``finish_reason`` is what the backend wrote there."""
    return GenerationReply(
        content=content,
        finish_reason=_reason(arrival, finish_reason),
        refusal=refusal,
        model=_label(arrival, document, "model"),
        response_id=_label(arrival, document, "id") or request_id(arrival.headers, arrival.secret),
        status=arrival.status,
        usage=reported_usage(document),
    )


def _reason(arrival: Arrival, value: object) -> str | None:
    """Read why the answer ended, as it is: a number or a boolean becomes its JSON text."""
    if isinstance(value, str):
        return redacted(value, arrival.secret)[:_LABEL] if text_fault(value) is None else None
    return msgspec.json.encode(value).decode()[:_LABEL] if isinstance(value, bool | int | float) else None


def _label(arrival: Arrival, document: object, name: str) -> str | None:
    """Read a name that goes into events, where a backend that echoes the key must not put it."""
    found = text_member(document, name)
    return None if found is None or text_fault(found) is not None else redacted(found, arrival.secret)[:_LABEL]


def reported(arrival: Arrival, document: object, error: object, piece: str | None) -> GenerationError:
    """Make the error that a status or an error object says. ``document`` is the body around ``error``."""
    holder = document[0] if isinstance(document, list) and document else document
    usage = reported_usage(holder)
    if usage is None and arrival.successful:
        # Generation had begun, whatever status the error names: its counts are unknown, and not none.
        usage = ReportedUsage()
    return failure(
        arrival.status,
        error,
        retry_after=demand(arrival.headers, error_object(error), arrival.now),
        secret=arrival.secret,
        reported=usage,
        response_id=reply_id(holder, arrival.headers, arrival.secret),
        excerpt=piece,
    )


def unreadable(arrival: Arrival, document: object, problem: str) -> GenerationError:
    """Make the error for a 2xx that is no reply. ``document`` is its body, None if that is not JSON."""
    undecoded = document is None and problem != TOO_DEEP
    cut = undecoded and not arrival.framed and ends_inside(arrival.body)
    cls = DisconnectedError if cut else MalformedReplyError
    advice = (
        "the connection ended before the reply did" if cut else f"check that base_url is the address of {arrival.api}"
    )
    return cls(
        f"the reply of status {arrival.status} cannot be read: {problem}{_keys(arrival, document)}; {advice}",
        transient=cut,
        status=arrival.status,
        excerpt=excerpt(arrival.body, arrival.secret),
        response_id=reply_id(document, arrival.headers, arrival.secret),
        reported=reported_usage(document),
    )


def _keys(arrival: Arrival, document: object) -> str:
    """Name the top-level keys, never what stands below them."""
    if not isinstance(document, dict):
        return ""
    shown = ", ".join(plain(key, _KEY, arrival.secret) for key in list(document)[:_KEYS_SHOWN])
    more = f" and {len(document) - _KEYS_SHOWN} more" if len(document) > _KEYS_SHOWN else ""
    return f" (its keys: {plain(shown, _KEYS, arrival.secret) or 'none'}{more})"
