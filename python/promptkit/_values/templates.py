"""A prompt's template as a value: sandboxed Jinja2 source, the names that it uses, and its rendering.

The rules: strict about undefined names, no autoescape, the trailing newline kept. Text values appear in the output
byte for byte and are never evaluated; other values print as compact JSON, wherever they become text: printed, joined,
or given to a filter of texts. Values are JSON, so attribute access into Python objects is refused with the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from returns.result import Failure, Result, Success

if TYPE_CHECKING:
    from jinja2 import Environment, Template

INPUTS = "inputs"  # the name under which a template finds the inputs
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


# Filters whose value is a text. Jinja2 would make it one with str(): "None", "True", "{'a': 1}".
TEXT_FILTERS = (
    "capitalize", "center", "e", "escape", "forceescape", "indent", "lower", "replace", "safe", "string",
    "striptags", "title", "trim", "truncate", "upper", "urlize", "wordcount", "wordwrap",
)  # fmt: skip


class TemplateFault(NamedTuple):
    """Why a template does not compile or render, and where in its source (1-based), if that is known."""

    message: str
    line: int | None = None


class NotTextError(Exception):
    """A value that the template prints, and that has no text form. Stays inside this module."""


class _Inputs(dict[str, str]):
    """The inputs, of a class of their own so that a missing one is told from a missing key of a variable."""


class CompiledTemplate:
    """A template that compiles. ``variables`` and ``inputs`` are the names that it uses.

    ``functions`` are names of Jinja2's own functions (range, dict) that it uses, unless they are declared as variables.
    """

    __slots__ = ("_template", "functions", "inputs", "variables")

    def __init__(
        self, template: Template, variables: frozenset[str], functions: frozenset[str], inputs: frozenset[str]
    ) -> None:
        self._template = template
        self.variables = variables
        self.functions = functions
        self.inputs = inputs

    def render(self, variables: Mapping[str, Any], inputs: Mapping[str, str]) -> Result[str, TemplateFault]:
        """Render to text. Whatever goes wrong inside the template comes back as a fault."""
        try:
            return Success(self._template.render({**variables, INPUTS: _Inputs(inputs)}))
        except RecursionError:
            return Failure(TemplateFault("recurses without an end"))
        except Exception as error:  # noqa: BLE001  # a template can raise anything that its filters and operators do
            return Failure(TemplateFault(_explained(error, variables), _line_of(error)))


def _explained(error: Exception, variables: Mapping[str, Any]) -> str:
    from jinja2 import UndefinedError

    text = str(error).strip() or type(error).__name__
    if isinstance(error, UndefinedError):
        quoted = text.split("'")[1::2]
        match quoted:
            case [name] if text.endswith("is undefined") and name not in variables:
                return f"the variable {name!r} was not given: add it to the request's variables"
            case [owner, name] if owner.endswith(f"{_Inputs.__name__} object"):
                return f"the input {name!r} was not given: add it to the request's inputs"
            case [owner, name] if owner.endswith("FrozenDict object"):
                return f"a mapping has no key {name!r}; for a key that may be missing, test it with 'is defined'"
        return text
    if isinstance(error, NotTextError):
        return text
    return f"{type(error).__name__}: {text}"[:300]


def _line_of(error: Exception) -> int | None:
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _printed(value: Any) -> Any:
    """Give what the template prints for a value: text as it is, other JSON compact."""
    from jinja2 import Undefined

    if isinstance(value, str | Undefined):
        return value
    if value is None:
        msg = "a value is None: handle it in the template, for example {{ name or '' }} or {% if name is none %}"
        raise NotTextError(msg)
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, bool | int | float | Mapping | tuple | list):
        return _compact_json(value)
    msg = f"a {type(value).__name__} has no text form: after map, select and the like, add |list or |join"
    raise NotTextError(msg)


def _compact_json(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"a calculated number is {value}, which JSON cannot carry"
        raise NotTextError(msg)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        msg = f"a {type(value).__name__} that is not JSON has no text form"
        raise NotTextError(msg) from None


def _texts(values: Iterable[Any]) -> list[Any]:
    """Give what the template prints for each value."""
    from jinja2 import StrictUndefined

    return [str(value) if isinstance(value, StrictUndefined) else _printed(value) for value in values]


def _of_text(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter of texts take the printed form of other values."""
    if getattr(original, "jinja_pass_arg", None) is None:

        @wraps(original)
        def plain(value: Any, *args: Any, **options: Any) -> Any:
            return original(*_texts([value]), *args, **options)

        return plain

    @wraps(original)
    def passed(context: Any, value: Any, *args: Any, **options: Any) -> Any:
        return original(context, *_texts([value]), *args, **options)

    return passed


