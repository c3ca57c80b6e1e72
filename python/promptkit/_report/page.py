"""The page of a report: what was computed, put into the template.

Every name comes from a file that anybody may have written. The template escapes all that it puts in, characters that
do not print are written out, and the page's policy lets a browser load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from promptkit._report.figures import bounded_name, instant_text, seconds_text
from promptkit._report.timeline import parts_of
from promptkit._values.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Environment, Template

    from promptkit._report.summary import Summary
    from promptkit._report.totals import Totals
    from promptkit._report.tree import Place

DEEPEST = 8  # steps of indentation; below, the depth is written as a number
NARROW = 0.3  # percent of the axis; an attempt that is narrower is drawn with two pixels, or nobody would see it
SHOWN_FAULTS = 20
SHOWN_GROUPS = 100  # rows of a table of usage
SHOWN_NAMES = 20  # of what a later version wrote


class Kinds(NamedTuple):
    """Names that are not known here, and how often each is in the trace: the first of them, and how many more."""

    first: tuple[tuple[str, int], ...]
    more: int


def page_of(summary: Summary, places: Sequence[Place]) -> str:
    """Write the page. ``places`` are the runs of the summary in the order of their tree."""
    from markupsafe import Markup

    style = _text("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _template().render(
        summary=summary,
        parts=tuple(parts_of(places)),
        style=Markup(style),  # noqa: S704  # of this package
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        seconds=(summary.ended - summary.started).total_seconds(),
        kinds=_first(summary.other_kinds),
        fields=_first(summary.other_fields),
    )


def _first(names: dict[str, int]) -> Kinds:
    return Kinds(tuple(names.items())[:SHOWN_NAMES], max(0, len(names) - SHOWN_NAMES))


def _text(name: str) -> str:
    # A browser reads other ends of lines as \n, and would find another digest.
    text = importlib.resources.files("promptkit._report").joinpath(name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


@lru_cache(maxsize=1)
def _template() -> Template:
    """Compile the template when the first page is written: Jinja2 is slow to import."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, finalize=_finalized, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    _equip(environment)
    return environment.from_string(_text("page.html.jinja"))


def _equip(environment: Environment) -> None:
    from promptkit._report import cells

    environment.filters |= {
        "seconds": seconds_text,
        "instant": instant_text,
        "plural": counted,
        "lower_bound": _lower_bound,
        "number": "{:,}".format,
        "name": cells.name,
        "state": cells.state,
        "tokens": cells.tokens,
        "least": cells.at_least,
        "cell": cells.number,
        "seconds_cell": cells.seconds,
        "usage": cells.usage,
    }
    environment.globals |= {
        "STATES": cells.STATES,
        "GLYPHS": cells.GLYPHS,
        "COUNTS": cells.COUNTS,
        "DEEPEST": DEEPEST,
        "NARROW": NARROW,
        "SHOWN_FAULTS": SHOWN_FAULTS,
        "SHOWN_GROUPS": SHOWN_GROUPS,
    }


def _finalized(value: Any) -> Any:
    """Let nothing hide in what the template prints. None would be a mistake of the template."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return bounded_name(value)
    if value is None:
        msg = "the template of the report prints None"
        raise TypeError(msg)
    return value


def _lower_bound(totals: Totals) -> bool:
    return totals.did_not_end > 0
