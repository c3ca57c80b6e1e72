"""How much work something is, in calls instead of seconds: the same on any machine, however busy."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def counted(work: Callable[[], T]) -> tuple[Counter[str], T]:
    """Give how often each function was called in this thread, by its name, and the result. ``total()`` is all."""
    calls: Counter[str] = Counter()

    def seen(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls[argument.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return calls, result
