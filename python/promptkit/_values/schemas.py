"""A JSON Schema as a value: compiled once, and never fetching anything."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.json import pointer
from promptkit._values.results import Violation
from promptkit.errors import near

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit._values.references import Document

DRAFTS = (
    "",  # stands for draft 2020-12
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
MOST_VIOLATIONS = 1000  # of one output; one that breaks it a million times must not fill the memory
MOST_FAULTS = 100  # of one schema


class SchemaFault(NamedTuple):
    """Why a schema cannot be used. ``pointer`` is a JSON Pointer into the schema; empty: its root, or unknown."""

    message: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"at {self.pointer}: {self.message}" if self.pointer else self.message


class CompiledSchema:
    """A validator for one schema."""

    __slots__ = ("_validator",)

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Say how a value breaks the schema, in the schema's order; empty when it satisfies it.

        Of more than MOST_VIOLATIONS the last one says that there are more.
        """
        found: list[Violation] = []
        try:
            if self._validator.is_valid(value):
                return ()
            for error in self._validator.iter_errors(value):
                if len(found) == MOST_VIOLATIONS:
                    found.append(Violation(pointer="", message=f"there are more than these {MOST_VIOLATIONS:,}"))
                    break
                found.append(Violation(pointer=pointer(error.instance_path), message=error.message))
        except ValueError:  # it judges any depth, and describes fewer than 256 levels
            found.append(Violation(pointer="", message="the value breaks the schema, too deeply nested to say where"))
        except BaseException as error:
            if not _is_panic(error):
                raise
            found.append(Violation(pointer="", message="the value cannot be judged: the validator failed on it"))
        return tuple(found)


def compile_schema(schema: Any) -> Result[CompiledSchema, tuple[SchemaFault, ...]]:
    """Compile a schema of draft 2020-12, or of the draft that it names. The failure has all that is wrong with it.

    The faults are in the order of their pointers; of more than MOST_FAULTS the last one says that there are more.
    Nothing is fetched: a reference leads into the schema itself, or to a meta-schema of JSON Schema. A known ``format``
    (date, date-time, uuid, email and the like) is asserted.
    """
    if not isinstance(schema, dict | bool):
        return Failure((SchemaFault("it is neither an object nor true or false"),))
    try:
        text = msgspec.json.encode(schema)
    except RecursionError:
        return Failure((SchemaFault("it is nested too deeply"),))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        return Failure((SchemaFault(f"it is not JSON: {error}"),))
    return _compiled(text)


