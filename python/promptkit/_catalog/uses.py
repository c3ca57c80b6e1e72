"""On which line of a template a name stands first, for a fault about it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

INPUTS = "inputs"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment

    return Environment()  # noqa: S701  # it only divides a text into tokens


def first_use(source: str, name: str, *, of_inputs: bool) -> int | None:
    """Give the line (1-based) on which a variable stands first, or an input (``inputs.NAME``); None: not here.

    A name that a loop gives and an undeclared one of the same name are not told apart.
    """
    from jinja2 import TemplateSyntaxError

    try:
        tokens = [token for token in _environment().lex(source) if token[1] != "whitespace"]
    except TemplateSyntaxError:
        return None
    before = ("", "")
    for line, kind, value in tokens:
        if of_inputs:
            found = before[1] in {".", "["} and value.strip("\"'") == name
        else:
            found = kind == "name" and value == name and before[1] != "."
        if found:
            return line
        before = (kind, value)
    return None
