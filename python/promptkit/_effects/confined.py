"""Reading a file that must be inside a folder, judged on the file that was opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from returns.result import Failure, Result, Success

# Not blocking: opening a FIFO without a writer would wait for one. And no terminal becomes that of the process.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
OUTSIDE = "is outside the folder."
_PIECE = 64 * 2**10

if TYPE_CHECKING:
    from os import PathLike


def read_confined(path: str | PathLike[str], *, within: Path, limit: int) -> Result[bytes, str]:
    """Read a regular file below ``within``, of at most ``limit`` bytes. The failure says what is wrong with it.

    What its name resolves to must be inside the folder, which is judged first, so that nothing is told of files
    outside; and it must be the very file that is open then, so that a link swapped in between gains nothing.
    """
    try:
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(within)):
            return Failure(OUTSIDE)
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # a path that is no Path
            return Failure("is not a regular file.")  # to open it could already do something: a device, a socket
        descriptor = os.open(path, _FLAGS)
    except ValueError:
        return Failure("is not the name of a file.")
    except OSError as error:
        return Failure(f"cannot be read: {error.strerror}.")
    try:
        return _judged(descriptor, Path(path), within, limit)
    except OSError as error:
        return Failure(f"cannot be read: {error.strerror}.")
    except RuntimeError:  # what Path.resolve raised for a loop of links before Python 3.13
        return Failure("cannot be read: its links lead in a circle.")
    finally:
        os.close(descriptor)


def _judged(descriptor: int, path: Path, within: Path, limit: int) -> Result[bytes, str]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return Failure("is not a regular file.")
    resolved = path.resolve(strict=True)
    inside = resolved.is_relative_to(within.resolve(strict=True))
    if not (inside and os.path.samestat(resolved.stat(), status)):
        return Failure(OUTSIDE)
    if status.st_size > limit:
        return Failure(f"has {status.st_size:,} bytes, and at most {limit:,} are read.")
    content = _read(descriptor, status.st_size, limit)
    return Failure(f"has more than {limit:,} bytes.") if len(content) > limit else Success(content)


def _read(descriptor: int, expected: int, limit: int) -> bytes:
    """Read to the end, or one byte more than the limit: a file can be longer than it said, and grow."""
    pieces: list[bytes] = []
    size = 0
    while size <= limit:
        piece = os.read(descriptor, min(limit + 1 - size, max(expected + 1 - size, _PIECE)))
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
