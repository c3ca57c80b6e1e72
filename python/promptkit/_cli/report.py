"""``promptkit report``: one page of HTML from a trace."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from returns.result import Failure

from promptkit._cli.exits import DONE, FailedError, WrongUseError
from promptkit._cli.failure import counted
from promptkit._cli.user_files import MOST_OF_A_TRACE, read_file, read_stdin
from promptkit._report.report import report_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from promptkit import Fault
    from promptkit._cli.streams import Streams
    from promptkit._report.summary import Summary

MOST_TOLD = 5  # lines that cannot be read; the page has them all


class UnreadableTraceError(FailedError):
    """Nothing in the trace can be read."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        """Hold the faults; the text lists the first, one a line."""
        more = [f"and {len(faults) - MOST_TOLD:,} more lines"] if len(faults) > MOST_TOLD else []
        super().__init__("\n  ".join([*map(str, faults[:MOST_TOLD]), *more]))
        self.faults = tuple(faults)


def report(trace: str, *, output: Path | None, json: bool, streams: Streams) -> int:
    """Make the page, or with ``json`` what it says as values."""
    if output is None and not json and streams.out.terminal:
        msg = "the report is a page of HTML, and not for a terminal: give --output report.html, or send it to a file"
        raise WrongUseError(msg)
    what = "TRACE"
    content = read_stdin(what, MOST_OF_A_TRACE) if trace == "-" else read_file(trace, what, MOST_OF_A_TRACE)
    made = report_of(io.BytesIO(content), "standard input" if trace == "-" else trace)
    if isinstance(made, Failure):
        raise UnreadableTraceError(made.failure())
    page = made.unwrap()
    html = page.html.removesuffix("\n")
    for note in notes_of(page.summary):
        streams.say(f"note: {note}")
    if json:
        streams.json(page.summary)
    if output is not None:
        _write(output, html + "\n")
        streams.say(f"{output}: {counted(len(page.summary.runs), 'run')}")
    elif not json:
        streams.result(html)
    return DONE


def notes_of(summary: Summary) -> Iterator[str]:
    """Say what of the trace is not in the report."""
    for fault in summary.faults[:MOST_TOLD]:
        yield str(fault)
    if len(summary.faults) > MOST_TOLD:
        yield f"{len(summary.faults) - MOST_TOLD:,} more lines cannot be read: the report lists them"
    if summary.cut_off is not None:
        yield f"line {summary.cut_off:,}, the last one, is cut off"


def _write(output: Path, page: str) -> None:
    try:
        output.write_bytes(page.encode("utf-8", "backslashreplace"))
    except OSError as error:
        msg = f"--output: {output} cannot be written: {error.strerror or type(error).__name__}; name another file"
        raise FailedError(msg) from None
