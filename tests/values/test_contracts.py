"""Contracts made from Python types, and their schemas."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable  # noqa: TC003  # pydantic reads it
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from returns.pipeline import is_successful

from promptkit import OutputContract
from promptkit._values.schemas import MOST_VIOLATIONS, compile_schema
from promptkit.errors import InvalidConfigError


class Struct(msgspec.Struct):
    a: int
    b: list[str] = []


@dataclasses.dataclass
class Data:
    a: int
    b: list[str] = dataclasses.field(default_factory=list)


class Table(TypedDict):
    a: int
    b: list[str]


class Model(pydantic.BaseModel):
    a: int
    b: list[str] = []


class Unencodable(pydantic.BaseModel):
    call: Callable[[], None]


@pytest.mark.parametrize("kind", [Struct, Data, Table, Model])
def test_a_contract_of_a_type_accepts_its_values_and_no_others(kind: type[Any]) -> None:
    contract = OutputContract.of(kind, max_repairs=2)
    assert (contract.kind, contract.name, contract.max_repairs) == ("json_schema", kind.__name__, 2)
    schema = compile_schema(contract.schema).unwrap()
    assert schema.violations({"a": 1, "b": ["x"]}) == ()
    assert schema.violations({"a": "1", "b": []})
    assert schema.violations([])
    hash(contract)


def test_builtin_types_are_taken_and_a_name_that_no_backend_takes_is_left_out() -> None:
    assert OutputContract.of(list[int]).name == "list"
    assert OutputContract.of(int | str).name is None
    assert compile_schema(OutputContract.of(dict[str, int]).schema).unwrap().violations({"a": 1}) == ()


@pytest.mark.parametrize("kind", [complex, object(), 5, type("Plain", (), {}), Unencodable])
def test_a_type_without_a_schema_is_a_fault(kind: Any) -> None:
    with pytest.raises(InvalidConfigError, match="has no JSON Schema"):
        OutputContract.of(kind)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/x.json"},
        {"$ref": "https://example.com/x.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other.json"},
        {"$ref": "#/$defs/missing"},
        {"$schema": "http://example.com/draft"},
        {"type": "nope"},
        {"pattern": "("},
        {"$ref": 5},
        {"properties": []},
        "x",
        '{"type": "integer"}',
        5,
        [],
        None,
    ],
)
def test_an_unusable_schema_fails_with_a_reason_and_nothing_is_fetched(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        msg = "a schema was fetched"
        raise AssertionError(msg)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    compiled = compile_schema(schema)
    assert not is_successful(compiled)
    assert 0 < len(compiled.failure()) < 500


def test_the_place_of_what_is_wrong_in_a_schema_is_named() -> None:
    assert compile_schema({"properties": {"a": {"type": "nope"}}}).failure().startswith("at /properties/a/type: ")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"type": "integer"}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"if": {"$ref": "#"}, "then": False},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"oneOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#"},
        {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{(n + 1) % 3000}"} for n in range(3000)}},
    ],
)
def test_an_endless_reference_is_found(schema: Any) -> None:
    assert "never ends" in compile_schema(schema).failure()


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {
                "$defs": {"t": {"type": "object", "properties": {"c": {"items": {"$ref": "#/$defs/t"}}}}},
                "$ref": "#/$defs/t",
            },
            {"c": [{"c": [{"c": []}]}]},
            {"c": [{"c": [5]}]},
        ),
        ({"properties": {"next": {"$ref": "#"}}, "type": "object"}, {"next": {"next": {}}}, {"next": {"next": 1}}),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": "#/definitions/Foo",
                "definitions": {"Foo": {"type": "object", "required": ["a"]}},
            },
            {"a": 1},
            {},
        ),
        ({"$defs": {"k": {"$anchor": "k", "type": "integer"}}, "anyOf": [{"$ref": "#k"}]}, 1, "x"),
        ({"$defs": {"a/b": {"type": "integer"}}, "$ref": "#/$defs/a~1b"}, 1, "x"),
        ({"$id": "http://x/y", "$defs": {"a": {"type": "integer"}}, "$ref": "http://x/y#/$defs/a"}, 1, "x"),
        ({"additionalProperties": {}, "type": "object"}, {"extra": 1}, []),
        ({"type": "integer"}, 1.0, True),
        ({"type": "integer"}, 2**200, 1.5),
        ({"enum": ["a", None]}, None, False),
        ({"enum": [1]}, 1, True),
        ({"const": 2**70}, 2**70, 2**70 + 1),
        ({"minimum": 2**70}, 2**70, 2**70 - 1),
        ({"const": {"$ref": "#"}}, {"$ref": "#"}, {}),
        (True, "anything", None),
        ({"uniqueItems": True}, [1, True], [1, 1.0]),
    ],
)
def test_schemas_mean_what_json_schema_says(schema: Any, good: Any, bad: Any) -> None:
    compiled = compile_schema(schema).unwrap()
    assert compiled.violations(good) == ()
    assert bad is None or compiled.violations(bad)


MARK = "CONTENT-MARK"


@pytest.mark.parametrize(
    ("schema", "value", "pointer"),
    [
        ({"type": "integer"}, MARK, ""),
        ({"properties": {"a/b~c": {"type": "integer"}}}, {"a/b~c": MARK}, "/a~1b~0c"),
        ({"properties": {"a": {"items": {"enum": ["x"]}}}}, {"a": ["x", MARK]}, "/a/1"),
        ({"const": 1}, MARK, ""),
        ({"pattern": "^x"}, MARK, ""),
        ({"maxLength": 2}, MARK, ""),
        ({"anyOf": [{"type": "integer"}]}, MARK, ""),
        ({"oneOf": [{}, {}]}, MARK, ""),
        ({"not": {}}, MARK, ""),
        ({"uniqueItems": True}, [MARK, MARK], ""),
        ({"contains": {"type": "integer"}}, [MARK], ""),
        ({"maxItems": 0}, [MARK], ""),
        ({"items": False}, [MARK], "/0"),
        ({"required": ["k"]}, {"x": MARK}, ""),
        (False, MARK, ""),
    ],
)
def test_violations_have_a_json_pointer_and_never_the_text_of_the_value(schema: Any, value: Any, pointer: str) -> None:
    (violation,) = compile_schema(schema).unwrap().violations(value)
    assert violation.pointer == pointer
    assert MARK not in violation.message


def test_the_number_of_violations_is_bounded() -> None:
    violations = compile_schema({"items": {"type": "integer"}}).unwrap().violations(["x"] * 10_000)
    assert len(violations) == MOST_VIOLATIONS
