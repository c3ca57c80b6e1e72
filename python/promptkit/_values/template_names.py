"""What a parsed template needs from outside: its includes, and the names that it reads before it sets them.

Scopes are those of Jinja2: a loop, a with, a macro, a block and an include have their own; the branches of an if do
not. A name is read from outside if on some way through the template nothing has set it. A fragment is read in the
place where it is included, so that it finds what is set there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, TemplateSyntaxError, nodes

from promptkit._values.frozen import text_fault
from promptkit._values.template_environment import STEPS, base_environment, name_of
from promptkit._values.template_faults import INPUTS, FaultError, Include
from promptkit._values.template_filters import REFUSED
from promptkit.errors import near

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

OF_A_MACRO = frozenset({"caller", "varargs", "kwargs"})
ELSEWHERE = {
    "loop": "is used outside a loop",
    "self": "is for template inheritance, which prompts do not have: leave it out",
    "super": "is for template inheritance, which prompts do not have: leave it out",
}
MAX_INCLUDES = 1_000  # of one template, those of its fragments counted wherever they are included
MAX_INCLUDE_DEPTH = 50


class Names(NamedTuple):
    """The names that a template takes from outside."""

    variables: frozenset[str]
    optional: frozenset[str]
    inputs: frozenset[str]
    all_inputs: bool


def parse(source: str, fragment: str | None = None) -> nodes.Template:
    """Parse a source, and raise FaultError for what no template of a prompt may have."""
    environment = base_environment()
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        msg = f"does not compile: {error.message}"
        raise FaultError(msg, error.lineno, fragment) from None
    except ValueError:
        msg = "has a whole number of more digits than Python reads"
        raise FaultError(msg, None, fragment) from None
    for node in tree.find_all(nodes.Node):
        message = _refusal(node, environment)
        if message is not None:
            raise FaultError(message, node.lineno, fragment)
    return tree


def includes(tree: nodes.Template) -> tuple[Include, ...]:
    """Find the includes of a parsed template."""
    return tuple(Include(name_of(node) or "", node.lineno) for node in tree.find_all(nodes.Include))


def reading_loop(fragments: Mapping[str, nodes.Template]) -> frozenset[str]:
    """Give the fragments that read the variable ``loop``, or include one that does."""
    found = {name for name, tree in fragments.items() if any(n.name == "loop" for n in tree.find_all(nodes.Name))}
    inside = {name: {include.name for include in includes(tree)} for name, tree in fragments.items()}
    while more := {name for name, names in inside.items() if not names.isdisjoint(found)} - found:
        found |= more
    return frozenset(found)


def _refusal(node: nodes.Node, environment: Environment) -> str | None:
    match node:
        case nodes.Import() | nodes.FromImport():
            return "imports another template: write the macro here, or include a fragment"
        case nodes.Extends() | nodes.Block():
            return "inherits from another template, which prompts do not have: include a fragment"
        case nodes.EvalContextModifier():
            return "has an autoescape block, which would change values: leave it out"
        case nodes.Const() if isinstance(node.value, float) and not math.isfinite(node.value):
            return "has a number that is too large for JSON"
        case nodes.Const() if isinstance(node.value, str) and (fault := text_fault(node.value)) is not None:
            return f"has a text that {fault}"
        case nodes.Include():
            return _include_refusal(node)
        case nodes.Filter() if node.name in REFUSED:
            return f"uses the filter {node.name!r}, which {REFUSED[node.name]}"
        case nodes.Filter() if node.name not in environment.filters:
            return _unknown("filter", node.name, environment.filters)
        case nodes.Test() if node.name not in environment.tests:
            return _unknown("test", node.name, environment.tests)
    return None


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    suggestion = near(name, [each for each in known if each != STEPS])
    return f"there is no {kind} {name!r}" + (f"; did you mean {suggestion!r}?" if suggestion else "")


def _include_refusal(node: nodes.Include) -> str | None:
    name = name_of(node)
    if name is None:
        return 'includes a name that is not literal: write {% include "folder/file.txt" %}, and choose with {% if %}'
    if node.ignore_missing:
        return "includes with 'ignore missing', which hides mistakes: leave it out"
    if not node.with_context:
        return "includes 'without context': leave it out"
    if not name or not name.isprintable():
        return f"includes {name!r}, which is no name of a file"
    if "\\" in name:
        return f"includes {name!r}: write the name with '/'"
    if name.startswith("/") or name[1:2] == ":" or ".." in name.split("/"):
        return f"includes {name!r}, which is not inside the prompts folder: names are relative to it"
    if any(part in {"", "."} for part in name.split("/")):
        return f"includes {name!r}: write the name without empty parts and without '.'"
    return None


def find_names(tree: nodes.Template, fragments: Mapping[str, nodes.Template], functions: Container[str]) -> Names:
    """Find the names that a template takes from outside, through its fragments. Raise FaultError for what cannot be."""
    reader = _Reader(fragments)
    reader.body(tree.body, _Scope(set(), _set_in(tree.body)))
    known = {name for name in reader.free if name in functions}
    optional = frozenset(known | (reader.maybe - reader.free))
    return Names(frozenset(reader.free - known), optional, frozenset(reader.inputs), reader.all_inputs)


class _Scope(NamedTuple):
    """What is surely set at a point, what the scopes around it set anywhere, and what is therefore perhaps set.

    The last is for macros: they see what is set when they are called.
    """

    bound: set[str]
    anywhere: frozenset[str]
    maybe: frozenset[str] = frozenset()

    def inner(self) -> _Scope:
        return self._replace(bound=set(self.bound))


class _Reader:
    """Walks through statements in the order in which they run."""

    def __init__(self, fragments: Mapping[str, nodes.Template]) -> None:
        self._fragments = fragments
        self._path: list[str] = []
        self._count = 0
        self.free: set[str] = set()
        self.maybe: set[str] = set()
        self.inputs: set[str] = set()
        self.all_inputs = False

    def body(self, statements: Iterable[nodes.Node], scope: _Scope) -> None:
        for statement in statements:
            self._statement(statement, scope)

    def _own_scope(self, statements: list[nodes.Node], scope: _Scope) -> None:
        self.body(statements, scope._replace(anywhere=scope.anywhere | _set_in(statements)))

    def _statement(self, node: nodes.Node, scope: _Scope) -> None:  # noqa: C901, PLR0912  # one case a statement
        match node:
            case nodes.If():
                self._branches(node, scope)
            case nodes.For():
                self._loop(node, scope)
            case nodes.Include():
                self._include(node, scope)
            case nodes.Assign():
                self._read(node.node, scope)
                self._bind(node.target, scope)
            case nodes.AssignBlock():
                self._read(node.filter, scope)
                self._own_scope(node.body, scope.inner())
                self._bind(node.target, scope)
            case nodes.With():
                for value in node.values:
                    self._read(value, scope)
                inner = scope.inner()
                for target in node.targets:
                    self._bind(target, inner)
                self._own_scope(node.body, inner)
            case nodes.Macro():
                scope.bound.add(node.name)
                self._called(node, scope.inner()._replace(maybe=scope.maybe | scope.anywhere))
            case nodes.CallBlock():
                self._read(node.call, scope)
                self._called(node, scope.inner())
            case nodes.FilterBlock():
                self._read(node.filter, scope)
                self._own_scope(node.body, scope.inner())
            case nodes.Scope():
                self._own_scope(node.body, scope.inner())
            case _:
                self._read(node, scope)

    def _branches(self, node: nodes.If, scope: _Scope) -> None:
        ends: list[set[str]] = []
        for branch in (node, *node.elif_):
            self._read(branch.test, scope)
            inner = scope.inner()
            self.body(branch.body, inner)
            ends.append(inner.bound)
        inner = scope.inner()
        self.body(node.else_, inner)
        scope.bound.update(inner.bound.intersection(*ends))

    def _loop(self, node: nodes.For, scope: _Scope) -> None:
        self._read(node.iter, scope)
        inner = scope.inner()
        self._bind(node.target, inner)
        self._read(node.test, inner)
        inner.bound.add("loop")
        self._own_scope(node.body, inner)
        self._own_scope(node.else_, scope.inner())

    def _called(self, node: nodes.Macro | nodes.CallBlock, inner: _Scope) -> None:
        for argument in node.args:
            self._bind(argument, inner)
        for default in node.defaults:
            self._read(default, inner)
        inner.bound.update(OF_A_MACRO)
        self._own_scope(node.body, inner)

    def _include(self, node: nodes.Include, scope: _Scope) -> None:
        name = name_of(node) or ""
        where = self._path[-1] if self._path else None
        self._count += 1
        if name not in self._fragments:
            msg = f"includes {name!r}, and a prompt made in Python has no prompts folder: put the text into content"
        elif name in self._path:
            msg = "includes itself: " + " -> ".join([*self._path[self._path.index(name) :], name])
        elif len(self._path) == MAX_INCLUDE_DEPTH:
            msg = f"includes {name!r} at a depth of more than {MAX_INCLUDE_DEPTH} fragments"
        elif self._count > MAX_INCLUDES:
            msg = f"includes more than {MAX_INCLUDES:,} fragments, each counted as often as it is included"
        else:
            body = self._fragments[name].body
            self._path.append(name)
            self.body(body, _Scope(scope.bound - OF_A_MACRO, _set_in(body), scope.maybe))
            self._path.pop()
            return
        raise FaultError(msg, node.lineno, where)

    def _bind(self, target: nodes.Node, scope: _Scope) -> None:
        if isinstance(target, nodes.NSRef):
            self._use(target.name, target.lineno, scope)
        elif isinstance(target, nodes.Name):
            scope.bound.add(target.name)
        else:
            for part in target.iter_child_nodes():
                self._bind(part, scope)

    def _read(self, node: nodes.Node | None, scope: _Scope) -> None:
        waiting = [] if node is None else [node]
        while waiting:
            found = waiting.pop()
            if isinstance(found, nodes.Name):
                self._use(found.name, found.lineno, scope)
            elif (one := _input_of(found)) is not None and INPUTS not in scope.bound:
                self.inputs.add(one)
            else:
                waiting += found.iter_child_nodes()

    def _use(self, name: str, line: int, scope: _Scope) -> None:
        if name in scope.bound:
            return
        if name in ELSEWHERE:
            msg = f"{name!r} {ELSEWHERE[name]}"
            raise FaultError(msg, line, self._path[-1] if self._path else None)
        if name == INPUTS:
            self.all_inputs = True
        elif name in scope.maybe:
            self.maybe.add(name)
        else:
            self.free.add(name)


def _input_of(node: nodes.Node) -> str | None:
    """Give NAME for inputs.NAME and inputs["NAME"]."""
    if not isinstance(node, nodes.Getattr | nodes.Getitem):
        return None
    if not isinstance(node.node, nodes.Name) or node.node.name != INPUTS:
        return None
    if isinstance(node, nodes.Getattr):
        return node.attr
    return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else None


def _set_in(statements: Iterable[nodes.Node]) -> frozenset[str]:
    """Give the names that statements set in their own scope, on any way."""
    names: set[str] = set()
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        match node:
            case nodes.Assign() | nodes.AssignBlock():
                targets = [node.target] if isinstance(node.target, nodes.Name) else node.target.find_all(nodes.Name)
                names.update(target.name for target in targets)
            case nodes.Macro():
                names.add(node.name)
            case nodes.If():
                waiting += (*node.body, *node.elif_, *node.else_)
    return frozenset(names)
