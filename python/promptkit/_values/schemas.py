"""A JSON Schema as a value: compiled once, and never fetching anything."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.results import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_VIOLATIONS = 20  # of one output; more help neither a reader nor a model that repairs


class CompiledSchema:
    """A validator for one schema."""

    __slots__ = ("_validator",)

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Say how a value breaks the schema, in the schema's order; empty when it satisfies it."""
        if self._validator.is_valid(value):
            return ()
        found: list[Violation] = []
        for error in self._validator.iter_errors(value):
            found.append(Violation(pointer=_pointer(error.instance_path), message=error.message))
            if len(found) == MOST_VIOLATIONS:
                break
        return tuple(found)


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def compile_schema(schema: Mapping[str, Any]) -> Result[CompiledSchema, str]:
    """Compile a schema of draft 2020-12, or of the draft that it names. The failure says why it is not one."""
    return _compiled(msgspec.json.encode(schema))


@lru_cache(maxsize=1024)
def _compiled(text: bytes) -> Result[CompiledSchema, str]:
    from jsonschema_rs import ReferencingError, validator_for

    schema = msgspec.json.decode(text)
    try:
        validator = validator_for(schema, offline=True, mask="the value", validate_formats=False)
    except (ValueError, TypeError, ReferencingError) as error:
        return Failure(str(getattr(error, "message", error)).split("\n", 1)[0][:300])
    return Success(CompiledSchema(validator))
