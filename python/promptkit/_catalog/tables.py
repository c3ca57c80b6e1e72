"""From a parsed table to a definition, with every fault of the table and not only the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from promptkit._values.construction import Checked
from promptkit.errors import Fault, InvalidConfigError, near

if TYPE_CHECKING:
    from collections.abc import Mapping

D = TypeVar("D", bound=Checked)

ABSENT: Any = object()  # where a field is missing or has faults of its own: the definition finds its other faults


class Read(NamedTuple, Generic[D]):
    """What a table says: a definition, unless it cannot be built, and every fault."""

    definition: D | None
    faults: tuple[Fault, ...]


def read_table(cls: type[D], table: Mapping[str, Any], *, key: str, given: Mapping[str, Any] | None = None) -> Read[D]:
    """Build a definition from a table. ``given`` has fields that are known from elsewhere, such as the id."""
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    known = fields.keys() - (given or {}).keys()
    faults: list[Fault] = []
    values: dict[str, Any] = dict(given or {})
    for name, value in table.items():
        if name in known:
            values[name], found = _read_value(fields[name].type, value, _join(key, name))
            faults.extend(found)
        else:
            suggestion = near(name, known)
            faults.append(Fault(key=_join(key, name), message="is not a key of this table.", suggestion=suggestion))
    for name in sorted(known):
        if fields[name].required and name not in table:
            values[name] = ABSENT
            faults.append(Fault(key=_join(key, name), message="is missing."))
    built = _construct(cls, values, key)
    return Read(built.definition, (*faults, *built.faults))


def _construct(cls: type[D], values: dict[str, Any], key: str) -> Read[D]:
    reported = {f"{cls.__name__}.{name}" for name, value in values.items() if value is ABSENT}
    try:
        return Read(cls(**values), ())
    except InvalidConfigError as error:
        prefix = cls.__name__ + "."
        faults = tuple(
            msgspec.structs.replace(fault, key=_join(key, (fault.key or "").removeprefix(prefix)))
            for fault in error.faults
            if fault.key not in reported
        )
        return Read(None, faults)


def _read_value(annotation: Any, value: Any, key: str) -> tuple[Any, tuple[Fault, ...]]:
    """Read nested tables and arrays of tables; leave all other values to the definition's own check."""
    table = _table_type(annotation)
    if table is not None:
        if isinstance(value, dict):
            return _or_absent(read_table(table, value, key=key))
        return ABSENT, (Fault(key=key, message=f"Expected a table, got {_toml_kind(value)}."),)
    element = _table_type(get_args(annotation)[0]) if get_origin(annotation) is tuple else None
    if element is None:
        return value, ()
    if not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        return ABSENT, (Fault(key=key, message=f"Expected an array of tables, got {_toml_kind(value)}."),)
    read = [read_table(element, item, key=f"{key}[{index}]") for index, item in enumerate(value)]
    items = tuple(item.definition for item in read)
    return ABSENT if None in items else items, tuple(fault for item in read for fault in item.faults)


def _or_absent(read: Read[Any]) -> tuple[Any, tuple[Fault, ...]]:
    return ABSENT if read.definition is None else read.definition, read.faults


def _table_type(annotation: Any) -> type[Checked] | None:
    choices = () if get_origin(annotation) is tuple else get_args(annotation)
    for candidate in (annotation, *choices):
        if isinstance(candidate, type) and issubclass(candidate, Checked):
            return candidate
    return None


def _toml_kind(value: Any) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
