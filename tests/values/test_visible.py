from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._values.visible import excerpt, line, visible, visible_json, visible_name

ANYTHING = st.text(st.characters(exclude_categories=[]))  # lone surrogates too


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten", "over\\rwritten"),
        ("back\x08\x7f", "back\\x08\\x7f"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\u2028", "\\u2028"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("soft\u00adhyphen", "soft\\xadhyphen"),
        ("\u034f", "\\u034f"),
        ("\u115f\u1160", "\\u115f\\u1160"),
        ("\u17b4\u17b5", "\\u17b4\\u17b5"),
        ("\u180e", "\\u180e"),
        ("\u2061", "\\u2061"),
        ("\u3164", "\\u3164"),
        ("\uffa0", "\\uffa0"),
        ("\ufdd0\ufffe\U0010ffff", "\\ufdd0\\ufffe\\U0010ffff"),
        ("\ufff0\ufffb", "\\ufff0\\ufffb"),
        ("\U0001d173\U0001d17a", "\\U0001d173\\U0001d17a"),
        ("\U00013430\U0001343f", "\\U00013430\\U0001343f"),
        ("\U0001bca0", "\\U0001bca0"),
        ("\U000e0100\U000e01ef", "\\U000e0100\\U000e01ef"),
    ],
)
def test_what_a_terminal_would_act_upon_is_an_escape(hostile: str, shown: str) -> None:
    assert visible(hostile) == shown


@pytest.mark.parametrize(
    "text",
    [
        "tab\tand\nnewline",
        "na\u00efve 日本語 עברית 한국어",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",  # a family, and a red heart
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a joiner that is none
        "[bold]x[/bold]",
        "",
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(ANYTHING)
def test_what_is_visible_can_be_encoded_and_has_no_control_character(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\t\n"]


@given(ANYTHING)
def test_a_visible_name_is_one_line(text: str) -> None:
    shown = visible_name(text)
    assert "\n" not in shown
    assert "\t" not in shown
    assert shown == visible(text).replace("\n", "\\n").replace("\t", "\\t")


@given(st.text())
def test_visible_json_has_the_same_value_and_is_visible(text: str) -> None:
    shown = visible_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert visible(shown) == shown


@given(ANYTHING, st.integers(1, 50), st.integers(1, 5))
def test_an_excerpt_is_bounded_and_says_when_it_is_not_all(text: str, characters: int, lines: int) -> None:
    shown = excerpt(text, characters, lines)
    assert shown.count("\n") < lines
    if len(text) <= characters and text.count("\n") < lines:
        assert shown == visible(text)
    else:
        assert shown.endswith(f"… ({len(text):,} characters)")


@given(ANYTHING, st.integers(1, 50))
def test_a_line_is_one_line_and_bounded(text: str, characters: int) -> None:
    shown = line(text, characters)
    assert "\n" not in shown
    assert len(shown) <= 10 * characters + 1
    if len(" ".join(text.split())) > characters:
        assert shown.endswith("…")
