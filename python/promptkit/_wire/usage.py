"""Token counts as backends report them, read into the one inclusive form.

Three shapes are told apart by their own names. Chat completions report ``prompt_tokens`` with cached and written
tokens inside. Two others arrive through gateways: ``input_tokens`` with ``input_tokens_details`` (cached tokens inside
as well), and ``input_tokens`` beside ``cache_read_input_tokens`` and ``cache_creation_input_tokens``, whose sum is the
input. That sum is the only derivation: no total is split, no count is estimated, and of two fields that say the same
one is taken.
"""

from __future__ import annotations

from promptkit._values.usage import ReportedUsage, read_count
from promptkit._wire.documents import member

_CHAT = (
    *("prompt_tokens", "completion_tokens"),
    *("prompt_tokens_details", "completion_tokens_details", "prompt_cache_hit_tokens"),
)
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")


def read_usage(value: object) -> ReportedUsage | None:
    """Read a usage object; None when it reports no count at all. A count that is not one is unknown."""
    if not isinstance(value, dict):
        return None
    usage = _chat(value) if any(value.get(name) is not None for name in _CHAT) else _input_and_output(value)
    return None if usage == ReportedUsage() else usage


def _chat(usage: object) -> ReportedUsage:
    prompt = member(usage, "prompt_tokens_details")
    cached = read_count(member(prompt, "cached_tokens"))
    return ReportedUsage(
        input_tokens=read_count(member(usage, "prompt_tokens")),
        output_tokens=read_count(member(usage, "completion_tokens")),
        cache_read_tokens=read_count(member(usage, "prompt_cache_hit_tokens")) if cached is None else cached,
        cache_write_tokens=read_count(member(prompt, "cache_write_tokens")),
        reasoning_tokens=read_count(member(member(usage, "completion_tokens_details"), "reasoning_tokens")),
    )


def _input_and_output(usage: object) -> ReportedUsage:
    inside = member(usage, "input_tokens_details")
    output = member(usage, "output_tokens_details")
    read, written = (read_count(member(usage, name)) for name in _BESIDE)
    thought = read_count(member(output, "reasoning_tokens"))
    return ReportedUsage(
        input_tokens=_with_cache_beside(usage),
        output_tokens=read_count(member(usage, "output_tokens")),
        cache_read_tokens=read_count(member(inside, "cached_tokens")) if read is None else read,
        cache_write_tokens=read_count(member(inside, "cache_write_tokens")) if written is None else written,
        reasoning_tokens=read_count(member(output, "thinking_tokens")) if thought is None else thought,
    )


def _with_cache_beside(usage: object) -> int | None:
    """Add what is counted beside the input. A cache field that is there but unreadable makes the sum unknown.

    Where the input comes with details, its cached tokens are inside it, and beside it only once more.
    """
    if isinstance(member(usage, "input_tokens_details"), dict):
        return read_count(member(usage, "input_tokens"))
    parts = [member(usage, "input_tokens"), *(member(usage, name) for name in _BESIDE)]
    counts = [read_count(part) for part in parts if part is not None]
    if parts[0] is None or None in counts:
        return None
    return read_count(sum(count for count in counts if count is not None))
