"""Files that were named on the command line, and standard input: read as they are, wherever they lie."""

from __future__ import annotations

import sys
from os import fspath
from typing import TYPE_CHECKING

from promptkit._cli.arguments import as_text
from promptkit._cli.exits import FailedError
from promptkit._values.visible import visible_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

MOST = 16 * 2**20  # what the engine takes of one input, when nothing else is said
MOST_OF_A_TRACE = 2**27  # some 80,000 runs: more than a browser shows


def shown_path(path: object) -> str:
    """Write a path for a message, on one line; one in bytes that the locale cannot read as the UTF-8 that it is."""
    return visible_name(as_text(str(path), sys.getfilesystemencoding()))


def read_file(path: str, what: str, most: int = MOST) -> bytes:
    """Read a file, or a pipe that has the name of one. ``what`` is what it is for."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # Path changes names such as ./-
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        msg = f"{what}: {shown_path(path)} cannot be read: {reason}"
        raise FailedError(msg) from None
    return _bounded(content, f"{what}: {shown_path(path)}", most)


def read_stdin(what: str, most: int = MOST) -> bytes:
    """Read standard input to its end."""
    if sys.stdin is None:
        msg = f"{what}: there is no standard input"
        raise FailedError(msg)
    try:
        content = sys.stdin.buffer.read(most + 1)
    except OSError as error:
        msg = f"{what}: standard input cannot be read: {error.strerror or type(error).__name__}"
        raise FailedError(msg) from None
    return _bounded(content, f"{what}: standard input", most)


def text_of(content: bytes, what: str) -> str:
    """Decode a text; a byte-order mark is dropped, and nothing else is touched."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{what} is not UTF-8 text: byte {content[error.start]:#04x} at offset {error.start}; save it as UTF-8"
        raise FailedError(msg) from None


def _bounded(content: bytes, what: str, most: int) -> bytes:
    if len(content) > most:
        msg = f"{what} has more than {most:,} bytes: shorten it"
        raise FailedError(msg)
    return content


class ReadFiles:
    """An input reader of what has been read: a person at a shell is trusted with every path, a program is not."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = dict(contents)

    def add(self, other: ReadFiles) -> None:
        """Take what another one has."""
        self._contents |= other._contents

    async def read(self, path: PathLike[str], limit: int) -> bytes:  # noqa: ARG002  # it is bounded already
        """Give the content of a file."""
        return self._contents[fspath(path)]
