"""What rich shows of the values: loaded when it asks, since nothing else needs rich.

Texts of models and people are never markup, and are bounded and made visible; every name and id is too.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from promptkit._values.counted import counted
from promptkit._values.exchange import Exchange, ExchangeDetails, node_of
from promptkit._values.folding_table import FoldingTable, pairs_table
from promptkit._values.group import ExecutionGroupSummary, summary_cells
from promptkit._values.messages import FilePart, ImagePart, Message, TextPart, from_tuples
from promptkit._values.reprs import bounded_repr
from promptkit._values.usage import TOKENS, TokenUsage
from promptkit._values.visible import excerpt, line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from promptkit._values.definitions import MessageTemplate
    from promptkit._values.details import BackendDetails, ProfileDetails, PromptDetails
    from promptkit._values.messages import ContentPart
    from promptkit._values.results import PreparedRun, RunResult, Setting
    from promptkit._values.turns import ConversationTurn, CoordinationResult

NEWEST = 20  # messages that are shown
MAX_VALUE = 500  # characters of a setting or a name
MAX_PARTS = 20  # of one message
MAX_ROWS = 100  # of a table
FEW = 3  # columns of numbers that fit beside each other wherever people read
STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green"}


class Indented:
    """A text two columns to the right. Unlike a Padding it puts no blanks behind, which would be copied with it."""

    def __init__(self, body: Text) -> None:
        self._body = body

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give the lines of the text."""
        narrower = options.update_width(max(1, options.max_width - 2))
        for segments in console.render_lines(self._body, narrower, pad=False):
            yield Segment("  ")
            yield from segments
            yield Segment.line()


def conversation_view(source: Exchange | ExchangeDetails, newest: int = NEWEST) -> RenderableType:
    """Show the newest messages of a conversation."""
    length, shown = _newest(source, newest)
    return Group(Text(f"exchange of {counted(length, 'message')}", "bold"), *messages_view(shown, length))


def _newest(source: Exchange | ExchangeDetails, number: int) -> tuple[int, tuple[Message, ...]]:
    node = node_of(source) if isinstance(source, Exchange) else None
    if node is None:
        messages = source.details().messages if isinstance(source, Exchange) else source.messages
        return len(messages), messages[max(0, len(messages) - number) :]
    stored = node.messages()  # tuples: a message is made only of what is shown
    return len(stored), from_tuples(stored[max(0, len(stored) - number) :])


def messages_view(shown: Sequence[Message | MessageTemplate], length: int) -> list[RenderableType]:
    """Show the last messages of so many."""
    before = length - len(shown)
    first = [Text(f"… {counted(before, 'earlier message')}", "dim italic")] if before else []
    return [*first, *(part for message in shown for part in _message(message))]


def _message(message: Message | MessageTemplate) -> tuple[Text, Indented]:
    marker = "" if message.cache_control is None else f" (cached{_ttl(message.cache_control.ttl)})"
    head = Text.assemble((line(message.role), f"bold {STYLES.get(message.role, '')}"), (marker, "dim"))
    return head, Indented(content_text(message.content))


def content_text(content: str | tuple[ContentPart, ...]) -> Text:
    """Give the content of a message: its text, and its other parts by what they are."""
    if isinstance(content, str):
        return _body(content)
    parts = [_body(part.text) if isinstance(part, TextPart) else _part(part) for part in content[:MAX_PARTS]]
    if len(content) > MAX_PARTS:
        parts.append(Text(f"… {counted(len(content) - MAX_PARTS, 'more part')}", "dim italic"))
    return Text("\n").join(parts)


def _part(part: ImagePart | FilePart) -> Text:
    if part.data is None:
        where = line(getattr(part, "url", None) or "")
    else:
        name = getattr(part, "filename", None)
        where = (f"{line(name)}, " if name else "") + counted(len(part.data), "byte")
    return Text(f"<{line(part.media_type)}: {where}>", "dim")


def result_view(result: RunResult) -> RenderableType:
    """Show what a run answered, whether that is valid, and what it used."""
    status = result.validation.status
    about = [line(result.model), f"{result.timing.duration:.1f} s", counted(result.attempts, "attempt")]
    head = Text.assemble((line(result.prompt_id), "bold"), (f"  {', '.join(about)}", "dim"))
    shown: list[RenderableType] = [head, Indented(_body(result.raw_output))]
    if result.refusal is not None:
        shown.append(Text.assemble(("refused: ", "yellow"), _body(result.refusal)))
    if status == "invalid":
        shown.append(Text("invalid under its contract", "bold red"))
        violations = result.validation.violations
        rows = [f"{line(v.pointer) or 'the whole'}: {line(v.message, MAX_VALUE)}" for v in violations[:NEWEST]]
        more = [f"… {len(violations) - NEWEST:,} more"] if len(violations) > NEWEST else []
        shown.append(Indented(Text("\n".join([*rows, *more]), "red")))
    return Group(*shown, tokens_view(result.usage))


def tokens_view(usage: TokenUsage, head: str = "tokens") -> Text:
    """Show five counts in a line."""
    return Text(f"{head}: {usage}", "dim")


