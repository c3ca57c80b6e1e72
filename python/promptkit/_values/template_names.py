"""What a parsed template needs from outside: its includes, and the names that it reads before it sets them.

Scopes are those of Jinja2: a loop, a with, a macro, a block and an include have their own; the branches of an if do
not. A name is read from outside if on some way through the template nothing has set it. A fragment is read in the
place where it is included, so that it finds what is set there. A macro finds what is set when it is called, which is
where its name is read; one that is defined in a branch counts as called at the end of that branch.

Not found here: a name that is read in an inner block above the place where the block around it sets it. Jinja2 looks
only for the one that is set, also if one is given from outside; the rendering says so when it comes there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from jinja2 import nodes

from promptkit._values.template_environment import name_of
from promptkit._values.template_faults import INPUTS, Place, TemplateFault, normal_form
from promptkit._values.template_parsing import include_refusal, input_of

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
    """The names that a template takes from outside, and where it uses each first.

    A use in the template itself comes before one in a fragment. ``optional`` are names of Jinja2's functions.
    """

    variables: Mapping[str, Place]
    optional: frozenset[str]
    inputs: Mapping[str, Place]
    all_inputs: bool


def find_names(
    tree: nodes.Template, fragments: Mapping[str, nodes.Template | None], functions: Container[str]
) -> tuple[Names, tuple[TemplateFault, ...]]:
    """Find the names that a template takes from outside, through its fragments, and what cannot be on the way.

    A fragment is None if it is no template.
    """
    reader = _Reader(fragments)
    reader.body(tree.body, _Scope(({},), (_set_in(tree.body),)))
    variables = {name: place for name, place in reader.free.items() if name not in functions}
    optional = frozenset(reader.free.keys() - variables.keys())
    return Names(variables, optional, reader.inputs, reader.all_inputs), reader.faults()


class _Macro:
    """What a macro reads that is not set where it is defined, and can be set when it is called.

    ``depth`` is the number of scopes around it, and ``reads`` has the place of each read by the name and the number
    of scopes in which it is looked for.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.reads: dict[tuple[str, int], Place] = {}


class _Scope(NamedTuple):
    """The scopes around a point, outermost first, and the macro in whose body it is.

    ``bound`` has what is surely set in each at this point, with the macro that a name is of; ``anywhere`` what each
    sets at any point.
    """

    bound: tuple[dict[str, _Macro | None], ...]
    anywhere: tuple[frozenset[str], ...]
    macro: _Macro | None = None

    def inner(self, statements: Iterable[nodes.Node] = ()) -> _Scope:
        """Give a scope inside this one, for some statements."""
        return self._replace(bound=(*self.bound, {}), anywhere=(*self.anywhere, _set_in(statements)))

    def branch(self) -> _Scope:
        """Give this scope for statements that may not run."""
        return self._replace(bound=(*self.bound[:-1], dict(self.bound[-1])))

    def bind(self, name: str, macro: _Macro | None = None) -> None:
        """Note that a name is set from here on."""
        self.bound[-1][normal_form(name)] = macro


