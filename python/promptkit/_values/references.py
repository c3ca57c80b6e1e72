"""The references of a JSON Schema: where they lead, and which of them never end.

Base addresses, anchors and dynamic references are resolved inside the one document, as draft 2020-12 and the drafts
before it say; what leads out of it ends there. The validator decides whether a reference may be used at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from promptkit._values.json import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)([^#]*)", re.DOTALL)
ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
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
    """What following all references shows: those that come back to themselves without going into the value; a maze."""

    endless: tuple[Reference, ...] = ()
    maze: bool = False


class Written(NamedTuple):
    """A reference where it stands: the keyword of a schema."""

    node: dict[str, Any]
    keyword: str
    text: str


class Repeated(NamedTuple):
    """A name that two schemas have: nobody can say which of them a reference means."""

    text: str
    pointer: str
    first: str  # the pointer of the schema that had it before


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
        self._twice: list[tuple[Written, dict[str, Any]]] = []
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

    def dangling(self) -> Iterator[Reference]:
        """Give the references that lead nowhere in this document."""
        for node in self.schemas:
            for keyword, reference in _references(node, self._home[id(node)].draft):
                if self._target(reference, self._home[id(node)]) is None:
                    yield Reference(reference, self.place(node, keyword))

    def repeated(self) -> Iterator[Repeated]:
        """Give the addresses of schemas, and the names inside one of them, that another schema has as well."""
        for (node, keyword, text), first in self._twice:
            yield Repeated(text, self.place(node, keyword), self.place(first))

    def reach(self, node: dict[str, Any], scope: Scope = ()) -> Reach:
        """Go to a schema: its resource joins the surroundings."""
        resource = self._home[id(node)]
        if not resource.dynamic:
            return Reach(node, resource, scope)
        known = {name for name, _ in scope}
        added = ((name, resource.number) for name in resource.dynamic if name not in known)
        return Reach(node, resource, tuple(sorted((*scope, *added))))

    def here(self, reach: Reach) -> Iterator[tuple[Reach, Written | None]]:
        """Give the schemas that apply to the same value, with the reference that leads there, if one does."""
        node, resource, scope = reach
        for keyword, reference in _references(node, resource.draft):
            target = self._target(reference, resource)
            if isinstance(target, dict) and keyword in {"$dynamicRef", "$recursiveRef"}:
                target = self._outermost(target, "" if keyword == "$recursiveRef" else _fragment(reference), scope)
            if isinstance(target, dict):
                yield self.reach(target, scope), Written(node, keyword, reference)
        if resource.draft <= 7 and isinstance(node.get("$ref"), str):
            return  # what stands beside it says nothing in these drafts
        one = ONE_HERE if "if" in node else ONE_HERE[:1]
        for _, schema in _below(node, one, SEVERAL_HERE, NAMED_HERE):
            yield self.reach(schema, scope), None

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
            self._name(node, home)
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
        keyword = "id" if draft == 4 else "$id"
        own = node.get(keyword)
        address = own.partition("#")[0] if isinstance(own, str) and not (draft <= 7 and "$ref" in node) else ""
        if outer is not None and not address:
            return outer
        base = _join(NO_BASE if outer is None else outer.base, address)
        found = Resource(node, NO_BASE if base is None else base, draft, len(self.resources))
        self.resources.append(found)
        first = self._by_address.setdefault(found.base, found)
        if first is not found and base is not None:
            self._twice.append((Written(node, keyword, address), first.root))
        return found

    def _name(self, node: dict[str, Any], home: Resource) -> None:
        """Enter the names that a schema gives itself into its resource."""
        for keyword, name in _names(node, home.draft):
            first = home.anchors.setdefault(name, node)
            if first is not node:
                self._twice.append((Written(node, keyword, name), first))
            elif keyword == "$dynamicAnchor":
                home.dynamic[name] = node
        if home.draft == 2019 and node is home.root and node.get("$recursiveAnchor") is True:
            home.dynamic[""] = node

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


def survey(document: Document, most: int) -> Survey:
    """Follow every reference, in the surroundings in which it is used; one that is not used in those of the root.

    It ends with the reference that makes them ``most``.
    """
    walk = _Walk(document, most)
    root = document.reach(document.schemas[0])
    for node in document.schemas:  # grows meanwhile: a reference may name a schema that no keyword holds
        if id(node) not in walk.met:
            walk.search(document.reach(node, root.scope))
    return Survey(tuple(walk.endless), walk.spent)


class _Walk:
    def __init__(self, document: Document, most: int) -> None:
        self._document = document
        self._most = most
        self._done: set[tuple[int, Scope]] = set()
        self.met: set[int] = set()
        self.endless: dict[Reference, None] = {}

    @property
    def spent(self) -> bool:
        return len(self._done) > STATES_PER_SCHEMA * (len(self._document.schemas) + 100)

    @property
    def _over(self) -> bool:
        return self.spent or len(self.endless) >= self._most

    def search(self, first: Reach) -> None:
        entries = [first]
        while entries and not self._over:
            self._through(entries.pop(), entries)

    def _through(self, entry: Reach, entries: list[Reach]) -> None:
        """Walk through all that applies to the same value; collect what applies inside it."""
        path: list[Written | None] = []  # how each schema on the way was reached
        places: dict[tuple[int, Scope], int] = {}
        left: list[tuple[Reach, Written | None, bool]] = [(entry, None, False)]
        while left and not self._over:
            reach, via, after = left.pop()
            state = (id(reach.node), reach.scope)
            if after:
                path.pop()
                del places[state]
            elif state in places:
                self._close(path, places[state], via)
            elif state not in self._done:
                places[state] = len(path)
                path.append(via)
                self._done.add(state)
                self.met.add(state[0])
                left.append((reach, via, True))
                left.extend((applied, by, False) for applied, by in reversed([*self._document.here(reach)]))
                entries.extend(self._document.inside(reach))

    def _close(self, path: list[Written | None], start: int, via: Written | None) -> None:
        """Keep the first reference of a loop: there is one, since schemas hold each other in a tree."""
        written = next((path[i] for i in range(start + 1, len(path)) if path[i] is not None), via)
        if written is not None:
            self.endless[Reference(written.text, self._document.place(written.node, written.keyword))] = None


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


def _names(node: dict[str, Any], draft: int) -> Iterator[tuple[str, str]]:
    """Give the names that a schema gives itself inside its resource, with their keywords."""
    if draft <= 7:
        keyword = "id" if draft == 4 else "$id"
        own = node.get(keyword)
        name = own.partition("#")[2] if isinstance(own, str) and "$ref" not in node else ""
        if name and not name.startswith("/"):  # which is a pointer, whoever says that it is called so
            yield keyword, name
        return
    for keyword in ("$anchor", "$dynamicAnchor") if draft >= 2020 else ("$anchor",):
        anchor = node.get(keyword)
        if isinstance(anchor, str):
            yield keyword, anchor


def _draft(named: str) -> int:
    for mark, draft in (("draft-04", 4), ("draft-06", 6), ("draft-07", 7), ("2019-09", 2019)):
        if mark in named:
            return draft
    return 2020


def _fragment(reference: str) -> str:
    from urllib.parse import unquote

    return unquote(reference.partition("#")[2])


def _join(base: str, reference: str) -> str | None:
    """Resolve an address against a base, whatever its scheme; None where that cannot be done."""
    if not reference:
        return base
    if ADDRESS.match(reference) is not None:
        return _normal(reference)
    scheme, _, rest = base.partition(":")
    if not rest.startswith("/"):
        return None
    from urllib.parse import urljoin

    try:
        # urljoin knows some schemes only, and the rule is the same for all that have a path.
        return _normal(scheme + urljoin("http:" + rest, reference)[len("http") :])
    except ValueError:
        return None


def _normal(address: str) -> str:
    """Write an absolute address as all are written that mean the same (RFC 3986, section 6.2.2, and default ports)."""
    found = ADDRESS.match(ESCAPE.sub(_unescaped, address))
    if found is None:
        return address
    scheme, host, path, query = found[1].lower(), found[2], found[3], found[4]
    if path.startswith("/"):
        path = _without_dots(path)
    return f"{scheme}:{'' if host is None else _normal_host(scheme, host)}{path}{query}"


def _normal_host(scheme: str, host: str) -> str:
    user, at, place = host.rpartition("@")
    name, colon, port = place.rpartition(":")
    if colon and port.lstrip("0") in {"", DEFAULT_PORTS.get(scheme)}:
        place = name
    return f"//{user}{at}{place.lower()}"


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[0][1:], 16))
    return character if UNRESERVED.fullmatch(character) else escape[0].upper()


def _without_dots(path: str) -> str:
    kept: list[str] = []
    steps = path.split("/")[1:]
    for step in steps:
        if step == "..":
            kept = kept[:-1]
        elif step != ".":
            kept.append(step)
    if steps[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)
