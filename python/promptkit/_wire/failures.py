"""Error statuses and error objects, in the shapes of every backend, to one typed error.

The status decides the class and whether a retry can help. An error inside a 2xx has no status of its own: the one that
its code names counts, as a number or by a well-known name; an error that names none is not transient, because nothing
says that waiting cures it. A quota that is used up is told from a rate limit by the backend's own names, never by its
prose. ``x-should-retry`` is not asked: one vendor sends it, and the status says the same.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from promptkit._wire.documents import integer, is_page, member, read_document, text_member
from promptkit._wire.redaction import plain
from promptkit.errors import (
    AuthenticationError,
    BackendStatusError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit._values.usage import ReportedUsage
    from promptkit._wire.retry_after import Headers

MESSAGE = 300
CODE = 64
ID = 200

_TRANSIENT_BELOW_500 = frozenset({408, 409, 425, 429})
_PERMANENT_FROM_500 = frozenset({501, 505})
_QUOTA = frozenset(
    {"insufficient_quota", "enforced_spend_limit_reached", "billing_hard_limit_reached", "billing_error"},
)
_CLASSES: dict[int, type[BackendStatusError]] = {
    401: AuthenticationError,
    402: QuotaError,
    403: AuthenticationError,
    429: RateLimitError,
    503: OverloadedError,
    529: OverloadedError,
}
# What an error inside a 200 is called by OpenAI, Anthropic, llama.cpp and Google, and the status that each goes with.
_NAMED_STATUSES = {
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "authentication_error": 401,
    "unauthenticated": 401,
    "billing_error": 402,
    "insufficient_quota": 429,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "api_error": 500,
    "server_error": 500,
    "internal": 500,
    "not_supported_error": 501,
    "unavailable_error": 503,
    "unavailable": 503,
    "timeout_error": 504,
    "deadline_exceeded": 504,
    "overloaded_error": 529,
}
_CHECK_KEY = "check the key: RunRequest.credential, or the environment variable that credential_env names"
_REMEDIES: dict[type[BackendStatusError], str] = {
    AuthenticationError: f"{_CHECK_KEY}, and what it may use",
    QuotaError: "waiting does not cure this: add credit or raise the account's limit",
    RateLimitError: "lower the backend's max_concurrency or raise its retry.max_retries",
}
_SHORTEN = "make the conversation shorter or use a model with a larger context"
_REMEDIES_BY_STATUS = {
    404: "check the backend's base_url and the profile's model",
    405: "check the backend's base_url",
    413: _SHORTEN,
}
_CLUES = (
    (("output_config.effort", "reasoning_effort"), "remove the profile's reasoning_effort, or choose another one"),
    (
        ("response_format", "json_schema", "json_object", "structured output", "output_config", "output_format"),
        'set the profile\'s native_output to "json_object" or "none"',
    ),
    (
        ("unsupported parameter: 'max_tokens'", "use 'max_completion_tokens'"),
        'set the backend\'s token_limit_parameter to "max_completion_tokens"',
    ),
    (("max_tokens: field required",), "set the profile's max_output_tokens"),
    (("api_key_invalid", "api key not valid", "invalid api key"), _CHECK_KEY),
    (
        (
            *("context_length", "context length", "context_size", "context size", "context window", "context limit"),
            "prompt is too long",
        ),
        _SHORTEN,
    ),
    (
        ("blocks with cache_control",),
        "give fewer messages a cache_control; those of the history keep theirs",
    ),
    (
        ("must be non-empty", "non-empty content", "empty text blocks"),
        "this backend takes no empty message: give every message, and every answer that is continued from, a text",
    ),
    (
        ("system message must be at the beginning", 'unexpected role "system"'),
        'set the backend\'s late_system to "as_user", or put system messages first',
    ),
)
_OTHERWISE = "check the profile's settings and the prompt's messages against what the backend accepts"
_READ = 2000  # how much of a long text is searched for clues
_LAST_STATUS = 599
_THREE_DIGITS = re.compile(r"[0-9]{3}")
_MESSAGE_KEYS = ("message", "msg", "detail", "error_description", "error", "errors", "title")
_NESTING = 5  # how far a message is looked for inside lists and objects
_LISTED = 3  # how many entries of a list of complaints are told


def failure(
    status: int,
    error: object,
    *,
    retry_after: float | None = None,
    secret: str | None = None,
    reported: ReportedUsage | None = None,
    response_id: str | None = None,
    excerpt: str | None = None,
) -> BackendStatusError:
    """Make the error for a reply.

    ``error`` is the decoded body of an error status (its text where it is no JSON), or what a 200 gives as its error:
    only that, since the rest of a 200 may hold text of the model, which no message of an error repeats.
    """
    layers = _layers(error)
    inside = HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
    effective = (_own_status(layers) or status) if inside else status
    spent = not _QUOTA.isdisjoint(_names(layers))
    cls = QuotaError if spent else _class(effective)
    said = _said(error)
    code = plain(_code(layers) or "", CODE, secret) or None
    head = _head(effective, code, inside=inside)
    text = "" if said is None else _quoted(said, secret)
    return cls(
        _sentence(head, text, _remedy(cls, effective, layers, said or "")),
        transient=not issubclass(cls, QuotaError) and _is_transient(effective),
        status=effective,
        provider_code=code,
        retry_after=retry_after,
        excerpt=excerpt,
        response_id=response_id,
        reported=reported,
    )


def error_object(document: object) -> object:
    """Give the innermost thing that a body calls its error; the body itself when it calls nothing so."""
    current = document
    for _ in range(_NESTING):
        if isinstance(current, list) and current:
            current = current[0]
        elif member(current, "error") is not None:
            current = member(current, "error")
    return current


def reply_id(document: object, headers: Headers, secret: str | None) -> str | None:
    """Give what the backend's support can find a failed reply by: the body's id, else its request id, else a header."""
    holder = document[0] if isinstance(document, list) and document else document
    named = text_member(holder, "id") or text_member(holder, "request_id")
    return (plain(named, ID, secret) or None if named else None) or request_id(headers, secret)


def request_id(headers: Headers, secret: str | None) -> str | None:
    """Give the id that a header names the request by."""
    listed = [value for wanted in ("x-request-id", "request-id") for key, value in headers if key.lower() == wanted]
    return next(filter(None, (plain(value, ID, secret) for value in listed)), None)


def _layers(error: object) -> list[dict[str, Any]]:
    """Give the objects around the error, the innermost first."""
    layers: list[dict[str, Any]] = []
    current: object = error
    for _ in range(_NESTING):
        if isinstance(current, list) and current:
            current = current[0]
        elif isinstance(current, dict):
            layers.insert(0, current)
            current = current.get("error")
    return layers


def _names(layers: list[dict[str, Any]]) -> Iterator[str]:
    """Give every name that the backend calls the failure by, in lower case."""
    for layer in layers:
        names = (layer.get("code"), _detail_code(layer), layer.get("type"), layer.get("status"))
        yield from (name.lower() for name in names if isinstance(name, str))


def _detail_code(layer: dict[str, Any]) -> str | None:
    return text_member(layer.get("details"), "error_code")


def _code(layers: list[dict[str, Any]]) -> str | None:
    """Give the backend's own code as text: its ``code``, else the nearest thing that it has to one."""
    for layer in layers:
        code = layer.get("code")
        number = integer(code)
        if number is not None and abs(number) < 10**CODE:
            return str(number)
        found = code if isinstance(code, str) and code else _detail_code(layer)
        found = found or text_member(layer, "type") or text_member(layer, "status")
        if found:
            return found
    return None


