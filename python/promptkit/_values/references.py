"""The references of a JSON Schema: where they lead, and whether one of them never ends.

Base addresses, anchors and dynamic references are resolved inside the one document, as draft 2020-12 and the drafts
before it say; what leads out of it ends there. The validator decides whether a reference may be used at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin

from promptkit._values.json import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/?#]*)?")  # with the host, whose case does not matter either
INDEX = re.compile(r"0|[1-9][0-9]{0,17}")  # of an array, in a JSON Pointer
NO_BASE = "json-schema:///"  # of a schema that does not say what it is called; the validator's own

META_SCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")  # are there, and lead nowhere else

ONE_HERE = ("not", "if", "then", "else")  # apply to the same value: one schema, several, several by name
SEVERAL_HERE = ("allOf", "anyOf", "oneOf")
NAMED_HERE = ("dependentSchemas", "dependencies")
ONE_INSIDE = (  # apply to what is inside the value
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "items", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
SEVERAL_INSIDE = ("prefixItems", "items")
NAMED_INSIDE = ("properties", "patternProperties")
NAMED_ONLY = ("$defs", "definitions")  # apply to nothing by themselves

# A dynamic reference may mean something else in each surrounding, and the surroundings of a maze of them double with
# each door: neither this module nor the validator would come to an end.
STATES_PER_SCHEMA = 50

Scope = tuple[tuple[str, int], ...]  # the outermost resource so far that has each dynamic anchor


class Resource:
    """A schema with an address of its own, and the names inside it."""

    __slots__ = ("anchors", "base", "draft", "dynamic", "number", "root")

    def __init__(self, root: dict[str, Any], base: str, draft: int, number: int) -> None:
        self.root = root
        self.base = base
        self.draft = draft
        self.number = number
        self.anchors: dict[str, Any] = {}
        self.dynamic: dict[str, Any] = {}  # "" is $recursiveAnchor's


class Reference(NamedTuple):
    """A reference and its place."""

    text: str
    pointer: str


class Survey(NamedTuple):
    """What following all references shows: one that comes back to itself without going into the value; a maze."""

    endless: Reference | None = None
    maze: bool = False


class Reach(NamedTuple):
    """A schema in its surroundings."""

    node: dict[str, Any]
    resource: Resource
    scope: Scope


class Document:
    """The schemas of one document by identity: each object of it is one place, as a JSON decoder makes them."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.resources: list[Resource] = []
        self._by_address: dict[str, Resource] = {}
        self._home: dict[int, Resource] = {}
        self._above: dict[int, tuple[Any, tuple[str, ...]]] = {id(schema): (None, ())}
        self.schemas: list[dict[str, Any]] = []
        self._enter(schema, None)

    @property
    def named(self) -> str:
        """The draft that the document says it is of, or nothing."""
        named = self.schemas[0].get("$schema")
        return named.rstrip("#") if isinstance(named, str) else ""

    def place(self, node: Any, *steps: str) -> str:
        """Give the JSON Pointer of a schema."""
        parts: tuple[str, ...] = steps
        while node is not None:
            node, above = self._above[id(node)]
            parts = (*above, *parts)
        return pointer(parts)

    def dangling(self) -> Reference | None:
        """Give the first reference that leads nowhere in this document."""
        for node in self.schemas:
            for keyword, reference in _references(node, self._home[id(node)].draft):
                if self._target(reference, self._home[id(node)]) is None:
                    return Reference(reference, self.place(node, keyword))
        return None

    def reach(self, node: dict[str, Any], scope: Scope = ()) -> Reach:
        """Go to a schema: its resource joins the surroundings."""
        resource = self._home[id(node)]
        if not resource.dynamic:
            return Reach(node, resource, scope)
        known = {name for name, _ in scope}
        added = ((name, resource.number) for name in resource.dynamic if name not in known)
        return Reach(node, resource, tuple(sorted((*scope, *added))))

    def here(self, reach: Reach) -> Iterator[Reach]:
        """Give the schemas that apply to the same value."""
        node, resource, scope = reach
        for keyword, reference in _references(node, resource.draft):
            target = self._target(reference, resource)
            if isinstance(target, dict) and keyword in {"$dynamicRef", "$recursiveRef"}:
                target = self._outermost(target, "" if keyword == "$recursiveRef" else _fragment(reference), scope)
            if isinstance(target, dict):
                yield self.reach(target, scope)
        if resource.draft <= 7 and isinstance(node.get("$ref"), str):
            return  # what stands beside it says nothing in these drafts
        one = ONE_HERE if "if" in node else ONE_HERE[:1]
        for _, schema in _below(node, one, SEVERAL_HERE, NAMED_HERE):
            yield self.reach(schema, scope)

    def inside(self, reach: Reach) -> Iterator[Reach]:
        """Give the schemas that apply to what is inside the value."""
        if reach.resource.draft <= 7 and isinstance(reach.node.get("$ref"), str):
            return
        for _, schema in _below(reach.node, ONE_INSIDE, SEVERAL_INSIDE, NAMED_INSIDE):
            yield self.reach(schema, reach.scope)

    def _enter(self, schema: dict[str, Any], around: Resource | None) -> None:
        """Find every schema below this one, with the resource that it belongs to."""
        left: list[tuple[dict[str, Any], Resource | None]] = [(schema, around)]
        while left:
            node, outer = left.pop()
            if id(node) in self._home:
                continue
            home = self._resource(node, outer)
            self._home[id(node)] = home
            self.schemas.append(node)
            _name(node, home)
            below = list(
                _below(
                    node,
                    (*ONE_HERE, *ONE_INSIDE),
                    (*SEVERAL_HERE, *SEVERAL_INSIDE),
                    (*NAMED_HERE, *NAMED_INSIDE, *NAMED_ONLY),
                )
            )
            for steps, inner in below:
                self._above.setdefault(id(inner), (node, steps))
            left.extend((inner, home) for _, inner in reversed(below))

    def _resource(self, node: dict[str, Any], outer: Resource | None) -> Resource:
        named = node.get("$schema")
        draft = _draft(named) if isinstance(named, str) else 2020 if outer is None else outer.draft
        own = node.get("id" if draft == 4 else "$id")
        address = own.partition("#")[0] if isinstance(own, str) and not (draft <= 7 and "$ref" in node) else ""
        if outer is not None and not address:
            return outer
        base = _join(NO_BASE if outer is None else outer.base, address)
        found = Resource(node, NO_BASE if base is None else base, draft, len(self.resources))
        self.resources.append(found)
        self._by_address.setdefault(found.base, found)
        return found

    def _target(self, reference: str, resource: Resource) -> dict[str, Any] | bool | None:
        """Follow a reference inside the document. True: it leads to a schema that refers to nothing, or out of it."""
        address = _join(resource.base, reference.partition("#")[0])
        found = None if address is None else self._by_address.get(address)
        if found is None:
            return True if address is not None and address.startswith(META_SCHEMAS) else None
        fragment = _fragment(reference)
        if fragment and not fragment.startswith("/"):
            return found.anchors.get(fragment)
        return self._at(found.root, fragment)

    def _at(self, node: Any, fragment: str) -> dict[str, Any] | bool | None:
        start, steps = node, fragment.split("/")[1:]
        taken: tuple[str, ...] = ()
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and INDEX.fullmatch(name) and int(name) < len(node):
                node = node[int(name)]
            else:
                return None
            taken = (*taken, name)
            if isinstance(node, dict) and id(node) in self._home:
                start, taken = node, ()
        if isinstance(node, dict) and id(node) not in self._home:  # a schema under a name that means nothing by itself
            self._above.setdefault(id(node), (start, taken))
            self._enter(node, self._home[id(start)])
        return node if isinstance(node, dict | bool) else None

    def _outermost(self, target: dict[str, Any], name: str, scope: Scope) -> dict[str, Any]:
        if self._home[id(target)].dynamic.get(name) is not target:
            return target
        outer = dict(scope).get(name)
        meant: dict[str, Any] = target if outer is None else self.resources[outer].dynamic[name]
        return meant


