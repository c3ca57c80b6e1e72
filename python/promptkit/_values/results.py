"""What comes back: prepared details and completed results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec

from promptkit._values.contracts import OutputContract
from promptkit._values.json import JSON, pointer
from promptkit._values.messages import Message
from promptkit._values.reprs import bounded_repr
from promptkit._values.usage import TokenUsage
from promptkit.errors import NotCapturedError, OutputInvalidError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from promptkit._values.exchange import Exchange

T = TypeVar("T")

AT_END = re.compile(r" - at (?:`key` in )?`\$\[0\]([^`]*)`\Z")  # of what msgspec says about a list of one
STEPS = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


Origin = Literal["request", "prompt", "profile", "backend", "default"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved value, and where it came from.

    A definition's value that equals the default counts as "default"; what the request gave is always "request".

    Attributes:
        value: the value that counts.
        origin: "request", "prompt", "profile", "backend" or "default".
    """

    value: JSON
    origin: Origin

    __repr__ = bounded_repr


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would send, and under which settings. Built by ``prepare``, never by ``run``.

    Hashes are "sha256:" and 64 hexadecimal digits; the page "Hashes" of the reference says what each one covers, and
    how to recompute it.

    Attributes:
        prompt_id: the full id of the prompt.
        parent_run_id: the id of the run that would be continued, or None.
        profile: the full id of the profile.
        backend: the id of the backend.
        model: the model that would be asked for.
        session_id: the session id that was selected, or None.
        output: the contract, with its schema in place of the schema's id.
        messages: the effective messages: captured history, the prompt's rendered messages, the appended ones.
        definition_hash: the hash of what the prompt says.
        input_hashes: the hash of each input, by its name.
        rendered_hash: the hash of what would be sent: the messages and the session id.
        settings: every field of the profile and of its backend by its name, and ``profile``, ``output``,
            ``session_id`` and ``credential``, each with its origin. The credential is told by its origin alone: the
            value is the name of the environment variable (origin "backend"), "given" (origin "request"), or None.
    """

    prompt_id: str
    parent_run_id: str | None
    profile: str
    backend: str
    model: str
    session_id: str | None
    output: OutputContract
    messages: tuple[Message, ...]
    definition_hash: str
    input_hashes: Mapping[str, str]
    rendered_hash: str
    settings: Mapping[str, Setting]

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import prepared_view

        return prepared_view(self)


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which an output breaks its contract.

    Attributes:
        pointer: where, as a JSON Pointer (RFC 6901) into the output; empty for the whole of it.
        message: what is wrong there.
    """

    pointer: str
    message: str

    __repr__ = bounded_repr


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the output satisfies its contract.

    Attributes:
        status: "valid", "invalid", or "not_requested" where the contract asks for text.
        violations: what is wrong, if it is invalid.
        extraction: "whole" if the whole content was the JSON document, "fenced" if it was the inside of the one fence
            around it.
    """

    status: Literal["not_requested", "valid", "invalid"]
    violations: tuple[Violation, ...] = ()
    extraction: Literal["whole", "fenced"] = "whole"

    __repr__ = bounded_repr


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a run started, and how long it took.

    Attributes:
        started_at: when, in UTC.
        duration: the seconds of the run, its waits included.
    """

    started_at: datetime
    duration: float


