"""The small pieces that a page has by the hundred thousand, as markup.

In Python and not in the template, where they took most of the time of a long trace. What comes from the trace is
escaped here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from promptkit._report.figures import bounded_name
from promptkit._values.usage import TokenUsage

if TYPE_CHECKING:
    from promptkit._report.runs import State
    from promptkit._values.usage import TokenCount

STATES: dict[State, str] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "did_not_end": "did not end",
}
GLYPHS: dict[State, str] = {"completed": "✓", "failed": "✕", "cancelled": "⊘", "did_not_end": "…"}
COUNTS = tuple(
    (name, name.removesuffix("_tokens").replace("_", " ").capitalize()) for name in TokenUsage.__struct_fields__
)
ZEROS = frozenset({"0", "0.000"})


def name(text: str | None, missing: str) -> Markup:
    """Write a name of the trace, or that there is none."""
    return _markup(f"<i>{missing}</i>" if text is None else f"<bdi>{escape(bounded_name(text))}</bdi>")


def state(value: State, note: str = "") -> Markup:
    """Write how a run or an attempt ended: a sign and words, so that colour says nothing alone."""
    return _markup(
        f'<span class="state {value}"><b aria-hidden="true">{GLYPHS[value]}</b> {STATES[value]}{note}</span>'
    )


def tokens(count: TokenCount) -> Markup:
    """Write a count of tokens: a number, "at least" one, or "unknown"."""
    return at_least(count.value, bound=not count.complete) if count.known else _markup("<i>unknown</i>")


def at_least(value: int, *, bound: bool) -> Markup:
    """Write a number, or that it is a lower bound."""
    return _markup(f"<small>at least</small> {value:,}" if bound else f"{value:,}")


def number(value: int, *, bound: bool = False) -> Markup:
    """Write the cell of a number."""
    return _cell(at_least(value, bound=bound))


def seconds(value: float | None) -> Markup:
    """Write the cell of a duration in seconds."""
    return _cell("<i>unknown</i>" if value is None else f"{value:,.3f}")


def usage(value: TokenUsage) -> Markup:
    """Write the cells of the five counts."""
    return _markup("".join(_cell(tokens(getattr(value, field))) for field, _ in COUNTS))


def _cell(content: str) -> Markup:
    return _markup(f'<td class="{"n z" if content in ZEROS else "n"}">{content}</td>')


def _markup(text: str) -> Markup:
    return Markup(text)  # noqa: S704  # what a file says was escaped before
