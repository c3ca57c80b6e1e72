"""What is told about a template without Jinja2: where it is wrong, and what it includes."""

from __future__ import annotations

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


class Include(NamedTuple):
    """The name of a fragment, and the line that includes it (1-based)."""

    name: str
    line: int


class FaultError(Exception):
    """Carries a fault out of a walk through a template. Becomes a failure."""

    def __init__(self, message: str, line: int | None = None, fragment: str | None = None) -> None:
        super().__init__(message)
        self.fault = TemplateFault(message, line, fragment)
