"""One JSON document, exactly as the text says it, and never a guess."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from returns.pipeline import is_successful

from promptkit._output.decoding import MAX_DEPTH, decode

MARK = "CONTENT-MARK"
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values, st.booleans(), st.sampled_from(["", " ", "\n", "\r\n\t "]))
def test_a_document_is_decoded_as_it_says(value: Any, ascii_only: bool, blank: str) -> None:  # noqa: FBT001
    decoded = decode(blank + json.dumps(value, ensure_ascii=ascii_only) + blank).unwrap()
    assert decoded == (value, "whole")
    assert repr(decoded.value) == repr(value)  # 1 is not True, and 1.0 is neither


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ('{"a":["","en"],"b":[""]}', {"a": ["", "en"], "b": [""]}),
        ('{"a":"\\u0000"}', {"a": "\x00"}),
        ('{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        ('"\U0001f600"', "😀"),
        ("null", None),
        ("true", True),
        ("1.0", 1.0),
        ("1e3", 1000.0),
        ("9007199254740993", 9007199254740993),
        (str(2**300), 2**300),
        ("-" + str(2**300), -(2**300)),
        ("[1e-400]", [0.0]),
        ('""', ""),
        ("{}", {}),
        ('"```"', "```"),
        ('{"a b": {"": [[]]}}', {"a b": {"": [[]]}}),
    ],
)
def test_documents(content: str, value: Any) -> None:
    decoded = decode(content).unwrap()
    assert decoded == (value, "whole")
    assert type(decoded.value) is type(value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "   \n",
        "Hello",
        "None",
        "True",
        'See [1] for {topic}: {"a":[1,2],"b":3} and use {x}.',
        'Here it is: {"a":1}',
        '{"a":1} Done.',
        '{"a":1}\n{"a":2}',
        '{"a":1}{"a":1}',
        '{"ok":true,"ok":false}',
        '{"a":{"b":1,"b":1}}',
        '{"a":1,"\\u0061":2}',
        '{"items":["a","b"',
        '{"items":["a","b"]',
        '{"a":1,}',
        "[1,]",
        "[,1]",
        "{'a':1}",
        '{"a":1 /*c*/}',
        '// c\n{"a":1}',
        "{a:1}",
        '{"a":01}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":1.}',
        '{"a":0x1}',
        '{"a":1_0}',
        '{"a":٣}',
        "NaN",
        "[NaN]",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "[1e999]",
        '\ufeff{"a":1}',
        "\u00a01",
        "1\u2028",
        "\x0c1",
        '"a\nb"',
        '"\x00"',
        '"a\tb"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '["ok", {"\\ud800": 1}]',
        '{"a":{"b":["\\udfff"]}}',
        '"\\x41"',
        '"unterminated',
        "1" * 5000,
        "-" + "1" * 5000,
        "]",
        "tru",
        "undefined",
    ],
    ids=lambda content: ascii(content)[:30],
)
def test_what_is_not_one_exact_document_is_invalid(content: str) -> None:
    decoded = decode(content)
    assert not is_successful(decoded)
    assert 0 < len(decoded.failure()) < 200


FENCED: list[tuple[str, Any]] = [
    ('```json\n{"a":1}\n```', {"a": 1}),
    ('```\n{"a":1}\n```', {"a": 1}),
    ('\n \n```JSON\r\n{"a":1}\r\n```\n\n', {"a": 1}),
    ('~~~json\n{"a":1}\n~~~', {"a": 1}),
    ('````json\n{"a":"```"}\n````', {"a": "```"}),
    ('``` json \n{"a":1}\n```', {"a": 1}),
    ("```json\n\n  [1,\n2]  \n\n```", [1, 2]),
]


@pytest.mark.parametrize(("content", "value"), FENCED)
def test_the_inside_of_one_fence_that_is_the_whole_content_is_taken(content: str, value: Any) -> None:
    assert decode(content).unwrap() == (value, "fenced")


@pytest.mark.parametrize(
    "content",
    [
        'Sure:\n```json\n{"a":1}\n```',
        '```json\n{"a":1}\n```\nDone.',
        '```bash\nls\n```\n```json\n{"a":1}\n```',
        '```json\n{"a":1}\n```\n```json\n{"a":2}\n```',
        "````\n```json\n{}\n```\n````",
        '```json\n{"a":1}',
        '{"a":1}\n```',
        '```json {"a":1}```',
        '```json\n{"a":1}\n````',
        '````json\n{"a":1}\n```',
        '```json\n{"a":1}\n~~~',
        '``\n{"a":1}\n``',
        '`{"a":1}`',
        "```\n```",
        "```json\n\n```",
        "```",
        "``````",
        '```json two words\n{"a":1}\n```',
        '```json\n{"a":1}\n``` x',
    ],
)
def test_anything_else_with_a_fence_is_invalid(content: str) -> None:
    assert not is_successful(decode(content))


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_taken_up_to_its_limit_and_not_beyond(opening: str, closing: str) -> None:
    step = len(closing)
    at_limit = MAX_DEPTH // step
    assert is_successful(decode(opening * at_limit + "1" + closing * at_limit))
    beyond = decode("[" * step + opening * at_limit + "1" + closing * at_limit + "]" * step)
    assert "deeper than 256" in beyond.failure()


def test_brackets_inside_strings_do_not_nest() -> None:
    text = '[{"\\"' * 1000
    assert decode(json.dumps([text, {text: text}])).unwrap().value == [text, {text: text}]
    assert decode(json.dumps(["\\" * 999, "[" * 999])).unwrap().value == ["\\" * 999, "[" * 999]


@pytest.mark.parametrize(
    "content",
    [
        "[" * 1_000_000,
        "]" * 1_000_000,
        '{"a":' * 300_000,
        '[{"a":' * 300_000,
        '"' + "\\n" * 1_000_000,
        '"' + "\\" * 1_000_001,
        '"' * 1_000_001,
        '["' + "a" * 1_000_000,
        '"\\u' * 500_000,
        " " * 1_000_000 + "x",
        "`" * 500_000 + "\n" + "`" * 499_999,
        "```json\n" * 200_000,
        "9" * 1_000_000,
        "1e" + "9" * 1_000_000,
        "[" + "1," * 500_000,
        '{"a":1,' * 250 + "x" * 1_000_000,
        "-" * 1_000_000,
    ],
    ids=lambda content: ascii(content)[:12],
)
def test_long_adversarial_answers_come_to_an_end(content: str) -> None:
    decoded = decode(content)
    assert not is_successful(decoded)
    assert len(decoded.failure()) < 200


@given(st.text())
def test_no_text_raises_and_no_failure_repeats_it(text: str) -> None:
    for content in (text, f'{{"{MARK}": {text}', f"```json\n{text}\n```", f'["{MARK}", {text}]'):
        decoded = decode(content)
        assert is_successful(decoded) or MARK not in decoded.failure()


@given(st.floats())
def test_floats_are_those_that_the_text_names(number: float) -> None:
    decoded = decode(repr(number) if math.isfinite(number) else json.dumps(number))
    assert decoded.unwrap().value == number if math.isfinite(number) else not is_successful(decoded)
