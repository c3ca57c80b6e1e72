"""``promptkit run``: one prompt, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptkit import compose_observers
from promptkit._cli.asking import Typed, asked, refusals
from promptkit._cli.catalog_folder import opened_catalog
from promptkit._cli.exits import DONE, FAILED, INVALID_OUTPUT, CancelledError
from promptkit._cli.failure import usage_text
from promptkit._cli.kept_run import INTERRUPTED, kept_run
from promptkit._cli.progress import Progress
from promptkit._cli.streams import DIM, Streams
from promptkit._cli.trace import Trace
from promptkit._values.counted import counted
from promptkit._values.visible import line

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit import Catalog, Observer, RunResult


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
        answer, lost = answer_to(opened, typed, timeout, None, streams), None
    else:
        with Trace(trace) as written:
            answer = answer_to(opened, typed, timeout, written, streams)
        lost = written.failure
    if json:
        streams.json(answer.result)
    else:
        streams.result(answer.result.raw_output)
        tell(answer.result, streams, verbose=verbose)
    if lost is not None:
        streams.error(lost)
    if answer.interrupted is not None:
        raise answer.interrupted
    return exit_of_result(answer.result) or (DONE if lost is None else FAILED)


def exit_of_result(result: RunResult) -> int:
    """Say what a run that completed ends with."""
    return INVALID_OUTPUT if result.validation.status == "invalid" else DONE


def summary_of(result: RunResult) -> str:
    """Say in one line what a run was and used."""
    parts = [line(result.model), usage_text(result.usage), f"{result.timing.duration:.1f} s"]
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


class Answer(NamedTuple):
    """A result, and the Ctrl-C that came with it in hand, if one did."""

    result: RunResult
    interrupted: CancelledError | None = None


def answer_to(
    catalog: Catalog, typed: Typed, timeout: float | None, observer: Observer | None, streams: Streams
) -> Answer:
    """Run to the end. Raises CancelledError and TimedOutError with what was spent, and what the engine raises."""
    progress = Progress(streams, typed.prompt_id)
    ask = asked(catalog, typed, compose_observers(observer, progress.observe))  # which may wait for standard input
    kept: list[RunResult] = []
    try:
        with progress, ask.engine, refusals(ask):
            kept_run(ask.engine, ask.request, timeout, progress, kept.append)
    except KeyboardInterrupt:
        if not kept:
            msg = "cancelled"
            raise CancelledError(msg, progress.finished) from None
        return Answer(kept[0], CancelledError(INTERRUPTED, progress.finished))
    return Answer(kept[0])


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