def survey(document: Document) -> Survey:
    """Follow every reference, in the surroundings in which it is used; one that is not used in those of the root."""
    walk = _Walk(document)
    root = document.reach(document.schemas[0])
    for node in document.schemas:  # grows meanwhile: a reference may name a schema that no keyword holds
        if id(node) in walk.met:
            continue
        found = walk.search(document.reach(node, root.scope))
        if found is not None or walk.spent:
            return Survey(endless=found, maze=walk.spent)
    return Survey()


class _Walk:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._done: set[tuple[int, Scope]] = set()
        self.met: set[int] = set()

    @property
    def spent(self) -> bool:
        return len(self._done) > STATES_PER_SCHEMA * (len(self._document.schemas) + 100)

    def search(self, first: Reach) -> Reference | None:
        entries = [first]
        while entries and not self.spent:
            found = self._through(entries.pop(), entries)
            if found is not None:
                return found
        return None

    def _through(self, entry: Reach, entries: list[Reach]) -> Reference | None:
        """Walk through all that applies to the same value; collect what applies inside it."""
        path: dict[tuple[int, Scope], Reach] = {}
        left = [(entry, False)]
        while left and not self.spent:
            reach, after = left.pop()
            state = (id(reach.node), reach.scope)
            if after:
                del path[state]
            elif state in path:
                return self._loop([*path.values()], reach)
            elif state not in self._done:
                path[state] = reach
                self._done.add(state)
                self.met.add(state[0])
                left.append((reach, True))
                left.extend((applied, False) for applied in reversed([*self._document.here(reach)]))
                entries.extend(self._document.inside(reach))
        return None

    def _loop(self, path: list[Reach], closed_at: Reach) -> Reference:
        start = next(i for i, reach in enumerate(path) if reach.node is closed_at.node)
        node, (keyword, text) = next(
            (reach.node, written)
            for reach in path[start:]  # schemas hold each other in a tree: a loop has a reference in it
            for written in _references(reach.node, reach.resource.draft)
        )
        return Reference(text, self._document.place(node, keyword))


