"""The JSON value type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    JSON = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None
else:
    JSON = Any  # msgspec cannot decode a recursive alias
"""A JSON value: None, bool, int, float, str, a list or a mapping with text keys."""