class _Reader:
    """Walks through statements in the order in which they run."""

    def __init__(self, fragments: Mapping[str, nodes.Template | None]) -> None:
        self._fragments = fragments
        self._path: list[tuple[str, int]] = []  # the fragments that the walk is in, and the line that includes each
        self._count = 0
        self._faults: dict[TemplateFault, None] = {}  # in order, each once
        self._endless: dict[str, TemplateFault] = {}
        self._too_much: dict[str, TemplateFault] = {}
        self.free: dict[str, Place] = {}
        self.inputs: dict[str, Place] = {}
        self.all_inputs = False

    def faults(self) -> tuple[TemplateFault, ...]:
        """Give what was found; fragments that include themselves are too many in any case."""
        return (*self._faults, *(self._endless or self._too_much).values())

    def body(self, statements: Iterable[nodes.Node], scope: _Scope) -> None:
        for statement in statements:
            self._statement(statement, scope)

    def _own_scope(self, statements: list[nodes.Node], scope: _Scope) -> None:
        self.body(statements, scope.inner(statements))

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
                self._own_scope(node.body, scope)
                self._bind(node.target, scope)
            case nodes.With():
                for value in node.values:
                    self._read(value, scope)
                inner = scope.inner(node.body)
                for target in node.targets:
                    self._bind(target, inner)
                self.body(node.body, inner)
            case nodes.Macro():
                macro = _Macro(len(scope.bound))
                scope.bind(node.name, macro)
                self._called(node, scope._replace(macro=macro))
            case nodes.CallBlock():
                self._read(node.call, scope)
                self._called(node, scope)
            case nodes.FilterBlock():
                self._read(node.filter, scope)
                self._own_scope(node.body, scope)
            case nodes.Scope() | nodes.Block() | nodes.ScopedEvalContextModifier():
                for option in node.options if isinstance(node, nodes.ScopedEvalContextModifier) else ():
                    self._read(option, scope)
                self._own_scope(node.body, scope)
            case nodes.Import():
                scope.bind(node.target)
            case nodes.FromImport():
                for name in node.names:
                    scope.bind(name if isinstance(name, str) else name[1])
            case _:
                self._read(node, scope)

    def _branches(self, node: nodes.If, scope: _Scope) -> None:
        ends: list[dict[str, _Macro | None]] = []
        for branch in (node, *node.elif_):
            self._read(branch.test, scope)
            ends.append(self._branch(branch.body, scope))
        ends.append(self._branch(node.else_, scope))
        before = scope.bound[-1]
        for name in set(ends[0]).intersection(*ends[1:]):
            if name not in before or any(end[name] is not before[name] for end in ends):
                scope.bind(name)

    def _branch(self, statements: list[nodes.Node], scope: _Scope) -> dict[str, _Macro | None]:
        inner = scope.branch()
        self.body(statements, inner)
        for name, macro in inner.bound[-1].items():
            if macro is not None and macro is not scope.bound[-1].get(name):
                self._call([macro], inner)
        return inner.bound[-1]

    def _loop(self, node: nodes.For, scope: _Scope) -> None:
        self._read(node.iter, scope)
        inner = scope.inner(node.body)
        self._bind(node.target, inner)
        self._read(node.test, inner)
        inner.bind("loop")
        self.body(node.body, inner)
        self._own_scope(node.else_, scope)

    def _called(self, node: nodes.Macro | nodes.CallBlock, scope: _Scope) -> None:
        inner = scope.inner(node.body)
        for argument in node.args:
            self._bind(argument, inner)
        self._defaults(node, inner)
        for name in OF_A_MACRO:
            inner.bind(name)
        self.body(node.body, inner)

    def _defaults(self, node: nodes.Macro | nodes.CallBlock, scope: _Scope) -> None:
        """Read the defaults of arguments. One that is not given has a value when those before it have theirs."""
        names = [argument.name for argument in node.args]
        for index, default in enumerate(node.defaults, len(names) - len(node.defaults)):
            self._read(default, scope)
            for read in (default, *default.find_all(nodes.Name)):
                if isinstance(read, nodes.Name) and read.name in names[index:]:
                    found = f"the default of {names[index]!r} reads {read.name!r}, an argument that has no value yet"
                    self._fault(f"{found}: rename one", self._place(read.lineno))

    def _include(self, node: nodes.Include, scope: _Scope) -> None:
        if include_refusal(node) is not None:
            self._read(node.template, scope)
            return
        name = name_of(node) or ""
        self._count += 1
        root = self._path[0][1] if self._path else node.lineno
        if name not in self._fragments:
            why = "and a prompt made in Python has no prompts folder: put the text into content"
            self._fault(f"includes {name!r}, {why}", self._place(node.lineno))
        elif any(name == entered for entered, _ in self._path):
            self._loops(name, node.lineno)
        elif len(self._path) == MAX_INCLUDE_DEPTH:
            message = f"includes fragments inside each other at a depth of more than {MAX_INCLUDE_DEPTH}"
            self._too_much.setdefault("depth", TemplateFault(message, root))
        elif self._count > MAX_INCLUDES:
            message = f"includes more than {MAX_INCLUDES:,} fragments, each counted as often as it is included"
            self._too_much.setdefault("count", TemplateFault(message, root))
        else:
            tree = self._fragments[name]
            body = [] if tree is None else tree.body
            self._path.append((name, node.lineno))
            seen = tuple({n: macro for n, macro in each.items() if n not in OF_A_MACRO} for each in scope.bound)
            self._own_scope(body, scope._replace(bound=seen))
            self._path.pop()

    def _loops(self, name: str, line: int) -> None:
        """Say that fragments include themselves. A loop starts with its first name, whoever enters it where."""
        names = [entered for entered, _ in self._path]
        loop = names[names.index(name) :]
        lines = [entered for _, entered in self._path[names.index(name) + 1 :]] + [line]
        start = loop.index(min(loop))
        shown = " -> ".join([*loop[start:], *loop[: start + 1]])
        fault = TemplateFault(f"includes itself without an end: {shown}", lines[start], loop[start])
        self._endless.setdefault(shown, fault)

    def _bind(self, target: nodes.Node, scope: _Scope) -> None:
        if isinstance(target, nodes.NSRef):
            self._use(target.name, target.lineno, scope)
        elif isinstance(target, nodes.Name):
            scope.bind(target.name)
        else:
            for part in target.iter_child_nodes():
                self._bind(part, scope)

    def _read(self, node: nodes.Node | None, scope: _Scope) -> None:
        waiting = [] if node is None else [node]
        while waiting:
            found = waiting.pop()
            if isinstance(found, nodes.Name):
                self._use(found.name, found.lineno, scope)
            elif (one := input_of(found)) is not None and not any(INPUTS in each for each in scope.bound):
                self._note(self.inputs, normal_form(one), self._place(found.lineno))
            else:
                waiting += found.iter_child_nodes()

    def _use(self, name: str, line: int, scope: _Scope) -> None:
        macro = self._find(normal_form(name), self._place(line), scope, len(scope.bound))
        if macro is not None:
            self._call([macro], scope)

    def _call(self, waiting: list[_Macro], scope: _Scope) -> None:
        """Read what macros read, and the macros that they call in turn, where they are called."""
        seen: list[_Macro] = []
        while waiting:
            macro = waiting.pop()
            if macro not in seen:
                seen.append(macro)
                called = [self._find(name, place, scope, depth) for (name, depth), place in [*macro.reads.items()]]
                waiting += [each for each in called if each is not None]

    def _find(self, name: str, place: Place, scope: _Scope, depth: int) -> _Macro | None:
        """Read a name that is looked for in the outermost ``depth`` scopes; give the macro, if it is that of one."""
        for bound in reversed(scope.bound[:depth]):
            if name in bound:
                return bound[name]
        seen = depth if scope.macro is None else min(depth, scope.macro.depth)
        if scope.macro is not None and any(name in names for names in scope.anywhere[:seen]):
            scope.macro.reads.setdefault((name, seen), place)
        elif name in ELSEWHERE:
            self._fault(f"{name!r} {ELSEWHERE[name]}", place)
        elif name == INPUTS:
            self.all_inputs = True
        else:
            self._note(self.free, name, place)
        return None

    def _place(self, line: int) -> Place:
        return Place(line, self._path[-1][0] if self._path else None)

    def _note(self, uses: dict[str, Place], name: str, place: Place) -> None:
        known = uses.get(name)
        if known is None or (place.fragment is None and known.fragment is not None):
            uses[name] = place
        elif place.fragment == known.fragment:
            uses[name] = min(place, known, key=lambda use: use.line)

    def _fault(self, message: str, place: Place) -> None:
        self._faults[TemplateFault(message, place.line, place.fragment)] = None


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
