"""Where a Result of a pure step becomes an exception."""

from __future__ import annotations

from typing import TypeVar

from returns.result import Failure, Result

from promptkit.errors import PromptKitError

T = TypeVar("T")
E = TypeVar("E", bound=PromptKitError)


def or_raise(result: Result[T, E]) -> T:
    """Raise the failure of a pure step, or give what it made."""
    if isinstance(result, Failure):
        raise result.failure()
    return result.unwrap()
