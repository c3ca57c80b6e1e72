"""A conversation about a letter: two branches, one led by the coordinator, and a finding at the end.

Run it with `make demo`. The model is small and runs inside this process: look at the shape, not at its wit.
"""

from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from promptkit import (
    ConversationTurn,
    CoordinateRequest,
    Engine,
    Exchange,
    ExecutionGroup,
    ExecutionGroupSummary,
    RunRequest,
    RunResult,
    load_catalog,
)

QUESTIONS = ("Who found the fault?", "What does the new fan cost?", "What is sold until Friday?")


class Conversation:
    """Shows each answer as it completes, and keeps who continued whom."""

    def __init__(self, console: Console, engine: Engine) -> None:
        self.console = console
        self.engine = engine
        self.group = ExecutionGroup()
        self.tree = Tree("The conversation, and who continued whom")
        self.nodes = {"": self.tree}

    async def run(self, request: RunRequest) -> RunResult:
        """Run one request, with a sign of life on a terminal while the model works."""
        with self.console.status(f"{request.prompt_id} ..."):
            return self.show(await self.engine.run(request), str(request.variables.get("question", "")))

    def show(self, result: RunResult, question: str = "") -> RunResult:
        """Print an answer, and hang it into the tree below the one that it continued."""
        answer = escape(" ".join(result.raw_output.split()))
        what = f"[bold]{result.prompt_id}[/bold]: " + (f"[italic]{question}[/italic] " if question else "")
        self.console.print(f"{what}{answer} ({result.timing.duration:.1f} s)")
        self.nodes[result.run_id] = self.nodes[result.parent_run_id or ""].add(what + answer)
        return result


class Interview:
    """The application: it asks until an answer has a number in it."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.questions = iter(QUESTIONS)
        self.asked = ""
        self.last: Exchange | None = None

    def next(self, turn: ConversationTurn) -> RunRequest | None:
        """Take the answer that has come, and choose the next question, or None when there is enough."""
        self.last = turn.exchange
        if turn.result is not None:
            self.conversation.show(turn.result, self.asked)
            if any(character.isdigit() for character in turn.result.raw_output):
                return None
        self.asked = next(self.questions, "What else?")
        return RunRequest(prompt_id="ask", variables={"question": self.asked})


def usage_table(summary: ExecutionGroupSummary) -> Table:
    """Show what all runs used; a count that nothing reported is unknown, not zero."""
    table = Table("tokens", "count", title=f"{len(summary.members)} runs, {summary.attempts} attempts")
    for name in summary.usage.__struct_fields__:
        table.add_row(name.removesuffix("_tokens").replace("_", " "), str(getattr(summary.usage, name)))
    return table


async def main(engine: Engine, console: Console) -> None:
    """Hold the conversation."""
    talk = Conversation(console, engine)
    observer = talk.group.observe

    first = await talk.run(
        RunRequest(
            prompt_id="read",
            variables={"question": "What broke on Monday?"},
            inputs={"letter": Path("letter.txt")},
            capture_exchange=True,
            observer=observer,
        )
    )
    await talk.run(RunRequest(prompt_id="notice", continue_from=first.exchange, observer=observer))

    interview = Interview(talk)
    coordination = CoordinateRequest(start=first.exchange, additional_turns=3, next=interview.next, observer=observer)
    with console.status("the coordinator leads a branch ..."):
        ended = await engine.coordinate(coordination)
    console.print(f"The coordinator ended: {ended.outcome}")

    finding = await talk.run(RunRequest(prompt_id="finding", continue_from=interview.last, observer=observer))
    console.print(f"The finding is {finding.validation.status} after {finding.repair_calls} repairs: {finding.value}")
    console.print(talk.tree)
    console.print(usage_table(talk.group.snapshot()))


async def demo() -> None:
    """Open the catalog beside this file."""
    async with Engine(load_catalog(Path(__file__).parent / "bakery")) as engine:
        await main(engine, Console(highlight=False))


if __name__ == "__main__":
    anyio.run(demo)
