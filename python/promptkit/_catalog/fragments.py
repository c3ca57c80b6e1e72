"""What templates include: every fragment of a prompt, found when the catalog is loaded and never later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure, Result

from promptkit._catalog.places import Found
from promptkit._values.construction import sentence
from promptkit._values.templates import Include, TemplateFault, compile_template, includes_of
from promptkit.errors import Fault, near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from promptkit._catalog.facts import Text
    from promptkit._catalog.lines import Path
    from promptkit._catalog.prompts import Neighbour

MAX_INCLUDES = 1000  # rendered for one text; fragments that double what they include would go on for ever
MAX_DEPTH = 50  # each is rendered inside the one before
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
    gathering = _Gathering(read, names)
    broken: list[Path] = []
    roots: dict[Path, list[_Edge]] = {}
    for text in texts:
        path = text.path if text.file is None else ()
        roots[text.path], untold = _edges(text.source, path, text.file)
        gathering.found.extend(untold)
        broken.extend(text.path for _ in untold)
    edges = [edge for each in roots.values() for edge in each]
    gathering.load(edges)
    sizes = gathering.sizes(edges)
    for path, each in roots.items():
        total = sum(sizes.get(edge.name, (0, 0))[0] for edge in each)
        depth = max((sizes.get(edge.name, (0, 0))[1] for edge in each), default=0)
        if total > MAX_INCLUDES or depth > MAX_DEPTH:
            gathering.found.append(_at(each[0], _too_much(total, depth)))
            broken.append(path)
    return gathering.gathered(broken)


class _Gathering:
    """The fragments that were found so far, and what each includes."""

    def __init__(self, read: Callable[[str], Neighbour], names: Collection[str]) -> None:
        self._read = read
        self._names = names
        self._sources: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._graph: dict[str, list[_Edge]] = {}
        self._faults: list[Fault] = []
        self.found: list[Found] = []

    def load(self, edges: list[_Edge]) -> None:
        """Read what these includes name, and what that includes."""
        left = list(reversed(edges))
        while left:
            edge = left.pop()
            if edge.name not in self._sources:
                self._load(edge)
                left.extend(reversed(self._graph[edge.name]))

    def _load(self, edge: _Edge) -> None:
        fragment = self._read(edge.name)
        self._graph[edge.name] = []
        if isinstance(fragment.text, Failure):
            why = fragment.text.failure()
            if isinstance(why, Fault):
                self._faults.append(why)
            else:
                self.found.append(_at(edge, f"includes {edge.name!r}, which {why}", near(edge.name, self._names)))
            return
        source = fragment.text.unwrap()
        self._files[edge.name] = fragment.file
        self._graph[edge.name], untold = _edges(source, (), fragment.file)
        wrong = untold or _alone(source, self._graph[edge.name], fragment.file)
        # Empty, it hides nothing of the texts that include it.
        self._sources[edge.name] = "" if wrong else source
        self.found.extend(wrong)

    def sizes(self, edges: list[_Edge]) -> dict[str, tuple[int, int]]:
        """Give for each fragment how many are rendered for it, itself included, and how deep they are inside it.

        Where fragments include themselves there are no sizes: the first of each loop becomes empty.
        """
        loops, order = _walked([edge.name for edge in edges], self._graph)
        for loop in loops:
            first, second = loop[0], loop[1 % len(loop)]
            edge = next(edge for edge in self._graph[first] if edge.name == second)
            self.found.append(_at(edge, f"includes itself without an end: {' -> '.join([*loop, first])}."))
            self._sources[first] = ""
        if loops:
            return {}
        sizes: dict[str, tuple[int, int]] = {}
        for name in order:
            inner = [sizes[edge.name] for edge in self._graph[name]]
            sizes[name] = (1 + sum(count for count, _ in inner), 1 + max((depth for _, depth in inner), default=0))
        return sizes

    def gathered(self, broken: list[Path]) -> Gathered:
        """Give what was found."""
        texts = {name: self._sources.get(name, "") for name in sorted(self._graph)}
        whole = not (self.found or self._faults)
        return Gathered(Fragments(texts, self._files, broken, complete=whole), tuple(self.found), tuple(self._faults))


def _too_much(total: int, depth: int) -> str:
    if depth > MAX_DEPTH:
        return f"includes fragments inside each other {depth} deep, and at most {MAX_DEPTH} are rendered."
    return f"includes {total} fragments in all, each as often as it is rendered, and at most {MAX_INCLUDES} are."


def _edges(source: str, path: Path, file: str | None) -> tuple[list[_Edge], list[Found]]:
    """Give the includes of a text, or why they cannot be told."""
    if "include" not in source:  # most have none; whether they compile is asked later
        return [], []
    # In a text of one line the line says nothing, unless the text is a file.
    counts = file is not None or "\n" in source
    included: Result[tuple[Include, ...], TemplateFault] = includes_of(source)
    if isinstance(included, Failure):
        fault = included.failure()
        return [], [Found(path, sentence(fault.message), line=fault.line if counts else None, file=file)]
    return [_Edge(each.name, each.line if counts else None, path, file) for each in included.unwrap()], []


def _alone(source: str, edges: list[_Edge], file: str) -> list[Found]:
    """Say why a fragment does not compile, whatever it includes."""
    compiled = compile_template(source, dict.fromkeys((edge.name for edge in edges), ""))
    if isinstance(compiled, Failure):
        fault = compiled.failure()
        return [Found((), sentence(fault.message), line=fault.line, file=file)]
    return []


def _at(edge: _Edge, message: str, suggestion: str | None = None) -> Found:
    return Found(edge.path, message, suggestion, edge.line, edge.file)


def _walked(roots: list[str], graph: Mapping[str, list[_Edge]]) -> tuple[list[list[str]], list[str]]:
    """Find fragments that include themselves, and the order in which each comes after those that it includes.

    A loop starts with its first name, whoever enters it where.
    """
    loops: list[list[str]] = []
    done: dict[str, None] = {}
    for root in roots:
        way: dict[str, None] = {}
        left = [(root, False)]
        while left:
            name, after = left.pop()
            if after:
                del way[name]
                done[name] = None
            elif name in way:
                loop = list(way)[list(way).index(name) :]
                start = loop.index(min(loop))
                loops.append(loop[start:] + loop[:start])
            elif name not in done:
                way[name] = None
                left.append((name, True))
                left.extend((edge.name, False) for edge in reversed(graph[name]))
    return loops, list(done)
