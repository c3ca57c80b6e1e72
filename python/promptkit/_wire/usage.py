"""Token counts as backends report them, read into the one inclusive form.

Shapes are told apart by their own names. Chat completions report ``prompt_tokens`` with cached and written tokens
inside. Two others arrive through gateways: ``input_tokens`` with ``input_tokens_details`` (cached tokens inside as
well), and ``input_tokens`` beside ``cache_read_input_tokens`` and ``cache_creation_input_tokens``, whose sum is the
input. llama.cpp's ``timings`` count beside each other too: ``cache_n`` tokens of the prompt were cached, ``prompt_n``
were not. Those sums are the only derivation: no total is split, no count is estimated, and of two fields that say the
same one is taken.

A count that contradicts its own parts is unknown: an input that is smaller than what was read from a cache or written
to one does not include it, an output that is smaller than its reasoning does not include that (some upstreams of
routers count so). Neither is corrected, because a report of the same upstream whose parts are small would not show it.
"""

from __future__ import annotations

import msgspec

from promptkit._values.usage import ReportedUsage, read_count
from promptkit._wire.documents import member

_CHAT = (
    *("prompt_tokens", "completion_tokens"),
    *("prompt_tokens_details", "completion_tokens_details", "prompt_cache_hit_tokens"),
)
_READ = "cache_read_input_tokens"
_WRITTEN = "cache_creation_input_tokens"
_WRITTEN_BY_LIFETIME = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def reported_usage(document: object) -> ReportedUsage | None:
    """Read what a body reports, None when that is no count at all. A count that is not one is unknown.

    What ``usage`` says counts. ``timings`` of llama.cpp, where it is there, has the cached tokens when ``usage`` has
    none, and every count when there is no ``usage``.
    """
    usage, timings = member(document, "usage"), member(document, "timings")
    found = read_usage(usage)
    if found is None:
        timed = _timed(timings)
        return None if timed == ReportedUsage() else timed
    if found.cache_read_tokens is not None:
        return found
    return _consistent(msgspec.structs.replace(found, cache_read_tokens=read_count(member(timings, "cache_n"))))


def read_usage(value: object) -> ReportedUsage | None:
    """Read a usage object; None when it reports no count at all. A count that is not one is unknown."""
    if not isinstance(value, dict):
        return None
    usage = _chat(value) if any(value.get(name) is not None for name in _CHAT) else _input_and_output(value)
    return None if usage == ReportedUsage() else _consistent(usage)


def _chat(usage: object) -> ReportedUsage:
    prompt = member(usage, "prompt_tokens_details")
    read = (
        member(prompt, "cached_tokens"),
        member(usage, "prompt_cache_hit_tokens"),  # of DeepSeek
        member(usage, _READ),  # of gateways to Anthropic, which count it inside prompt_tokens
    )
    written = (member(prompt, "cache_write_tokens"), member(usage, _WRITTEN))
    return ReportedUsage(
        input_tokens=read_count(member(usage, "prompt_tokens")),
        output_tokens=read_count(member(usage, "completion_tokens")),
        cache_read_tokens=_first(*read),
        cache_write_tokens=_first(*written),
        reasoning_tokens=read_count(member(member(usage, "completion_tokens_details"), "reasoning_tokens")),
    )


def _input_and_output(usage: object) -> ReportedUsage:
    inside = member(usage, "input_tokens_details")
    output = member(usage, "output_tokens_details")
    return ReportedUsage(
        input_tokens=_with_cache_beside(usage),
        output_tokens=read_count(member(usage, "output_tokens")),
        cache_read_tokens=_first(member(usage, _READ), member(inside, "cached_tokens")),
        cache_write_tokens=_first(_total(_written(usage)), member(inside, "cache_write_tokens")),
        reasoning_tokens=_first(member(output, "reasoning_tokens"), member(output, "thinking_tokens")),
    )


def _timed(timings: object) -> ReportedUsage:
    """Read llama.cpp's timings. An old server's have no ``cache_n``, and then the size of the prompt is unknown."""
    cached, uncached = member(timings, "cache_n"), member(timings, "prompt_n")
    return ReportedUsage(
        input_tokens=None if cached is None or uncached is None else _total([cached, uncached]),
        output_tokens=read_count(member(timings, "predicted_n")),
        cache_read_tokens=read_count(cached),
    )


def _with_cache_beside(usage: object) -> int | None:
    """Add what is counted beside the input. A cache field that is there but unreadable makes the sum unknown.

    Where the input comes with details, its cached tokens are inside it, and beside it only once more.
    """
    given = member(usage, "input_tokens")
    if given is None or isinstance(member(usage, "input_tokens_details"), dict):
        return read_count(given)
    return _total([given, member(usage, _READ), *_written(usage)])


def _written(usage: object) -> list[object]:
    """Give what was written to a cache: the whole where it is reported, else its parts by lifetime."""
    whole = member(usage, _WRITTEN)
    parts = member(usage, "cache_creation")
    return [member(parts, name) for name in _WRITTEN_BY_LIFETIME] if whole is None else [whole]


def _total(parts: list[object]) -> int | None:
    """Add counts. One that is absent adds nothing, one that is none makes the sum unknown."""
    counts = [read_count(part) for part in parts if part is not None]
    known = [count for count in counts if count is not None]
    return read_count(sum(known)) if counts and len(known) == len(counts) else None


def _first(*sources: object) -> int | None:
    """Give the first count that is one."""
    counts = (read_count(source) for source in sources)
    return next((count for count in counts if count is not None), None)


def _consistent(usage: ReportedUsage) -> ReportedUsage:
    cached = max(usage.cache_read_tokens or 0, usage.cache_write_tokens or 0)
    small_input = usage.input_tokens is not None and usage.input_tokens < cached
    small_output = usage.output_tokens is not None and usage.output_tokens < (usage.reasoning_tokens or 0)
    return msgspec.structs.replace(
        usage,
        input_tokens=None if small_input else usage.input_tokens,
        output_tokens=None if small_output else usage.output_tokens,
    )
