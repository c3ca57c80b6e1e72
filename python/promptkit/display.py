"""Values for people, with rich (``pip install 'promptkit-engine[cli]'``).

``rich.print(value)`` shows an Exchange, a RunResult, a PreparedRun, a ConversationTurn, a coordination and its result,
what ``inspect_*`` gives, token counts, and the totals of a group. Here is what takes several of them, or says how much
is shown. All of it is bounded. What models and people wrote is never markup, and what a terminal would act upon is
shown as an escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

try:
    from rich.text import Text
    from rich.tree import Tree
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "rich":
        raise
    _message = "promptkit.display needs rich: pip install 'promptkit-engine[cli]' (in a clone: pip install '.[cli]')"
    raise ImportError(_message, name=_error.name) from _error

from promptkit._values.exchange import Exchange, ExchangeDetails
from promptkit._values.group import ExecutionGroupSummary
from promptkit._values.messages import Message, TextPart, from_tuples
from promptkit._values.renderables import NEWEST, conversation_view, usage_rows
from promptkit._values.reprs import bounded_repr
from promptkit._values.results import RunResult
from promptkit._values.tree_rows import rows_of
from promptkit._values.usage import TokenUsage
from promptkit._values.visible import line, visible
from promptkit.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from promptkit._history import _StoredMessage as StoredTuple

__all__ = ["conversation", "conversation_tree", "usage_table", "visible"]

MAX_LINES = 500  # of a tree
ENDS = 5  # exchanges of a long stretch that are shown after its head, and as many at its end
BACK = 8  # messages before an answer among which the question is looked for

Source = Exchange | ExchangeDetails


def conversation(source: Source, *, newest: int = NEWEST) -> RenderableType:
    """Show the newest messages of a conversation, as ``rich.print(exchange)`` does, but as many as you like.

    ``newest`` is how many: 20 unless it is given.

    Each message is shown up to 2,000 characters and 40 lines. Raises InvalidRequestError for what is no exchange.
    A ``newest`` that is no whole number from 0 up is refused in the same way.
    """
    _expect("a whole number, 0 or more", newest, "conversation: newest", so=type(newest) is int and newest >= 0)
    return conversation_view(_source(source, "conversation"), newest)


def conversation_tree(exchanges: Iterable[Source], *, title: str = "conversation") -> Tree:
    """Show exchanges as a tree: who continued whom, and where branches part.

    Give all the exchanges that are to be seen: what an exchange continues is known by its run id, and shown if it is
    among them. What follows without a branch stands on one level; of a long stretch, its ends. At most 500 lines.
    Raises InvalidRequestError for what is no exchange, and for a title that is no text.
    """
    _expect("a text", title, "conversation_tree: title", so=isinstance(title, str))
    alone = ": give a list of it" if isinstance(exchanges, Exchange | ExchangeDetails) else ""
    several = isinstance(exchanges, Iterable)
    _expect("an iterable of exchanges", exchanges, "conversation_tree", so=several, remedy=alone)
    given: dict[str, Source] = {}
    children: dict[str | None, list[str]] = {}
    for source in exchanges:
        given.setdefault(_facts(_source(source, "conversation_tree"))[0], source)
    for run_id, source in given.items():
        parent = _facts(source)[1]
        children.setdefault(parent if parent in given else None, []).append(run_id)
    tree = Tree(Text(line(title), "bold"))
    labels: dict[str, Text] = {}
    shown = _laid_out(tree, children, labels)
    _fill(labels, given, children)
    if shown < len(given):
        tree.add(Text(f"… {len(given):,} exchanges in all", "dim italic"))
    return tree


def usage_table(rows: Mapping[str, RunResult | ExecutionGroupSummary | TokenUsage]) -> Table:
    """Show what runs and groups used, by the names that they are given: up to three side by side, more in a line each.

    A count that nobody reported is "unknown", one that is partly known "at least" so much. There is no line of totals:
    a run may be in several groups. Raises InvalidRequestError for what is neither, and for a name that is no text.
    """
    _expect("a mapping of names to what was used", rows, "usage_table", so=isinstance(rows, Mapping))
    for name, used in rows.items():
        _expect("a text", name, "usage_table: a name", so=isinstance(name, str))
        shown = isinstance(used, RunResult | ExecutionGroupSummary | TokenUsage)
        snapshot = ": give its .snapshot()" if callable(getattr(used, "snapshot", None)) else ""
        kinds = "a RunResult, an ExecutionGroupSummary or a TokenUsage"
        _expect(kinds, used, f"usage_table: {name!r}", so=shown, remedy=snapshot)
    return usage_rows(rows)


def _source(value: Source, place: str) -> Source:
    remedy = ": take its .exchange" if isinstance(value, RunResult) else ""
    shown = isinstance(value, Exchange | ExchangeDetails)
    _expect("an Exchange or ExchangeDetails", value, place, so=shown, remedy=remedy)
    return value


def _expect(what: str, given: object, place: str, *, so: bool, remedy: str = "") -> None:
    if not so:
        got = bounded_repr(given) if isinstance(given, int) else f"`{type(given).__name__}`"
        msg = f"{place}: Expected {what}, got {got}{remedy}"
        raise InvalidRequestError(msg)


def _facts(source: Source) -> tuple[str, str | None, int]:
    """Give the ids of run and parent, and how many messages there are."""
    if isinstance(source, ExchangeDetails):
        return source.run_id, source.parent_run_id, len(source.messages)
    node = source._node  # noqa: SLF001  # the details would cost as much as the history is long
    return node.run_id, node.parent_run_id, node.message_count


def _fill(labels: Mapping[str, Text], given: Mapping[str, Source], children: Mapping[str | None, list[str]]) -> None:
    """Write what each exchange that is shown adds. A history is read once for all that it leads through."""
    seen: set[str] = set()
    for last in given:
        if last in children:
            continue
        through: list[tuple[str, str | None, int]] = []
        run_id: str | None = last
        while run_id is not None and run_id in given and run_id not in seen:
            seen.add(run_id)
            _, parent, length = _facts(given[run_id])
            if run_id in labels:
                through.append((run_id, None if parent in given else parent, length))
            run_id = parent
        stored = _messages(given[last]) if through else ()
        for run_id, elsewhere, length in through:
            _describe(labels[run_id], stored[max(0, length - BACK) : length], elsewhere)


def _messages(source: Source) -> Sequence[Message | StoredTuple]:
    if isinstance(source, ExchangeDetails):
        return source.messages
    return source._node.messages()  # noqa: SLF001  # a message is made only of what is shown


def _describe(label: Text, stored: Sequence[Message | StoredTuple], elsewhere: str | None) -> None:
    messages = [entry if isinstance(entry, Message) else from_tuples([entry])[0] for entry in stored]
    questions = [message for message in messages[:-1] if message.role == "user"]
    if elsewhere is not None:
        label.append(f"(continues {line(elsewhere, 40)}) ", "dim")
    if questions:
        label.append(_one_line(questions[-1], 60), "cyan").append(" → ", "dim")
    label.append(_one_line(messages[-1], 100) if messages else "", "green")


def _one_line(message: Message, characters: int) -> str:
    if isinstance(message.content, str):
        return line(message.content, characters)
    texts = [part.text for part in message.content if isinstance(part, TextPart)]
    return line(texts[0], characters) if texts else f"<{len(message.content)} parts>"


def _laid_out(tree: Tree, children: Mapping[str | None, list[str]], labels: dict[str, Text]) -> int:
    """Hang exchanges into a tree, each with a label to be written, and say how many are told of."""
    rows = rows_of(children.get(None, []), lambda run_id: children.get(run_id, ()), first=1 + ENDS, last=ENDS)
    heads: list[Tree] = []  # the first of the stretch that is drawn, by level
    ends = [tree]  # what the stretches of each level hang from
    told = 0
    for row in islice(rows, MAX_LINES):
        told += row.left_out or 1
        if row.left_out:
            label = Text(f"… {row.left_out:,} exchanges", "dim italic")
        else:
            label = labels.setdefault(row.node, Text(no_wrap=True, overflow="ellipsis"))
        if row.begins:
            del heads[row.level :], ends[row.level + 1 :]
            heads.append(ends[-1].add(label))
            ends.append(heads[-1])
        else:
            ends[-1] = heads[-1].add(label)
    return told
