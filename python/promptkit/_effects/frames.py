"""What an error keeps alive through its traceback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PACKAGE = __name__.partition(".")[0] + "."


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Give an error, those in its group, and all behind them, each once."""
    left, seen = [error], {id(error)}
    while left:
        found = left.pop()
        yield found
        behind = [
            found.__context__,
            found.__cause__,
            *(found.exceptions if isinstance(found, BaseExceptionGroup) else ()),
        ]
        for other in behind:
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                left.append(other)


def forget_locals(error: BaseException) -> None:
    """Clear the variables of this package's finished frames in the traceback of an error, and of those behind it.

    They hold the credential, the observer and the request of the run, and whoever keeps the error would keep them. The
    lines that a traceback shows are left as they are, and so are frames that still run and those of other people.
    """
    for found in chain_of(error):
        trace = found.__traceback__
        while trace is not None:
            for frame in _with_callers(trace.tb_frame):
                if frame.f_globals.get("__name__", "").startswith(PACKAGE):
                    try:
                        frame.clear()
                    except RuntimeError:  # it still runs, and so do those that wait for it
                        break
            trace = trace.tb_next


def _with_callers(frame: FrameType) -> Iterator[FrameType]:
    """Give a frame and, since Python 3.13, its callers: there it keeps those that caught its error and returned.

    Before, no finished frame is found so, and to clear one of a coroutine that waits would end that coroutine.
    """
    yield frame
    if sys.version_info >= (3, 13):
        while (caller := frame.f_back) is not None:
            frame = caller
            yield frame
