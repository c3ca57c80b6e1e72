"""The catalog, and how it is read from a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, final

from msgspec.structs import replace
from returns.result import Failure

from promptkit._catalog.places import written
from promptkit._values.catalog import Definitions
from promptkit._values.definitions import Backend, Profile, PromptDefinition
from promptkit._values.frozen import FrozenDict, UnfitError, frozen_json
from promptkit.errors import Fault, InvalidConfigError, with_article

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from promptkit._values.construction import Checked
    from promptkit._values.json import JSON

NO_SCHEMAS: FrozenDict[str, JSON] = FrozenDict()


@final
class Catalog:
    """An immutable set of definitions, complete and consistent once constructed.

    Every fault is reported at once in one InvalidConfigError: an id defined twice, a reference to what is not there, a
    template or schema that does not compile, a variable or input that is used but not declared or declared but not
    used, a setting that the backend's kind lacks. Templates of prompts made here include no other file: there is no
    folder to find it in. ``a | b`` combines two catalogs, each complete in itself; an id on both sides is a fault.
    """

    __slots__ = ("_definitions",)
    _definitions: Definitions

    def __init__(
        self,
        *,
        prompts: Iterable[PromptDefinition] = (),
        profiles: Iterable[Profile] = (),
        backends: Iterable[Backend] = (),
        schemas: Mapping[str, JSON] = NO_SCHEMAS,
    ) -> None:
        """Take definitions made in Python; ``schemas`` are JSON Schemas by id."""
        from promptkit._catalog.in_python import inconsistencies  # with it comes what reads templates and schemas

        faults: list[Fault] = []
        definitions = Definitions(
            prompts=_by_id(PromptDefinition, prompts, "prompts", faults),
            profiles=_by_id(Profile, profiles, "profiles", faults),
            backends=_by_id(Backend, backends, "backends", faults),
            schemas=_frozen_schemas(schemas, faults),
        )
        faults.extend(inconsistencies(definitions, _names_of(schemas)))
        if faults:
            raise InvalidConfigError(*faults)
        object.__setattr__(self, "_definitions", definitions)

    @property
    def prompts(self) -> Mapping[str, PromptDefinition]:
        """The prompts by id."""
        return self._definitions.prompts

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by id."""
        return self._definitions.profiles

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The backends by id."""
        return self._definitions.backends

    @property
    def schemas(self) -> Mapping[str, JSON]:
        """The JSON Schemas by id."""
        return self._definitions.schemas

    def __or__(self, other: Catalog) -> Catalog:
        """Combine two catalogs. Raises InvalidConfigError when an id stands on both sides."""
        if not isinstance(other, Catalog):
            return NotImplemented
        left, right = self._definitions, other._definitions
        faults = [
            Fault(key=written((kind, identifier)), message="is defined in both catalogs.")
            for kind in ("prompts", "profiles", "backends", "schemas")
            for identifier in sorted(getattr(left, kind).keys() & getattr(right, kind).keys())
        ]
        if faults:
            raise InvalidConfigError(*faults)
        return catalog_of(
            Definitions(
                prompts=FrozenDict({**left.prompts, **right.prompts}),
                profiles=FrozenDict({**left.profiles, **right.profiles}),
                backends=FrozenDict({**left.backends, **right.backends}),
                schemas=FrozenDict({**left.schemas, **right.schemas}),
                inputs_folders=tuple(dict.fromkeys((*left.inputs_folders, *right.inputs_folders))),
                fragments=FrozenDict({**left.fragments, **right.fragments}),
                sources=FrozenDict({**left.sources, **right.sources}),
            )
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a catalog does not change."""
        msg = "a Catalog does not change: combine two with |"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: a catalog does not change."""
        msg = "a Catalog does not change"
        raise AttributeError(msg)

    def __copy__(self) -> Catalog:
        """Give the same catalog."""
        return self

    def __deepcopy__(self, memo: object) -> Catalog:
        """Give the same catalog."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the definitions."""
        return (catalog_of, (self._definitions,))

    def __repr__(self) -> str:
        """Count what there is."""
        counts = ", ".join(
            f"{len(getattr(self, kind))} {kind}" for kind in ("prompts", "profiles", "backends", "schemas")
        )
        return f"<promptkit.Catalog: {counts}>"


