"""What templates include: every fragment of a prompt, found when the catalog is loaded and never later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure, Result

from promptkit._catalog.places import Found, sentence
from promptkit._catalog.prompts import Neighbour
from promptkit._values.templates import Include, TemplateFault, includes_of
from promptkit.errors import Fault, near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from promptkit._catalog.facts import Text
    from promptkit._catalog.lines import Path

OUTSIDE = "is no name of a file below the prompts folder: separate folders with /, without .. and no / at the start."
IN_PYTHON = "a prompt made in Python has no prompts folder: put the text into content."


class Fragments(NamedTuple):
    """The fragments that the texts of a prompt include, by name, and those of a fault with an empty text in its place.

    ``broken`` are the paths of the texts whose includes cannot be told; not ``complete``: some text is missing.
    """

    texts: Mapping[str, str]
    files: Mapping[str, str]
    broken: Collection[Path]
    complete: bool


class Gathered(NamedTuple):
    """The fragments of a prompt, what is wrong with its includes, and the faults of files that it uses."""

    fragments: Fragments
    found: tuple[Found, ...]
    faults: tuple[Fault, ...]


class _Edge(NamedTuple):
    """An include: what it names, and where it stands."""

    name: str
    line: int | None
    path: Path  # of the text in its definition, () when it stands in a file of its own
    file: str | None


def refuse_includes(texts: Collection[Text]) -> Gathered:
    """Find the includes of a prompt that has no folder."""
    found: list[Found] = []
    broken: list[Path] = []
    for text in texts:
        edges, untold = _edges(text.source, text.path, None)
        broken.extend(text.path for _ in (*edges, *untold))
        found.extend(untold)
        found.extend(_at(edge, f"includes {edge.name!r}, and {IN_PYTHON}") for edge in edges)
    return Gathered(Fragments({}, {}, broken, complete=not broken), tuple(found), ())


def gather(texts: Collection[Text], read: Callable[[str], Neighbour], names: Collection[str]) -> Gathered:
    """Read every fragment that the texts include, and those that the fragments include.

    ``read`` gives a fragment by its name; ``names`` are the files that there are.
    """
    found: list[Found] = []
    faults: list[Fault] = []
    broken: list[Path] = []
    roots: list[_Edge] = []
    for text in texts:
        path = text.path if text.file is None else ()
        edges, untold = _edges(text.source, path, text.file)
        roots.extend(edges)
        found.extend(untold)
        broken.extend(text.path for _ in untold)
    sources: dict[str, str] = {}
    files: dict[str, str] = {}
    graph: dict[str, list[_Edge]] = {}
    left = list(reversed(roots))
    while left:
        edge = left.pop()
        if edge.name in sources:
            continue
        fragment = read(edge.name) if _is_inside(edge.name) else Neighbour(edge.name, Failure(OUTSIDE))
        if isinstance(fragment.text, Failure):
            why = fragment.text.failure()
            if isinstance(why, Fault):
                faults.append(why)
            else:
                found.append(_at(edge, f"includes {edge.name!r}, which {why}", near(edge.name, names)))
            graph.setdefault(edge.name, [])
            continue
        sources[edge.name], files[edge.name] = fragment.text.unwrap(), fragment.file
        graph[edge.name], untold = _edges(sources[edge.name], (), fragment.file)
        found.extend(untold)
        if untold:
            sources[edge.name] = ""
        left.extend(reversed(graph[edge.name]))
    for loop in _loops([edge.name for edge in roots], graph):
        first, second = loop[0], loop[1 % len(loop)]
        edge = next(edge for edge in graph[first] if edge.name == second)
        found.append(_at(edge, f"includes itself without an end: {' -> '.join([*loop, first])}."))
        sources[first] = ""
    kept = {name: sources.get(name, "") for name in sorted(graph)}
    whole = not (found or faults)
    return Gathered(Fragments(kept, files, broken, complete=whole), tuple(found), tuple(faults))


def _edges(source: str, path: Path, file: str | None) -> tuple[list[_Edge], list[Found]]:
    """Give the includes of a text, or why they cannot be told."""
    # In a text of one line the line says nothing, unless the text is a file.
    counts = file is not None or "\n" in source
    included: Result[tuple[Include, ...], TemplateFault] = includes_of(source)
    if isinstance(included, Failure):
        fault = included.failure()
        return [], [Found(path, sentence(fault.message), line=fault.line if counts else None, file=file)]
    return [_Edge(each.name, each.line if counts else None, path, file) for each in included.unwrap()], []


def _is_inside(name: str) -> bool:
    return not ("\\" in name or "\0" in name or any(part in {"", ".", ".."} for part in name.split("/")))


def _at(edge: _Edge, message: str, suggestion: str | None = None) -> Found:
    return Found(edge.path, message, suggestion, edge.line, edge.file)


def _loops(roots: list[str], graph: Mapping[str, list[_Edge]]) -> list[list[str]]:
    """Find fragments that include themselves; each loop starts with its first name, whoever enters it where."""
    loops: list[list[str]] = []
    done: set[str] = set()
    for root in roots:
        way: dict[str, None] = {}
        left = [(root, False)]
        while left:
            name, after = left.pop()
            if after:
                del way[name]
                done.add(name)
            elif name in way:
                loop = list(way)[list(way).index(name) :]
                start = loop.index(min(loop))
                loops.append(loop[start:] + loop[:start])
            elif name not in done:
                way[name] = None
                left.append((name, True))
                left.extend((edge.name, False) for edge in reversed(graph.get(name, [])))
    return loops