def turn_view(turn: ConversationTurn) -> RenderableType:
    """Show what an application decides on: the newest answer, or the branch as it begins."""
    left = turn.remaining_turns
    head = Text.assemble(("turn", "bold"), f" with {left:,} more permitted")
    return Group(head, conversation_view(turn.exchange) if turn.result is None else result_view(turn.result))


def prepared_view(prepared: PreparedRun) -> RenderableType:
    """Show what a run would send."""
    about = _about(
        {
            "prompt": prepared.prompt_id,
            "continues": prepared.parent_run_id,
            "profile": prepared.profile,
            "backend": prepared.backend,
            "model": prepared.model,
            "session": prepared.session_id,
            "output": prepared.output.kind,
            "definition": prepared.definition_hash,
            "rendered": prepared.rendered_hash,
            **{f"input {name}": value for name, value in prepared.input_hashes.items()},
        }
    )
    return Group(about, *messages_view(prepared.messages[-NEWEST:], len(prepared.messages)))


def prompt_view(details: PromptDetails) -> RenderableType:
    """Show a prompt as it is defined."""
    about = _about(
        {
            "prompt": details.id,
            "description": details.description,
            "variables": ", ".join(details.variables) or None,
            "inputs": ", ".join(details.inputs) or None,
            "profile": details.profile,
            "session": details.session,
            "output": details.output.kind,
            "definition": details.definition_hash,
            "file": details.source,
        }
    )
    return Group(about, *messages_view(details.messages[-NEWEST:], len(details.messages)))


def profile_view(details: ProfileDetails) -> RenderableType:
    """Show a profile, and where each setting comes from."""
    about = _about({"profile": details.id, "backend": details.backend, "model": details.model})
    return Group(about, settings_table(details.settings))


def backend_view(details: BackendDetails) -> RenderableType:
    """Show a backend, and how busy it is."""
    return _about({name: getattr(details, name) for name in details.__struct_fields__})


def coordination_view(result: CoordinationResult) -> RenderableType:
    """Show how a coordination ended."""
    return _with_undelivered(Text.assemble(("coordination ", "bold"), result.outcome or "did not end normally"), result)


def led_view(state: str, result: CoordinationResult) -> RenderableType:
    """Show how a coordination stands, and the response that it kept."""
    return _with_undelivered(Text(state), result)


def _with_undelivered(head: Text, result: CoordinationResult) -> RenderableType:
    if result.undelivered is None:
        return head
    return Group(head, Text("a completed response was not delivered:", "yellow"), result_view(result.undelivered))


def summary_view(summary: ExecutionGroupSummary) -> RenderableType:
    """Show the totals of a group."""
    return usage_rows({"": summary})


def usage_rows(rows: Mapping[str, RunResult | ExecutionGroupSummary | TokenUsage]) -> Table:
    """Show what each of these used: up to three side by side, which fits anywhere, more in a line each."""
    heads = ("runs", "attempts", "retries", "repairs", *TOKENS)
    cells = [("", *heads), *((line(name), *_usage_cells(used)) for name, used in islice(rows.items(), MAX_ROWS))]
    if len(cells) <= 1 + FEW:
        cells = list(zip(*cells, strict=True))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_header=any(cells[0]))
    for head in cells[0]:
        table.add_column(Text(head), overflow="fold", justify="right" if table.columns else "left")
    for row in cells[1:]:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _usage_cells(used: RunResult | ExecutionGroupSummary | TokenUsage) -> tuple[str, ...]:
    if isinstance(used, ExecutionGroupSummary):
        return summary_cells(used)
    if isinstance(used, TokenUsage):
        return ("", "", "", "", *token_cells(used))
    return ("1", str(used.attempts), str(used.transient_retries), str(used.repair_calls), *token_cells(used.usage))


def settings_table(settings: Mapping[str, Setting], value_text: Callable[[Any], str] | None = None) -> FoldingTable:
    """Show settings with where each comes from. Without ``value_text`` values are bounded."""
    text = value_text or bounded_text
    rows = [(line(name), text(setting.value), setting.origin) for name, setting in sorted(settings.items())[:MAX_ROWS]]
    return FoldingTable(("setting", "value", "from"), rows)


def _about(facts: Mapping[str, Any]) -> Table:
    """Show facts by their names, but for those that there are not."""
    told = [(line(name), bounded_text(value)) for name, value in facts.items() if value is not None]
    return pairs_table(told[:MAX_ROWS])


def token_cells(usage: TokenUsage) -> tuple[str, ...]:
    """Give the five counts: unknown ones as "unknown", partial ones as "at least" so much."""
    return tuple(str(getattr(usage, name)) for name in usage.__struct_fields__)


def bounded_text(value: Any) -> str:
    """Write a value of a setting: the start of a text, all else as JSON, None as a dash."""
    if value is None:
        return "-"
    return excerpt(value if isinstance(value, str) else _json(value), MAX_VALUE)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, ValueError):  # an integer of many digits
        return bounded_repr(value)


def _body(text: str) -> Text:
    return Text(excerpt(text), overflow="fold")


def _ttl(ttl: str | None) -> str:
    return "" if ttl is None else f" for {ttl}"
