"""From a parsed table to a definition, with every fault of the table and not only the first."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from promptkit._catalog.places import Found, located
from promptkit._catalog.unknown_keys import Table, unknown_key
from promptkit._values.construction import Checked, sentence
from promptkit._values.definitions import MessageTemplate
from promptkit._values.kinds import TOML, in_toml
from promptkit.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._catalog.lines import Path

D = TypeVar("D", bound=Checked)

ABSENT: Any = object()  # where a field is missing or has faults of its own: the definition finds its other faults
FILE_KEYS: dict[type[Any], tuple[str, ...]] = {
    MessageTemplate: ("content_file",)
}  # what only files have; it was read before


class Read(NamedTuple, Generic[D]):
    """What a table says: a definition, unless it cannot be built, and every fault, with paths inside the table."""

    definition: D | None
    found: tuple[Found, ...]


def read_table(
    cls: type[D],
    table: Mapping[str, Any],
    *,
    given: Mapping[str, Any] | None = None,
    path: Path = (),
    around: tuple[Table, ...] = (),
) -> Read[D]:
    """Build a definition from a table. ``given`` has fields that are known from elsewhere, such as the id.

    ``path`` is where the table stands in its file, and ``around`` are the tables that it is in.
    """
    fields = _fields(cls)
    known = fields.keys() - (given or {}).keys()
    here = Table(cls, [*known, *FILE_KEYS.get(cls, ())], _inner_keys(cls), path)
    found: list[Found] = []
    values: dict[str, Any] = dict(given or {})
    for name, value in table.items():
        if name in known:
            values[name], inside = _read_value(fields[name].type, value, (*path, name), (*around, here))
            found.extend(each._replace(path=(name, *each.path)) for each in inside)
        else:
            found.append(unknown_key(name, here, around))
    for name in sorted(known):
        if fields[name].required and name not in table:
            values[name] = ABSENT
            found.append(Found((name,), "is missing."))
    built = _construct(cls, values, table)
    return Read(None if found else built.definition, (*found, *built.found))


@cache
def _fields(cls: type[Checked]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


@cache
def _inner_keys(cls: type[Checked]) -> dict[Path, tuple[str, ...]]:
    """Give the keys of the tables that are in this one, by their path below it; any element stands for all."""
    inner: dict[Path, type[Checked] | None] = {(name,): _table_type(field.type) for name, field in _fields(cls).items()}
    inner |= {(name, 0): _table_type(_element(field.type)) for name, field in _fields(cls).items()}
    return {path: (*_fields(each), *FILE_KEYS.get(each, ())) for path, each in inner.items() if each is not None}


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
    """Give the definition in a form that speaks of TOML, and whose faults come one by one even if it is of requests."""
    namespace = {"_refused_with": InvalidConfigError, "_words": TOML}
    kind: Any = type(cls)  # msgspec.defstruct takes no base that has a metaclass of its own
    return cast("type[D]", kind(cls.__name__, (cls,), namespace, frozen=True, kw_only=True))


def _read_value(annotation: Any, value: Any, path: Path, around: tuple[Table, ...]) -> tuple[Any, tuple[Found, ...]]:
    """Read nested tables and arrays of tables; leave all other values to the definition's own check."""
    table = _table_type(annotation)
    if table is not None:
        if isinstance(value, dict):
            return _or_absent(read_table(table, value, path=path, around=around))
        return ABSENT, (Found((), f"Expected a table, got {in_toml(value)}."),)
    element = _table_type(_element(annotation))
    if element is None:
        return value, ()
    if not isinstance(value, list):
        return ABSENT, (Found((), f"Expected an array of tables, got {in_toml(value)}."),)
    read = [_read_value(element, item, (*path, index), around) for index, item in enumerate(value)]
    found = tuple(each._replace(path=(i, *each.path)) for i, (_, inside) in enumerate(read) for each in inside)
    return ABSENT if found else tuple(item for item, _ in read), found


def _or_absent(read: Read[Any]) -> tuple[Any, tuple[Found, ...]]:
    return ABSENT if read.definition is None else read.definition, read.found


def _element(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is tuple else None


def _table_type(annotation: Any) -> type[Checked] | None:
    choices = () if get_origin(annotation) is tuple else get_args(annotation)
    for candidate in (annotation, *choices):
        if isinstance(candidate, type) and issubclass(candidate, Checked):
            return candidate
    return None
