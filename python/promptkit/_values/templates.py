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
from typing import TYPE_CHECKING, Any, TypeVar, cast

from returns.result import Failure, Result, Success

from promptkit._values.frozen import FrozenDict, text_fault
from promptkit._values.template_faults import INPUTS, FaultError, Include, TemplateFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import GeneratorType

    from jinja2 import Template, nodes

    from promptkit._values.template_environment import ValueEnvironment
    from promptkit._values.template_names import Names

__all__ = ["CompiledTemplate", "Include", "TemplateFault", "compile_template", "includes_of", "with_plain_newlines"]

T = TypeVar("T")

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
    declared one counts as used. ``functions`` are names that it uses and that need not be declared: of Jinja2's own
    functions (range, dict), and those that a macro reads and the template itself may have set by then. Declared as
    variables, they are used.
    """

    __slots__ = ("_context", "_template", "all_inputs", "functions", "inputs", "variables")

    def __init__(self, template: Template, names: Names, functions: Mapping[str, Any]) -> None:
        self._template = template
        self._context = functions
        self.variables = names.variables
        self.functions = names.optional
        self.inputs = names.inputs
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
            return Failure(TemplateFault(_explained(error, variables), *place, absent=_absent(error, variables)))
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


def _explained(error: Exception, variables: Mapping[str, Any]) -> str:
    from jinja2 import UndefinedError

    from promptkit._values.template_filters import NotTextError

    absent = _absent(error, variables)
    if absent is not None:
        return f"the variable {absent!r} was not given: add it to the request's variables"
    text = str(error).strip() or type(error).__name__
    if isinstance(error, UndefinedError):
        quoted = text.split("'")[1::2]
        match quoted:
            case [name] if text.endswith(UNDEFINED):  # Jinja2 looks only for the one that is set below
                return f"{name!r} is read in an inner block above the place where the template sets it: rename one"
            case [owner, name] if owner.endswith(f"{_Inputs.__name__} object"):
                return f"the input {name!r} was not given: add it to the request's inputs"
            case [owner, name] if owner.endswith("FrozenDict object"):
                return f"a mapping has no key {name!r}; for a key that may be missing, test it with 'is defined'"
        return PYTHON.sub(lambda found: JSON_NAMES.get(found[1], found[0]), text)
    if isinstance(error, NotTextError):
        return text
    return f"{type(error).__name__}: {text}"[:300]


def _absent(error: Exception, variables: Mapping[str, Any]) -> str | None:
    """Give the variable that was not given, if that is what is wrong."""
    from jinja2 import UndefinedError

    text = str(error).strip()
    quoted = text.split("'")[1::2]
    absent = isinstance(error, UndefinedError) and text.endswith(UNDEFINED) and len(quoted) == 1
    return quoted[0] if absent and quoted[0] not in variables else None


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
) -> Result[CompiledTemplate, TemplateFault]:
    """Compile a template with the fragments that it may include, and find the names that it uses.

    ``fragments`` maps the names that includes name to sources. Those that are not reached do not matter.
    """
    try:
        return _compiled(source, fragments if isinstance(fragments, FrozenDict) else FrozenDict(fragments))
    except RecursionError:  # is not kept: there may be more room on the stack another time
        return Failure(TOO_DEEP)


def includes_of(source: str) -> Result[tuple[Include, ...], TemplateFault]:
    """Find what one source includes, in the order of its text, or why it is no template.

    Each name is relative to the prompts folder and stays inside it as it is written: separated by "/", without "..".
    """
    try:
        return _included(source)
    except RecursionError:
        return Failure(TOO_DEEP)


@lru_cache(maxsize=4096)
def _included(source: str) -> Result[tuple[Include, ...], TemplateFault]:
    from promptkit._values.template_names import includes, parse

    return _caught(lambda: includes(parse(source)))


@lru_cache(maxsize=4096)
def _compiled(source: str, fragments: FrozenDict[str, str]) -> Result[CompiledTemplate, TemplateFault]:
    from promptkit._values.template_environment import compiled, functions
    from promptkit._values.template_names import find_names, parse

    def compile_all() -> CompiledTemplate:
        tree = parse(source)
        reached = _reached(tree, fragments)
        names = find_names(tree, {name: _parsed(text, name) for name, text in reached.items()}, functions())
        environment, loopers = _with_fragments(reached)
        return CompiledTemplate(compiled(environment, tree, loopers, None), names, functions())

    return _caught(compile_all)


def _caught(work: Callable[[], T]) -> Result[T, TemplateFault]:
    from jinja2 import TemplateSyntaxError

    try:
        return Success(work())
    except FaultError as error:
        return Failure(error.fault)
    except TemplateSyntaxError as error:
        return Failure(TemplateFault(f"does not compile: {error.message}", error.lineno, error.name))
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001  # Jinja2 writes Python, and Python has limits of its own
        return Failure(TemplateFault(f"does not compile: {type(error).__name__}: {error}"[:300]))


@lru_cache(maxsize=1024)
def _parsed(source: str, name: str) -> nodes.Template:
    """Parse a fragment to be read, not compiled: compiling changes a tree."""
    from promptkit._values.template_names import parse

    return parse(source, name)


def _reached(tree: nodes.Template, fragments: FrozenDict[str, str]) -> FrozenDict[str, str]:
    """Choose the fragments that a template includes, or that they include."""
    from promptkit._values.template_names import includes

    reached: dict[str, str] = {}
    waiting = list(includes(tree))
    while waiting:
        name = waiting.pop().name
        if name in fragments and name not in reached:
            reached[name] = fragments[name]
            waiting += includes(_parsed(fragments[name], name))
    return FrozenDict(reached)


@lru_cache(maxsize=1024)
def _with_fragments(fragments: FrozenDict[str, str]) -> tuple[ValueEnvironment, frozenset[str]]:
    """Make the environment of templates that include these fragments, and name those that read the variable loop."""
    from promptkit._values.template_environment import with_fragments
    from promptkit._values.template_names import parse, reading_loop

    trees = {name: parse(text, name) for name, text in fragments.items()}
    loopers = reading_loop(trees)
    return with_fragments(trees, loopers), loopers
