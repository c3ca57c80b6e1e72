"""What a person reads of a value that was configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from promptkit import JSON


def value_text(value: JSON) -> str:
    """Write a value of a setting: texts as they are, fields by their names, all else as JSON, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {'default' if each is None else value_text(each)}" for name, each in value.items())
    if not value and isinstance(value, dict | list | tuple):
        return "none"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