def _own_status(layers: list[dict[str, Any]]) -> int | None:
    for layer in layers:
        for key in ("code", "status", "status_code"):
            number = _error_status(layer.get(key))
            if number is not None:
                return number
    return next((_NAMED_STATUSES[name] for name in _names(layers) if name in _NAMED_STATUSES), None)


def _error_status(value: object) -> int | None:
    """Read a status from 400 to 599, as a number or as its three digits in a text."""
    if isinstance(value, str) and _THREE_DIGITS.fullmatch(value):
        value = int(value)
    number = integer(value)
    return number if number is not None and HTTPStatus.BAD_REQUEST <= number <= _LAST_STATUS else None


def _class(status: int) -> type[BackendStatusError]:
    known = _CLASSES.get(status)
    if known is not None:
        return known
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return RejectedRequestError
    return BackendStatusError


def _is_transient(status: int) -> bool:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return status not in _PERMANENT_FROM_500
    return status in _TRANSIENT_BELOW_500


def _said(value: object, depth: int = 0) -> str | None:
    """Find the sentence in an error: OpenAI, Google, FastAPI, Mistral, gateways and plain texts all differ."""
    if isinstance(value, str):
        return value if value.strip() else None
    if depth == _NESTING:
        return None
    if isinstance(value, list):
        sentences = (_said(entry, depth + 1) for entry in value[:_LISTED])
        return "; ".join(sentence for sentence in sentences if sentence) or None
    if isinstance(value, dict):
        return _said_in(value, depth)
    return None


