"""``promptkit check``: every fault of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit import load_catalog
from promptkit._cli.catalog_folder import catalog_folder, fault_from_here, folder_from_here
from promptkit._cli.exits import DONE, FAILED
from promptkit._cli.streams import GREEN, RED
from promptkit._cli.user_files import shown_path
from promptkit._values.counted import counted
from promptkit.errors import InvalidConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit import Catalog
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
            streams.result(str(fault_from_here(fault, folder_from_here(folder))))
        streams.say(
            f"{counted(len(error.faults), 'fault')} in {shown_path(folder_from_here(folder) or 'this folder')}", RED
        )
        return FAILED
    if json:
        streams.json({"catalog": str(folder), "faults": [], **counts_of(catalog)})
    else:
        there = ", ".join(counted(number, kind.removesuffix("s")) for kind, number in counts_of(catalog).items())
        way = folder_from_here(folder)
        streams.result(f"{f'{shown_path(way)}: ' if way else ''}{there}, no faults", GREEN)
    return DONE


def counts_of(catalog: Catalog) -> dict[str, int]:
    """Count what there is."""
    return {kind: len(getattr(catalog, kind)) for kind in KINDS}
