"""What is told about a template without Jinja2: where it is wrong, and what it includes."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

INPUTS = "inputs"  # the name under which a template finds the inputs


class TemplateFault(NamedTuple):
    """Why a template does not compile or render, and where, as far as that is known.

    ``line`` is 1-based, in the source of ``fragment``, or of the template itself if that is None. ``absent`` is the
    variable that was not given, if that is what is wrong.
    """

    message: str
    line: int | None = None
    fragment: str | None = None
    absent: str | None = None


class Place(NamedTuple):
    """A line of a template (1-based), or of the fragment that is named."""

    line: int
    fragment: str | None


class Include(NamedTuple):
    """The name of a fragment, and the line that includes it (1-based)."""

    name: str
    line: int


def normal_form(name: str) -> str:
    """Give the form in which Python, to which Jinja2 compiles templates, reads a name."""
    return unicodedata.normalize("NFKC", name)


def form_fault(name: str) -> str | None:
    """Say why a name would be taken for another one: of several names with one form, each would have all values."""
    if normal_form(name) == name:
        return None
    # The two can look the same to people, so that the wrong one is escaped.
    return f"the name {name!a} is not in Unicode's normal form NFKC: write {normal_form(name)!r}"