def _join(environment: Environment, values: Iterable[Any], separator: Any = "", attribute: Any = None) -> str:
    from jinja2.filters import make_attrgetter

    chosen = values if attribute is None else map(make_attrgetter(environment, attribute), values)
    return str(_printed(separator)).join(_texts(chosen))


def _format(pattern: Any, *given: Any, **named: Any) -> Any:
    """Fill in a pattern: numbers as they are, for %d and %.2f, all else as it is printed."""
    if given and named:
        msg = "the format filter takes values by place or by name, not both"
        raise NotTextError(msg)
    filled = {name: _filled(value) for name, value in named.items()} or tuple(_filled(value) for value in given)
    return _texts([pattern])[0] % filled


def _filled(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _texts([value])[0]


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Make the one environment, when the first template is compiled: Jinja2 is slow to import."""
    from jinja2 import StrictUndefined, pass_environment
    from jinja2.runtime import LoopContext
    from jinja2.sandbox import SandboxedEnvironment
    from jinja2.utils import Cycler, Joiner, Namespace

    class ValueEnvironment(SandboxedEnvironment):
        """The sandbox, narrowed to JSON values."""

        intercepted_binops = frozenset({"%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not isinstance(left, str):
                return super().call_binop(context, operator, left, right)
            if isinstance(right, Mapping):
                return _format(left, **right)
            return _format(left, *(right if isinstance(right, tuple) else (right,)))

        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, StrictUndefined):
                return obj  # so that the error names what is missing first
            if isinstance(obj, LoopContext | Cycler | Joiner | Namespace):
                return super().getattr(obj, attribute)
            if isinstance(obj, Mapping) and attribute in obj:
                return obj[attribute]
            if hasattr(type(obj), attribute):
                remedy = REMEDIES.get(attribute, "values are JSON: use filters and tests")
                msg = f".{attribute} is an attribute of a Python object ({_kind(obj)}); {remedy}"
                raise NotTextError(msg)
            return self.undefined(obj=obj, name=attribute)

        def getitem(self, obj: Any, argument: Any) -> Any:
            try:
                return obj[argument]
            except (LookupError, TypeError, AttributeError):
                return self.undefined(obj=obj, name=argument)

    environment = ValueEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, finalize=_printed
    )
    del environment.globals["lipsum"]  # neither it nor random gives the same text twice
    del environment.filters["random"]
    environment.filters["tojson"] = _compact_json  # Jinja2's own escapes for HTML
    for name in TEXT_FILTERS:
        environment.filters[name] = _of_text(environment.filters[name])
    environment.filters["join"] = pass_environment(_join)
    environment.filters["format"] = _format
    return environment


@lru_cache(maxsize=4096)
def compile_template(source: str) -> Result[CompiledTemplate, TemplateFault]:
    """Compile a template and find the names that it uses."""
    from jinja2 import TemplateSyntaxError, meta, nodes

    environment = _environment()
    try:
        tree = environment.parse(source)
        for concatenation in tree.find_all(nodes.Concat):  # a ~ b
            concatenation.nodes = [
                nodes.Filter(part, "string", [], [], None, None, lineno=part.lineno) for part in concatenation.nodes
            ]
        for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            return Failure(TemplateFault("includes another template, and this one stands alone", node.lineno))
        names = meta.find_undeclared_variables(tree)
        inputs = {found for node in tree.find_all((nodes.Getattr, nodes.Getitem)) for found in _input_named(node)}
        template = environment.from_string(tree)
    except TemplateSyntaxError as error:
        return Failure(TemplateFault(f"does not compile: {error.message}", error.lineno))
    except RecursionError:
        return Failure(TemplateFault("is nested too deeply"))
    except Exception as error:  # noqa: BLE001  # Jinja2 writes Python, and Python has limits of its own
        return Failure(TemplateFault(f"does not compile: {type(error).__name__}: {error}"[:300]))
    functions = {node.name for node in tree.find_all(nodes.Name)} & environment.globals.keys()
    return Success(CompiledTemplate(template, frozenset(names) - {INPUTS}, frozenset(functions), frozenset(inputs)))


def _input_named(node: Any) -> list[str]:
    from jinja2 import nodes

    if not (isinstance(node.node, nodes.Name) and node.node.name == INPUTS):
        return []
    if isinstance(node, nodes.Getattr):
        return [node.attr]
    return [node.arg.value] if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else []
