"""What a reply is worth under its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from returns.result import Failure

from promptkit._output.decoding import decode
from promptkit._values.results import Validation, Violation

if TYPE_CHECKING:
    from promptkit._values.contracts import OutputContract
    from promptkit._values.generation import GenerationReply
    from promptkit._values.schemas import CompiledSchema

REFUSAL = "refusal"
CUT = frozenset(
    {"length", "max_tokens", "model_length", "model_context_window_exceeded", "insufficient_system_resource"}
)
INCURABLE_FINISHES = CUT | {"content_filter", REFUSAL, "pause_turn"}
NOT_REQUESTED = Validation(status="not_requested")


class Judgement(NamedTuple):
    """The validation of a reply, the value that it says (None unless valid), and whether a repair could cure it."""

    validation: Validation
    value: Any = None
    curable: bool = False


def judge(reply: GenerationReply, output: OutputContract, schema: CompiledSchema | None) -> Judgement:
    """Validate a reply. A text contract takes any content; a refusal or a cut answer cannot be cured by a repair."""
    if output.kind == "text":
        return Judgement(NOT_REQUESTED)
    refused = bool(reply.refusal) or reply.finish_reason == REFUSAL  # some backends send "" for none
    curable = not refused and reply.finish_reason not in INCURABLE_FINISHES
    decoded = decode(reply.content)
    if isinstance(decoded, Failure):
        return _invalid((Violation(pointer="", message=decoded.failure()),), curable=curable)
    value, extraction = decoded.unwrap()
    violations = () if schema is None else schema.violations(value)
    if violations or refused:
        said = violations or (Violation(pointer="", message="the backend reported a refusal"),)
        return _invalid(said, curable=curable)
    return Judgement(Validation(status="valid", extraction=extraction), value)


def _invalid(violations: tuple[Violation, ...], *, curable: bool) -> Judgement:
    return Judgement(Validation(status="invalid", violations=violations), curable=curable)
