"""``promptkit report``: one page of HTML from a trace."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from returns.result import Failure

from promptkit._cli.exits import DONE, FailedError, WrongUseError
from promptkit._cli.user_files import MOST_OF_A_TRACE, read_file, read_stdin, shown_path
from promptkit._report.report import report_of
from promptkit._values.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from promptkit._cli.streams import Streams
    from promptkit._report.report import Unreadable
    from promptkit._report.summary import Summary

MOST_TOLD = 5  # lines that cannot be read, of a trace that has others; the page has them all


class UnreadableTraceError(FailedError):
    """Nothing in the trace can be read."""

    def __init__(self, unreadable: Unreadable) -> None:
        """Hold the first fault, which stands for all, and how many there are."""
        first, others = unreadable.faults[0], unreadable.fault_count - 1
        more = f" ({counted(others, 'other line is', 'other lines are')} no events either)" if others else ""
        super().__init__(str(first) if first.line is None else f"this is no trace: {first}{more}")
        self.faults = (first,)
        self.fault_count = unreadable.fault_count


def report(trace: str, *, output: str | None, json: bool, streams: Streams) -> int:
    """Make the page, or with ``json`` what it says as values."""
    target = _target(output, trace)
    if output is None and not json and streams.out.terminal:
        msg = "the report is a page of HTML, and not for a terminal: give --output report.html, or send it to a file"
        raise WrongUseError(msg)
    what = "TRACE"
    content = read_stdin(what, MOST_OF_A_TRACE) if trace == "-" else read_file(trace, what, MOST_OF_A_TRACE)
    made = report_of(io.BytesIO(content), "standard input" if trace == "-" else shown_path(trace))
    if isinstance(made, Failure):
        raise UnreadableTraceError(made.failure())
    page = made.unwrap()
    html = page.html.removesuffix("\n")
    for note in notes_of(page.summary):
        streams.note(note)
    if json:
        streams.json(page.summary)
    if target is not None:
        _write(target, html + "\n")
        streams.say(f"{shown_path(target)}: {counted(len(page.summary.runs), 'run')}")
    elif not json:
        streams.result(html)
    return DONE


def notes_of(summary: Summary) -> Iterator[str]:
    """Say what of the trace is not in the report."""
    for fault in summary.faults[:MOST_TOLD]:
        yield str(fault)
    if summary.fault_count > MOST_TOLD:
        listed = "them" if len(summary.faults) == summary.fault_count else f"the first {len(summary.faults):,}"
        yield f"{counted(summary.fault_count - MOST_TOLD, 'more line')} cannot be read: the report lists {listed}"
    if summary.cut_off is not None:
        yield f"line {summary.cut_off:,}, the last one, is cut off"


def _target(output: str | None, trace: str) -> Path | None:
    """Give the file to write; None is standard output. Raises WrongUseError where it would cost the trace."""
    if output in {None, "-"}:
        return None
    if not output:
        msg = "--output '' names no file: type --output report.html"
        raise WrongUseError(msg)
    target = Path(output)
    with contextlib.suppress(OSError, ValueError):
        given = os.fstat(sys.stdin.fileno()) if trace == "-" else os.stat(trace)  # noqa: PTH116  # Path changes names
        if stat.S_ISREG(given.st_mode) and os.path.samestat(given, target.stat()):
            msg = f"--output: {shown_path(output)} is the trace itself, and was not touched: name another file"
            raise WrongUseError(msg)
    return target


def _write(output: Path, page: str) -> None:
    content = page.encode("utf-8", "backslashreplace")
    try:
        if output.exists() and not output.is_file():
            output.write_bytes(content)  # a device or a pipe; a folder is an error
        else:
            _replace(output.resolve(), content)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        msg = f"--output: {shown_path(output)} cannot be written: {reason}; name another file"
        raise FailedError(msg) from None


def _replace(output: Path, content: bytes) -> None:
    """Write beside the file, then give it the name: what was there stays until all is written."""
    mode = None
    if output.exists():
        with output.open("ab"):  # may it be written at all?
            mode = stat.S_IMODE(output.stat().st_mode)
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            file.write(content)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(output)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
