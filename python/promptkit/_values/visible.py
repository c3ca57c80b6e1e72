"""Texts of models and people, as they can be put on a terminal: bounded, and doing nothing there."""

from __future__ import annotations

import re

MAX_CHARACTERS = 2_000  # of a message
MAX_LINES = 40

# What moves the cursor, rings, sets titles, hides or turns around what follows, is not shown, or cannot be encoded: the
# control characters but for tab and newline, the separators and formats of lines, what Unicode says can be ignored
# (Default_Ignorable_Code_Point), the controls of notations, tags, lone surrogates, what is no character at all. What
# holds emoji and letters of some scripts together stays: U+200C, U+200D, and the variation selectors up to U+FE0F.
_NO_CHARACTERS = "\ufdd0-\ufdef" + "".join(f"{chr(end - 1)}{chr(end)}" for end in range(0xFFFF, 0x110000, 0x10000))
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    f"{_NO_CHARACTERS}]"
)
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_BREAKS = re.compile("[\t\n]")


def visible(text: str) -> str:
    r"""Write as escapes what a terminal would act upon, and what it would not show. Tabs and newlines stay.

    >>> visible("a title: \x1b]0;mine\x07")
    'a title: \\x1b]0;mine\\x07'
    """
    return _ACTIVE.sub(_escape, text)


def visible_name(text: str) -> str:
    r"""Write a name, such as that of a file, on one line: tabs and newlines are escapes too.

    >>> print(visible_name("a\nb.txt"))
    a\nb.txt
    """
    return _BREAKS.sub(_escape, visible(text))


def visible_json(encoded: str) -> str:
    r"""Write JSON so that a terminal shows it: what it would act upon stands as escapes of JSON, with the same value.

    >>> print(visible_json('"\x9b2J \U000e0041"'))
    "\u009b2J \udb40\udc41"
    """
    return _ACTIVE.sub(_json_escape, encoded)


def ascii_json(encoded: str) -> str:
    """Write JSON in ASCII, with the same value."""
    return _BEYOND_ASCII.sub(_json_escape, encoded)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def excerpt(text: str, characters: int = MAX_CHARACTERS, lines: int = MAX_LINES) -> str:
    """Give the start of a text, made visible, and how long it is, if that is not all of it."""
    start = "\n".join(text[:characters].split("\n", lines)[:lines])
    return visible(start) + (f"… ({len(text):,} characters)" if len(start) < len(text) else "")


def line(text: str, characters: int = 80) -> str:
    """Give the start of a text on one line, made visible."""
    words = " ".join(text[: 4 * characters].split())
    cut = len(words) > characters or len(text) > 4 * characters
    return visible(words[:characters]) + ("…" if cut else "")
