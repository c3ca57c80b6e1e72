"""Deep-frozen JSON: what mappings and lists of a caller become inside a library value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from promptkit.errors import with_article

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")
V = TypeVar("V")

MAX_INT_BITS = 14_000  # below the 4,300 digits that Python turns into text and back
MAX_DEPTH = 200  # of nested containers; deeper JSON is refused before it can exhaust the stack


class FrozenDict(dict[K, V]):
    """A dict that refuses every change, so that msgspec and json encode it like any other.

    A mapping proxy would do for reading, but no encoder takes one. What goes around a class on purpose, such as
    ``dict.__setitem__(value, ...)`` or ``msgspec.structs.force_setattr``, is not withstood, here or anywhere else.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        msg = "values of promptkit are immutable: make a dict() of it and change that"
        raise TypeError(msg)

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a dict cannot be hashed, an immutable one can
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict[K, V]:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict[K, V]:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict[Any, Any]], tuple[dict[K, V]]]:
        return (FrozenDict, (dict(self),))


class UnfitError(ValueError):
    """A value that is not JSON: ``path`` says where inside it (empty for the value itself).

    ``suggestion`` is what was probably meant.
    """

    def __init__(self, message: str, path: str = "", suggestion: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.suggestion = suggestion


def shown(value: object) -> str:
    """Give a value for a message, cut."""
    try:
        text = repr(value)
    except ValueError:  # of an integer
        return "a number of too many digits"
    return text if len(text) <= 100 else f"{text[:99]}…"


def text_fault(text: str) -> str | None:
    """Say why ``text`` cannot be sent, or None. Only lone surrogates cannot: UTF-8 has no form for them."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"has a lone surrogate at position {error.start}, which UTF-8 cannot carry"
    return None


def _frozen_text(text: str, path: str) -> str:
    fault = text_fault(text)
    if fault is not None:
        raise UnfitError(fault, path)
    return text if type(text) is str else str.__str__(text)  # the text of an enum's member, not its name


def _frozen_float(number: float, path: str) -> float:
    if not math.isfinite(number):
        msg = f"is {number}, which JSON cannot carry"
        raise UnfitError(msg, path)
    return number if type(number) is float else float(number)


def _frozen_int(number: int, path: str) -> int:
    if number.bit_length() > MAX_INT_BITS:
        msg = "is an integer of more digits than Python writes as text"
        raise UnfitError(msg, path)
    return number if type(number) is int else int(number)


def frozen_json(value: object, path: str = "", depth: int = 0) -> Any:
    """Give a deep-frozen copy of a JSON value: dicts become FrozenDict, lists tuples. Raise UnfitError for others."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _frozen_text(value, path)
    if isinstance(value, float):
        return _frozen_float(value, path)
    if isinstance(value, int):
        return _frozen_int(value, path)
    if depth >= MAX_DEPTH:
        msg = f"is nested deeper than {MAX_DEPTH} levels"
        raise UnfitError(msg, path)
    if isinstance(value, Mapping):
        return frozen_mapping(value, path, depth=depth)
    if isinstance(value, list | tuple):
        return tuple(frozen_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
    msg = f"is {with_article(type(value).__name__)}, not a JSON value (None, bool, int, float, str, list, dict)"
    raise UnfitError(msg, path)


def frozen_mapping(
    mapping: Mapping[Any, object],
    path: str = "",
    item: Callable[[object, str, int], Any] = frozen_json,
    *,
    depth: int = 0,
) -> FrozenDict[str, Any]:
    """Give a frozen copy of a mapping with text keys, each value frozen by ``item``."""
    frozen: dict[str, Any] = {}
    for key, value in _pairs(mapping, path):
        if not isinstance(key, str):
            msg = f"has the key {key!r}; keys are text"
            raise UnfitError(msg, path)
        fault = text_fault(key)
        if fault is not None:  # the key is no part of the path then: a message has to be printable
            msg = f"has the key {key!r}, which {fault}"
            raise UnfitError(msg, path)
        where = f"{path}.{key}" if path else key
        frozen[_frozen_text(key, where)] = item(value, where, depth + 1)
    return FrozenDict(frozen)


def _pairs(mapping: Mapping[Any, object], path: str) -> list[tuple[Any, object]]:
    """Read a mapping at once. One that is not a dict runs code of its own, which can raise anything."""
    try:
        return list(mapping.items())
    except Exception as error:  # noqa: BLE001  # of the caller's own class
        msg = f"is {with_article(type(mapping).__name__)} that cannot be read: {type(error).__name__}"
        raise UnfitError(msg, path) from None


def thawed(value: Any) -> Any:
    """Give a fresh, ordinary copy of a frozen JSON value: lists and dicts that the receiver owns."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [thawed(item) for item in value]
    return value
