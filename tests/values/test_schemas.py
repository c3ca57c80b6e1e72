"""JSON Schemas as values: what they mean, what makes one unusable, and where its fault is."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from returns.pipeline import is_successful

from promptkit._values.frozen import UnfitError, frozen_json
from promptkit._values.schemas import MOST_FAULTS, MOST_VIOLATIONS, CompiledSchema, SchemaFault, compile_schema, told

if TYPE_CHECKING:
    from collections.abc import Callable


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
    assert 0 < len(str(compiled.failure()[0])) < 500


def test_the_place_of_what_is_wrong_in_a_schema_is_named() -> None:
    fault = compile_schema({"properties": {"a/b": {"type": "nope"}}}).failure()[0]
    assert fault.pointer == "/properties/a~1b/type"
    assert str(fault) == f"at {fault.pointer}: {fault.message}"


@pytest.mark.parametrize(
    ("schema", "pointer", "sentence"),
    [
        ({"items": {"$ref": "other.json"}}, "/items/$ref", "'other.json' leads to nothing in this schema"),
        ({"$defs": {"a": {"$ref": "#nope"}}}, "/$defs/a/$ref", "'#nope' leads to nothing"),
        ({"properties": {"a": {"$dynamicRef": "#nope"}}}, "/properties/a/$dynamicRef", "'#nope' leads to nothing"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "/$schema", "names no known draft"),
        ({"properties": {"p": {"pattern": "("}}}, "/properties/p/pattern", "'(' is not a \"regex\""),
        ({"items": {"type": "strng"}}, "/items/type", "'strng' is not a type: they are array, boolean,"),
        ({"items": {"type": "strng"}}, "/items/type", "did you mean 'string'?"),
        ({"allOf": [{"required": "a"}]}, "/allOf/0/required", "'a' is not of type \"array\""),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength", "-1 is less than"),
        ({"x": {"y": {"$ref": "#/x/y"}}, "anyOf": [{"$ref": "#/x/y"}]}, "/x/y/$ref", "'#/x/y' never ends"),
        ({"allOf": [{"$ref": "#"}]}, "/allOf/0/$ref", "'#' never ends"),
        ({"allOf": [{"$ref": "#/allOf/" + "9" * 5000}]}, "/allOf/0/$ref", "9…' leads to nothing"),
    ],
)
def test_a_fault_of_a_reference_names_the_place_of_that_reference(schema: Any, pointer: str, sentence: str) -> None:
    fault = compile_schema(schema).failure()[0]
    assert fault.pointer == pointer
    assert sentence in fault.message


def test_an_endless_reference_is_named_and_not_one_beside_it_that_ends() -> None:
    schema = {"$ref": "#/$defs/fine", "$defs": {"fine": {"type": "object"}}, "allOf": [{"$ref": "#"}]}
    assert [fault.pointer for fault in compile_schema(schema).failure()] == ["/allOf/0/$ref"]


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        (
            {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in "dabc"}},
            [f"/properties/{name}/$ref" for name in "abcd"],
        ),
        (
            {"type": "nope", "items": {"$ref": "#/x"}, "not": {"$ref": "other.json"}, "minLength": -1},
            ["/items/$ref", "/minLength", "/not/$ref", "/type"],
        ),
        (
            {"$defs": {"a": {"$ref": "#/$defs/a"}, "b": {"allOf": [{"$ref": "#/$defs/b"}]}}, "$ref": "#/$defs/c"},
            ["/$defs/a/$ref", "/$defs/b/allOf/0/$ref", "/$ref"],
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(", "properties": {"a": 5}},
            ["/pattern", "/properties/a"],
        ),
        ({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}, "type": 5}, ["/$defs/b/$anchor", "/type"]),
        ({"items": {"$ref": "http://["}}, ["/items/$ref"]),
    ],
)
def test_every_fault_of_a_schema_is_told_once_in_the_order_of_the_pointers(schema: Any, pointers: list[str]) -> None:
    assert [fault.pointer for fault in compile_schema(schema).failure()] == pointers


@pytest.mark.parametrize("keyword", ["type", "$dynamicRef"])
def test_what_the_validator_counts_from_a_schema_inside_is_a_fault_of_unknown_place(keyword: str) -> None:
    """And no wrong place, and no error."""
    inner = {"$id": "http://h/i", "const": {keyword: 5}}
    (fault,) = compile_schema({"$defs": {"a": inner}, "$ref": "http://h/i#/const"}).failure()
    assert fault.pointer == ""
    assert f"'/const/{keyword}' in a schema with an $id inside it" in fault.message


@pytest.mark.parametrize(
    "wrong", [{"$ref": "#/nowhere"}, {"type": "nope"}, {"$anchor": "same"}, {"allOf": [{"$ref": "#n"}]}]
)
def test_of_more_faults_than_a_bound_the_last_one_says_that_there_are_more(wrong: Any) -> None:
    faults = compile_schema({"$defs": {f"d{n}": wrong for n in range(300)}}).failure()
    assert len(faults) == MOST_FAULTS + 1
    assert str(faults[-1]) == "there are more faults than these 100"
    assert told(faults).endswith(" (and 100 more)")


def test_the_first_fault_is_told_with_the_number_of_the_others() -> None:
    assert told((SchemaFault("a", "/x"),)) == "at /x: a"
    assert told((SchemaFault("a", "/x"), SchemaFault("b"), SchemaFault("c"))) == "at /x: a (and 2 more)"


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (
            {"$defs": {"a": {"$id": "http://h/i", "$anchor": "n"}, "b": {"$id": "http://h/i"}}, "$ref": "http://h/i#n"},
            "/$defs/b/$id",
        ),
        (
            {
                "$defs": {
                    "a": {"$id": "http://h/i", "type": "integer"},
                    "b": {"$id": "http://h/i", "$ref": "http://h/j"},
                    "c": {"$id": "http://h/j", "$ref": "http://h/i"},
                },
                "$ref": "http://h/i",
            },
            "/$defs/b/$id",
        ),
        ({"$id": "http://h/i", "items": {"$id": "i"}}, "/items/$id"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "urn:a", "not": {"id": "urn:a#"}}, "/not/id"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {
                    "a": {"$id": "http://h/i", "definitions": {"q": {"$id": "#n"}}},
                    "b": {"$id": "http://h/i#"},
                },
                "$ref": "http://h/i#n",
            },
            "/definitions/b/$id",
        ),
        ({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n", "type": "string"}}, "$ref": "#n"}, "/$defs/b/$anchor"),
        ({"$anchor": "n", "items": {"$dynamicAnchor": "n"}}, "/items/$dynamicAnchor"),
    ],
)
def test_two_schemas_with_one_name_are_a_fault(schema: Any, pointer: str) -> None:
    (fault,) = compile_schema(schema).failure()
    assert fault.pointer == pointer
    assert "is that of another schema as well" in fault.message
    assert "give each a name of its own" in fault.message


SPELLINGS = [
    ("http://h/%69", "http://h/i"),
    ("HTTP://u@H/i", "http://u@h/i"),
    ("http://h/a/../i", "http://h/i"),
    ("http://h/a/./b/../c/", "http://h/a/c/"),
    ("http://h/..", "http://h/"),
    ("http://h//x/..", "http://h//"),
    ("http://h:/i", "http://h/i"),
    ("http://h:080/i", "http://h/i"),
    ("https://h:443/i", "https://h/i"),
    ("http://h/%2f", "http://h/%2F"),
    ("http://%68/x", "http://h/x"),
    ("http://h?a", "http://h?%61"),
    ("urn:a:%62", "urn:a:b"),
    ("file:/a/../x", "file:/x"),
]


@pytest.mark.parametrize(("written", "meant"), SPELLINGS)
def test_addresses_that_differ_in_spelling_only_are_the_same(written: str, meant: str) -> None:
    """Here and for the validator: a reference by the other spelling arrives, and two schemas cannot have both."""
    named = {"$id": written, "type": "string"}
    assert compile_schema({"$defs": {"a": named}, "$ref": meant}).unwrap().violations(5)
    (fault,) = compile_schema({"$defs": {"a": named, "b": {"$id": meant}}}).failure()
    assert fault.pointer == "/$defs/b/$id"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h", "http://h/"),
        ("http://h/i?", "http://h/i"),
        ("http://h:81/i", "http://h/i"),
        ("http://h/I", "http://h/i"),
        ("http://h/%2F", "http://h//"),
        ("urn:a:b/../c", "urn:a:c"),
        ("file:/x", "file:///x"),
        ("http://h/a%2e", "https://h/a."),
    ],
)
def test_addresses_that_differ_in_more_are_two(one: str, other: str) -> None:
    assert is_successful(compile_schema({"$defs": {"a": {"$id": one}, "b": {"$id": other}}}))
    (fault,) = compile_schema({"$defs": {"a": {"$id": one}}, "$ref": other}).failure()
    assert "leads to nothing" in fault.message


class PanicException(BaseException):  # as the validator's own is called
    """What the validator raises when it fails by itself."""


class Failing:
    """A validator that fails."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def is_valid(self, value: Any) -> bool:
        raise self._error


