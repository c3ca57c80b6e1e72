"""A prompt's template as a value: sandboxed Jinja2 source, the names that it uses, and its rendering.

The rules: strict about undefined names, no autoescape, the trailing newline kept. Text values appear in the output
byte for byte and are never evaluated; other values print as compact JSON, wherever they become text: printed, joined,
or given to a filter of texts. Values are JSON, so attribute access into Python objects is refused with the remedy.
Fragments are sources that come with the template: nothing is loaded when it is rendered. What a rendering may make and
how long it may go on is bounded, as ``template_environment`` says.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from returns.result import Failure, Result, Success

from promptkit._values.frozen import FrozenDict, text_fault
from promptkit._values.template_faults import INPUTS, Include, TemplateFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import GeneratorType

    from jinja2 import Template, nodes

    from promptkit._values.template_environment import ValueEnvironment
    from promptkit._values.template_names import Names
    from promptkit._values.template_parsing import Parsed

__all__ = [
    "CompiledTemplate",
    "Include",
    "TemplateFault",
    "compile_template",
    "includes_of",
    "names_of",
    "with_plain_newlines",
]

NO_FRAGMENTS: FrozenDict[str, str] = FrozenDict()
TOO_DEEP = TemplateFault("is nested too deeply")
PYTHON = re.compile(r"'(\w+) object'")
JSON_NAMES = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "tuple": "a list",
    "list": "a list",
    "range": "a list",
    "dict": "a mapping",
}
UNDEFINED = "is undefined"  # how Jinja2 ends what it says of a name
EVENTS = 10_000  # of a rendering that are measured at once


class _Inputs(dict[str, str]):
    """The inputs, of a class of their own so that a missing one is told from a missing key of a variable."""


NO_INPUTS = _Inputs()


class CompiledTemplate:
    """A template that compiles. ``variables`` and ``inputs`` are the names that it takes from outside.

    ``all_inputs`` says that it also uses inputs in a way that names none (``inputs[name]``, ``inputs|items``): each
    declared one counts as used. ``optional`` are names of Jinja2's own functions (range, dict) that it uses: they need
    not be declared, and are used if they are. ``names`` says where each name is used.
    """

    __slots__ = ("_context", "_template", "all_inputs", "inputs", "names", "optional", "variables")

    def __init__(self, template: Template, names: Names, functions: Mapping[str, Any]) -> None:
        self._template = template
        self._context = functions
        self.names = names
        self.variables = frozenset(names.variables)
        self.optional = names.optional
        self.inputs = frozenset(names.inputs)
        self.all_inputs = names.all_inputs

    def render(self, variables: Mapping[str, Any], inputs: Mapping[str, str]) -> Result[str, TemplateFault]:
        """Render to text that UTF-8 can carry. Whatever goes wrong inside the template comes back as a fault."""
        events = self._events(variables, inputs)
        try:
            text = _gathered(events)
        except RecursionError as error:
            return Failure(TemplateFault("recurses without an end", *_place_of(error)))
        except Exception as error:  # noqa: BLE001  # a template can raise anything that its filters and operators do
            place = _place_of(error, self._paused(events))
            absent = self._absent(error, variables)
            return Failure(TemplateFault(_explained(error, absent), *place, absent=absent))
        fault = text_fault(text)
        if fault is None:
            return Success(text)
        events = self._events(variables, inputs)
        next(event for event in events if text_fault(event) is not None)  # once more, up to the part that is wrong
        return Failure(TemplateFault(f"renders text that {fault}", *self._paused(events)))

    def _events(self, variables: Mapping[str, Any], inputs: Mapping[str, str]) -> GeneratorType[str, None, None]:
        from promptkit._values.template_environment import MAX_STEPS, STEPS

        given = _Inputs(inputs) if self.inputs or self.all_inputs else NO_INPUTS
        context = {**self._context, **variables, INPUTS: given, STEPS: [MAX_STEPS]}
        events: Any = self._template.root_render_func(self._template.new_context(context, shared=True))
        return cast("GeneratorType[str, None, None]", events)

    def _absent(self, error: Exception, variables: Mapping[str, Any]) -> str | None:
        """Give the variable that was not given, if that is what is wrong."""
        name = _undefined(error)
        return name if name in self.variables and name not in variables else None

    def _paused(self, events: GeneratorType[str, None, None]) -> Place:
        """Give the line at which a rendering stands."""
        frame = events.gi_frame
        return (None if frame is None else self._template.get_corresponding_lineno(frame.f_lineno)), None


def _gathered(events: Iterator[str]) -> str:
    """Join what a template prints, and stop before it is too much."""
    from promptkit._values.template_filters import check_length

    parts: list[str] = []
    length = 0
    while True:
        some = list(islice(events, EVENTS))
        length += sum(map(len, some))
        check_length(length)
        if len(some) < EVENTS:
            return "".join(parts + some) if parts else "".join(some)
        parts += some


def _explained(error: Exception, absent: str | None) -> str:
    from jinja2 import UndefinedError

    from promptkit._values.template_filters import NotTextError

    if absent is not None:
        return f"the variable {absent!r} was not given: add it to the request's variables"
    text = str(error).strip() or type(error).__name__
    if isinstance(error, UndefinedError):
        name = _undefined(error)
        if name is not None:  # Jinja2 looks only for the one that is set below
            return f"{name!r} is read in an inner block above the place where the template sets it: rename one"
        match text.split("'")[1::2]:
            case [owner, name] if owner.endswith(f"{_Inputs.__name__} object"):
                return f"the input {name!r} was not given as text: add it to the request's inputs"
            case [owner, name] if owner.endswith("FrozenDict object"):
                return f"a mapping has no key {name!r}; for a key that may be missing, test it with 'is defined'"
        return PYTHON.sub(lambda found: JSON_NAMES.get(found[1], found[0]), text)
    if isinstance(error, NotTextError):
        return text
    return f"{type(error).__name__}: {text}"[:300]


def _undefined(error: Exception) -> str | None:
    """Give the name that nothing has set, if that is what is wrong."""
    from jinja2 import UndefinedError

    text = str(error).strip()
    quoted = text.split("'")[1::2]
    found = isinstance(error, UndefinedError) and text.endswith(UNDEFINED) and len(quoted) == 1
    return quoted[0] if found else None


Place = tuple[int | None, str | None]


def _place_of(error: Exception, place: Place = (None, None)) -> Place:
    """Give the line and the fragment of an error: those of the innermost template in its traceback, else ``place``."""
    trace = error.__traceback__
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            place = template.get_corresponding_lineno(trace.tb_lineno), template.name
        trace = trace.tb_next
    return place


def with_plain_newlines(source: str) -> str:
    """Make every line end of a source LF, so that a file and a definition in Python say the same."""
    return source.replace("\r\n", "\n").replace("\r", "\n") if "\r" in source else source


def compile_template(
    source: str, fragments: Mapping[str, str] = NO_FRAGMENTS
) -> Result[CompiledTemplate, tuple[TemplateFault, ...]]:
    """Compile a template with the fragments that it may include, and find the names that it uses.

    ``fragments`` maps the names that includes name to sources. Those that are not reached do not matter. The failure
    has every fault: those of the template by line, then those of its fragments by name and line.
    """
    try:
        return _compiled(source, _frozen(fragments))
    except RecursionError:  # is not kept: there may be more room on the stack another time
        return Failure((TOO_DEEP,))


def names_of(source: str, fragments: Mapping[str, str] = NO_FRAGMENTS) -> Names | None:
    """Find the names that a template uses, also if it does not compile; None if it cannot be read at all."""
    try:
        return _examined(source, _frozen(fragments)).names
    except RecursionError:
        return None


def includes_of(source: str) -> tuple[Include, ...]:
    """Find what one source includes, in the order of its text: nothing if it is no template.

    Each name is relative to the prompts folder and stays inside it as it is written: separated by "/", without "..".
    """
    from promptkit._values.template_parsing import includes

    try:
        tree = _parsed(source, None).tree
    except RecursionError:
        return ()
    return () if tree is None else includes(tree)


def _frozen(fragments: Mapping[str, str]) -> FrozenDict[str, str]:
    return fragments if isinstance(fragments, FrozenDict) else FrozenDict(fragments)


class _Examined(NamedTuple):
    """What is known of a template before it is compiled. ``reached`` are the fragments that it includes."""

    tree: nodes.Template | None
    reached: FrozenDict[str, str]
    names: Names | None
    faults: tuple[TemplateFault, ...]


def _examined(source: str, fragments: FrozenDict[str, str]) -> _Examined:
    from promptkit._values.template_environment import functions
    from promptkit._values.template_names import find_names
    from promptkit._values.template_parsing import parse

    parsed = parse(source)
    if parsed.tree is None:
        return _Examined(None, NO_FRAGMENTS, None, parsed.faults)
    reached = _reached(parsed.tree, fragments)
    inner = {name: _parsed(text, name) for name, text in reached.items()}
    names, found = find_names(parsed.tree, {name: each.tree for name, each in inner.items()}, functions())
    faults = [*parsed.faults, *found, *(fault for each in inner.values() for fault in each.faults)]
    faults.sort(key=lambda fault: (fault.fragment or "", fault.line or 0))
    return _Examined(parsed.tree, reached, names, tuple(faults))


@lru_cache(maxsize=4096)
def _compiled(source: str, fragments: FrozenDict[str, str]) -> Result[CompiledTemplate, tuple[TemplateFault, ...]]:
    from promptkit._values.template_environment import functions

    tree, reached, names, faults = _examined(source, fragments)
    if tree is None or names is None or faults:
        return Failure(faults)
    prepared = _with_fragments(reached)
    if isinstance(prepared, Failure):
        return prepared
    environment, loopers = prepared.unwrap()
    template = _template(environment, tree, loopers, None)
    if isinstance(template, Failure):
        return Failure((template.failure(),))
    return Success(CompiledTemplate(template.unwrap(), names, functions()))


def _template(
    environment: ValueEnvironment, tree: nodes.Template, loopers: frozenset[str], name: str | None
) -> Result[Template, TemplateFault]:
    from jinja2 import TemplateSyntaxError

    from promptkit._values.template_environment import compiled

    try:
        return Success(compiled(environment, tree, loopers, name))
    except TemplateSyntaxError as error:
        return Failure(TemplateFault(f"does not compile: {error.message}", error.lineno, name))
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001  # Jinja2 writes Python, and Python has limits of its own
        return Failure(TemplateFault(f"does not compile: {type(error).__name__}: {error}"[:300], None, name))


@lru_cache(maxsize=4096)
def _parsed(source: str, name: str | None) -> Parsed:
    """Parse a source to be read, not compiled: compiling changes a tree."""
    from promptkit._values.template_parsing import parse

    return parse(source, name)


def _reached(tree: nodes.Template, fragments: FrozenDict[str, str]) -> FrozenDict[str, str]:
    """Choose the fragments that a template includes, or that they include."""
    from promptkit._values.template_parsing import includes

    reached: dict[str, str] = {}
    waiting = list(includes(tree))
    while waiting:
        name = waiting.pop().name
        if name in fragments and name not in reached:
            reached[name] = fragments[name]
            inner = _parsed(fragments[name], name).tree
            waiting += () if inner is None else includes(inner)
    return FrozenDict(reached)


@lru_cache(maxsize=1024)
def _with_fragments(
    fragments: FrozenDict[str, str],
) -> Result[tuple[ValueEnvironment, frozenset[str]], tuple[TemplateFault, ...]]:
    """Make the environment of templates that include these fragments, and name those that read the variable loop."""
    from promptkit._values.template_environment import FragmentLoader, base_environment, with_fragments
    from promptkit._values.template_parsing import parse, reading_loop

    if not fragments:
        return Success((base_environment(), frozenset()))
    loader = FragmentLoader()
    environment = with_fragments(loader)
    trees = {name: tree for name, text in sorted(fragments.items()) if (tree := parse(text, name).tree) is not None}
    loopers = reading_loop(trees)
    faults: list[TemplateFault] = []
    for name, tree in trees.items():
        template = _template(environment, tree, loopers, name)
        if isinstance(template, Failure):
            faults.append(template.failure())
        else:
            loader.templates[name] = template.unwrap()
    return Failure(tuple(faults)) if faults else Success((environment, loopers))
