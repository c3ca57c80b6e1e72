"""The definitions of a catalog by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from promptkit._values.definitions import Backend, Profile, PromptDefinition
from promptkit._values.frozen import FrozenDict
from promptkit._values.json import JSON

if TYPE_CHECKING:
    from pathlib import PurePath  # noqa: TC004  # msgspec reads annotations where something is encoded: never these

NO_FRAGMENTS: FrozenDict[str, Mapping[str, str]] = FrozenDict()
NO_SOURCES: FrozenDict[str, str] = FrozenDict()


class Definitions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A consistent set of definitions, and the folders of file inputs of the catalogs that it comes from.

    ``fragments`` are the texts that a prompt includes, by name, for each prompt that includes any. ``sources`` are the
    files of the prompts that came from files, relative to their catalog's folder. Equal is only itself.
    """

    prompts: Mapping[str, PromptDefinition]
    profiles: Mapping[str, Profile]
    backends: Mapping[str, Backend]
    schemas: Mapping[str, JSON]
    inputs_folders: tuple[PurePath, ...] = ()
    fragments: Mapping[str, Mapping[str, str]] = NO_FRAGMENTS
    sources: Mapping[str, str] = NO_SOURCES