def test_a_validator_that_panics_gives_a_violation_and_an_interruption_leaves_as_itself() -> None:
    (violation,) = CompiledSchema(Failing(PanicException("text of the value"))).violations(5)
    assert violation.message == "the value cannot be judged: the validator failed on it"
    with pytest.raises(KeyboardInterrupt):
        CompiledSchema(Failing(KeyboardInterrupt())).violations(5)


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
    assert "never ends" in compile_schema(schema).failure()[0].message


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


def test_all_violations_are_told_and_that_there_are_more_than_a_bound() -> None:
    numbers = compile_schema({"items": {"type": "integer"}}).unwrap()
    all_of_them = numbers.violations(["x"] * MOST_VIOLATIONS)
    assert [violation.pointer for violation in all_of_them] == [f"/{index}" for index in range(MOST_VIOLATIONS)]
    bounded = numbers.violations(["x"] * 10_000)
    assert bounded[:-1] == all_of_them
    assert bounded[-1].message == "there are more than these 1,000"


DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 7))
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def ring(count: int, link: Callable[[int, dict[str, Any]], Any], join: Callable[[int], str], **root: Any) -> Any:
    """Give a schema whose definitions refer to each other in a ring."""
    names = {f"d{n}": link(n, {"$ref": join((n + 1) % count)}) for n in range(count)}
    return {"$ref": join(0), "$defs": names, **root}


