"""The two messages that follow the original ones when an answer is sent back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._values.messages import Message

if TYPE_CHECKING:
    from promptkit._values.results import Violation

MOST_LISTED = 10
MOST_CHARACTERS = 300  # of one violation: a correction stays small whatever the answer was


def repair_messages(rejected: str, violations: tuple[Violation, ...]) -> tuple[Message, Message]:
    """Give the rejected answer as assistant, then what was wrong with it as user."""
    lines = [f"- {_place(v.pointer)}: {_bounded(v.message)}" for v in violations[:MOST_LISTED]]
    if len(violations) > MOST_LISTED:
        lines.append(f"- and {len(violations) - MOST_LISTED} more")
    correction = "\n".join(
        [
            "Your answer does not have the form that was asked for:",
            *lines,
            "Answer again with one corrected JSON document and nothing else.",
        ]
    )
    return Message(role="assistant", content=rejected), Message(role="user", content=correction)


def _place(pointer: str) -> str:
    return f"at {_bounded(pointer)}" if pointer else "the whole answer"


def _bounded(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"
