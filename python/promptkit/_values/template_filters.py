"""How values become text in a template: what is printed, and Jinja2's filters over JSON values.

Text is never marked as markup and never escaped on the way. Whatever else becomes text (printed, joined, formatted,
given to a filter of texts) becomes compact JSON. No single operation makes more text or items than the limits here.
"""

from __future__ import annotations

import math
import re
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec
from jinja2 import Environment, Undefined, filters, pass_environment, tests
from markupsafe import escape

from promptkit._values.frozen import MAX_INT_BITS, FrozenDict
from promptkit.errors import with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_TEXT = 100_000_000  # characters that one operation or one message may make
MAX_ITEMS = 10_000_000  # items of a list that a template makes
MAX_WIDTH = 10_000  # columns of an indent, of a centred text, of one directive of a pattern
MAX_DIGITS = 400  # to round to: beyond any float
PRINTED_AS_THEY_ARE = (str, Undefined)  # an undefined one raises when it becomes text
JSON_VALUES = (bool, int, float, dict, tuple, list, range)


class NotTextError(Exception):
    """A value or an operation that a template cannot have, and what to write instead. Becomes a fault."""


def printed(value: Any) -> Any:
    """Give what the template prints for a value: text as it is, other JSON compact."""
    if isinstance(value, PRINTED_AS_THEY_ARE):
        return value
    if value is None:
        msg = "a value is None: handle it in the template, for example {{ name or '' }} or {% if name is none %}"
        raise NotTextError(msg)
    if isinstance(value, JSON_VALUES):
        return compact_json(value)
    msg = f"{with_article(type(value).__name__)} has no text form: after map, select and the like, add |list or |join"
    raise NotTextError(msg)


def compact_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON: compact, or on lines indented by ``indent`` spaces."""
    try:
        if not isinstance(value, FrozenDict):  # which is a variable as it was given
            check_length(_least_length(value, {}))
        encoded = msgspec.json.encode(value, enc_hook=_listed)
    except (TypeError, ValueError, RecursionError):
        msg = f"{with_article(type(value).__name__)} that is not JSON has no text form"
        raise NotTextError(msg) from None
    if indent is not None:
        encoded = msgspec.json.format(encoded, indent=_at_most(indent, 100, "an indent of"))
    return encoded.decode()


def _listed(value: Any) -> list[int]:
    """Give the numbers of a range, the one kind of list in a template that msgspec does not know."""
    if isinstance(value, range):
        return list(value)
    raise TypeError


def _least_length(value: Any, known: dict[int, int]) -> int:
    """Give the least length of a value's JSON: a list of one list, many times, is long and costs no memory."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"a calculated number is {value}, which JSON cannot carry"
        raise NotTextError(msg)
    if isinstance(value, Undefined):
        return len(str(value))  # raises, and names what is missing
    if isinstance(value, range):
        return 2 * len(value)
    if not isinstance(value, dict | list | tuple):
        return 1
    if id(value) not in known:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = len(parts) + sum(_least_length(part, known) for part in parts)
    return known[id(value)]


def check_length(length: int) -> None:
    """Refuse to make a text of more characters than the limit."""
    if length > MAX_TEXT:
        msg = f"would make a text of more than {MAX_TEXT:,} characters"
        raise NotTextError(msg)


def check_items(count: int) -> None:
    """Refuse to make a list of more items than the limit."""
    if count > MAX_ITEMS:
        msg = f"would make a list of more than {MAX_ITEMS:,} items"
        raise NotTextError(msg)


