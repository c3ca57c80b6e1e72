"""From a parsed table to a definition, with every fault of the table and not only the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.construction import Checked
from promptkit.errors import Fault, InvalidConfigError, near

if TYPE_CHECKING:
    from collections.abc import Mapping

D = TypeVar("D", bound=Checked)


def read_table(
    cls: type[D], table: Mapping[str, Any], *, key: str, given: Mapping[str, Any] | None = None
) -> Result[D, tuple[Fault, ...]]:
    """Build a definition from a table. ``given`` has fields that are known from elsewhere, such as the id."""
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    known = fields.keys() - (given or {}).keys()
    faults: list[Fault] = []
    values: dict[str, Any] = dict(given or {})
    for name, value in table.items():
        if name not in known:
            faults.append(
                Fault(key=_join(key, name), message="is not a key of this table.", suggestion=near(name, known))
            )
            continue
        read = _read_value(fields[name].type, value, _join(key, name))
        if isinstance(read, Success):
            values[name] = read.unwrap()
        else:
            faults.extend(read.failure())
    missing = [name for name in sorted(known) if fields[name].required and name not in table]
    faults.extend(Fault(key=_join(key, name), message="is missing.") for name in missing)
    complete = all(name in values or not field.required for name, field in fields.items())
    if not complete:
        return Failure(tuple(faults))
    built = _construct(cls, values, key)
    if isinstance(built, Failure):
        faults.extend(built.failure())
    return Failure(tuple(faults)) if faults else built


def _construct(cls: type[D], values: dict[str, Any], key: str) -> Result[D, tuple[Fault, ...]]:
    try:
        return Success(cls(**values))
    except InvalidConfigError as error:
        prefix = cls.__name__ + "."
        return Failure(
            tuple(
                msgspec.structs.replace(fault, key=_join(key, (fault.key or "").removeprefix(prefix)))
                for fault in error.faults
            )
        )


def _read_value(annotation: Any, value: Any, key: str) -> Result[Any, tuple[Fault, ...]]:
    """Read nested tables and arrays of tables; leave all other values to the definition's own check."""
    table = _table_type(annotation)
    if table is not None:
        if isinstance(value, dict):
            return read_table(table, value, key=key)
        return Failure((Fault(key=key, message=f"Expected a table, got {_toml_kind(value)}."),))
    element = _table_type(get_args(annotation)[0]) if get_origin(annotation) is tuple else None
    if element is None:
        return Success(value)
    if not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        return Failure((Fault(key=key, message=f"Expected an array of tables, got {_toml_kind(value)}."),))
    read = [read_table(element, item, key=f"{key}[{index}]") for index, item in enumerate(value)]
    faults = tuple(fault for item in read if isinstance(item, Failure) for fault in item.failure())
    return Failure(faults) if faults else Success(tuple(item.unwrap() for item in read))


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
