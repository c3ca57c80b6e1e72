"""A JSON Schema as a value: compiled once, and never fetching anything."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.json import pointer
from promptkit._values.references import Document, Reference, survey
from promptkit._values.results import Violation
from promptkit.errors import near

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
        if self._validator.is_valid(value):
            return ()
        found: list[Violation] = []
        try:
            for error in self._validator.iter_errors(value):
                if len(found) == MOST_VIOLATIONS:
                    found.append(Violation(pointer="", message=f"there are more than these {MOST_VIOLATIONS:,}"))
                    break
                found.append(Violation(pointer=pointer(error.instance_path), message=error.message))
        except ValueError:  # it judges any depth, and describes fewer than 256 levels
            found.append(Violation(pointer="", message="the value breaks the schema, too deeply nested to say where"))
        return tuple(found)


def compile_schema(schema: Any) -> Result[CompiledSchema, SchemaFault]:
    """Compile a schema of draft 2020-12, or of the draft that it names. The failure says why it is not one, and where.

    Nothing is fetched: a reference leads into the schema itself, or to a meta-schema of JSON Schema. A known ``format``
    (date, date-time, uuid, email and the like) is asserted.
    """
    if not isinstance(schema, dict | bool):
        return Failure(SchemaFault("it is neither an object nor true or false"))
    try:
        text = msgspec.json.encode(schema)
    except RecursionError:
        return Failure(SchemaFault("it is nested too deeply"))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        return Failure(SchemaFault(f"it is not JSON: {error}"))
    return _compiled(text)


@lru_cache(maxsize=1024)
def _compiled(text: bytes) -> Result[CompiledSchema, SchemaFault]:
    from jsonschema_rs import ReferencingError, validator_for

    schema = msgspec.json.decode(text)
    document = Document(schema) if isinstance(schema, dict) else None
    loop, maze = survey(document) if document is not None else (None, False)
    if maze:
        return Failure(SchemaFault("its dynamic references are a maze: they mean too many different things"))
    try:
        validator = validator_for(schema, offline=True, mask="the value", validate_formats=True)
    except (ValueError, TypeError, ReferencingError) as error:
        return Failure(_refusal(error, document))
    fault = None if document is None else _reference_fault(document, loop)
    return Success(CompiledSchema(validator)) if fault is None else Failure(fault)


def _refusal(error: Exception, document: Document | None) -> SchemaFault:
    steps = list(getattr(error, "instance_path", ()))
    sentence = str(getattr(error, "message", error)).split("\n", 1)[0]
    if document is None or steps:
        return SchemaFault(_about(sentence, steps, document), pointer(steps))
    if document.named not in DRAFTS:
        return SchemaFault(f"$schema names no known draft: {', '.join(DRAFTS[1:])}", "/$schema")
    return _reference_fault(document, None) or SchemaFault(sentence[:300])


def _about(sentence: str, steps: list[str | int], document: Document | None) -> str:
    """Name the part of the schema that a complaint of the validator is about."""
    wrong: Any = document.schemas[0] if document is not None else None
    for step in steps:
        wrong = wrong[step]
    if steps and steps[-1] == "type" and isinstance(wrong, str):
        suggestion = near(wrong, TYPES)
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        return f"{_short(wrong)} is not a type: they are {', '.join(TYPES)}{hint}"
    shown = _short(wrong) if isinstance(wrong, str) else msgspec.json.encode(wrong).decode()
    return sentence.replace("the value", shown if len(shown) <= 100 else "it", 1)[:300]


def _reference_fault(document: Document, loop: Reference | None) -> SchemaFault | None:
    """Judge what the validator lets through: a reference that is not used, or that says nothing."""
    lost = document.dangling()
    if lost is not None:
        message = f"the reference {_short(lost.text)} leads to nothing in this schema, and nothing is fetched"
        return SchemaFault(f"{message}: put what it means into $defs, and refer to it there", lost.pointer)
    if loop is not None:
        message = f"the reference {_short(loop.text)} never ends: it comes back to itself without going into the value"
        return SchemaFault(message, loop.pointer)
    return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:99] + "…")