# How the schema d0, d1, ... of a document is named, and how it is referred to.
STYLES: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[int], str]]] = {
    "pointer": (lambda n: {}, lambda n: f"#/$defs/d{n}"),
    "absolute pointer": (lambda n: {}, lambda n: f"http://x/a/root#/$defs/d{n}"),
    "relative pointer": (lambda n: {}, lambda n: f"../a/root#/%24defs/d{n}"),
    "anchor": (lambda n: {"$anchor": f"a{n}"}, lambda n: f"#a{n}"),
    "dynamic anchor": (lambda n: {"$dynamicAnchor": f"a{n}"}, lambda n: f"root#a{n}"),
    "id": (lambda n: {"$id": f"http://x/b/d{n}"}, lambda n: f"HTTP://X/b/d{n}"),
    "relative id": (lambda n: {"$id": f"../b/d{n}"}, lambda n: f"/b/./d{n}"),
    "urn": (lambda n: {"$id": f"urn:example:d{n}"}, lambda n: f"urn:example:d{n}#"),
    "id and anchor": (lambda n: {"$id": f"urn:example:d{n}", "$anchor": "here"}, lambda n: f"urn:example:d{n}#here"),
}

HERE: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda schema: schema,
    lambda schema: {"allOf": [True, schema]},
    lambda schema: {"anyOf": [{"type": "integer"}, {"not": schema}]},
    lambda schema: {"oneOf": [schema]},
    lambda schema: {"if": schema},
    lambda schema: {"if": True, "then": schema},
    lambda schema: {"if": True, "else": {"allOf": [schema]}},
    lambda schema: {"dependentSchemas": {"a": schema}},
]
INSIDE: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda schema: {"properties": {"c": schema}},
    lambda schema: {"items": schema},
    lambda schema: {"prefixItems": [True, {"not": schema}]},
    lambda schema: {"additionalProperties": {"anyOf": [schema]}},
    lambda schema: {"patternProperties": {"^x": schema}},
    lambda schema: {"contains": schema},
    lambda schema: {"propertyNames": schema},
    lambda schema: {"unevaluatedProperties": schema},
]


