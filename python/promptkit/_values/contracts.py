"""Output contracts: what a completed answer must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec

from promptkit._values.construction import Checked
from promptkit._values.frozen import FrozenDict
from promptkit._values.json import JSON
from promptkit.errors import Fault, InvalidConfigError, PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class OutputContract(Checked, frozen=True, kw_only=True):
    """What the answer must be: free text, any JSON document, or JSON that satisfies a schema.

    ``schema`` is the id of a schema in the catalog, or the schema itself (JSON Schema, draft 2020-12 unless it
    names another). ``name`` is what the backend is told the schema is called; None means the schema's id, or
    "output". ``max_repairs`` bounds how often an invalid answer is sent back with what is wrong with it.
    """

    refused_with: ClassVar[type[PromptKitError]] = InvalidConfigError

    kind: Literal["text", "json", "json_schema"] = "text"
    schema: str | Mapping[str, JSON] | None = None
    name: str | None = None
    max_repairs: int = 0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Check that the fields fit together."""
        if self.kind == "json_schema" and self.schema is None:
            yield "schema", 'is missing: kind "json_schema" needs the id of a schema, or the schema itself'
        if self.kind in {"text", "json"} and self.schema is not None:
            yield "schema", f'is given, but kind is "{self.kind}": use kind "json_schema"'
        if self.max_repairs < 0:
            yield "max_repairs", f"is {self.max_repairs}: 0 or more"
        if self.kind == "text" and self.max_repairs:
            yield "max_repairs", 'is given, but kind "text" is never invalid'
        if self.name is not None and not (0 < len(self.name) <= 64 and NAME_CHARACTERS.issuperset(self.name)):
            yield "name", "is 1 to 64 of the characters a-z, A-Z, 0-9, _ and -"

    @classmethod
    def of(cls, python_type: Any, *, max_repairs: int = 0) -> Self:
        """Make a contract from a Python type: a msgspec struct, a dataclass, a TypedDict or a pydantic model.

        ``RunResult.decode`` of the same type gives the answer as a value of it.
        Raises InvalidConfigError when the type has no JSON Schema.
        """
        return cls(
            kind="json_schema", schema=_schema_of(python_type), name=_name_of(python_type), max_repairs=max_repairs
        )


def _name_of(python_type: Any) -> str | None:
    name = getattr(python_type, "__name__", "")
    return name if 0 < len(name) <= 64 and NAME_CHARACTERS.issuperset(name) else None


def _schema_of(python_type: Any) -> Mapping[str, Any]:
    pydantic_schema = getattr(python_type, "model_json_schema", None)
    try:
        return FrozenDict(pydantic_schema()) if callable(pydantic_schema) else msgspec.json.schema(python_type)
    except (TypeError, RuntimeError) as error:  # pydantic's are RuntimeErrors
        message = f"{python_type!r} has no JSON Schema: {error}"
        raise InvalidConfigError(Fault(key="OutputContract.of", message=message)) from None