class RunResult(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A completed run. An output that breaks its contract is a result too: look at ``validation``.

    Attributes:
        run_id: the id of the run.
        parent_run_id: the id of the run that it continued, or None.
        prompt_id: the full id of the prompt.
        profile: the full id of the profile.
        backend: the id of the backend.
        model: the model as the backend reported it, else as asked.
        response_id: the backend's own id of the answer, or None.
        session_id: the session id that was selected, or None.
        definition_hash: the hash of what the prompt says.
        rendered_hash: the hash of what was sent first: the messages and the session id.
        raw_output: the exact final content of the assistant.
        value: the decoded output when the contract asks for JSON and it is valid, else None.
        finish_reason: why the answer ended, as reported: an open set; or None.
        refusal: the text of a refusal, or None.
        validation: whether the output satisfies its contract.
        captured: whether the run captured its exchange.
        attempts: how many attempts were made: 1 + ``transient_retries`` + ``repair_calls``.
        transient_retries: how many of them were retries after a transient failure.
        repair_calls: how many of them were first tries of a repair.
        usage: what the whole run used, retries and repairs included.
        timing: when it started, and how long it took.
    """

    run_id: str
    parent_run_id: str | None
    prompt_id: str
    profile: str
    backend: str
    model: str
    response_id: str | None
    session_id: str | None
    definition_hash: str
    rendered_hash: str
    raw_output: str
    value: JSON
    finish_reason: str | None
    refusal: str | None
    validation: Validation
    captured: bool
    attempts: int
    transient_retries: int
    repair_calls: int
    usage: TokenUsage
    timing: Timing

    @property
    def exchange(self) -> Exchange:
        """The captured exchange, to continue from. Never encoded or pickled; copies of the result keep it.

        Raises NotCapturedError when the run did not ask for capture.
        """
        exchange: Exchange | None = self.__dict__.get("_exchange")
        if exchange is not None:
            return exchange
        if self.captured:
            msg = f"run {self.run_id}: this result was decoded or unpickled, and an exchange never leaves its process"
        else:
            msg = (
                f"run {self.run_id} of prompt {self.prompt_id!r} captured no exchange: "
                "set capture_exchange=True in its RunRequest (continue_from implies it)"
            )
        error = NotCapturedError(msg)
        error.run_id, error.parent_run_id = self.run_id, self.parent_run_id
        raise error

    def decode(self, type_: type[T]) -> T:
        """Give the output as a value of ``type_``: a msgspec struct, dataclass, TypedDict, pydantic model or builtin.

        JSON has one kind of numbers and only texts as keys: 3.0 is an integer where the type has one, and keys are read
        as the type's. Raises OutputInvalidError when the output is not valid under its contract, or is not a value of
        ``type_``: a type can ask for more than its JSON Schema says.
        """
        if self.validation.status != "valid":
            reason = "has a text contract" if self.validation.status == "not_requested" else "is invalid"
            msg = f"run {self.run_id}: the output {reason}, so there is no value to decode: see result.validation"
            raise self._invalid(msg, self.validation.violations)
        validate = getattr(type_, "model_validate", None)
        if callable(validate):
            return _from_pydantic(self, type_, validate)
        try:
            decoded: T = _converted(self.value, type_)
        except msgspec.ValidationError as error:
            place = _place(str(error))
            name = _named(type_)
            msg = f"run {self.run_id}: the output does not fit {name} at {place or 'its root'}"
            raise self._invalid(msg, (Violation(pointer=place, message=f"does not fit {name}"),)) from None
        return decoded

    def _invalid(self, message: str, violations: tuple[Violation, ...]) -> OutputInvalidError:
        error = OutputInvalidError(message, violations=violations)
        error.run_id, error.parent_run_id = self.run_id, self.parent_run_id
        error.attempts, error.usage = self.attempts, self.usage
        return error

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import result_view

        return result_view(self)

    def __copy__(self) -> Self:
        """Give a copy that keeps the exchange."""
        return self._with_exchange(msgspec.structs.replace(self))

    def __deepcopy__(self, memo: object) -> Self:
        """Give a copy with a value of its own that keeps the exchange."""
        from copy import deepcopy

        return self._with_exchange(msgspec.structs.replace(self, value=deepcopy(self.value)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, without the exchange."""
        return (_rebuilt, (type(self), {name: getattr(self, name) for name in self.__struct_fields__}))

    def _with_exchange(self, copied: Self) -> Self:
        if "_exchange" in self.__dict__:
            copied.__dict__["_exchange"] = self.__dict__["_exchange"]
        return copied


def _converted(value: Any, type_: Any) -> Any:
    # In a list, so that every complaint ends with a place: what comes before it may repeat the output.
    try:
        return msgspec.convert([value], list[type_], str_keys=True)[0]
    except msgspec.ValidationError:
        return msgspec.convert([_with_integers(value)], list[type_], str_keys=True)[0]


def _with_integers(value: Any) -> Any:
    """Write whole numbers as integers, as JSON Schema sees them."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return {name: _with_integers(item) for name, item in value.items()} if isinstance(value, dict) else value


def _place(complaint: str) -> str:
    found = AT_END.search(complaint)
    known = found[1].partition("[...]")[0] if found else ""  # the key of a mapping is not told
    return pointer(field or index for field, index in STEPS.findall(known))


def _named(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)


def _rebuilt(cls: type[RunResult], fields: dict[str, Any]) -> RunResult:
    return cls(**fields)


def _from_pydantic(result: RunResult, type_: type[T], validate: Any) -> T:
    try:
        validated: T = validate(result.value)
    except ValueError as error:  # pydantic's ValidationError is one; its text holds the output, so it is not chained
        faults: list[dict[str, Any]] = getattr(error, "errors", list)()
        violations = tuple(Violation(pointer=pointer(fault["loc"]), message=fault["type"]) for fault in faults)
        msg = f"run {result.run_id}: the output does not fit {_named(type_)}"
        raise result._invalid(msg, violations) from None  # noqa: SLF001  # split off for its length
    return validated


def with_exchange(result: RunResult, exchange: Exchange) -> RunResult:
    """Attach the captured exchange to a new result."""
    result.__dict__["_exchange"] = exchange
    return result
