"""Measure what the coordinator costs a turn, beyond the same runs in a loop.

Both continue the same exchange as often, through the same engine, whose model answers at once, one after the other in
each round. A figure is that of the quietest round, in microseconds of CPU a turn: other processes can only add to it.
Run by `make bench`; exits with 1 when a turn costs more than GATE beyond its run, on either event loop.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from catalogs import saying
from promptkit import (
    CoordinateRequest,
    Engine,
    GenerationReply,
    RunRequest,
)

if TYPE_CHECKING:
    from promptkit import ConversationTurn, Exchange, GenerationCall

RESULTS = Path(__file__).resolve().parent / "results" / "coordination.json"
GATE = 40.0
ROUNDS = 300
TURNS = 20  # of a conversation in a round
CATALOG = saying()


class _Client:
    async def generate(self, _: GenerationCall) -> GenerationReply:
        return GenerationReply(content="yes")


def request(continued: Exchange | None = None) -> RunRequest:
    """Ask for one more turn; an application makes a request of its own for each."""
    return RunRequest(prompt_id="say", variables={"text": "More?"}, continue_from=continued, capture_exchange=True)


async def in_a_loop(engine: Engine, start: Exchange, turns: int) -> Exchange:
    """Run one continuation after the other."""
    for _ in range(turns):
        start = (await engine.run(request(start))).exchange
    return start


async def coordinated(engine: Engine, start: Exchange, turns: int) -> Exchange:
    """Let the coordinator do it."""
    reached = start

    def choose(turn: ConversationTurn) -> RunRequest | None:
        nonlocal reached
        reached = turn.exchange
        return request() if turn.remaining_turns else None

    await engine.coordinate(CoordinateRequest(start=start, additional_turns=turns, next=choose))
    return reached


async def measure(rounds: int = ROUNDS, turns: int = TURNS) -> dict[str, float]:
    """Time both, in turn."""
    found: dict[str, list[float]] = {}
    engine = Engine(CATALOG, client=_Client())
    start = (await engine.run(request())).exchange
    for number in range(rounds + 5):
        for function in (in_a_loop, coordinated):
            begun = time.process_time_ns()
            await function(engine, start, turns)
            if number >= 5:  # what is loaded on first use is loaded
                found.setdefault(function.__name__, []).append((time.process_time_ns() - begun) / turns / 1e3)
    figures = {name: min(times) for name, times in found.items()}
    return {**figures, "beyond": figures["coordinated"] - figures["in_a_loop"]}


def main() -> int:
    """Measure, print and keep the figures, and say whether they pass."""
    kept: dict[str, Any] = {"gate": GATE}
    passed = True
    for loop in ("asyncio", "trio"):
        figures = kept[loop] = anyio.run(measure, backend=loop)
        good = figures["beyond"] <= GATE
        passed = passed and good
        print(
            f"{loop}: a run costs {figures['in_a_loop']:.1f} us, a coordinated one {figures['beyond']:+.1f} us, "
            f"at most {GATE:+g} are allowed: {'passed' if good else 'FAILED'}"
        )
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
