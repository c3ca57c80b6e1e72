"""Reading a file that must be inside a folder, judged on the file that was opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from returns.result import Failure, Result, Success

if TYPE_CHECKING:
    from os import PathLike


def read_confined(path: str | PathLike[str], *, within: Path, limit: int) -> Result[bytes, str]:
    """Read a regular file below ``within``, of at most ``limit`` bytes. The failure says what is wrong with it.

    The path is opened first and judged afterwards: what its name resolves to must be inside the folder and be the very
    file that is open, so that a link swapped in between gains nothing.
    """
    try:
        # Not blocking: opening a FIFO without a writer would wait for one.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:
        return Failure("is not the name of a file.")
    except OSError as error:
        return Failure(f"cannot be read: {error.strerror}.")
    try:
        return _judged(descriptor, Path(path), within, limit)
    except OSError as error:
        return Failure(f"cannot be read: {error.strerror}.")
    finally:
        os.close(descriptor)


def _judged(descriptor: int, path: Path, within: Path, limit: int) -> Result[bytes, str]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return Failure("is not a regular file.")
    resolved = path.resolve(strict=True)
    inside = resolved.is_relative_to(within.resolve(strict=True))
    if not (inside and os.path.samestat(resolved.stat(), status)):
        return Failure("is outside the folder.")
    if status.st_size > limit:
        return Failure(f"has {status.st_size:,} bytes, and at most {limit:,} are read.")
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(limit + 1)
    return Failure(f"has more than {limit:,} bytes.") if len(content) > limit else Success(content)
