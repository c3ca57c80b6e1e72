"""Foreign text made fit for an error: the known secret out, one printable line, bounded."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

MASK = "***"
EXCERPT = 200
_SLACK = 4  # a run of control characters shrinks to one blank, so more than the bound is looked at


def plain(text: str, limit: int, secret: str | None) -> str:
    """Give at most ``limit`` characters of ``text`` on one line.

    The secret goes first, while it is whole: a bound that cut it would leave a piece of it. It goes once more at the
    end, because a key with a blank in it can come about when control characters become blanks.
    """
    hidden = redacted(text, secret)
    shown = "".join(c if c.isprintable() else " " for c in hidden[: limit * _SLACK])
    line = redacted(" ".join(shown.split()), secret)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def excerpt(body: bytes, secret: str | None) -> str:
    """Give the beginning of a body that could not be read."""
    whole = body
    for spelling in _spellings(secret):
        whole = whole.replace(spelling.encode(), MASK.encode())
    beginning = whole[: EXCERPT * _SLACK * 4]  # a character has up to four bytes
    return plain(beginning.decode(errors="replace"), EXCERPT, secret)


def redacted(text: str, secret: str | None) -> str:
    """Replace the secret, in each spelling that it can have inside a text."""
    for spelling in _spellings(secret):
        text = text.replace(spelling, MASK)
    return text


def _spellings(secret: str | None) -> tuple[str, ...]:
    if not secret:
        return ()
    escaped = json.dumps(secret)[1:-1]
    spellings = (secret, escaped, escaped.replace("/", "\\/"), quote(secret, safe=""), quote_plus(secret))
    return tuple(dict.fromkeys(spellings))