def told(faults: Sequence[SchemaFault]) -> str:
    """Say the first fault, and how many more there are."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{more}"


@lru_cache(maxsize=1024)
def _compiled(text: bytes) -> Result[CompiledSchema, tuple[SchemaFault, ...]]:
    schema = msgspec.json.decode(text)
    if isinstance(schema, bool):
        return Success(CompiledSchema(_validator(schema)))
    from promptkit._values.references import Document  # with the first schema

    document = Document(schema)
    found, unsafe = _reference_faults(document)
    validator: Any = None
    refusal: BaseException | None = None
    if not unsafe:
        try:
            validator = _validator(schema)
        except BaseException as error:  # noqa: BLE001  # what is no refusal is raised
            refusal = _refusal(error)
    if validator is not None and not found:
        return Success(CompiledSchema(validator))
    places = {fault.pointer for fault in found}
    of_form = _form_faults(document, refusal, alone=not found)
    return Failure(_in_order({*found, *(fault for fault in of_form if fault.pointer not in places)}))


def _validator(schema: Any) -> Any:
    from jsonschema_rs import validator_for

    return validator_for(schema, offline=True, mask="the value", validate_formats=True)


def _refusal(error: BaseException) -> BaseException:
    """Give the error back when it says that the validator does not take a schema; raise any other."""
    from jsonschema_rs import ReferencingError

    if not isinstance(error, ValueError | TypeError | ReferencingError) and not _is_panic(error):
        raise error
    return error


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"  # is no Exception, and cannot be imported


def _in_order(faults: set[SchemaFault]) -> tuple[SchemaFault, ...]:
    ordered = sorted(faults, key=lambda fault: (fault.pointer, fault.message))
    if len(ordered) > MOST_FAULTS:
        return (*ordered[:MOST_FAULTS], SchemaFault(f"there are more faults than these {MOST_FAULTS}"))
    return tuple(ordered)


def _form_faults(document: Document, refusal: BaseException | None, *, alone: bool) -> Iterator[SchemaFault]:
    """Say where the schema breaks its draft; else, when nothing else is found (``alone``), why it is refused."""
    if refusal is not None and document.named not in DRAFTS:
        yield SchemaFault(f"$schema names no known draft: {', '.join(DRAFTS[1:])}", "/$schema")
        return
    told = False
    for error in _broken(document):
        told = True
        yield _form_fault(error, document)
    if refusal is None or told:
        return
    if _is_panic(refusal):
        yield SchemaFault("its validator cannot be made")
    elif alone or getattr(refusal, "instance_path", None):
        yield _form_fault(refusal, document)


def _broken(document: Document) -> list[Any]:
    """Validate the schema against the meta-schema of its draft; nothing where that cannot say where it breaks."""
    draft = document.named or DRAFTS[1]
    if draft not in DRAFTS:
        return []
    try:
        # Each of the vocabularies of a draft may say the same of one place.
        return list(islice(_meta_validator(draft).iter_errors(document.schemas[0]), 10 * MOST_FAULTS))
    except BaseException as error:  # noqa: BLE001  # what is no refusal is raised
        _refusal(error)
        return []


@cache
def _meta_validator(draft: str) -> Any:
    return _validator({"$schema": draft, "$ref": draft})


def _form_fault(error: Any, document: Document) -> SchemaFault:
    steps = list(getattr(error, "instance_path", ()))
    sentence = str(getattr(error, "message", error)).split("\n", 1)[0][:300]
    wrong: Any = document.schemas[0]
    try:
        for step in steps:
            wrong = wrong[step]
    except (LookupError, TypeError):  # it counts from a schema inside, and does not say from which
        return SchemaFault(f"{sentence}: that is said of {_short(pointer(steps))} in a schema with an $id inside it")
    return SchemaFault(_about(sentence, steps, wrong) if steps else sentence, pointer(steps))


def _about(sentence: str, steps: list[str | int], wrong: Any) -> str:
    """Name the part of the schema that a complaint of the validator is about."""
    if steps[-1] == "type" and isinstance(wrong, str):
        suggestion = near(wrong, TYPES)
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        return f"{_short(wrong)} is not a type: they are {', '.join(TYPES)}{hint}"
    shown = _short(wrong) if isinstance(wrong, str) else msgspec.json.encode(wrong).decode()
    return sentence.replace("the value", shown if len(shown) <= 100 else "it", 1)[:300]


def _reference_faults(document: Document) -> tuple[list[SchemaFault], bool]:
    """Judge what the validator lets through: references that are not used, or that say nothing.

    True: it must not see the schema. It fails on two schemas with one address, and does not come out of a maze.
    """
    from promptkit._values.references import survey

    followed = survey(document, MOST_FAULTS + 1)
    found: list[SchemaFault] = []
    for text, place in islice(document.dangling(), MOST_FAULTS + 1):
        message = f"the reference {_short(text)} leads to nothing in this schema, and nothing is fetched"
        found.append(SchemaFault(f"{message}: put what it means into $defs, and refer to it there", place))
    for text, place in followed.endless:
        message = f"the reference {_short(text)} never ends: it comes back to itself without going into the value"
        found.append(SchemaFault(message, place))
    named_twice = [*islice(document.repeated(), MOST_FAULTS + 1)]
    for text, place, first in named_twice:
        where = f"at {_short(first)}" if first else "the root"
        message = f"the name {_short(text)} is that of another schema as well, {where}"
        found.append(SchemaFault(f"{message}: give each a name of its own", place))
    if followed.maze:
        found.append(SchemaFault("its dynamic references are a maze: they mean too many different things"))
    return found, followed.maze or bool(named_twice)


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:99] + "…")
