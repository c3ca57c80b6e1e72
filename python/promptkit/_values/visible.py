"""Texts of models and people, as they can be put on a terminal: bounded, and doing nothing there."""

from __future__ import annotations

import re

MAX_CHARACTERS = 2_000  # of a message
MAX_LINES = 40

# What moves the cursor, rings, sets titles, hides or turns around what follows, or cannot be encoded: the control
# characters but for tab and newline, the separators and formats of lines, the invisible, the tags, lone surrogates.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Write as escapes what a terminal would act upon, and what it would not show. Tabs and newlines stay.

    >>> visible("a title: \x1b]0;mine\x07")
    'a title: \\x1b]0;mine\\x07'
    """
    return _ACTIVE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def excerpt(text: str, characters: int = MAX_CHARACTERS, lines: int = MAX_LINES) -> str:
    """Give the start of a text, made visible, and how long it is, if that is not all of it."""
    start = "\n".join(text[:characters].split("\n", lines)[:lines])
    return visible(start) + (f"… ({len(text):,} characters)" if len(start) < len(text) else "")


def line(text: str, characters: int = 80) -> str:
    """Give the start of a text on one line, made visible."""
    words = " ".join(text[: 4 * characters].split())
    cut = len(words) > characters or len(text) > 4 * characters
    return visible(words[:characters]) + ("…" if cut else "")
