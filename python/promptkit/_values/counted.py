"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Give a number with its noun.

    >>> counted(1, "attempt"), counted(2, "attempt"), counted(2_000, "retry", "retries")
    ('1 attempt', '2 attempts', '2,000 retries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
