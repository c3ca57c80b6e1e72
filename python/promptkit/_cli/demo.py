"""``promptkit demo``: a short conversation with a small model inside this process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from promptkit import BlockingEngine, ExecutionGroup, RunRequest, compose_observers, load_catalog
from promptkit._cli.exits import DONE, FailedError
from promptkit._cli.progress import Progress
from promptkit._cli.starter_files import starter_folder
from promptkit._cli.streams import DIM
from promptkit._cli.trace import Trace
from promptkit._values.visible import visible
from promptkit.display import conversation_tree, usage_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptkit import ExecutionGroupSummary, Observer, RunResult
    from promptkit._cli.streams import Streams

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


def demo(*, trace: Path | None, json: bool, streams: Streams, engine: BlockingEngine | None = None) -> int:
    """Hold the conversation, and show it as a tree, with what it used."""
    if engine is None and find_spec("xllamacpp") is None:
        raise FailedError(NOT_INSTALLED)
    group = ExecutionGroup()
    with starter_folder() as folder, engine or BlockingEngine(load_catalog(folder)) as opened:
        if trace is None:
            said = _conversation(opened, group.observe, streams, quiet=json)
        else:
            with Trace(trace) as written:
                said = _conversation(opened, compose_observers(group.observe, written), streams, quiet=json)
            if written.failure is not None:
                raise FailedError(written.failure)
    summary = group.snapshot()
    if json:
        streams.json({"results": [each.result for each in said], **_encodable(summary)})
        return DONE
    streams.result("")
    tree = conversation_tree((each.result.exchange for each in said), title="The conversation, and who continued whom")
    streams.drawing(streams.drawn(tree))
    streams.result("")
    streams.drawing(streams.drawn(usage_table({"all runs": summary})))
    streams.say("\nMake a catalog of your own: promptkit init my-prompts", DIM)
    return DONE


def line_of(said: Said) -> str:
    """Write a run on one line: the prompt, what was asked, what came."""
    asked = "" if said.question is None else f" {said.question}"
    return f"{said.result.prompt_id}:{asked} {' '.join(said.result.raw_output.split())}"


def _conversation(
    engine: BlockingEngine, observer: Observer | None, streams: Streams, *, quiet: bool
) -> Sequence[Said]:
    said: list[Said] = []
    for step in STEPS:
        request = RunRequest(
            prompt_id=step.prompt_id,
            variables={} if step.question is None else {"question": step.question},
            inputs={} if step.continues is not None else {"letter": Path("letter.txt")},
            capture_exchange=True,
            continue_from=None if step.continues is None else said[step.continues].result.exchange,
        )
        said.append(Said(_run(engine, request, observer, streams), step.question))
        if not quiet:
            took = f"{said[-1].result.timing.duration:.1f} s"
            streams.drawing(streams.drawn(visible(f"{line_of(said[-1])} ({took})")))
    return said


def _run(engine: BlockingEngine, request: RunRequest, observer: Observer | None, streams: Streams) -> RunResult:
    with Progress(streams, request.prompt_id) as progress:
        watched = compose_observers(observer, progress.observe)
        return engine.run(_observed(request, watched))


def _observed(request: RunRequest, observer: Observer | None) -> RunRequest:
    import msgspec

    return msgspec.structs.replace(request, observer=observer)


def _encodable(summary: ExecutionGroupSummary) -> Mapping[str, object]:
    return {name: getattr(summary, name) for name in summary.__struct_fields__}
