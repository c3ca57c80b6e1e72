"""What construction of a public value checks and takes.

msgspec checks types when it decodes, not when a struct is constructed. Values that people construct go through
here from ``__post_init__``: each field is converted by its annotation (a list for a tuple is taken, a bare string is
not), mappings are deep-frozen, and every problem of the value is reported at once with the field's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import islice
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec.structs import force_setattr

from promptkit._values.frozen import UnfitError, frozen_json, frozen_mapping, shown
from promptkit._values.functions import plain_function
from promptkit._values.kinds import PYTHON, Words, said
from promptkit._values.reprs import bounded_repr
from promptkit.errors import Fault, InvalidConfigError, InvalidRequestError, PromptKitError, near

if TYPE_CHECKING:
    from collections.abc import Iterator

Reader = Callable[[Any], Any]


def _converter(annotation: Any) -> Reader:
    """Convert by annotation. The type goes into a struct of its own, whose plan msgspec makes once and keeps."""
    holder = msgspec.defstruct("_Field", [("value", annotation)])
    choices = _choices(annotation)
    alternatives = {annotation, *(get_args(annotation) if get_origin(annotation) is UnionType else ())}
    takes_none, takes_text = NoneType in alternatives, str in alternatives

    def read(value: Any) -> Any:
        # The commonest values, without asking the converter: most of what a message costs.
        if value is None and takes_none:
            return None
        if type(value) is str:
            if takes_text:
                return frozen_json(value)
            if value in choices:
                return value
        if choices and value not in choices:
            raise _not_chosen(value, choices)
        # The order of a set differs between processes, and so would every hash.
        converted = _converted(_NEVER_FITS if isinstance(value, AbstractSet) else value, holder)
        if isinstance(converted, str):
            return frozen_json(converted)
        if isinstance(converted, int) and not _fits(converted):
            msg = f"{shown(converted)} is out of range: from -2**63 to 2**64 - 1"
            raise UnfitError(msg)
        if isinstance(converted, dict):
            return frozen_mapping(converted)
        if isinstance(converted, tuple):
            return tuple(frozen_json(x, f"[{i}]") if isinstance(x, str) else x for i, x in enumerate(converted))
        return converted

    return read


def _converted(value: Any, holder: type[Any]) -> Any:
    try:
        # bytes are native here: text for them would be taken for base64
        return msgspec.convert({"value": value}, holder, builtin_types=(bytes,)).value
    except TypeError:  # of what passes for a class and is none, such as list[str]
        return msgspec.convert({"value": _NEVER_FITS}, holder)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """Give what a field of literals takes, or nothing for another field."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    parts = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else ()
    literals = [part for part in parts if get_origin(part) is Literal]
    if not literals or any(part is not NoneType and part not in literals for part in parts):
        return ()
    return (*(choice for part in literals for choice in get_args(part)), *(None for part in parts if part is NoneType))


def _not_chosen(value: Any, choices: tuple[Any, ...]) -> UnfitError:
    known = [choice for choice in choices if choice is not None]
    suggestion = near(value, known) if isinstance(value, str) else None
    return UnfitError(f"{shown(value)} is not one of {', '.join(map(repr, known))}", suggestion=suggestion)


_NEVER_FITS = object()


def _json_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        msg = f"Expected `object`, got `{type(value).__name__}`"
        raise UnfitError(msg)
    return frozen_mapping(value)


FIELD = re.compile(r"[.\[]")  # what follows the name of a field in the place of a problem
_BLANKS: dict[Any, Any] = {str: "unknown", int: 1}
_PLAIN = {str: str, str | None: str, bool: bool, int: int, int | None: int}


def _fits(number: int) -> bool:
    """Say whether a reader of JSON with integers of 64 bits takes a number."""
    return -(2**63) <= number < 2**64


def _plain(annotation: Any) -> Reader:
    """Read one of the commonest kinds without asking the converter when the value is just that."""
    expected: Any = _PLAIN[annotation]
    fits: Any = str.isascii if expected is str else _fits
    otherwise = _converter(annotation)

    def read(value: Any) -> Any:
        if type(value) is expected and fits(value):
            return value
        return otherwise(value)

    return read


def _mentions(annotation: Any, origin: Any) -> bool:
    return get_origin(annotation) is origin or any(_mentions(part, origin) for part in get_args(annotation))


@cache
def reader_of(annotation: Any) -> Reader:
    """Choose how a field of this annotation is read."""
    if annotation in _PLAIN:
        return _plain(annotation)
    if annotation is Any:
        return frozen_json
    if get_origin(annotation) is Mapping and get_args(annotation)[1] is Any:
        return _json_mapping
    if _mentions(annotation, Callable):
        return plain_function
    return _converter(annotation)


@cache
def _readers(cls: type[Checked]) -> tuple[tuple[str, Reader], ...]:
    special = cls._special_fields()
    return tuple(
        (field.name, special.get(field.name) or reader_of(field.type)) for field in msgspec.structs.fields(cls)
    )


def _said(error: Exception, value: Any, annotation: Any, words: Words) -> tuple[str, str]:
    """Split a complaint about the value of a field into the place inside the field and the sentence."""
    if isinstance(error, UnfitError):
        path = error.path if len(error.path) <= MAX_PATH else f"{error.path[:MAX_PATH]}…"
        separator = "." if path and not path.startswith("[") else ""
        return said(str(error), separator + path, value, annotation, words)
    text, _, place = str(error).partition(" - at `")
    if place.startswith("key` in "):
        return "", "has a key that is no text"
    return said(text, place.rstrip("`").removeprefix("$").removeprefix(".value"), value, annotation, words)


