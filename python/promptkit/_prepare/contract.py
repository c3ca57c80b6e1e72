"""An output contract made ready, once: its schema resolved to its content, its name chosen, its validator compiled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._prepare.same import Same
from promptkit._values.contracts import NAME_CHARACTERS, OutputContract
from promptkit._values.frozen import FrozenDict
from promptkit._values.schemas import CompiledSchema, compile_schema, told

if TYPE_CHECKING:
    from promptkit._values.json import JSON


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """An output contract that is ready. ``output`` has its schema resolved; ``said`` is the same as plain JSON."""

    output: OutputContract
    said: Mapping[str, Any]
    schema: CompiledSchema | None = None


def contract_of(output: OutputContract, schemas: Mapping[str, JSON]) -> Result[Contract, str]:
    """Make a contract ready. A schema that it names by its id is one of ``schemas``; the failure says what is wrong."""
    content = schemas[output.schema] if isinstance(output.schema, str) else output.schema
    return _ready(Same(output, content))


@lru_cache(maxsize=1024)
def _ready(key: Same) -> Result[Contract, str]:
    output: Any
    content: Any
    output, content = key.objects
    if content is None:
        return Success(Contract(output=output, said=_said(output)))
    schema = _as_mapping(content)
    compiled = compile_schema(schema)
    if isinstance(compiled, Failure):
        return Failure(told(compiled.failure()))
    name = output.name
    if isinstance(output.schema, str):
        name = name or _usable_name(output.schema)
    resolved = msgspec.structs.replace(output, schema=schema, name=name)
    return Success(Contract(output=resolved, said=_said(resolved), schema=compiled.unwrap()))


def _said(output: OutputContract) -> FrozenDict[str, Any]:
    return FrozenDict({name: getattr(output, name) for name in output.__struct_fields__})


def _as_mapping(schema: Any) -> Any:
    """Write the schemas true and false as the objects that mean the same."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _usable_name(identifier: str) -> str:
    return "".join(c if c in NAME_CHARACTERS else "_" for c in identifier)[-64:]
