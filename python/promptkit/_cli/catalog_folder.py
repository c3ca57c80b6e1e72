"""Where the catalog is: the folder that is named, else the nearest one upward that has promptkit.toml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from promptkit import Catalog, Fault, load_catalog
from promptkit._cli.exits import WrongUseError
from promptkit._cli.user_files import shown_path
from promptkit.errors import InvalidConfigError

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
        msg = f"no {ROOT_FILE} in {shown_path(given)}: {REMEDY}"
        raise WrongUseError(msg)
    here = Path.cwd()
    found = nearest(here, _has_catalog)
    if found is None:
        msg = f"no {ROOT_FILE} in {shown_path(here)} or above: {REMEDY}"
        raise WrongUseError(msg)
    return found


def opened_catalog(given: Path | None) -> Catalog:
    """Find and load the catalog. Raises WrongUseError or InvalidConfigError."""
    folder = catalog_folder(given)
    try:
        return load_catalog(folder)
    except InvalidConfigError as error:
        way = folder_from_here(folder)
        raise InvalidConfigError(*(fault_from_here(fault, way) for fault in error.faults)) from None


def fault_from_here(fault: Fault, folder: str) -> Fault:
    """Give a fault with its file's path from here, so that editors and terminals find it."""
    if fault.file is None or not folder or os.path.isabs(fault.file):  # noqa: PTH117  # a name for people
        return fault
    return msgspec.structs.replace(fault, file=f"{shown_path(folder)}/{fault.file}")


def folder_from_here(folder: Path) -> str:
    """Give the way from the current folder, with "/"; empty for that folder itself."""
    try:
        way = Path(os.path.relpath(folder)).as_posix()
    except (OSError, ValueError):  # another drive, or no current folder
        way = folder.as_posix()
    return "" if way == "." else way


def _has_catalog(folder: Path) -> bool:
    try:
        return (folder / ROOT_FILE).exists()
    except OSError:
        return False
