"""``promptkit demo``: a short conversation with a small model inside this process."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from promptkit import BlockingEngine, ExecutionGroup, RunRequest, compose_observers, load_catalog
from promptkit._cli.exits import DONE, CancelledError, FailedError
from promptkit._cli.kept_run import kept_run
from promptkit._cli.progress import Progress
from promptkit._cli.starter_files import starter_folder
from promptkit._cli.streams import DIM
from promptkit._cli.trace import Trace
from promptkit._values.visible import visible
from promptkit.display import conversation_tree, usage_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit import ExecutionGroupSummary, Observer, RunResult
    from promptkit._cli.exits import StopError
    from promptkit._cli.streams import Streams

INTERRUPTED = "interrupted: these are the answers that had come"
NOT_INSTALLED = (
    "the demo's model runs inside this process, and what runs it is not installed: "
    "pip install 'promptkit-engine[embedded]' (in a clone: pip install '.[embedded]')"
)


class Step(NamedTuple):
    """A run of the demo, and which run before it is continued (by its place); None begins a conversation."""

    prompt_id: str
    question: str | None
    continues: int | None


STEPS = (
    Step("read", "What broke on Monday?", None),
    Step("ask", "Who found the fault?", 0),
    Step("ask", "What does the new fan cost?", 0),
    Step("finding", None, 2),
)


class Said(NamedTuple):
    """A run that completed, and what was asked in it."""

    result: RunResult
    question: str | None


def demo(
    *,
    trace: Path | None,
    json: bool,
    streams: Streams,
    engine: BlockingEngine | None = None,
    observer: Observer | None = None,
) -> int:
    """Hold the conversation, and show it as a tree, with what it used. Raises CancelledError when that is shown."""
    if engine is None and find_spec("xllamacpp") is None:
        raise FailedError(NOT_INSTALLED)
    group = ExecutionGroup()
    said: list[Said] = []
    ended: StopError | None = None
    with contextlib.ExitStack() as stack:
        opened = engine or BlockingEngine(load_catalog(stack.enter_context(starter_folder())))
        stack.enter_context(opened)
        written = None if trace is None else stack.enter_context(Trace(trace))
        try:
            _converse(opened, compose_observers(group.observe, observer, written), streams, said, quiet=json)
        except KeyboardInterrupt:
            ended = CancelledError(INTERRUPTED if said else "cancelled")
    if written is not None and written.failure is not None and ended is None:
        ended = FailedError(written.failure)
    if said:
        _show(said, group.snapshot(), streams, json=json)
    if ended is not None:
        raise ended
    if not json:
        streams.say("\nMake a catalog of your own: promptkit init my-prompts", DIM)
    return DONE


def _show(said: Sequence[Said], summary: ExecutionGroupSummary, streams: Streams, *, json: bool) -> None:
    if json:
        streams.json({"results": [each.result for each in said], **_encodable(summary)})
        return
    streams.result("")
    tree = conversation_tree((each.result.exchange for each in said), title="The conversation, and who continued whom")
    streams.drawing(streams.drawn(tree))
    streams.result("")
    streams.drawing(streams.drawn(usage_table({"all runs": summary})))


def line_of(said: Said) -> str:
    """Write a run on one line: the prompt, what was asked, what came."""
    asked = "" if said.question is None else f" {said.question}"
    return f"{said.result.prompt_id}:{asked} {' '.join(said.result.raw_output.split())}"


def _converse(
    engine: BlockingEngine, observer: Observer | None, streams: Streams, said: list[Said], *, quiet: bool
) -> None:
    """Hold the conversation, and add each answer to ``said`` as it comes."""
    for number, step in enumerate(STEPS):
        try:
            _run(engine, step, observer, streams, said)
        finally:
            for each in said[number:] if not quiet else ():
                took = f"{each.result.timing.duration:.1f} s"
                streams.drawing(streams.drawn(visible(f"{line_of(each)} ({took})")))


def _run(engine: BlockingEngine, step: Step, observer: Observer | None, streams: Streams, said: list[Said]) -> None:
    with Progress(streams, step.prompt_id) as progress:
        request = RunRequest(
            prompt_id=step.prompt_id,
            variables={} if step.question is None else {"question": step.question},
            inputs={} if step.continues is not None else {"letter": Path("letter.txt")},
            capture_exchange=True,
            continue_from=None if step.continues is None else said[step.continues].result.exchange,
            observer=compose_observers(observer, progress.observe),
        )
        kept_run(engine, request, None, progress, lambda result: said.append(Said(result, step.question)))


def _encodable(summary: ExecutionGroupSummary) -> Mapping[str, object]:
    return {name: getattr(summary, name) for name in summary.__struct_fields__}