def check_bits(bits: int) -> None:
    """Refuse a whole number of more digits than text can carry."""
    if bits > MAX_INT_BITS:
        msg = "a calculated number has more digits than Python writes as text"
        raise NotTextError(msg)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _at_most(value: Any, most: int, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{what} {value!r}: a whole number is needed"[:300]
        raise NotTextError(msg)
    if value > most:
        msg = f"{what} {value:.3g} is more than {most:,}" if value.bit_length() < 1000 else f"{what} more than {most:,}"
        raise NotTextError(msg)
    return value


def as_text(value: Any) -> str:
    """Give the text that is printed for a value."""
    return str(printed(value))


def join_texts(texts: list[str], separator: str = "") -> str:
    """Join texts."""
    check_length(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


# ------------------------------------------------------------------ patterns: "%s and %d"

DIRECTIVE = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?(?P<flags>[#0\- +]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?[hlL]?(?P<kind>.?)",
    re.DOTALL,
)


class _Given:
    """The values for a pattern, by place or by name."""

    def __init__(self, placed: tuple[Any, ...], named: Mapping[str, Any] | None) -> None:
        self._placed = placed
        self._named = named
        self.used = 0

    def take(self) -> Any:
        if self.used == len(self._placed):
            msg = "the pattern has more directives than there are values"
            raise NotTextError(msg)
        self.used += 1
        return self._placed[self.used - 1]

    def named(self, key: str) -> Any:
        if self._named is None or key not in self._named:
            msg = f"the pattern asks for %({key}), and no value of that name was given"
            raise NotTextError(msg)
        self.used = len(self._placed)  # a mapping counts as used when one of its values is
        return self._named[key]


def fill(pattern: str, placed: tuple[Any, ...], named: Mapping[str, Any] | None = None) -> str:
    """Fill in a printf-style pattern: %s takes the printed form of any value, the others take numbers."""
    given = _Given(placed, named)
    parts: list[str] = []
    end = 0
    for found in DIRECTIVE.finditer(pattern):
        parts += (pattern[end : found.start()], _filled(found, given))
        end = found.end()
    if given.used < len(placed):
        msg = "the pattern has fewer directives than there are values"
        raise NotTextError(msg)
    return join_texts([*parts, pattern[end:]])


def _filled(found: re.Match[str], given: _Given) -> str:
    kind = found["kind"]
    if kind == "%":
        return "%"
    if not kind or kind not in "sdiouxXeEfFgGc":
        hint = "use %s, or |tojson" if kind in {"r", "a"} else "write %% for a percent sign"
        msg = f"the pattern has '%{kind}', which is no directive of a template: {hint}"
        raise NotTextError(msg)
    width, precision = (_columns(found[part], given) for part in ("width", "precision"))
    value = given.take() if found["key"] is None else given.named(found["key"])
    directive = f"%{found['flags']}{width}{'' if found['precision'] is None else '.'}{precision}{kind}"
    if kind == "s":
        value = as_text(value)
    elif isinstance(value, Undefined):
        value = str(value)  # raises, and names what is missing
    elif not (_is_number(value) or (kind == "c" and isinstance(value, str))):
        msg = f"the pattern has %{kind}, which takes a number: use %s"
        raise NotTextError(msg)
    return directive % (value,)


def _columns(written: str | None, given: _Given) -> str:
    if not written:
        return ""
    return str(_at_most(given.take() if written == "*" else int(written), MAX_WIDTH, "a width of"))


def _format(pattern: Any, *placed: Any, **named: Any) -> str:
    if placed and named:
        msg = "the format filter takes values by place or by name, not both"
        raise NotTextError(msg)
    return fill(as_text(pattern), placed, named or None)


# ------------------------------------------------------------------ filters


def _of_text(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter or test of texts take the printed form of other values."""
    if getattr(original, "jinja_pass_arg", None) is None:

        @wraps(original)
        def plain(value: Any, *args: Any, **options: Any) -> Any:
            return original(as_text(value), *args, **options)

        return plain

    @wraps(original)
    def passed(context: Any, value: Any, *args: Any, **options: Any) -> Any:
        return original(context, as_text(value), *args, **options)

    return passed


def _attr(environment: Environment, value: Any, name: Any) -> Any:
    return environment.getattr(value, as_text(name))


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    return filters.do_batch(value, _at_most(linecount, MAX_ITEMS, "a batch of"), fill_with)


def _slice(value: Any, slices: int, fill_with: Any = None) -> Any:
    return filters.sync_do_slice(value, _at_most(slices, MAX_ITEMS, "slices:"), fill_with)


def _center(value: Any, width: int = 80) -> str:
    return as_text(value).center(_at_most(width, MAX_WIDTH, "a width of"))


def _escape(value: Any) -> str:
    return str(escape(as_text(value)))


def _filesizeformat(value: Any, binary: bool = False) -> str:  # noqa: FBT001, FBT002  # as Jinja2 has it
    if not _is_number(value):
        msg = "filesizeformat takes a number: use |float first"
        raise NotTextError(msg)
    return filters.do_filesizeformat(value, binary)


def _indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    """Indent lines, which end with LF and nothing else, so that the rest of the text stays as it is."""
    lines = as_text(value).split("\n")
    by = width if isinstance(width, str) else " " * _at_most(width, MAX_WIDTH, "an indent of")
    check_length(len(by) * len(lines))
    indented = [by + line if (line or blank) and number else line for number, line in enumerate(lines)]
    return (by if first else "") + join_texts(indented, "\n")


def _join(environment: Environment, values: Iterable[Any], separator: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        values = map(filters.make_attrgetter(environment, attribute), values)
    return join_texts([as_text(value) for value in values], as_text(separator))


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, before, after = as_text(value), as_text(old), as_text(new)
    found = len(text) + 1 if not before else text.count(before)
    times = found if count is None or count < 0 else min(found, count)
    check_length(len(text) + times * (len(after) - len(before)))
    return text.replace(before, after, times)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    return filters.do_round(value, _at_most(precision, MAX_DIGITS, "a precision of"), method)


def _urlencode(value: Any) -> str:
    if isinstance(value, dict):
        return filters.do_urlencode({as_text(key): as_text(item) for key, item in value.items()})
    return filters.do_urlencode(as_text(value))


def _wordwrap(environment: Environment, value: Any, width: int = 79, *args: Any, **options: Any) -> str:
    text = as_text(value)
    separator = args[1] if len(args) > 1 else options.get("wrapstring")
    check_length(len(text) * len(separator or "\n"))
    return filters.do_wordwrap(environment, text, width, *args, **options)


def _xmlattr(value: Mapping[str, Any], autospace: bool = True) -> str:  # noqa: FBT001, FBT002  # as Jinja2 has it
    if not isinstance(value, dict):
        msg = "xmlattr takes a mapping"
        raise NotTextError(msg)
    given = {as_text(key): item for key, item in value.items() if item is not None and not isinstance(item, Undefined)}
    for key in given:
        if re.search(r"[\s/>=]", key):
            msg = f"{key!r} is not the name of an attribute"
            raise NotTextError(msg)
    text = join_texts([f'{_escape(key)}="{_escape(item)}"' for key, item in given.items()], " ")
    return " " + text if autospace and text else text


# What each filter of Jinja2 does here. A test holds this in step with Jinja2: a filter that it does not know of fails.
AS_THEY_ARE = frozenset(
    {
        *("abs", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last", "length"),
        *("list", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "sum"),
        "unique",
    }
)
OF_TEXT = frozenset(
    {"capitalize", "lower", "string", "striptags", "title", "trim", "truncate", "upper", "urlize", "wordcount"}
)
OWN: dict[str, Callable[..., Any]] = {
    "attr": pass_environment(_attr),
    "batch": _batch,
    "center": _center,
    "e": _escape,
    "escape": _escape,
    "filesizeformat": _filesizeformat,
    "forceescape": _escape,
    "format": _format,
    "indent": _indent,
    "join": pass_environment(_join),
    "replace": _replace,
    "round": _round,
    "safe": as_text,
    "slice": _slice,
    "tojson": compact_json,  # Jinja2's own escapes for HTML
    "urlencode": _urlencode,
    "wordwrap": pass_environment(_wordwrap),
    "xmlattr": _xmlattr,
}
REFUSED = {
    "pprint": "prints Python: use |tojson(indent=2)",
    "random": "gives another text each time: choose in the application, and give the choice as a variable",
}
TESTS_OF_TEXT = frozenset({"lower", "upper"})


def json_filters() -> dict[str, Any]:
    """Give Jinja2's filters over JSON values."""
    theirs: Mapping[str, Callable[..., Any]] = filters.FILTERS
    kept = {name: original for name, original in theirs.items() if name in AS_THEY_ARE}
    return kept | {name: _of_text(theirs[name]) for name in OF_TEXT} | OWN


def json_tests() -> dict[str, Any]:
    """Give Jinja2's tests over JSON values."""
    theirs: Mapping[str, Any] = tests.TESTS
    return {**theirs} | {name: _of_text(theirs[name]) for name in TESTS_OF_TEXT}
