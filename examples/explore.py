"""Explore one conversation in several directions at once: each branch has a coordinator and a task of its own.

The branches share their beginning and nothing else. The task group is the application's: when one branch fails, it
decides what becomes of the others.
"""

from pathlib import Path

import anyio

from promptkit import ConversationTurn, CoordinateRequest, Engine, Exchange, ExecutionGroup, RunRequest, load_catalog

DIRECTIONS = {
    "the repair": ("What does the new fan cost?", "When does it come?"),
    "the customers": ("What is sold until Friday?", "When will there be bread?"),
    "the people": ("Who found the fault?", "Who wrote the letter?"),
}


class Direction:
    """One branch: it asks its questions and keeps where it got to."""

    def __init__(self, start: Exchange, questions: tuple[str, ...]) -> None:
        self.reached = start
        self.questions = iter(questions)

    def next(self, turn: ConversationTurn) -> RunRequest | None:
        """Go on with the next question, or stop after the last one."""
        self.reached = turn.exchange
        question = next(self.questions, None)
        return None if question is None else RunRequest(prompt_id="ask", variables={"question": question})


async def main(engine: Engine) -> None:
    """Read the letter, then follow all directions at the same time."""
    first = await engine.run(
        RunRequest(
            prompt_id="read",
            variables={"question": "What broke on Monday?"},
            inputs={"letter": Path("letter.txt")},
            capture_exchange=True,
        )
    )
    group = ExecutionGroup()
    branches = {name: Direction(first.exchange, questions) for name, questions in DIRECTIONS.items()}
    async with anyio.create_task_group() as tasks:
        for branch in branches.values():
            request = CoordinateRequest(
                start=first.exchange, additional_turns=5, next=branch.next, observer=group.observe
            )
            tasks.start_soon(engine.coordinate(request).run)
    shared = len(first.exchange.details().messages)
    for name, branch in branches.items():
        print(f"{name}:")
        for message in branch.reached.details().messages[shared:]:
            print(f"  {message.role}: {' '.join(str(message.content).split())}")
    print(group.snapshot())


async def example() -> None:
    """Open the catalog beside this file."""
    async with Engine(load_catalog(Path(__file__).parent / "bakery")) as engine:
        await main(engine)


if __name__ == "__main__":
    anyio.run(example)
