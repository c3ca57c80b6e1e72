"""Measure what a preparation costs beyond Jinja2's own rendering of the same templates.

A typical prompt: three messages, five variables. Each round times every subject, one after the other, so that a noisy
moment of the machine meets all of them; a figure is the median of the rounds, in microseconds of CPU. Run by
`make bench`; exits with 1 when a preparation costs more than GATE beyond Jinja2.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from promptkit import (
    Backend,
    Catalog,
    Engine,
    Exchange,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    RunRequest,
)
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RESULTS = Path(__file__).resolve().parent / "results" / "preparation.json"
GATE = 60.0
ROUNDS = 200
CALLS = 20  # of a subject in a round; 1 of those whose cost is the tuple of a long history

SYSTEM = "You are the {{ role }} of {{ company }}. Answer in {{ language }}, in at most {{ limit }} words.\n"
CONTEXT = """What the customer has bought:
{% for item in orders %}- {{ item.name }}, {{ item.count }} of them
{% endfor %}
{% if limit > 100 %}Take your time.{% else %}Be brief.{% endif %}"""
QUESTION = "A customer of {{ company }} asks about the last order. Say what it was, and when it arrives."
TEMPLATES = (SYSTEM, CONTEXT, QUESTION)
VARIABLES: dict[str, Any] = {
    "role": "support desk",
    "company": "Lamps & Sons",
    "language": "English",
    "limit": 80,
    "orders": [{"name": "lamp", "count": 2}, {"name": "shade", "count": 1}, {"name": "bulb", "count": 12}],
}


class Answer(msgspec.Struct):
    """What a contract asks for."""

    text: str
    sources: list[str]
    score: float
    tags: dict[str, int] = {}


SCHEMA: Any = msgspec.json.schema(Answer)
CATALOG = Catalog(
    backends=[Backend(id="server", kind="chat_completions", base_url="http://127.0.0.1:1/v1")],
    profiles=[Profile(id="usual", backend="server", model="model", temperature=0.2, max_output_tokens=400)],
    prompts=[
        PromptDefinition(
            id="support/answer",
            messages=(
                MessageTemplate(role="system", content=SYSTEM),
                MessageTemplate(role="user", content=CONTEXT),
                MessageTemplate(role="user", content=QUESTION),
            ),
            variables=tuple(VARIABLES),
            profile="usual",
        )
    ],
    schemas={"support/reply": SCHEMA},
)


def conversation(turns: int) -> Exchange | None:
    """Give a captured history."""
    node = None
    for number in range(turns):
        node = Turn(node, [("user", "q" * 400, None)]).capture(f"{number:032x}", "a" * 800)
    return None if node is None else exchange_of(node)


def request(turns: int) -> RunRequest:
    """Ask the typical prompt after some turns."""
    return RunRequest(prompt_id="support/answer", variables=VARIABLES, continue_from=conversation(turns))


def in_view(output: OutputContract | None) -> RunRequest:
    """Ask the typical prompt of the view with a contract."""
    return RunRequest(prompt_id="answer", variables=VARIABLES, output=output)


async def timed(function: Callable[[], Awaitable[object]], calls: int) -> float:
    """Give the microseconds of CPU of one call."""
    begun = time.process_time_ns()
    for _ in range(calls):
        await function()
    return (time.process_time_ns() - begun) / calls / 1e3


def subjects(engine: Engine) -> dict[str, tuple[Callable[[], Awaitable[object]], int]]:
    """Give what is timed, and how often in a round."""
    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    templates = [environment.from_string(source) for source in TEMPLATES]
    first, thousand, ten_thousand = request(0), request(1_000), request(10_000)
    view = engine.scoped("support")
    named = in_view(OutputContract(kind="json_schema", schema="reply"))

    async def bare() -> list[str]:
        return [template.render(VARIABLES) for template in templates]

    return {
        "jinja2 alone": (bare, CALLS),
        "validate_request": (lambda: engine.validate_request(first), CALLS),
        "... of a view, schema by id": (lambda: view.validate_request(named), CALLS),
        "... a new request of a view": (lambda: view.validate_request(in_view(None)), CALLS),
        "... and a new contract, inline": (
            lambda: view.validate_request(in_view(OutputContract(kind="json_schema", schema=SCHEMA))),
            CALLS,
        ),
        "... and a new contract of a type": (lambda: view.validate_request(in_view(OutputContract.of(Answer))), CALLS),
        "prepare": (lambda: engine.prepare(first), CALLS),
        "prepare_execution": (lambda: engine.prepare_execution(first), CALLS),
        "validate_request after 10,000 turns": (lambda: engine.validate_request(ten_thousand), CALLS),
        "prepare_execution after 10,000 turns": (lambda: engine.prepare_execution(ten_thousand), CALLS),
        "prepare after 1,000 turns": (lambda: engine.prepare(thousand), 1),
        "prepare after 10,000 turns": (lambda: engine.prepare(ten_thousand), 1),
    }


async def measure() -> dict[str, float]:
    """Time every subject in turn; those of long histories apart, since they leave the caches cold."""
    found: dict[str, list[float]] = {}
    measured = subjects(Engine(CATALOG))
    for many in (True, False):
        together = {name: subject for name, subject in measured.items() if (subject[1] > 1) is many}
        for number in range(ROUNDS + 5):
            for name, (function, calls) in together.items():
                spent = await timed(function, calls)
                if number >= 5:  # what is loaded on first use is loaded
                    found.setdefault(name, []).append(spent)
    return {name: median(times) for name, times in found.items()}


def main() -> int:
    """Measure, print and keep the figures, and say whether they pass."""
    figures = anyio.run(measure)
    alone = figures["jinja2 alone"]
    for name, spent in figures.items():
        print(f"{name:38} {spent:9.1f} us {spent - alone:+9.1f} us")
    beyond = figures["prepare"] - alone
    passed = beyond <= GATE
    print(
        f"prepare costs {beyond:.1f} us beyond Jinja2, at most {GATE:g} are allowed: {'passed' if passed else 'FAILED'}"
    )
    kept = {"microseconds": figures, "prepare beyond jinja2": beyond, "gate": GATE}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