@given(
    st.sampled_from(sorted(STYLES)),
    st.lists(st.sampled_from(HERE), min_size=1, max_size=5),
    st.none() | st.tuples(st.integers(0, 4), st.sampled_from(INSIDE)),
)
def test_a_ring_of_references_is_a_fault_unless_one_of_them_goes_into_the_value(
    style: str, links: list[Any], step: tuple[int, Any] | None
) -> None:
    """However they are written, and whatever stands between them."""
    names, refers = STYLES[style]
    inner = None if step is None else step[0] % len(links)

    def link(n: int, reference: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = links[n](reference)
        if step is not None and n == inner:
            made = step[1](made)
        return {**names(n), **made}

    # A schema with an address of its own is the base of what it refers to.
    compiled = compile_schema(ring(len(links), link, refers, **{"$id": "http://x/a/root"}))
    assert is_successful(compiled) == (inner is not None)
    if inner is None:
        assert "never ends" in compiled.failure()[0].message
        assert compiled.failure()[0].pointer.endswith("/$ref")
    else:
        assert compiled.unwrap().violations("plain text") is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"$anchor": "a", "$ref": "#a"},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
        {"$dynamicAnchor": "a", "$ref": "#a"},
        {"$schema": DRAFT_2019, "$recursiveRef": "#"},
        {"$schema": DRAFT_2019, "$recursiveAnchor": True, "anyOf": [{"$recursiveRef": "#"}]},
        {"$id": "urn:a:b", "$ref": "urn:a:b"},
        {"$id": "http://x/y", "$ref": "y#"},
        {"$ref": ""},
        {"$schema": DRAFT_7, "definitions": {"a": {"$id": "#n", "allOf": [{"$ref": "#n"}]}}},
        {"$schema": DRAFT_7, "dependencies": {"a": {"$ref": "#"}}},
        {"$schema": DRAFT_4, "id": "http://x/y", "not": {"$ref": "y"}},
        {"$schema": DRAFT_4, "definitions": {"a": {"id": "#n", "allOf": [{"$ref": "#n"}]}}},
        # The outermost anchor is what a dynamic reference means: here it leads back.
        {
            "$id": "http://x/outer",
            "$ref": "inner",
            "$defs": {
                "back": {"$dynamicAnchor": "n", "allOf": [{"$ref": "inner"}]},
                "inner": {"$id": "inner", "$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n"}}},
            },
        },
    ],
)
def test_every_way_to_refer_to_oneself_is_an_endless_reference(schema: Any) -> None:
    assert "never ends" in compile_schema(schema).failure()[0].message


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        # The outermost anchor is what a dynamic reference means: here it does not lead back, as the inner one would.
        (
            {
                "$id": "http://x/outer",
                "$ref": "inner",
                "$defs": {
                    "text": {"$dynamicAnchor": "n", "type": "string"},
                    "inner": {
                        "$id": "inner",
                        "$dynamicRef": "#n",
                        "$defs": {"n": {"$dynamicAnchor": "n", "$ref": "inner"}},
                    },
                },
            },
            "x",
            5,
        ),
        (
            {"$dynamicAnchor": "n", "type": "object", "additionalProperties": {"$dynamicRef": "#n"}},
            {"a": {"b": {}}},
            {"a": {"b": 1}},
        ),
        (
            {"$schema": DRAFT_2019, "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}, "type": "array"},
            [[[]], []],
            [[1]],
        ),
        # What stands beside a reference says nothing in draft 7.
        (
            {
                "$schema": DRAFT_7,
                "definitions": {"a": {}},
                "not": {"$ref": "#/definitions/a", "allOf": [{"$ref": "#"}]},
            },
            None,
            5,
        ),
        ({"then": {"$ref": "#"}, "type": "integer"}, 1, "x"),
        ({"const": {"allOf": [{"$ref": "#/const"}]}}, {"allOf": [{"$ref": "#/const"}]}, {}),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "object"}, {"type": 5}),
        ({"$ref": "#/$defs/yes", "$defs": {"yes": True}}, 1, None),
    ],
)
def test_a_reference_that_ends_is_no_fault(schema: Any, good: Any, bad: Any) -> None:
    compiled = compile_schema(schema).unwrap()
    assert good is None or compiled.violations(good) == ()
    assert bad is None or compiled.violations(bad)


