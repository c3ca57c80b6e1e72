"""Where things stand in a file: every path of a document, on the line where a person finds it."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._catalog.lines import Lines, json_lines, repeated_key, toml_lines
from promptkit._catalog.places import located, written

KEYS = st.sampled_from(["a", "b-1", "c_d", '"e.f"', "'g h'", '""', '"\\u00e9\\n"', "'\"'", '"\'"', '"é"'])
SCALARS = st.sampled_from(
    [
        *("1", "-2.5e3", "true", "inf", "0xff", "1979-05-27 07:32:00Z", "07:32:00", "1_000"),
        *('"a # [x] = {y},"', "'b \\'", '"\\"]}"', '""', "''", '"""x"""', "'''y'''", '"""\nx\n"y" ""\n\\"""""\n"""'),
        *("'''\n[a]\nb = 1\n''''", '"""\\\n   x\\n\n"""', '""""q"""""', '"""\\\\\n"""', "'''''''"),
    ]
)
BLANKS = st.sampled_from(["", " ", "\t", " # not ] = \"here'\n", "\n", "\n\n  "])


def _array(items: list[str], blank: str, last: str) -> str:
    return f"[{blank}" + f"{blank},{blank}".join(items) + f"{blank}{last if items else ''}{blank}]"


def _inline(pairs: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{key} = {value}" for key, value in pairs.items()) + " }"


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=3), BLANKS, st.sampled_from(["", ","])),
        st.builds(_inline, st.dictionaries(KEYS, inner, max_size=3)),
    ),
    max_leaves=6,
)
DOTTED = st.lists(KEYS, min_size=1, max_size=3).map(" . ".join)
STATEMENTS = st.one_of(
    st.builds("{} = {}".format, DOTTED, VALUES),
    DOTTED.map("[{}]".format),
    DOTTED.map("[[ {} ]] # x".format),
    st.sampled_from(["", "# a = 1", "  "]),
)


def valid_toml(statements: list[str]) -> str:
    """Keep the statements that are right after those before them."""
    text = ""
    for statement in statements:
        try:
            tomllib.loads(f"{text}{statement}\n")
        except tomllib.TOMLDecodeError:
            continue
        text += f"{statement}\n"
    return text


def paths(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = document.items() if isinstance(document, dict) else enumerate(document)
    inner = [
        found
        for key, item in items
        for found in (
            [(*path, key)] if not isinstance(item, dict | list) else [(*path, key), *paths(item, (*path, key))]
        )
    ]
    return inner if path else [(), *inner]


@given(st.lists(STATEMENTS, max_size=12))
def test_every_path_of_a_toml_document_has_its_line(statements: list[str]) -> None:
    text = valid_toml(statements)
    document = tomllib.loads(text)
    lines = toml_lines(text, document)
    for path in paths(document):
        line = lines.of(path)
        assert line is not None
        assert 1 <= line <= text.count("\n") + 1


@given(st.lists(STATEMENTS, max_size=8), st.integers(1, 5))
def test_lines_move_with_what_stands_above(statements: list[str], above: int) -> None:
    text = valid_toml(statements)
    document = tomllib.loads(text)
    before, after = toml_lines(text, document), toml_lines("# x\n" * above + text, document)
    assert [after.of(path) for path in paths(document)[1:]] == [
        (before.of(path) or 0) + above for path in paths(document)[1:]
    ]


@given(st.lists(st.tuples(DOTTED, VALUES), max_size=8))
def test_a_key_with_its_value_stands_on_the_line_of_the_key(pairs: list[tuple[str, str]]) -> None:
    text = ""
    for key, value in pairs:
        longer = f"{text}{key} = {value}\n"
        try:
            document = tomllib.loads(longer)
        except tomllib.TOMLDecodeError:
            continue
        names = tuple(_names(tomllib.loads(f"{key} = 0")))
        assert toml_lines(longer, document).of(names) == text.count("\n") + 1
        text = longer


def _names(document: Any) -> list[str]:
    return [name for name, item in document.items() for name in (name, *(_names(item) if item else []))]


DOCUMENT = '''\
title = "x" # [not.a.table]
list = [
  1, [2,
  3], # four
  { a = 1, b.c = [
    true] },
]
dotted.key."with space" = """
[no]
"""

[table.deep]
text = \'\'\'
one
two\'\'\'
[table]
late = 1
[[items]]
name = "first"
[items.inner]
x = 1
[[items.more]]
[[items]]
[[items.more]]
y = 2
'''
PLACES = {
    (): 1,
    ("title",): 1,
    ("list",): 2,
    ("list", 0): 3,
    ("list", 1, 1): 4,
    ("list", 2): 5,
    ("list", 2, "b", "c", 0): 6,
    ("dotted", "key", "with space"): 8,
    ("table",): 16,
    ("table", "deep"): 12,
    ("table", "deep", "text"): 13,
    ("table", "late"): 17,
    ("items",): 18,
    ("items", 0): 18,
    ("items", 0, "name"): 19,
    ("items", 0, "inner", "x"): 21,
    ("items", 0, "more", 0): 22,
    ("items", 1): 23,
    ("items", 1, "more", 0, "y"): 25,
    ("items", 1, "absent"): 23,  # of what is missing: the table that lacks it
    ("absent",): 1,
}


@pytest.mark.parametrize("path", PLACES)
def test_each_way_of_writing_a_key_has_its_place(path: Any) -> None:
    assert toml_lines(DOCUMENT, tomllib.loads(DOCUMENT)).of(path) == PLACES[path]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("'''\nx\ny'''", 3),
        ("'''x\ny'''", 2),
        ('"""\nx\ny"""', 3),
        ('"""x\ny"""', 2),
        ('"""\nx \\" \\t \\\\\ny"""', 3),
        ('"""\nx\\ny"""', None),
        ('"""\nx \\\n y"""', None),
        ('"""\\u000a\ny"""', None),
        ('"x\\ny"', None),
        ("'x'", None),
    ],
)
def test_a_line_inside_a_text_is_told_where_the_text_has_the_lines_of_the_file(value: str, line: int | None) -> None:
    text = f"a = {value}\n"
    assert toml_lines(text, tomllib.loads(text)).inside(("a",), 2) == line


