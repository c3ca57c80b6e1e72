"""Where the catalog is: the folder that is named, else the nearest one upward that has promptkit.toml."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from promptkit import Catalog, load_catalog
from promptkit._cli.exits import WrongUseError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT_FILE = "promptkit.toml"
REMEDY = "make a starter with `promptkit init DIR`, or give --catalog DIR"


def nearest(start: Path, has_catalog: Callable[[Path], bool]) -> Path | None:
    """Give the folder itself or the first one above it that has a catalog."""
    return next((folder for folder in (start, *start.parents) if has_catalog(folder)), None)


def catalog_folder(given: Path | None) -> Path:
    """Find the catalog. Raises WrongUseError, with what to type, when there is none."""
    if given is not None:
        if _has_catalog(given):
            return given
        if given.name == ROOT_FILE and given.is_file():
            return given.parent  # what a completed path often ends with
        msg = f"no {ROOT_FILE} in {given}: {REMEDY}"
        raise WrongUseError(msg)
    here = Path.cwd()
    found = nearest(here, _has_catalog)
    if found is None:
        msg = f"no {ROOT_FILE} in {here} or above: {REMEDY}"
        raise WrongUseError(msg)
    return found


def opened_catalog(given: Path | None) -> Catalog:
    """Find and load the catalog. Raises WrongUseError or InvalidConfigError."""
    return load_catalog(catalog_folder(given))


def _has_catalog(folder: Path) -> bool:
    try:
        return (folder / ROOT_FILE).exists()
    except OSError:
        return False
