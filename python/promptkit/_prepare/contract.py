"""An output contract made ready, once: its schema resolved to its content, its name chosen, its validator compiled."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr
from returns.result import Result, Success

from promptkit._prepare.same import Same
from promptkit._values.contracts import NAME_CHARACTERS, OutputContract, compiled_contract
from promptkit._values.frozen import FrozenDict
from promptkit._values.schemas import CompiledSchema, SchemaFault, told

if TYPE_CHECKING:
    from promptkit._values.json import JSON


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """An output contract that is ready. ``output`` has its schema resolved; ``said`` is the same as plain JSON."""

    output: OutputContract
    said: Mapping[str, Any]
    schema: CompiledSchema | None = None


def contract_of(output: OutputContract, schemas: Mapping[str, JSON]) -> Result[Contract, str]:
    """Make a contract ready. A schema that it names by its id is one of ``schemas``; the failure says what is wrong."""
    if isinstance(output.schema, Mapping):
        return compiled_contract(output).map(partial(_contract, output)).alt(told)
    return _ready(output, Same(None if output.schema is None else schemas[output.schema])).alt(told)


@lru_cache(maxsize=1024)
def _ready(output: OutputContract, content: Same) -> Result[Contract, tuple[SchemaFault, ...]]:
    """Make a contract without a schema of its own ready. Equal ones are the same: a view makes one for each request."""
    (schema,) = content.objects
    if schema is None:
        return Success(_contract(output))
    resolved = copy(output)  # replace() would freeze the schema again
    force_setattr(resolved, "schema", _as_mapping(schema))
    force_setattr(resolved, "name", output.name or _usable_name(str(output.schema)))
    return compiled_contract(resolved).map(partial(_contract, resolved))


def _contract(output: OutputContract, schema: CompiledSchema | None = None) -> Contract:
    return Contract(output=output, said=_said(output), schema=schema)


def _said(output: OutputContract) -> FrozenDict[str, Any]:
    return FrozenDict({name: getattr(output, name) for name in output.__struct_fields__})


def _as_mapping(schema: Any) -> Any:
    """Write the schemas true and false as the objects that mean the same."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _usable_name(identifier: str) -> str:
    return "".join(c if c in NAME_CHARACTERS else "_" for c in identifier)[-64:]
