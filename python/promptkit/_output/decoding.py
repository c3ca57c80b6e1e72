"""From the text of an answer to the JSON value that it says, and never a guess."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal, NamedTuple

from returns.result import Failure, Result, Success

from promptkit._values.frozen import text_fault

MAX_DEPTH = 256  # of nested arrays and objects
JSON_BLANKS = " \t\n\r"
FENCE_CHARACTERS = "`~"
LANGUAGE = re.compile(r"[A-Za-z0-9_+.-]*")
# A string that has no end runs to the end of the text: every character is looked at once, whatever the text is.
DEPTH_STEPS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


class Decoded(NamedTuple):
    """A JSON value, and whether it was the whole content or the inside of its one fence."""

    value: Any
    extraction: Literal["whole", "fenced"]


class NotExactError(ValueError):
    """What a decoder would take and change: duplicate keys, NaN, numbers beyond any float."""


def decode(content: str) -> Result[Decoded, str]:
    """Decode one JSON document (RFC 8259). The failure says what is wrong, without repeating content."""
    inside = _inside_fence(content)
    if inside is None:
        return _decode_document(content).map(lambda value: Decoded(value, "whole"))
    return _decode_document(inside).map(lambda value: Decoded(value, "fenced"))


def _inside_fence(content: str) -> str | None:
    """Give what is inside the one fence that is the whole content, or None."""
    opening, newline, rest = content.strip(JSON_BLANKS).partition("\n")
    mark = opening[:1]
    if not newline or mark not in FENCE_CHARACTERS:
        return None
    fence = mark * (len(opening) - len(opening.lstrip(mark)))
    if len(fence) < 3 or not rest.endswith(fence) or not LANGUAGE.fullmatch(opening[len(fence) :].strip()):
        return None
    return rest[: -len(fence)]


def _decode_document(text: str) -> Result[Any, str]:
    if not text.strip(JSON_BLANKS):
        return Failure("the answer is empty: it must be one JSON document")
    if _depth(text) > MAX_DEPTH:
        return Failure(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, strict=True)
    except json.JSONDecodeError as error:
        return Failure(f"the answer must be one JSON document and nothing else: {error.msg} at character {error.pos}")
    except NotExactError as error:
        return Failure(str(error))
    except ValueError:  # an integer of more digits than Python converts
        return Failure("the JSON has an integer of too many digits")
    if "\\u" in text and not _is_unicode(value):
        return Failure("the JSON has a lone surrogate escape, which is not a character")
    return Success(value)


def _depth(text: str) -> int:
    depth = deepest = 0
    for step in DEPTH_STEPS.finditer(text):
        character = text[step.start()]
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        msg = "an object of the JSON has the same key twice"
        raise NotExactError(msg)
    return table


def _constant(name: str) -> Any:
    msg = f"{name} is not JSON"
    raise NotExactError(msg)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        msg = "a number of the JSON is beyond the range of a float"
        raise NotExactError(msg)
    return number


def _is_unicode(value: Any) -> bool:
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str) and text_fault(item) is not None:
            return False
        if isinstance(item, dict):
            left.extend(item)
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
    return True
