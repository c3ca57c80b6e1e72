"""How an error is told: as sentences for people, or as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit._cli.exits import RefusedError, UnfinishedError
from promptkit._cli.shell_words import in_a_shell
from promptkit._cli.user_files import shown_path
from promptkit._values.counted import counted
from promptkit.errors import CapacityError, GenerationError, OutputInvalidError, PromptKitError

if TYPE_CHECKING:
    from promptkit import TokenUsage

COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning")
OF_BACKENDS = ("transient", "status", "provider_code", "retry_after", "response_id")
OF_CAPACITY = ("backend", "running", "waiting", "max_concurrency", "max_waiting", "reason")


def usage_text(usage: TokenUsage) -> str:
    """Give the counts that say something in one line; input and output are always named."""
    counts = {name: getattr(usage, f"{name}_tokens") for name in COUNTS}
    shown = [name for name in COUNTS if name in {"input", "output"} or counts[name].value]
    return ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in shown) + " tokens"


def sentence_of(error: BaseException) -> str:
    """Give what is said about an error."""
    if isinstance(error, RefusedError):
        error = error.refusal
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{shown_path(error.filename)}: {error.strerror}"
    return in_a_shell(error) or type(error).__name__


def timeout_text(seconds: float | None) -> str:
    """Say that the time that --timeout gives to a run was over."""
    return f"the run did not finish within the {seconds or 0:g} s of --timeout: give it more"


def note_of(error: BaseException) -> str | None:
    """Say what a run that failed has cost; None where nothing was sent."""
    if not isinstance(error, PromptKitError | UnfinishedError) or not error.attempts:
        return None
    usage = "" if error.usage is None else f", and used {usage_text(error.usage)}"
    return f"the run made {counted(error.attempts, 'attempt')}{usage}"


def object_of(error: BaseException, message: str, hint: str | None = None) -> dict[str, Any]:
    """Give what is known of an error, to be encoded."""
    told: dict[str, Any] = {"type": getattr(error, "json_type", None) or type(error).__name__, "message": message}
    if hint is not None:
        told["hint"] = hint
    if isinstance(error, PromptKitError | UnfinishedError):
        told |= {name: getattr(error, name) for name in ("run_id", "parent_run_id", "attempts", "usage")}
    faults = getattr(error, "faults", None)
    if faults is not None:
        told["faults"] = faults
    if hasattr(error, "fault_count"):
        told["fault_count"] = error.fault_count
    if isinstance(error, OutputInvalidError):
        told["violations"] = error.violations
    if isinstance(error, GenerationError):
        told |= {name: getattr(error, name) for name in OF_BACKENDS}
    if isinstance(error, CapacityError):
        told |= {name: getattr(error, name) for name in OF_CAPACITY}
    return {"error": told}
