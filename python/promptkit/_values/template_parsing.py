"""Parsing a template: its tree, and everything in it that no template of a prompt may have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, TemplateSyntaxError, nodes

from promptkit._values.frozen import text_fault
from promptkit._values.template_environment import STEPS, base_environment, name_of
from promptkit._values.template_faults import INPUTS, Include, TemplateFault, form_fault
from promptkit._values.template_filters import REFUSED
from promptkit.errors import near

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Parsed(NamedTuple):
    """A source as Jinja2 reads it, and its faults: one and no tree, if it is no template."""

    tree: nodes.Template | None
    faults: tuple[TemplateFault, ...]


def parse(source: str, fragment: str | None = None) -> Parsed:
    """Parse a source: that of a fragment, or of a template itself."""
    environment = base_environment()
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        return Parsed(None, (TemplateFault(f"does not compile: {error.message}", error.lineno, fragment),))
    except ValueError:
        return Parsed(None, (TemplateFault("has a whole number of more digits than Python reads", None, fragment),))
    included = {id(node.template) for node in tree.find_all(nodes.Include)}  # names, which are no texts
    faults = [
        TemplateFault(refused, node.lineno, fragment)
        for node in tree.find_all(nodes.Node)
        if id(node) not in included and (refused := _refusal(node, environment)) is not None
    ]
    return Parsed(tree, tuple(dict.fromkeys(faults)))


def includes(tree: nodes.Template) -> tuple[Include, ...]:
    """Find what a parsed template includes, apart from what is refused."""
    found = [node for node in tree.find_all(nodes.Include) if include_refusal(node) is None]
    return tuple(Include(name_of(node) or "", node.lineno) for node in found)


def reading_loop(fragments: Mapping[str, nodes.Template]) -> frozenset[str]:
    """Give the fragments that read the variable ``loop``, or include one that does."""
    found = {name for name, tree in fragments.items() if any(n.name == "loop" for n in tree.find_all(nodes.Name))}
    inside = {name: {include.name for include in includes(tree)} for name, tree in fragments.items()}
    while more := {name for name, names in inside.items() if not names.isdisjoint(found)} - found:
        found |= more
    return frozenset(found)


def input_of(node: nodes.Node) -> str | None:
    """Give NAME for inputs.NAME and inputs["NAME"]."""
    if not isinstance(node, nodes.Getattr | nodes.Getitem):
        return None
    if not isinstance(node.node, nodes.Name) or node.node.name != INPUTS:
        return None
    if isinstance(node, nodes.Getattr):
        return node.attr
    return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else None


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
            return include_refusal(node)
        case nodes.Name() | nodes.NSRef() | nodes.Macro() | nodes.Keyword():
            return form_fault(node.key if isinstance(node, nodes.Keyword) else node.name)
        case nodes.Getattr() | nodes.Getitem():
            return form_fault(input_of(node) or "")
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


def include_refusal(node: nodes.Include) -> str | None:
    """Say why an include is none that a prompt may have, whatever there is to include."""
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
