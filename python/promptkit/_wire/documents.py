"""JSON as backends send it, which is not always JSON: one tolerant decoder for replies and for error bodies.

msgspec decodes first. What it refuses goes through the decoder of the standard library, which takes what some servers
write into fields that nobody needs: NaN and infinities, numbers out of range, lone surrogate escapes. Those numbers
become null, so that no NaN travels further; surrogates stay, and who needs such a text refuses it.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

if TYPE_CHECKING:
    from collections.abc import Mapping

BLANKS = b" \t\r\n"
TOO_DEEP = "the body is JSON that is nested too deep"
BOM = b"\xef\xbb\xbf"

_PAGE = re.compile(r"\s*(?:<\?xml|<!--|<!doctype\s+html|<html|<head|<body)", re.ASCII | re.IGNORECASE)
_PAGE_INSIDE = re.compile(r"<(?:!doctype\s+html|html|title)\b", re.ASCII | re.IGNORECASE)
_STREAM = (b"data:", b"event:", b": ")
_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*+(?P<close>"?)|[][{}]', re.DOTALL)


def read_document(body: bytes) -> Result[Any, str]:
    """Decode a body. The failure is a phrase that says what the body is instead of JSON, without quoting it."""
    text = _bare(body)
    if not text:
        return Failure("the body is empty")
    try:
        return Success(msgspec.json.decode(text))
    except RecursionError:
        return Failure(TOO_DEEP)
    except ValueError:  # all msgspec errors and all unicode errors are ValueErrors
        return _read_leniently(text)


def is_page(text: str) -> bool:
    """Say whether a text is an HTML page, or holds one: those are described and not quoted."""
    return _PAGE.match(text) is not None or _PAGE_INSIDE.search(text[:2000]) is not None


def ends_inside(body: bytes) -> bool:
    """Say whether a body begins as a JSON object or array and ends before that is closed."""
    text = _bare(body)
    if not text.startswith((b"{", b"[")):
        return False
    depth = 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece[:1] == b'"':
            if not found["close"]:
                return True
        else:
            depth += 1 if piece in b"{[" else -1
    return depth > 0


def integer(value: object) -> int | None:
    """Give the integer that a JSON number is, or None: 7 and 7.0 are 7, true is none."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    return None


def member(value: object, key: str) -> Any:
    """Give the member of a JSON object, or None when it is missing or the value is no object."""
    return value.get(key) if isinstance(value, dict) else None


def text_member(value: object, key: str) -> str | None:
    """Give a member that is a non-empty text, else None."""
    found = member(value, key)
    return found if isinstance(found, str) and found else None


def kind_of(value: object) -> str:
    """Name the kind of a JSON value."""
    kinds: Mapping[type, str] = {dict: "an object", list: "an array", str: "a text", bool: "a boolean"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _bare(body: bytes) -> bytes:
    """Drop what may stand before a document: keep-alive lines and a byte-order mark."""
    return body.strip(BLANKS).removeprefix(BOM).lstrip(BLANKS)


def _read_leniently(text: bytes) -> Result[Any, str]:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return Failure("the body is not UTF-8")
    try:
        return Success(json.loads(decoded, parse_int=_whole, parse_float=_finite, parse_constant=_nothing))
    except RecursionError:
        return Failure(TOO_DEEP)
    except ValueError:
        return Failure(_not_json(text, decoded))


def _not_json(text: bytes, decoded: str) -> str:
    if is_page(decoded):
        return "the body is an HTML page, not JSON"
    if text.startswith(_STREAM):
        return "the body is a stream of events, which was not asked for"
    if ends_inside(text):
        return "the body is JSON that ends before it is complete"
    return "the body is not JSON"


def _whole(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:  # Python refuses to convert more than some thousand digits
        return None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _nothing(_: str) -> None:
    return None
