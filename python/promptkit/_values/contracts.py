"""Output contracts: what a completed answer must be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_origin
from weakref import WeakKeyDictionary, ref

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.construction import Checked
from promptkit._values.frozen import FrozenDict, frozen_mapping
from promptkit._values.json import JSON
from promptkit.errors import Fault, InvalidConfigError, PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit._values.schemas import CompiledSchema, SchemaFault

OPAQUE = "Generating JSON schema for custom types"  # msgspec's complaint of a class that it knows nothing of
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class OutputContract(Checked, frozen=True, kw_only=True, weakref=True):
    """What the answer must be: free text, any JSON document, or JSON that satisfies a schema.

    ``schema`` is the id of a schema in the catalog, or the schema itself (JSON Schema, draft 2020-12 unless it
    names another). ``name`` is what the backend is told the schema is called; None means the schema's id, or
    "output". ``max_repairs`` bounds how often an invalid answer is repaired: the original messages are sent again, with
    the rejected answer and what is wrong with it.
    """

    _refused_with: ClassVar[type[PromptKitError]] = InvalidConfigError

    kind: Literal["text", "json", "json_schema"] = "text"
    schema: str | Mapping[str, JSON] | None = None
    name: str | None = None
    max_repairs: int = 0

    def _problems(self) -> Iterator[tuple[str, str]]:
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
    def _remedy(cls, value: Any) -> str | None:
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

        An answer that satisfies the schema can still fail to decode, where the schema says less than the type: that
        ``bytes`` are base64, that the text of a ``Decimal`` is a number, that the keys of ``dict[int, str]`` are
        integers, and what a class checks when it is constructed (``__post_init__``, validators of pydantic). Enums,
        Literals and unions are in the schema in full. Dates, times, durations and UUIDs are by their format, which a
        few values have that Python has not: the year 0000, a leap second, a duration of months.
        Raises InvalidConfigError when the type has no JSON Schema: an annotation that does not exist, a kind of value
        that JSON does not have, a model that its library cannot describe.
        """
        schema, compiled = _schema_of(python_type)
        contract = cls(kind="json_schema", schema=NOTHING_ASKED, name=_name_of(python_type), max_repairs=max_repairs)
        msgspec.structs.force_setattr(contract, "schema", schema)  # the constructor would freeze it again
        _kept(contract, compiled)
        return contract


NOTHING_ASKED: FrozenDict[str, JSON] = FrozenDict()

# A model of pydantic is asked each time: its methods are programs, and may say something else.
_known: WeakKeyDictionary[type, tuple[FrozenDict[str, JSON], CompiledSchema]] = WeakKeyDictionary()

# By identity: by value, a schema with 1 would find what was made of one with true. Not in the contract, where who is
# given it could change it.
compiled_schemas: dict[int, tuple[ref[OutputContract], CompiledSchema]] = {}


def compiled_contract(contract: OutputContract) -> Result[CompiledSchema, tuple[SchemaFault, ...]]:
    """Compile the schema that a contract holds, once for each contract: it is kept as long as the contract lives."""
    from promptkit._values.schemas import compile_schema  # which knows results, and they contracts

    kept = compiled_schemas.get(id(contract))
    if kept is not None and kept[0]() is contract:
        return Success(kept[1])
    return compile_schema(contract.schema).map(partial(_kept, contract))


def _kept(contract: OutputContract, compiled: CompiledSchema) -> CompiledSchema:
    key = id(contract)
    compiled_schemas[key] = (
        ref(contract, partial(compiled_schemas.pop, key)),
        compiled,
    )  # pop takes the dead reference as its default
    return compiled


def _name_of(python_type: Any) -> str | None:
    try:
        name = python_type.__name__
    except Exception:  # noqa: BLE001  # a type can be anything, and its attributes programs
        return None
    return name if isinstance(name, str) and 0 < len(name) <= 64 and NAME_CHARACTERS.issuperset(name) else None


def _schema_of(python_type: Any) -> tuple[FrozenDict[str, JSON], CompiledSchema]:
    from promptkit._values.schemas import compile_schema, told  # which knows results, and they contracts

    # list[int] and its like are made anew at each use, and int | str equals str | int, whose schema is another.
    metaclass: Any = type(python_type)
    plain = issubclass(metaclass, type) and (metaclass.__eq__, metaclass.__hash__) == (type.__eq__, type.__hash__)
    known = _known.get(python_type) if plain else None
    if known is not None:
        return known
    try:
        described = getattr(python_type, "model_json_schema", None) if isinstance(python_type, type) else None
        schema = described() if callable(described) else msgspec.json.schema(python_type)
        frozen = frozen_mapping(schema)
    except Exception as error:  # noqa: BLE001  # annotations are programs, and raise what they like
        raise _no_schema(python_type, _reason(error)) from None
    compiled = compile_schema(frozen)
    if isinstance(compiled, Failure):
        raise _no_schema(python_type, told(compiled.failure()))
    found = frozen, compiled.unwrap()
    if plain and not callable(described):
        _known[python_type] = found
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # it is the caller's own
        return type(error).__name__
    if isinstance(error, TypeError) and text.startswith(OPAQUE):
        opaque = text.rpartition("\ntype ")[2].removesuffix(" is not supported")
        return f"{opaque} does not say what it is made of"
    return text or type(error).__name__


def _no_schema(python_type: Any, reason: str) -> InvalidConfigError:
    sentence = reason.split("\n", 1)[0][:300].rstrip(".:")
    remedy = (
        "give a msgspec struct, a dataclass, a TypedDict, a pydantic model or a builtin type whose annotations exist; "
        "a pydantic model inside another type needs pydantic.RootModel around it"
    )
    try:
        given = repr(python_type)
    except Exception:  # noqa: BLE001  # it is the caller's own, or of any depth
        given = f"this {type(python_type).__name__}"
    given = given if len(given) <= 200 else f"{given[:199]}…"
    message = f"{given} has no JSON Schema: {sentence}: {remedy}."
    return InvalidConfigError(Fault(key="OutputContract.of", message=message))
