"""Look at exactly what will be sent, run exactly that later, and go on from what came of it.

What is prepared is fixed: files, templates and values may change until it runs. It runs once.
"""

from pathlib import Path

import anyio

from promptkit import Engine, ExecutionGroup, PreparedExecutionError, RunRequest, load_catalog


async def main(engine: Engine) -> None:
    """Prepare, show, run, continue."""
    group = ExecutionGroup()
    execution = await engine.prepare_execution(
        RunRequest(
            prompt_id="read",
            variables={"question": "What broke on Monday?"},
            inputs={"letter": Path("letter.txt")},
            capture_exchange=True,
            observer=group.observe,
        )
    )
    prepared = execution.details
    print(f"to {prepared.model}: {len(prepared.messages)} messages, {prepared.rendered_hash[:19]}")
    for name, digest in prepared.input_hashes.items():
        print(f"  {name}: {digest[:19]}")

    result = await engine.run_prepared(execution)
    print(f"ran what was prepared: {result.rendered_hash == prepared.rendered_hash}")
    print(f"runs counted: {len(group.snapshot().members)}")
    print(f"answer: {' '.join(result.raw_output.split())}")
    try:
        await engine.run_prepared(execution)
    except PreparedExecutionError as error:
        print(f"again: {error}")

    follow_up = await engine.prepare_execution(RunRequest(prompt_id="notice", continue_from=result.exchange))
    print(f"a follow-up of the run before: {follow_up.details.parent_run_id == result.run_id}")
    follow_up.discard()  # seen, and not wanted: nothing was sent


async def example() -> None:
    """Open the catalog beside this file."""
    async with Engine(load_catalog(Path(__file__).parent / "bakery")) as engine:
        await main(engine)


if __name__ == "__main__":
    anyio.run(example)
