"""Token counts that know what they do not know.

Adding counts is a commutative monoid: values add, ``known`` is OR, ``complete`` is AND, and ``NOTHING`` is its
identity, which is what an attempt that cannot have generated contributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from promptkit._values.construction import Checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from promptkit._values.construction import Reader

TOKENS = ("input", "output", "cache read", "cache write", "reasoning")  # as people call the five counts
MAX_COUNT = 2**63 - 1  # a larger report is a mistake, not a count


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of tokens.

    A known count that is not complete is a lower bound.

    Attributes:
        value: the known part; 0 when nothing is known. A value above 0 is always known.
        known: whether at least one contribution was reported.
        complete: whether every contribution was.
    """

    value: int
    known: bool
    complete: bool

    def __add__(self, other: TokenCount) -> TokenCount:
        """Give the count of both together."""
        return TokenCount(
            value=self.value + other.value,
            known=self.known or other.known,
            complete=self.complete and other.complete,
        )

    def __str__(self) -> str:
        """Give the count for people: "12", "at least 12", or "unknown"."""
        if not self.known:
            return "unknown"
        return str(self.value) if self.complete else f"at least {self.value}"


NOTHING = TokenCount(value=0, known=False, complete=True)
UNKNOWN = TokenCount(value=0, known=False, complete=False)
KNOWN_ZERO = TokenCount(value=0, known=True, complete=True)


def read_count(value: Any) -> int | None:
    """Give a count as it is taken: a non-negative integer in range, integral floats too. All else is not reported."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


class ReportedUsage(Checked, frozen=True, kw_only=True):
    """Token counts as one reply reported them. None: not reported; 0: reported as zero.

    Inclusive, like TokenUsage: input includes what was read from and written to a cache, output includes reasoning. A
    value that is no count (negative, a fraction, text) is taken as not reported: counts never fail an answer.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    @classmethod
    def _special_fields(cls) -> Mapping[str, Reader]:
        """Read every count leniently."""
        return dict.fromkeys(cls.__struct_fields__, read_count)

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import tokens_view

        return tokens_view(contribution(self), "reported tokens")


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The five token counts. ``str`` gives one line for people.

    Attributes:
        input_tokens: what was sent, cache reads and writes included.
        output_tokens: what was generated, reasoning included.
        cache_read_tokens: the part of the input that was read from a cache.
        cache_write_tokens: the part of the input that was written to a cache.
        reasoning_tokens: the part of the output that was reasoning.
    """

    input_tokens: TokenCount
    output_tokens: TokenCount
    cache_read_tokens: TokenCount
    cache_write_tokens: TokenCount
    reasoning_tokens: TokenCount

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Give the usage of both together."""
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    def __str__(self) -> str:
        """Give one line: what is not known is "unknown", and what may be more is "at least" so much."""
        return ", ".join(f"{name} {getattr(self, field)}" for name, field in zip(TOKENS, _FIELDS, strict=True))

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import tokens_view

        return tokens_view(self)


_FIELDS = TokenUsage.__struct_fields__


def _uniform(count: TokenCount) -> TokenUsage:
    return TokenUsage(
        input_tokens=count,
        output_tokens=count,
        cache_read_tokens=count,
        cache_write_tokens=count,
        reasoning_tokens=count,
    )


NO_USAGE = _uniform(NOTHING)
UNKNOWN_USAGE = _uniform(UNKNOWN)


def _contribution(count: int | None) -> TokenCount:
    return UNKNOWN if count is None else TokenCount(value=count, known=True, complete=True)


def contribution(reported: ReportedUsage | None) -> TokenUsage:
    """Give what one finished attempt contributes; what it did not report is unknown, never zero."""
    if reported is None:
        return UNKNOWN_USAGE
    return TokenUsage(
        input_tokens=_contribution(reported.input_tokens),
        output_tokens=_contribution(reported.output_tokens),
        cache_read_tokens=_contribution(reported.cache_read_tokens),
        cache_write_tokens=_contribution(reported.cache_write_tokens),
        reasoning_tokens=_contribution(reported.reasoning_tokens),
    )


def _shown(count: TokenCount) -> TokenCount:
    return KNOWN_ZERO if count.complete and not count.known else count


def shown(folded: TokenUsage) -> TokenUsage:
    """Give the one projection in which a finished fold is shown: complete but not known is a known zero."""
    return TokenUsage(
        input_tokens=_shown(folded.input_tokens),
        output_tokens=_shown(folded.output_tokens),
        cache_read_tokens=_shown(folded.cache_read_tokens),
        cache_write_tokens=_shown(folded.cache_write_tokens),
        reasoning_tokens=_shown(folded.reasoning_tokens),
    )