def _said_in(value: dict[str, Any], depth: int) -> str | None:
    inner = value.get("error")
    if isinstance(inner, dict | list) and inner:
        return _said(inner, depth + 1)
    sentence = next(filter(None, (_said(value.get(key), depth + 1) for key in _MESSAGE_KEYS)), None)
    place = value.get("loc")
    if sentence and isinstance(place, list):
        steps = ".".join(step for step in place[:_NESTING] if isinstance(step, str))
        return f"{steps}: {sentence}" if steps else sentence
    upstream = _said(_raw(value), depth + 1)
    return f"{sentence} ({upstream})" if sentence and upstream else sentence or upstream


def _raw(error: dict[str, Any]) -> object:
    """Give what a provider said behind OpenRouter's "Provider returned error": a text, often the JSON of an error."""
    raw = member(error.get("metadata"), "raw")
    if not isinstance(raw, str) or not raw.lstrip().startswith(("{", "[")):
        return raw
    return read_document(raw.encode(errors="replace")).map(lambda found: found if _said(found) else raw).value_or(raw)


def _quoted(said: str, secret: str | None) -> str:
    if is_page(said):
        return "an HTML page, not an API error"
    return plain(said, MESSAGE, secret)


def _head(status: int, code: str | None, *, inside: bool) -> str:
    if inside and status < HTTPStatus.BAD_REQUEST:
        head = "the backend reported an error inside a reply of status 200"
    elif inside:
        head = f"the backend reported error {_phrase(status)} inside a reply of status 200"
    else:
        head = f"the backend answered {_phrase(status)}"
    return head if code is None or code == str(status) else f"{head} ({code})"


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _sentence(head: str, text: str, remedy: str) -> str:
    """Join the three within the bound; what the backend said gives way."""
    tail = f"; {remedy}" if remedy else ""
    room = MESSAGE - len(head) - len(tail) - 2
    shown = text if len(text) <= room else text[: room - 1].rstrip() + "…"
    return f"{head}: {shown}{tail}" if shown else head + tail


def _remedy(cls: type[BackendStatusError], status: int, layers: list[dict[str, Any]], said: str) -> str:
    """Say what to do about it."""
    if cls in _REMEDIES:
        return _REMEDIES[cls]
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return "redirects are not followed: put the final address into the backend's base_url"
    if _is_transient(status):
        return "try again later"
    if cls is RejectedRequestError:
        return _remedy_of_rejection(status, layers, said)
    return "check the backend's base_url: this server cannot do this" if status in _PERMANENT_FROM_500 else ""


def _remedy_of_rejection(status: int, layers: list[dict[str, Any]], said: str) -> str:
    if status in _REMEDIES_BY_STATUS:
        return _REMEDIES_BY_STATUS[status]
    params = [layer["param"].lower() for layer in layers if isinstance(layer.get("param"), str)]
    words = " ".join([*params, *_names(layers), said[:_READ].lower()])
    return next((remedy for clues, remedy in _CLUES if any(clue in words for clue in clues)), _OTHERWISE)
