"""``promptkit run``: one prompt, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit import compose_observers
from promptkit._cli.asking import Typed, asked, refusals
from promptkit._cli.catalog_folder import opened_catalog
from promptkit._cli.exits import DONE, FAILED, INVALID_OUTPUT, CancelledError, TimedOutError
from promptkit._cli.failure import counted, timeout_text, usage_text
from promptkit._cli.progress import Progress
from promptkit._cli.streams import DIM, Streams
from promptkit._cli.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit import Catalog, RunResult
    from promptkit._cli.asking import Asked


def run(
    typed: Typed,
    *,
    catalog: Path | None,
    timeout: float | None,
    trace: Path | None,
    json: bool,
    verbose: bool,
    streams: Streams,
) -> int:
    """Run the prompt, write the answer, and give the exit status."""
    opened = opened_catalog(catalog)
    if trace is None:
        result, lost = _answer(opened, typed, timeout, None, streams), None
    else:
        with Trace(trace) as written:
            result = _answer(opened, typed, timeout, written, streams)
        lost = written.failure
    if json:
        streams.json(result)
    else:
        streams.result(result.raw_output)
        tell(result, streams, verbose=verbose)
    if lost is not None:
        streams.error(lost)
    return exit_of_result(result) or (DONE if lost is None else FAILED)


def exit_of_result(result: RunResult) -> int:
    """Say what a run that completed ends with."""
    return INVALID_OUTPUT if result.validation.status == "invalid" else DONE


def summary_of(result: RunResult) -> str:
    """Say in one line what a run was and used."""
    parts = [result.model, usage_text(result.usage), f"{result.timing.duration:.1f} s"]
    if result.attempts > 1:
        retries, repairs = result.transient_retries, result.repair_calls
        of = [counted(retries, "retry", "retries")] if retries else []
        of += [counted(repairs, "repair")] if repairs else []
        parts.append(f"{counted(result.attempts, 'attempt')} ({', '.join(of)})")
    return " · ".join(parts)


def notes_of(result: RunResult) -> tuple[str, ...]:
    """Say what a reader of the answer has to know about it."""
    notes = []
    if result.refusal is not None:
        notes.append(f"the model refused: {result.refusal}")
    elif not result.raw_output and result.finish_reason != "length":
        notes.append(f"the answer is empty (finish_reason {result.finish_reason or 'not given'})")
    if result.finish_reason == "length":
        remedy = f"raise max_output_tokens of the profile {result.profile!r}"
        notes.append(f"the answer was cut off (finish_reason length): {remedy}")
    return tuple(notes)


def _answer(catalog: Catalog, typed: Typed, timeout: float | None, trace: Trace | None, streams: Streams) -> RunResult:
    progress = Progress(streams, typed.prompt_id)
    ask = asked(catalog, typed, compose_observers(trace, progress.observe))  # which may wait for standard input
    with progress, ask.engine, refusals(ask):
        return finished_run(ask, timeout, progress)


def finished_run(ask: Asked, timeout: float | None, progress: Progress) -> RunResult:
    """Run to the end. Raises TimedOutError and CancelledError with what was spent, and what the engine raises."""
    try:
        return ask.engine.run(ask.request, timeout=timeout)
    except TimeoutError:
        raise TimedOutError(timeout_text(timeout), progress.finished) from None
    except KeyboardInterrupt:
        msg = "cancelled"
        raise CancelledError(msg, progress.finished) from None


def tell(result: RunResult, streams: Streams, *, verbose: bool) -> None:
    """Say on stderr what there is to know about an answer."""
    for note in notes_of(result):
        streams.note(note)
    if result.validation.status == "invalid":
        streams.error("the output is invalid under its contract:")
        for violation in result.validation.violations:
            streams.say(f"  {violation.pointer or 'the whole'}: {violation.message}")
    if verbose or streams.err.terminal:
        streams.say(summary_of(result), DIM)