def _references(node: dict[str, Any], draft: int) -> Iterator[tuple[str, str]]:
    keywords = ("$ref", "$dynamicRef") if draft >= 2020 else ("$ref", "$recursiveRef") if draft == 2019 else ("$ref",)
    for keyword in keywords:
        reference = node.get(keyword)
        if isinstance(reference, str):
            yield keyword, reference


def _below(
    node: dict[str, Any], one: tuple[str, ...], several: tuple[str, ...], named: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for keyword in one:
        if isinstance(node.get(keyword), dict):
            yield (keyword,), node[keyword]
    for keyword in several:
        if isinstance(node.get(keyword), list):
            yield from (((keyword, str(i)), item) for i, item in enumerate(node[keyword]) if isinstance(item, dict))
    for keyword in named:
        if isinstance(node.get(keyword), dict):
            yield from (((keyword, name), item) for name, item in node[keyword].items() if isinstance(item, dict))


def _name(node: dict[str, Any], home: Resource) -> None:
    """Enter the names that a schema gives itself into its resource."""
    if home.draft <= 7:
        own = node.get("id" if home.draft == 4 else "$id")
        if isinstance(own, str) and "$ref" not in node and own.partition("#")[2]:
            home.anchors.setdefault(own.partition("#")[2], node)
        return
    if isinstance(node.get("$anchor"), str):
        home.anchors.setdefault(node["$anchor"], node)
    if home.draft >= 2020 and isinstance(node.get("$dynamicAnchor"), str):
        home.anchors.setdefault(node["$dynamicAnchor"], node)
        home.dynamic.setdefault(node["$dynamicAnchor"], node)
    if home.draft == 2019 and node is home.root and node.get("$recursiveAnchor") is True:
        home.dynamic[""] = node


def _draft(named: str) -> int:
    for mark, draft in (("draft-04", 4), ("draft-06", 6), ("draft-07", 7), ("2019-09", 2019)):
        if mark in named:
            return draft
    return 2020


def _fragment(reference: str) -> str:
    return unquote(reference.partition("#")[2])


def _join(base: str, reference: str) -> str | None:
    """Resolve an address against a base (RFC 3986), whatever its scheme; None where that cannot be done."""
    if not reference:
        return base
    try:
        absolute = SCHEME.match(reference)
        if absolute is not None:
            return absolute[0].lower() + reference[absolute.end() :]
        scheme, _, rest = base.partition(":")
        # urljoin knows some schemes only, and the rule is the same for all that have a path.
        return scheme + urljoin("http:" + rest, reference)[len("http") :] if rest.startswith("/") else None
    except ValueError:
        return None
