"""What is found wrong inside a definition, and how that becomes a fault with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from promptkit._values.json import pointer
from promptkit.errors import Fault

if TYPE_CHECKING:
    from promptkit._catalog.lines import Lines, Path

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Found(NamedTuple):
    """Something wrong at a path inside a definition.

    ``line`` counts inside the text at that path. ``file`` is where that text stands when it is not in the definition;
    a text that is wrong by itself, whoever uses it, has the path ().
    """

    path: Path
    message: str
    suggestion: str | None = None
    line: int | None = None
    file: str | None = None


def written(path: Path) -> str:
    """Write a path as TOML does: ``profiles.fast.stop[0]``, ``profiles."a b"``."""
    steps: list[str] = []
    for step in path:
        if isinstance(step, int):
            steps.append(f"[{step}]")
            continue
        quoted = step if BARE_KEY.fullmatch(step) else _quoted(step)
        steps.append(f".{quoted}" if steps else quoted)
    return "".join(steps)


def _quoted(key: str) -> str:
    # A TOML string has the escapes of a JSON string, and has to escape DEL as well.
    return msgspec.json.encode(_whole(key)).decode().replace("\x7f", "\\u007f")


def written_pointer(path: Path) -> str:
    """Write a path as a JSON Pointer: ``/properties/a/type``."""
    return pointer(_whole(str(step)) for step in path)


def _whole(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def located(document: Any, place: str) -> Path:
    """Read a place inside a document that was written without quoting, such as ``extra.a b[0]``."""
    path: Path = ()
    while place:
        if isinstance(document, Mapping):
            place = place.removeprefix(".")
            names = [
                name
                for name in document
                if isinstance(name, str)
                and place.startswith(name)
                and place[len(name) : len(name) + 1] in {"", ".", "["}
            ]
            if not names:
                return (*path, place)
            name = max(names, key=len)
            path, document, place = (*path, name), document[name], place[len(name) :]
            continue
        index, _, rest = place.removeprefix("[").partition("]")
        if not (isinstance(document, list | tuple) and index.isdecimal() and int(index) < len(document)):
            return path
        path, document, place = (*path, int(index)), document[int(index)], rest
    return path


def in_file(found: Found, file: str, lines: Lines, above: Path = ()) -> Fault:
    """Make the fault of something found in a definition that stands in ``file``, below the path ``above``."""
    path = (*above, *found.path)
    key = written(path) or None
    if found.file is not None:
        message = f"{found.message.removesuffix('.')} ({key} of {file})." if found.path else found.message
        return Fault(file=found.file, line=found.line, message=message, suggestion=found.suggestion)
    line = None if found.line is None else lines.inside(path, found.line)
    message = found.message if line is not None else _with_line(found)
    return Fault(file=file, line=line or lines.of(path), key=key, message=message, suggestion=found.suggestion)


def in_memory(found: Found, *above: str) -> Fault:
    """Make the fault of something found in a definition that was made in Python."""
    return Fault(key=written((*above, *found.path)), message=_with_line(found), suggestion=found.suggestion)


def _with_line(found: Found) -> str:
    if found.line is None:
        return found.message
    return f"{found.message.removesuffix('.')} (line {found.line} of the template)."
