"""What a chat tells about itself, as lines: what it has used, where unknown counts are said to be unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._cli.conversation import branches
from promptkit._values.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit import ExecutionGroupSummary
    from promptkit._cli.conversation import Conversation


def usage_lines(conversation: Conversation, summary: ExecutionGroupSummary) -> Iterator[str]:
    """Tell how long the chat is, and what all its runs have used, those that failed or were cancelled too."""
    ends = branches(conversation.turns)
    on = f" on {ends:,} branches" if ends > 1 else ""
    yield f"{counted(len(conversation.turns), 'turn')}{on}"
    yield f"{counted(len(summary.members), 'run')}, {counted(summary.attempts, 'attempt')}"
    for name in summary.usage.__struct_fields__:
        yield f"{name.replace('_', ' '):<20}{getattr(summary.usage, name)}"
