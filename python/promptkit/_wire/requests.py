"""Request bodies: what the dialects have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._values.generation import GenerationCall


def model_of(call: GenerationCall) -> bytes:
    """Encode the beginning of a body: the model, and the comma after it."""
    return b'{"model":' + msgspec.json.encode(call.profile.model) + b","


def rest_of(call: GenerationCall, fields: Mapping[str, Any]) -> bytes:
    """Encode the end of a body, from behind the messages: these fields, then those of ``extra`` that are none of them.

    A name twice in one object is read differently by every server.
    """
    rest = {**fields, **{name: value for name, value in call.profile.extra.items() if name not in fields}}
    return b"," + msgspec.json.encode(rest)[1:] if rest else b"}"


def stated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings that have a value."""
    return {name: value for name, value in settings.items() if value is not None}
