"""What is settled once, by whoever comes first."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A value that the first to come sets: another thread, or a signal handler in the middle of this one.

    A lock would do for threads, but a signal handler that meets it waits for the very thread that it interrupted.
    """

    __slots__ = ("_settled",)

    def __init__(self) -> None:
        self._settled: dict[None, T] = {}

    def settle(self, value: T) -> T:
        """Set it, unless it is set; give what it is."""
        return self._settled.setdefault(None, value)  # one step of the interpreter

    @property
    def value(self) -> T | None:
        """What it is, or None as long as it is open."""
        return self._settled.get(None)
