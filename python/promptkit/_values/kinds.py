"""How a value of the wrong kind is spoken of: in the words of Python, or in those of TOML when it stands in a file.

msgspec finds that the kind is wrong and says so in words of its own ("Expected `float | null`, got `object`"); here is
the one place where they are translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from types import GenericAlias, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec

from promptkit._values.frozen import FrozenDict
from promptkit.errors import with_article

_MISMATCH = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_STEP = re.compile(r"\[(?P<index>\d+)\]|(?P<key>\[\.\.\.\])|\.(?P<field>\w+)")
_NO_JSON = ", not a JSON value"
_LOST: Any = object()


class Words(NamedTuple):
    """A language: its names of kinds by msgspec's, whether it can write None, and how it calls what was given."""

    kinds: Mapping[str, str]
    none: bool
    given: Callable[[Any], str]


def _in_python(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type | GenericAlias):
        return f"the type `{getattr(value, '__qualname__', value)}`"
    return f"`{type(value).__name__}`"


def in_toml(value: Any) -> str:
    """Call a value that was read from a TOML file by the name of its kind."""
    return _TOML_KINDS.get(type(value), with_article(type(value).__name__))


_TOML_KINDS: Mapping[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a text",
    list: "an array",
    dict: "a table",
    date: "a date",
    time: "a time",
    datetime: "a date with a time",
}
PYTHON = Words(
    FrozenDict(
        {
            "int": "an int",
            "float": "a float",
            "str": "a str",
            "bool": "a bool",
            "bytes": "bytes",
            "null": "None",
            "array": "a tuple",
            "object": "a mapping",
        }
    ),
    none=True,
    given=_in_python,
)
TOML = Words(
    FrozenDict(
        {
            "int": "an integer",
            "float": "a number",
            "str": "a text",
            "bool": "a boolean",
            "array": "an array",
            "object": "a table",
        }
    ),
    none=False,
    given=in_toml,
)


def said(text: str, place: str, value: Any, annotation: Any, words: Words) -> tuple[str, str]:
    """Give the place and the sentence of a complaint about the ``value`` of a field, in these words.

    ``place`` is inside the field, written by msgspec (``[0].text``; ``[...]`` is some key of a mapping).
    """
    found = _MISMATCH.fullmatch(text)
    if found is None:
        if not words.none and _NO_JSON in text:  # a date or a time: all else in TOML is JSON
            text = f"{text.partition(_NO_JSON)[0]}, which JSON does not have: write it in quotes"
        return place.replace("[...]", ""), text
    place, value, annotation = _followed(place, value, annotation)
    classes = [part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, msgspec.Struct)]
    wanted: list[str] = []
    for kind in found[1].split(" | "):
        if kind == "object" and words.none and classes:
            wanted.extend(with_article(each.__name__) for each in classes)
        elif kind != "null" or words.none:
            wanted.append(words.kinds.get(kind, f"`{kind}`"))
    given = words.given(value) if value is not _LOST else words.kinds.get(found[2], f"`{found[2]}`")
    if value is not _LOST and type(value) in _parts(_element(annotation)):
        given = f"{given}: put it in brackets" if not words.none else f"one {given}: add a comma, (x,)"
    remedies = (cls._remedy(value) for cls in classes if words.none and hasattr(cls, "_remedy"))
    remedy = next((f": {each}" for each in remedies if each is not None), "")
    return place, f"Expected {_either(wanted)}, got {given}{remedy}"


def _followed(place: str, value: Any, annotation: Any) -> tuple[str, Any, Any]:
    """Go to a place inside a value and its annotation. What cannot be found is lost, or has no annotation."""
    shown = ""
    for step in _STEP.finditer(place):
        key: Any = None
        if step["index"] is not None:
            key, annotation = int(step["index"]), _element(annotation)
        elif step["field"] is not None:
            key, annotation = step["field"], None
        elif Mapping[str, str] in _parts(annotation) and isinstance(value, Mapping):  # msgspec does not say which
            key, annotation = next((key for key, item in value.items() if not isinstance(item, str)), None), str
        if not isinstance(value, Mapping | list | tuple) or key is None:
            return shown, _LOST, None
        try:
            value = value[key]
        except LookupError:
            return shown, _LOST, None
        shown += f"[{key}]" if isinstance(key, int) else f".{key}"
    return shown, value, annotation


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)


def _element(annotation: Any) -> Any:
    """Give the annotation of an element, where a part of the annotation is a tuple."""
    return next((get_args(part)[0] for part in _parts(annotation) if get_origin(part) is tuple), None)


def _either(kinds: list[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