def sentence(message: str) -> str:
    """End a message with a full stop."""
    return message if message.endswith((".", "?", "!")) else f"{message}."


MOST_NAMES = 12  # of arguments in a sentence
MAX_PATH = 100  # characters of a place inside a value in a sentence
_made = msgspec.StructMeta.__call__


class SaysWhatItTakes(msgspec.StructMeta):
    """Of a class whose arguments people write: a TypeError about them says of which class, and what was meant."""

    if not TYPE_CHECKING:  # type checkers know the arguments by the fields

        def __call__(cls, /, *arguments: Any, **named: Any) -> Any:  # noqa: N805  # of a metaclass
            try:
                return _made(cls, *arguments, **named)
            except TypeError:
                text = _mistaken(cls, len(arguments), named)
                if text is None:  # of code that a value brings along
                    raise
                raise TypeError(text) from None


def _mistaken(cls: type[msgspec.Struct], positional: int, named: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the names of arguments, without a word of what was given for them."""
    fields = cls.__struct_fields__
    free = [name for name in fields if name not in named]
    unknown = islice((name for name in named if name not in fields), MOST_NAMES)
    meant = {name: _meant(name, free) for name in unknown}
    missing = [each.name for each in msgspec.structs.fields(cls) if each.required and each.name in free]
    found: list[str] = []
    if positional:
        written = ", ".join(f"{name}=..." for name in free[: min(positional, MOST_NAMES)])
        found.append(f"give {'it' if positional == 1 else 'them'} by name: {cls.__name__}({written})")
    absent = [] if positional else [repr(name) for name in missing if name not in meant.values()]
    if absent:
        found.append(f"missing argument{'' if len(absent) == 1 else 's'} {', '.join(absent)}")
    for name, field in meant.items():
        found.append(f"unexpected argument {shown(name)}" + (f": did you mean {field!r}?" if field else ""))
    if not found:
        return None
    more = f" and {len(fields) - MOST_NAMES} more" if len(fields) > MOST_NAMES else ""
    end = "It" if found[-1].endswith("?") else "it"
    said = "; ".join([*found, f"{end} takes {', '.join(fields[:MOST_NAMES])}{more}"]).replace("?; ", "? ")
    return f"{cls.__name__}: {said}"


def _meant(name: str, free: Sequence[str]) -> str | None:
    """Give the field that was probably meant: one that is written alike, or the only one with a word of it."""
    words = set(name[:100].split("_"))
    sharing = [field for field in free if words & set(field.split("_"))]
    return near(name[:100], free) or (sharing[0] if len(sharing) == 1 else None)


class Checked(msgspec.Struct, frozen=True, metaclass=SaysWhatItTakes):
    """Base of the values that people construct: checked, converted and frozen on construction."""

    _refused_with: ClassVar[type[PromptKitError]] = InvalidRequestError
    _words: ClassVar[Words] = PYTHON

    @classmethod
    def _remedy(cls, value: Any) -> str | None:  # noqa: ARG003  # for those that know one
        """Say how a value that is none of these becomes one, as the end of a sentence; None: nothing is known."""
        return None

    @classmethod
    def _special_fields(cls) -> Mapping[str, Reader]:
        """Name the fields that their annotation cannot describe, with their reader."""
        return {}

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Give what is wrong beyond the types, as pairs of field and sentence."""
        return iter(())

    __repr__ = bounded_repr

    def __post_init__(self) -> None:
        found: list[Problem] = []
        wrong: set[str] = set()
        for name, read in _readers(type(self)):
            before = getattr(self, name)
            try:
                after = read(before)
            except (UnfitError, msgspec.ValidationError) as error:
                annotation = next(each.type for each in msgspec.structs.fields(type(self)) if each.name == name)
                place, text = _said(error, before, annotation, self._words)
                found.append(Problem(name + place, text, getattr(error, "suggestion", None)))
                wrong.add(name)
            except PromptKitError as error:  # of a nested value that is made on the way
                found.append(Problem(name, str(error)))
                wrong.add(name)
            else:
                if after is not before:
                    force_setattr(self, name, after)
        if wrong:
            _stand_in(self, wrong)
        for problem in self._problems():
            if FIELD.split(problem[0])[0] not in wrong:
                found.append(Problem(*problem))  # noqa: PERF401  # a generator is a good part of what a value costs
        if found:
            raise refused(type(self), found)


def _stand_in(value: Checked, wrong: set[str]) -> None:
    """Put something harmless where a value is of the wrong kind, so that its other problems are found as well."""
    for field in msgspec.structs.fields(type(value)):
        if field.name in wrong:
            blank = _BLANKS.get(field.type) if field.required or get_origin(field.type) is Literal else field.default
            force_setattr(value, field.name, blank)


class Problem(NamedTuple):
    """What is wrong with a value: the place inside it, a sentence, and what was probably meant."""

    place: str
    sentence: str
    suggestion: str | None = None


def refused(cls: type[Checked], found: list[Problem]) -> PromptKitError:
    """Make the error that says what is wrong with a value of ``cls``."""
    if issubclass(cls._refused_with, InvalidConfigError):
        return InvalidConfigError(
            *(
                Fault(key=f"{cls.__name__}.{place}", message=sentence(text), suggestion=meant)
                for place, text, meant in found
            )
        )
    texts = [text if meant is None else f"{text}; did you mean {meant!r}?" for _, text, meant in found]
    return cls._refused_with(
        "; ".join(f"{cls.__name__}.{each.place}: {text}" for each, text in zip(found, texts, strict=True))
    )
