"""The one environment of all templates: Jinja2's sandbox, narrowed to JSON values, and bounded.

What a template repeats is counted, MAX_STEPS in one rendering, so that each rendering ends: the turns of its loops,
and its calls of macros and functions, which take longer, as ten. Texts, lists and numbers that operators and filters
make have the limits of ``template_filters``. Not bounded are the time of one filter or comparison over large values,
and the memory of what macros and set blocks gather before it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, Template, TemplateNotFound, nodes, pass_context
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from promptkit._values.frozen import FrozenDict
from promptkit._values.template_filters import (
    NotTextError,
    check_bits,
    check_items,
    check_length,
    fill,
    json_filters,
    json_tests,
    printed,
)
from promptkit.errors import with_article

MAX_STEPS = 2_000_000
STEPS_OF_A_CALL = 10
STEPS = " steps"  # the count's place in a context and the counting filter's name: no template can write either
MADE_OF = (LoopContext, Cycler, Joiner, Namespace)  # what has attributes in a template
REMEDIES = {
    "items": "use the filter: value|items",
    "keys": "iterate over the mapping itself, or use value|list",
    "values": "use value|items",
    "get": "use value.name, with |default for what may be missing",
    "upper": "use the filter: value|upper",
    "lower": "use the filter: value|lower",
    "strip": "use the filter: value|trim",
    "join": "use the filter: values|join(separator)",
    "replace": "use the filter: value|replace(old, new)",
    "format": "use the filter: value|format(...)",
    "startswith": "use a slice: value[:n] == ...",
}


class ValueEnvironment(SandboxedEnvironment):
    """The sandbox, narrowed to JSON values."""

    intercepted_binops = frozenset({"%", "*", "**", "+"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate within the limits, and fill in patterns."""
        if operator == "%" and isinstance(left, str):
            placed = right if isinstance(right, tuple) else (right,)
            return fill(left, placed, right if isinstance(right, dict) else None)
        if operator == "*":
            _check_repetition(left, right)
            _check_repetition(right, left)
        elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            (check_length if isinstance(left, str) else check_items)(len(left) + len(right))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() * max(right, 0) // 2)  # at least so many has the power
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int):
            check_bits(result.bit_length())
        return result

    def call(self, context: Context, function: Any, /, *args: Any, **options: Any) -> Any:
        """Count a call, and for a recursive loop the turns of the next level."""
        _spend(context, STEPS_OF_A_CALL)
        if args and isinstance(function, LoopContext):
            args = (counted(context, args[0]), *args[1:])
        return super().call(context, function, *args, **options)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Find a key of a mapping, or an attribute of what templates are made of."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, StrictUndefined):
            return obj  # so that the error names what is missing first
        if isinstance(obj, MADE_OF):
            return super().getattr(obj, attribute)
        if isinstance(obj, tuple) and attribute in getattr(obj, "_fields", ()):  # of groupby
            return super().getattr(obj, attribute)
        if hasattr(type(obj), attribute):
            remedy = REMEDIES.get(attribute, "values are JSON: use filters and tests")
            msg = f".{attribute} is an attribute of a Python object ({_kind(obj)}); {remedy}"
            raise NotTextError(msg)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Find an item: never an attribute."""
        try:
            return obj[argument]
        except (LookupError, TypeError, AttributeError):
            return self.undefined(obj=obj, name=argument)


def _check_repetition(value: Any, times: Any) -> None:
    if isinstance(value, str | list | tuple) and isinstance(times, int) and times > 0:
        (check_length if isinstance(value, str) else check_items)(len(value) * times)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else with_article(type(value).__name__)


def _spend(context: Context, steps: int) -> None:
    left = context.parent[STEPS]
    left[0] -= steps
    if left[0] < 0:
        msg = f"takes more than {MAX_STEPS:,} steps: turns of its loops and calls"
        raise NotTextError(msg)


@pass_context
def counted(context: Context, values: Any) -> Any:
    """Count the turns that a loop over the values takes."""
    if not hasattr(type(values), "__len__"):
        values = list(values)  # of map, select and the like, which are over something that has a length
    _spend(context, len(values))
    return values


class _Prepared(NodeTransformer):
    """Rewrites a parsed template: a ~ b joins what is printed, loops are counted, fragments see ``loop``."""

    def __init__(self, loopers: frozenset[str]) -> None:
        self._loopers = loopers

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  # as the visitor calls it
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, STEPS, [], [], None, None, lineno=node.iter.lineno)
        if any(name_of(include) in self._loopers for include in included(node.body)):
            # Jinja2 makes the variable only for a body that names it, and does not look into what it includes
            node.body.insert(0, nodes.ExprStmt(nodes.Name("loop", "load", lineno=node.lineno), lineno=node.lineno))
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node | list[nodes.Node]:  # noqa: N802
        self.generic_visit(node)
        if node.filter is None or not isinstance(node.target, nodes.Name):
            return node
        # Jinja2 3.1 fails to compile the filter's arguments here, so it comes after the block: {% set x = x|filter %}
        made, line = node.filter, node.lineno
        innermost = made
        while isinstance(innermost.node, nodes.Filter):
            innermost = innermost.node
        innermost.node = nodes.Name(node.target.name, "load", lineno=line)
        node.filter = None
        return [node, nodes.Assign(nodes.Name(node.target.name, "store", lineno=line), made, lineno=line)]


def included(body: list[nodes.Node]) -> list[nodes.Include]:
    """Find the includes in some statements."""
    here = [node for node in body if isinstance(node, nodes.Include)]
    return here + [node for part in body for node in part.find_all(nodes.Include)]


def name_of(include: nodes.Include) -> str | None:
    """Give the name that an include names literally."""
    named = include.template.value if isinstance(include.template, nodes.Const) else None
    return named if isinstance(named, str) else None


class FragmentLoader(BaseLoader):
    """Hands out fragments that were compiled before: there is nowhere else to load from."""

    def __init__(self) -> None:
        self.templates: dict[str, Template] = {}

    def load(self, environment: Environment, name: str, globals: MutableMapping[str, Any] | None = None) -> Template:  # noqa: A002, ARG002  # as Jinja2 has it
        """Find one fragment."""
        if name not in self.templates:
            raise TemplateNotFound(name)
        return self.templates[name]


def compiled(environment: Environment, tree: nodes.Template, loopers: frozenset[str], name: str | None) -> Template:
    """Compile a parsed template, which is used up."""
    _Prepared(loopers).visit(tree)
    return Template.from_code(environment, environment.compile(tree, name), {})


@lru_cache(maxsize=1)
def base_environment() -> ValueEnvironment:
    """Make the one environment, when the first template is compiled: Jinja2 is slow to import."""
    environment = ValueEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, finalize=printed, auto_reload=False
    )
    del environment.globals["lipsum"]  # it gives another text each time
    environment.filters = {**json_filters(), STEPS: counted}
    environment.tests = json_tests()
    return environment


def with_fragments(loader: FragmentLoader) -> ValueEnvironment:
    """Make the environment of templates that may include what a loader has."""
    return base_environment().overlay(loader=loader)


@lru_cache(maxsize=1)
def functions() -> FrozenDict[str, Any]:
    """Give Jinja2's own functions that a template may use."""
    return FrozenDict(base_environment().globals)
