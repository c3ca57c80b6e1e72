"""A run whose answer Ctrl-C does not lose: the same for run, chat and demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._cli.exits import TimedOutError
from promptkit._cli.failure import timeout_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import BlockingEngine, RunRequest, RunResult
    from promptkit._cli.progress import Progress

INTERRUPTED = "interrupted, after the answer had come"


def kept_run(
    engine: BlockingEngine,
    request: RunRequest,
    timeout: float | None,
    progress: Progress,
    keep: Callable[[RunResult], None],
) -> None:
    """Run, and give the result to ``keep``: also one that Ctrl-C found in hand, before it leaves as KeyboardInterrupt.

    Raises TimedOutError with what was spent, and what the engine raises.
    """
    try:
        result = engine.run(request, timeout=timeout)
    except TimeoutError:
        raise TimedOutError(timeout_text(timeout), progress.finished) from None
    except KeyboardInterrupt as interrupt:
        in_hand: RunResult | None = getattr(interrupt, "undelivered", None)
        if in_hand is not None:
            keep(in_hand)
        raise
    keep(result)
