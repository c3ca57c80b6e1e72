"""The file that ``--trace`` names: one line of JSON for each event, there as soon as it has happened."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import IO, TYPE_CHECKING, Self

import msgspec

from promptkit._cli.exits import FailedError, WrongUseError
from promptkit._cli.user_files import shown_path

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from promptkit import ExecutionEvent


LONGEST = 2**20  # of a first line that is looked at
BEGINNING = b'{"kind":"'


class Trace:
    """An observer that appends to a file. A disk that fails does not cost the answer: it is told at the end."""

    def __init__(self, path: Path) -> None:
        """Open the file, before anything is sent.

        Raises FailedError when it cannot be appended to, and WrongUseError when it is something else than a trace.
        """
        self._path = path
        self._failure: OSError | None = None
        try:
            _expect_trace(path)
            broken = _is_cut_off(path)
            self._file: IO[bytes] = path.open("ab", buffering=0)
            if broken:
                self._file.write(b"\n")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            msg = f"--trace: {shown_path(path)} cannot be written: {reason}; name another file"
            raise FailedError(msg) from None

    def __call__(self, event: ExecutionEvent) -> None:
        """Write an event, whole lines only, so that several processes can append to one file."""
        if self._failure is not None:
            return
        try:
            left = memoryview(msgspec.json.encode(event) + b"\n")
            while left:  # a disk that is almost full takes a part, and says so with the next
                left = left[self._file.write(left) :]
        except OSError as error:
            self._failure = error

    def __enter__(self) -> Self:
        """Give the observer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()

    @property
    def failure(self) -> str | None:
        """What became of the file, if it did not get all events."""
        if self._failure is None:
            return None
        reason = self._failure.strerror or type(self._failure).__name__
        return f"--trace: {shown_path(self._path)} does not have all events: {reason}"


class _Event(msgspec.Struct):
    """What every event of a trace has, those of later versions too."""

    kind: str
    run_id: str
    at: str


def is_event(line: bytes) -> bool:
    """Say whether a line can be an event of a trace, whole or cut off at its end.

    >>> is_event(b'{"kind":"run_sta'), is_event(b'[[messages]]')
    (True, False)
    """
    line = line.removeprefix(BOM_UTF8).strip()
    try:
        msgspec.json.decode(line, type=_Event)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Written by a program that was ended: the kind comes first.
        return line.startswith(BEGINNING) and not _is_json(line)
    return True


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _expect_trace(path: Path) -> None:
    """Refuse a file that is something else: what is appended would spoil a prompt, an input or a program."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        first = next((line for line in iter(lambda: file.readline(LONGEST), b"") if line.strip()), None)
    if first is not None and not is_event(first):
        remedy = "name a file that is not there yet, or a trace"
        msg = f"--trace: {shown_path(path)} is no trace, and was not touched: {remedy}"
        raise WrongUseError(msg)


def _is_cut_off(path: Path) -> bool:
    """Say whether the last line of a file was not finished: what is appended must not become a part of it."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"
