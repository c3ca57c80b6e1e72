"""What templates include: every fragment of a prompt, found when the catalog is loaded and never later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure

from promptkit._catalog.places import Found
from promptkit._values.templates import includes_of
from promptkit.errors import Fault, near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from promptkit._catalog.facts import Text
    from promptkit._catalog.lines import Path
    from promptkit._catalog.prompts import Neighbour


class Fragments(NamedTuple):
    """The fragments that the texts of a prompt include, by name: their sources and their files.

    One that cannot be read has an empty text, so that it hides nothing of the others, and no file; then these are not
    ``complete``.
    """

    texts: Mapping[str, str]
    files: Mapping[str, str]
    complete: bool


NO_FRAGMENTS = Fragments({}, {}, complete=True)


class Gathered(NamedTuple):
    """The fragments of a prompt, includes of what is not there, and the faults of files that it uses."""

    fragments: Fragments
    found: tuple[Found, ...]
    faults: tuple[Fault, ...]


class _Edge(NamedTuple):
    """An include: what it names, and where it stands."""

    name: str
    line: int | None
    path: Path  # of the text in its definition, () when it stands in a file of its own
    file: str | None


def gather(texts: Sequence[Text], read: Callable[[str], Neighbour], names: Collection[str]) -> Gathered:
    """Read every fragment that the texts include, and those that the fragments include.

    ``read`` gives a fragment by its name; ``names`` are the files that there are. Whether the fragments may be included
    as they are, is said when the texts are compiled.
    """
    sources: dict[str, str] = {}
    files: dict[str, str] = {}
    found: list[Found] = []
    faults: list[Fault] = []
    left: list[_Edge] = []
    for text in reversed(texts):
        left += reversed(_edges(text.source, text.path if text.file is None else (), text.file))
    while left:
        edge = left.pop()
        if edge.name in sources:
            continue
        fragment = read(edge.name)
        source = fragment.text.value_or("")
        sources[edge.name] = source
        if isinstance(fragment.text, Failure):
            why = fragment.text.failure()
            if isinstance(why, Fault):
                faults.append(why)
            else:
                message = f"includes {edge.name!r}, which {why}"
                found.append(Found(edge.path, message, near(edge.name, names), edge.line, edge.file))
        else:
            files[edge.name] = fragment.file
            left += reversed(_edges(source, (), fragment.file))
    complete = not (found or faults)
    return Gathered(Fragments(dict(sorted(sources.items())), files, complete), tuple(found), tuple(faults))


def _edges(source: str, path: Path, file: str | None) -> list[_Edge]:
    if "include" not in source:  # most have none
        return []
    # In a text of one line the line says nothing, unless the text is a file.
    counts = file is not None or "\n" in source
    return [_Edge(each.name, each.line if counts else None, path, file) for each in includes_of(source)]
