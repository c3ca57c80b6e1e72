"""The file that ``--trace`` names: one line of JSON for each event, there as soon as it has happened."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Self

import msgspec

from promptkit._cli.exits import FailedError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from promptkit import ExecutionEvent


class Trace:
    """An observer that appends to a file. A disk that fails does not cost the answer: it is told at the end."""

    def __init__(self, path: Path) -> None:
        """Open the file, before anything is sent. Raises FailedError when it cannot be appended to."""
        self._path = path
        self._failure: OSError | None = None
        try:
            broken = _is_cut_off(path)
            self._file: IO[bytes] = path.open("ab", buffering=0)
            if broken:
                self._file.write(b"\n")
        except OSError as error:
            msg = f"--trace: {path} cannot be written: {error.strerror or type(error).__name__}; name another file"
            raise FailedError(msg) from None

    def __call__(self, event: ExecutionEvent) -> None:
        """Write an event, whole lines only, so that several processes can append to one file."""
        if self._failure is not None:
            return
        try:
            self._file.write(msgspec.json.encode(event) + b"\n")
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
        return f"--trace: {self._path} does not have all events: {reason}"


def _is_cut_off(path: Path) -> bool:
    """Say whether the last line of a file was not finished: what is appended must not become a part of it."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"
