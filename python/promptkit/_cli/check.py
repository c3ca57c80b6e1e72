"""``promptkit check``: every fault of a catalog."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from promptkit import load_catalog
from promptkit._cli.catalog_folder import catalog_folder
from promptkit._cli.exits import DONE, FAILED
from promptkit._cli.failure import counted
from promptkit._cli.streams import GREEN, RED
from promptkit.errors import InvalidConfigError

if TYPE_CHECKING:
    from promptkit import Catalog, Fault
    from promptkit._cli.streams import Streams

KINDS = ("prompts", "profiles", "backends", "schemas")


def check(given: Path | None, *, json: bool, streams: Streams) -> int:
    """Load the catalog, and list what is wrong with it: the faults are the result."""
    folder = catalog_folder(given)
    try:
        catalog = load_catalog(folder)
    except InvalidConfigError as error:
        if json:
            streams.json({"catalog": str(folder), "faults": error.faults})
            return FAILED
        for fault in error.faults:
            streams.result(fault_line(fault, folder_from_here(folder)))
        streams.say(f"{counted(len(error.faults), 'fault')} in {folder_from_here(folder) or 'this folder'}", RED)
        return FAILED
    if json:
        streams.json({"catalog": str(folder), "faults": [], **counts_of(catalog)})
    else:
        there = ", ".join(counted(number, kind.removesuffix("s")) for kind, number in counts_of(catalog).items())
        way = folder_from_here(folder)
        streams.result(f"{f'{way}: ' if way else ''}{there}, no faults", GREEN)
    return DONE


def counts_of(catalog: Catalog) -> dict[str, int]:
    """Count what there is."""
    return {kind: len(getattr(catalog, kind)) for kind in KINDS}


def fault_line(fault: Fault, folder: str) -> str:
    """Write a fault with its file's path from here, so that editors and terminals find it."""
    if fault.file is None or not folder or os.path.isabs(fault.file):  # noqa: PTH117  # a name for people
        return str(fault)
    return f"{folder}/{fault}"


def folder_from_here(folder: Path) -> str:
    """Give the way from the current folder, with "/"; empty for that folder itself."""
    try:
        way = Path(os.path.relpath(folder)).as_posix()
    except (OSError, ValueError):  # another drive, or no current folder
        way = folder.as_posix()
    return "" if way == "." else way