KEYWORDS = (
    *("$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$schema"),
    *("$defs", "definitions", "id", "allOf", "not", "if", "then", "properties", "items", "prefixItems", "dependencies"),
    *("type", "pattern", "enum", "const", "multipleOf", "minimum", "maxLength", "required", "format", "$vocabulary"),
)
ADDRESSES = st.sampled_from(
    [
        *(
            "",
            "#",
            "a",
            "#a",
            "/a",
            "../a#/x",
            "urn:a:b",
            "http://[",
            "http://x:99999999/",
            "::",
            "%zz",
            "#/%ff",
            "#/0",
        ),
        *("#/$defs/a", "#/items", "#/allOf/0", "#/allOf/" + "9" * 5000, "#/allOf/00", DRAFT_7, DRAFT_4, DRAFT_2019),
    ]
)
WORDS = ADDRESSES | st.sampled_from(["object", "integer", "(", "^(a+)+$", "(?=x)", "\\d"]) | st.text(max_size=3)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(KEYWORDS) | st.text(max_size=2), below, max_size=4)
        | st.dictionaries(st.sampled_from(KEYWORDS), ADDRESSES, max_size=3)
    ),
    max_leaves=25,
)


@given(ANYTHING, ANYTHING)
def test_no_schema_and_no_value_makes_anything_but_a_fault_or_a_judgement(schema: Any, value: Any) -> None:
    compiled = compile_schema(schema)
    if not is_successful(compiled):
        assert 0 < len(str(compiled.failure()[0])) < 1000
        return
    try:
        frozen_json(value)
    except UnfitError:
        return  # is no JSON document
    assert len(compiled.unwrap().violations(value)) <= MOST_VIOLATIONS + 1


NAMES = st.sampled_from(
    ["http://h/i", "http://h/%69", "HTTP://h/a/../i", "i", "j", "http://h/j", "urn:a:b", "urn:a:%62"]
)
ANCHORS = st.sampled_from(["n", "m"])
NAMED: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "$id": NAMES,
        "$anchor": ANCHORS,
        "$dynamicAnchor": ANCHORS,
        "$ref": st.builds("{}{}".format, NAMES | st.just(""), st.sampled_from(["", "#", "#n", "#m", "#/$defs/a"])),
        "$dynamicRef": st.sampled_from(["#n", "#m", "i#n", "j#m"]),
        "type": st.just("integer"),
    },
)


@given(
    NAMED,
    st.dictionaries(st.sampled_from("abcd"), NAMED, max_size=4),
    st.dictionaries(st.sampled_from("abcd"), NAMED, max_size=2),
    st.sampled_from(["$defs", "properties", "allOf", "const"]),
)
def test_schemas_with_any_names_are_refused_or_judge_and_the_validator_never_fails(
    root: dict[str, Any], definitions: dict[str, Any], inner: dict[str, Any], keyword: str
) -> None:
    below: Any = [*inner.values()] if keyword == "allOf" else inner
    compiled = compile_schema({**root, "$defs": {**definitions, "x": {keyword: below} if below else {}}})
    if is_successful(compiled):
        said = [
            violation.message for value in (5, "x", {"a": "x"}) for violation in compiled.unwrap().violations(value)
        ]
    else:
        said = [fault.message for fault in compiled.failure()]
    assert not [message for message in said if "validator" in message]


def test_long_chains_and_deep_schemas_are_compiled_or_refused_and_exhaust_no_stack() -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}]} for n in range(3_000)}
    compiled = compile_schema({"$ref": "#/$defs/d0", "$defs": {**chain, "d3000": {"type": "integer"}}})
    assert compiled.unwrap().violations(5) == ()
    deep: Any = {"type": "integer"}
    for _ in range(100_000):
        deep = {"items": deep}
    assert compile_schema(deep).failure()[0].message == "it is nested too deeply"


def test_a_maze_of_dynamic_references_is_refused_and_does_not_take_for_ever() -> None:
    """Each name is defined in two places, and what it means depends on which of them was entered first."""
    doors = {
        f"{side}{n}": {
            "$id": f"{side}{n}",
            "$dynamicAnchor": f"n{n}",
            "anyOf": [{"properties": {"a": {"$ref": f"{to}{n + 1}"}, "b": {"$dynamicRef": f"#n{n}"}}} for to in "xy"],
        }
        for n in range(20)
        for side in "xy"
    }
    ends = {f"{side}20": {"$id": f"{side}20", "$ref": "x0"} for side in "xy"}
    compiled = compile_schema({"$id": "http://m/", "$ref": "x0", "$defs": {**doors, **ends}})
    assert "a maze" in compiled.failure()[0].message
