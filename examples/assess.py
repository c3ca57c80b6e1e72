"""An application that assesses each turn with a model call of its own, and stops when it has what it wants.

The assessment continues the branch that it looks at, on the same backend, which runs one generation at a time: nothing
of the branch is held while the application works. What the turns cost and what assessing them cost is kept apart,
because the application says which run belongs to which group.
"""

from pathlib import Path

import anyio

from promptkit import (
    AttemptFinished,
    ConversationTurn,
    CoordinateRequest,
    Engine,
    ExecutionEvent,
    ExecutionGroup,
    RunRequest,
    compose_observers,
    load_catalog,
    summary_table,
)

QUESTIONS = ("Who found the fault?", "What does the new fan cost?", "What is sold until Friday?")


def diagnose(event: ExecutionEvent) -> None:
    """Say which call failed, beside the group that counts."""
    if isinstance(event, AttemptFinished) and event.error is not None:
        print(f"  attempt {event.attempt} to {event.purpose} failed: {event.error}")


class Inquiry:
    """Asks until an answer says what the repair costs, as the assessment finds."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.questions = iter(QUESTIONS)
        self.assessments = ExecutionGroup()

    async def found_a_price(self, turn: ConversationTurn) -> bool:
        """Let the model say what it understood. The branch itself never sees this."""
        assessed = await self.engine.run(
            RunRequest(prompt_id="finding", continue_from=turn.exchange, observer=self.assessments.observe)
        )
        if assessed.validation.status != "valid":  # stopping is the application's decision, and so is not trusting
            return False
        print(f"  assessed: {assessed.value}")
        return isinstance(assessed.value, dict) and assessed.value["euros"] == 420

    async def next(self, turn: ConversationTurn) -> RunRequest | None:
        """Take the answer that has come, assess it, and go on or stop."""
        if turn.result is not None:
            print(f"answer: {' '.join(turn.result.raw_output.split())}")
            if await self.found_a_price(turn):
                return None
        return RunRequest(prompt_id="ask", variables={"question": next(self.questions, "What else?")})


async def main(engine: Engine) -> None:
    """Read the letter, then let the coordinator lead the inquiry."""
    first = await engine.run(
        RunRequest(
            prompt_id="read",
            variables={"question": "What broke on Monday?"},
            inputs={"letter": Path("letter.txt")},
            capture_exchange=True,
        )
    )
    inquiry, turns = Inquiry(engine), ExecutionGroup()
    ended = await engine.coordinate(
        CoordinateRequest(
            start=first.exchange,
            additional_turns=3,
            next=inquiry.next,
            observer=compose_observers(diagnose, turns.observe),
        )
    )
    print(f"ended: {ended.outcome}")
    print(summary_table({"turns": turns.snapshot(), "assessments": inquiry.assessments.snapshot()}))


async def example() -> None:
    """Open the catalog beside this file."""
    async with Engine(load_catalog(Path(__file__).parent / "bakery")) as engine:
        await main(engine)


if __name__ == "__main__":
    anyio.run(example)