def test_a_document_that_is_not_that_of_the_text_has_no_lines() -> None:
    assert toml_lines("a = 1\n", {"b": 1}).of(("b",)) is None
    assert json_lines('{"a": 1}', {"b": 1}).of(("b",)) is None
    assert toml_lines("a = ", {}).of(()) is None
    assert json_lines('{"a" 1}', {}).of(()) is None
    assert Lines().of(()) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.booleans(), st.sampled_from([None, 1, "\n", "\r\n\t"]))
def test_every_path_of_a_json_document_has_its_line(document: Any, escaped: bool, indent: Any) -> None:  # noqa: FBT001
    text = json.dumps(document, ensure_ascii=escaped, indent=indent)
    lines = json_lines(text, document)
    assert lines.of(()) == 1
    if isinstance(document, list) and document and indent == 1:
        assert lines.of((0,)) == 2
    if isinstance(document, dict) and document and indent == 1:
        assert lines.of((next(iter(document)),)) == 2
    for path in paths(document) if isinstance(document, dict | list) else []:
        assert lines.of(path) is not None


@given(st.lists(st.sampled_from(["a", "b", "\\u0061", "c"]), min_size=1, max_size=6))
def test_the_second_place_of_a_repeated_key_is_found(names: list[str]) -> None:
    text = "{\n" + ",\n".join(f'"{name}": {{"a": 1}}' for name in names) + "}"
    plain = [name.replace("\\u0061", "a") for name in names]
    seconds = [index for index, name in enumerate(plain) if name in plain[:index]]
    assert repeated_key(text) == ((plain[seconds[0]], seconds[0] + 2) if seconds else None)


@given(
    st.recursive(
        st.integers(), lambda inner: st.lists(inner, min_size=1) | st.dictionaries(st.text(), inner), max_leaves=8
    )
)
def test_a_written_path_is_that_of_toml(document: Any) -> None:
    for path in paths(document) if isinstance(document, dict) else []:
        names = [step for step in path if isinstance(step, str)]
        if not names or any(isinstance(step, int) for step in path):
            continue
        found: Any = tomllib.loads(f"{written(path)} = 0")
        for name in names:
            found = found[name]
        assert found == 0


def test_a_place_is_found_in_the_document_that_it_is_of() -> None:
    document = {"extra": {"a b": [1, {"c.d": 2}], "": 3, "x": 4}}
    assert located(document, "extra.a b[1].c.d") == ("extra", "a b", 1, "c.d")
    assert located(document, "extra.nowhere") == ("extra", "nowhere")
    assert located(document, "extra.a b[7]") == ("extra", "a b")
    assert located(document, "extra.x.y") == ("extra", "x")
