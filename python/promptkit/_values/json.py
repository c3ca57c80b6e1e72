"""The JSON value type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    JSON = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
else:
    JSON = Any  # msgspec cannot decode a recursive alias
"""A JSON value: None, bool, int, float, str, a list or a mapping with text keys."""


def pointer(steps: Iterable[object]) -> str:
    """Write a path into a JSON value as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
