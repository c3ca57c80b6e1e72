"""A JSON Schema as a value: compiled once, and never fetching anything."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from returns.result import Failure, Result, Success

from promptkit._values.json import pointer
from promptkit._values.results import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_VIOLATIONS = 20  # of one output; more help neither a reader nor a model that repairs


class CompiledSchema:
    """A validator for one schema."""

    __slots__ = ("_validator",)

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """Say how a value breaks the schema, in the schema's order; empty when it satisfies it."""
        if self._validator.is_valid(value):
            return ()
        found: list[Violation] = []
        try:
            for error in self._validator.iter_errors(value):
                found.append(Violation(pointer=pointer(error.instance_path), message=error.message))
                if len(found) == MOST_VIOLATIONS:
                    break
        except ValueError:  # it judges any depth, and describes fewer than 256 levels
            found.append(Violation(pointer="", message="the value breaks the schema, too deeply nested to say where"))
        return tuple(found)


def compile_schema(schema: Any) -> Result[CompiledSchema, str]:
    """Compile a schema of draft 2020-12, or of the draft that it names. The failure says why it is not one."""
    if not isinstance(schema, dict | bool):
        return Failure("it is neither an object nor true or false")
    return _compiled(msgspec.json.encode(schema))


@lru_cache(maxsize=1024)
def _compiled(text: bytes) -> Result[CompiledSchema, str]:
    from jsonschema_rs import ReferencingError, validator_for

    schema = msgspec.json.decode(text)
    try:
        validator = validator_for(schema, offline=True, mask="the value", validate_formats=False)
    except (ValueError, TypeError, ReferencingError) as error:
        place = pointer(getattr(error, "instance_path", ()))
        sentence = str(getattr(error, "message", error)).split("\n", 1)[0][:300]
        return Failure(f"at {place}: {sentence}" if place else sentence)
    loop = _endless(schema)
    return Success(CompiledSchema(validator)) if loop is None else Failure(loop)


def _endless(schema: Any) -> str | None:
    """Find a reference that comes back to itself without going into the value: it says nothing, or recurses."""
    done: set[int] = set()
    for start in _references(schema):
        path: dict[int, Any] = {}
        left = [(start, False)]
        while left:
            node, after = left.pop()
            if after:
                del path[id(node)]
                done.add(id(node))
            elif id(node) in path:
                return f"the reference {node['$ref']!r} never ends" if "$ref" in node else "a reference never ends"
            elif id(node) not in done:
                path[id(node)] = node
                left.append((node, True))
                left.extend((applied, False) for applied in _applied(node, schema))
    return None


def _references(schema: Any) -> Iterator[Any]:
    left = [schema]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _applied(node: Any, root: Any) -> list[Any]:
    """Give the schemas that apply to the same value as this one."""
    found = [node[key] for key in ("not", "if", "then", "else") if key in node]
    for key in ("allOf", "anyOf", "oneOf"):
        found.extend(node[key] if isinstance(node.get(key), list) else ())
    dependent = node.get("dependentSchemas")
    found.extend(dependent.values() if isinstance(dependent, dict) else ())
    found.append(_target(node.get("$ref"), root))
    return [schema for schema in found if isinstance(schema, dict)]


def _target(reference: Any, root: Any) -> Any:
    """Follow a reference to a place in the same document; others are not followed."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    node = root
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(name)
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node