def catalog_of(definitions: Definitions) -> Catalog:
    """Wrap definitions that are known to be consistent."""
    catalog: Catalog = object.__new__(Catalog)
    object.__setattr__(catalog, "_definitions", definitions)
    return catalog


def definitions_of(catalog: Catalog) -> Definitions:
    """Give the definitions of a catalog."""
    return catalog._definitions  # noqa: SLF001  # the two halves of one value


def with_replaced(catalog: Catalog, backend: Backend) -> Catalog:
    """Give a catalog with another backend of the same id, and the folders and files that it was loaded from.

    Raises InvalidConfigError when a profile does not fit the backend.
    """
    from promptkit._catalog.in_python import profile_inconsistencies

    before = definitions_of(catalog)
    definitions = replace(before, backends=FrozenDict({**before.backends, backend.id: backend}))
    faults = tuple(profile_inconsistencies(definitions))
    if faults:
        raise InvalidConfigError(*faults)
    return catalog_of(definitions)


def _by_id(cls: type[Checked], given: Any, kind: str, faults: list[Fault]) -> FrozenDict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(given, Iterable):
        faults.append(Fault(key=kind, message=f"Expected several of {cls.__name__}, got `{type(given).__name__}`."))
        return FrozenDict(found)
    for index, definition in enumerate(given.values() if isinstance(given, Mapping) else given):
        if not isinstance(definition, cls):
            message = f"Expected {with_article(cls.__name__)}, got `{type(definition).__name__}`."
            faults.append(Fault(key=f"{kind}[{index}]", message=message))
        elif definition.id in found:  # type: ignore[attr-defined]  # all three have one
            faults.append(Fault(key=f"{kind}[{index}]", message=f"the id {definition.id!r} stands twice."))  # type: ignore[attr-defined]
        else:
            found[definition.id] = definition  # type: ignore[attr-defined]
    return FrozenDict(found)


def _names_of(given: Any) -> tuple[str, ...]:
    return tuple(name for name in given if isinstance(name, str)) if isinstance(given, Mapping) else ()


def _frozen_schemas(given: Any, faults: list[Fault]) -> FrozenDict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(given, Mapping):
        faults.append(Fault(key="schemas", message=f"Expected a mapping, got `{type(given).__name__}`."))
        return FrozenDict(found)
    for identifier, schema in given.items():
        if not isinstance(identifier, str) or not identifier:
            faults.append(Fault(key="schemas", message=f"{identifier!r} is not an id: ids are text."))
            continue
        try:
            found[identifier] = frozen_json(schema)
        except UnfitError as error:
            place = f" at {error.path}" if error.path else ""
            faults.append(Fault(key=written(("schemas", identifier)), message=f"a value{place} {error}."))
    return FrozenDict(found)


def load_catalog(root: str | PathLike[str]) -> Catalog:
    """Read ``promptkit.toml``, ``prompts/**/*.toml`` and ``schemas/**/*.json`` below the folder ``root``.

    ``promptkit.toml`` has the tables ``[backends.ID]`` and ``[profiles.ID]``, and may move the folders in ``[paths]``
    (``prompts``, ``schemas``, ``inputs``), also out of ``root``; nothing outside these folders is read. The id of a
    prompt or a schema is its path below its folder without the ending, with "/". A template may include the text of
    another file: ``{% include "fragments/tone.txt" %}``, named relative to the prompts folder. Files and folders whose
    names start with a dot are ignored. A link to a folder is followed once if it stays inside. What is probably meant
    for a prompt or a schema and would not be read is a fault: a YAML, JSON or TOML file of the other format that no
    prompt uses, and a folder of nearly the right name where the right one is missing.

    Raises InvalidConfigError with every fault of every file: those of promptkit.toml, then those of prompts and
    schemas by file, each by line.
    """
    # The reader of folders is loaded with the first folder: many programs have none.
    from promptkit._effects.catalog_folder import read_folder

    definitions = read_folder(_path_of(root))
    if isinstance(definitions, Failure):
        raise InvalidConfigError(*definitions.failure())
    return catalog_of(definitions.unwrap())


def _path_of(root: Any) -> Path:
    try:
        path = os.fspath(root)
    except Exception:  # noqa: BLE001  # a path object of the caller's can raise anything
        path = None
    if isinstance(path, str):
        from pathlib import Path

        return Path(path)
    message = f"Expected the path of a catalog's folder, got `{type(root).__name__}`."
    raise InvalidConfigError(Fault(key="load_catalog.root", message=message))
