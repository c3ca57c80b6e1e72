"""From a parsed table to a definition, with every fault of the table and not only the first."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from promptkit._catalog.places import Found, located
from promptkit._values.construction import Checked, sentence
from promptkit._values.kinds import TOML, in_toml
from promptkit.errors import InvalidConfigError, listed, near

if TYPE_CHECKING:
    from collections.abc import Mapping

D = TypeVar("D", bound=Checked)

ABSENT: Any = object()  # where a field is missing or has faults of its own: the definition finds its other faults


class Read(NamedTuple, Generic[D]):
    """What a table says: a definition, unless it cannot be built, and every fault, with paths inside the table."""

    definition: D | None
    found: tuple[Found, ...]


def read_table(cls: type[D], table: Mapping[str, Any], *, given: Mapping[str, Any] | None = None) -> Read[D]:
    """Build a definition from a table. ``given`` has fields that are known from elsewhere, such as the id."""
    fields = _fields(cls)
    known = fields.keys() - (given or {}).keys()
    found: list[Found] = []
    values: dict[str, Any] = dict(given or {})
    for name, value in table.items():
        if name in known:
            values[name], inside = _read_value(fields[name].type, value)
            found.extend(each._replace(path=(name, *each.path)) for each in inside)
        else:
            suggestion = near(name, sorted(known))
            keys = "" if suggestion else f"; its keys are: {listed(known, most=20)}"
            found.append(Found((name,), f"is not a key of this table{keys}.", suggestion))
    for name in sorted(known):
        if fields[name].required and name not in table:
            values[name] = ABSENT
            found.append(Found((name,), "is missing."))
    built = _construct(cls, values, table)
    return Read(None if found else built.definition, (*found, *built.found))


@cache
def _fields(cls: type[Checked]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


def _construct(cls: type[D], values: dict[str, Any], table: Mapping[str, Any]) -> Read[D]:
    reported = {f"{cls.__name__}.{name}" for name, value in values.items() if value is ABSENT}
    try:
        _configured(cls)(**values)
    except InvalidConfigError as error:
        found = tuple(
            Found(_path(cls, table, fault.key or ""), sentence(fault.message), fault.suggestion)
            for fault in error.faults
            if fault.key not in reported
        )
        return Read(None, found)
    return Read(cls(**values), ())


def _path(cls: type[Checked], table: Mapping[str, Any], key: str) -> tuple[str | int, ...]:
    place = key.removeprefix(cls.__name__ + ".")
    # An id stands in no table: it is the name of the table or of the file.
    return () if place == "id" else located(table, place)


@cache
def _configured(cls: type[D]) -> type[D]:
    """Give the definition in a form that speaks of TOML and gives every fault by itself, also when it is of requests too."""
    namespace = {"refused_with": InvalidConfigError, "words": TOML}
    made: Any = msgspec.defstruct(cls.__name__, [], bases=(cls,), namespace=namespace, frozen=True, kw_only=True)
    return cast("type[D]", made)


def _read_value(annotation: Any, value: Any) -> tuple[Any, tuple[Found, ...]]:
    """Read nested tables and arrays of tables; leave all other values to the definition's own check."""
    table = _table_type(annotation)
    if table is not None:
        if isinstance(value, dict):
            return _or_absent(read_table(table, value))
        return ABSENT, (Found((), f"Expected a table, got {in_toml(value)}."),)
    element = _table_type(get_args(annotation)[0]) if get_origin(annotation) is tuple else None
    if element is None:
        return value, ()
    if not isinstance(value, list):
        return ABSENT, (Found((), f"Expected an array of tables, got {in_toml(value)}."),)
    read = [_read_value(element, item) for item in value]
    found = tuple(each._replace(path=(i, *each.path)) for i, (_, inside) in enumerate(read) for each in inside)
    return ABSENT if found else tuple(item for item, _ in read), found


def _or_absent(read: Read[Any]) -> tuple[Any, tuple[Found, ...]]:
    return ABSENT if read.definition is None else read.definition, read.found


def _table_type(annotation: Any) -> type[Checked] | None:
    choices = () if get_origin(annotation) is tuple else get_args(annotation)
    for candidate in (annotation, *choices):
        if isinstance(candidate, type) and issubclass(candidate, Checked):
            return candidate
    return None
