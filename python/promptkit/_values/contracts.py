"""Output contracts: what a completed answer must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_origin

import msgspec
from returns.result import Failure

from promptkit._values.construction import Checked
from promptkit._values.frozen import FrozenDict, frozen_mapping
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
    def remedy(cls, value: Any) -> str | None:
        """Say how a Python type becomes a contract."""
        if isinstance(value, type):
            return f"give OutputContract.of({value.__name__})"
        return "give OutputContract.of(...) of it" if get_origin(value) is not None else None

    @classmethod
    def of(cls, python_type: Any, *, max_repairs: int = 0) -> Self:
        """Make a contract from a Python type.

        A msgspec struct, a dataclass, a TypedDict, a named tuple, a pydantic model, or a builtin or generic type of
        these such as ``list[Finding]`` (a pydantic model stands alone, or in a RootModel). The schema is the same in
        every process. ``RunResult.decode`` of the same type gives the answer as a value of it.
        Raises InvalidConfigError when the type has no JSON Schema: an annotation that does not exist, a kind of value
        that JSON does not have, a model that its library cannot describe.
        """
        return cls(
            kind="json_schema", schema=_schema_of(python_type), name=_name_of(python_type), max_repairs=max_repairs
        )


def _name_of(python_type: Any) -> str | None:
    name = getattr(python_type, "__name__", "")
    return name if 0 < len(name) <= 64 and NAME_CHARACTERS.issuperset(name) else None


def _schema_of(python_type: Any) -> FrozenDict[str, JSON]:
    from promptkit._values.schemas import compile_schema, told  # which knows results, and they contracts

    pydantic_schema = getattr(python_type, "model_json_schema", None) if isinstance(python_type, type) else None
    try:
        schema = pydantic_schema() if callable(pydantic_schema) else msgspec.json.schema(python_type)
        frozen = frozen_mapping(schema)
    except Exception as error:  # noqa: BLE001  # annotations are programs, and raise what they like
        raise _no_schema(python_type, error) from None
    compiled = compile_schema(frozen)
    if isinstance(compiled, Failure):
        raise _no_schema(python_type, told(compiled.failure()))
    return frozen


def _no_schema(python_type: Any, reason: object) -> InvalidConfigError:
    sentence = str(reason).split("\n", 1)[0][:300].rstrip(".:")
    remedy = (
        "give a msgspec struct, a dataclass, a TypedDict, a pydantic model or a builtin type whose annotations exist; "
        "a pydantic model inside another type needs pydantic.RootModel around it"
    )
    return InvalidConfigError(
        Fault(key="OutputContract.of", message=f"{python_type!r} has no JSON Schema: {sentence}: {remedy}.")
    )
