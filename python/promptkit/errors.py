"""Every error that promptkit raises.

Cancellation is none of these: it leaves through the ``await`` as itself. The tree::

    PromptKitError
    ├── InvalidConfigError          every fault of a catalog at once
    ├── EngineStateError            closed, on a second running loop, a handle run twice
    ├── InvalidRequestError         the request, before anything is sent
    │   ├── UnknownPromptError
    │   ├── UnknownProfileError
    │   ├── UnknownBackendError
    │   ├── UnknownSchemaError
    │   ├── MissingProfileError
    │   ├── TemplateError
    │   └── InputError
    ├── NotCapturedError            the exchange of a run that captured none
    ├── PreparedExecutionError      claimed, discarded, or of another engine
    ├── CredentialError             no usable key
    ├── CapacityError               the backend has no room
    ├── GenerationError             what the backend did
    │   ├── ConnectError
    │   ├── AttemptTimeoutError
    │   ├── DisconnectedError
    │   ├── BackendStatusError
    │   │   ├── AuthenticationError
    │   │   ├── RateLimitError
    │   │   ├── QuotaError
    │   │   ├── OverloadedError
    │   │   └── RejectedRequestError
    │   └── MalformedReplyError
    └── OutputInvalidError          decode() of an output that breaks its contract

All of them are values: equal when their class, message and fields are equal, and they survive pickling and
copying. Text that a model wrote is never part of ``str(error)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit._values.results import Violation
    from promptkit._values.usage import ReportedUsage, TokenUsage

__all__ = [
    "AttemptTimeoutError",
    "AuthenticationError",
    "BackendStatusError",
    "CapacityError",
    "ConnectError",
    "CredentialError",
    "DisconnectedError",
    "EngineStateError",
    "Fault",
    "GenerationError",
    "InputError",
    "InvalidConfigError",
    "InvalidRequestError",
    "MalformedReplyError",
    "MissingProfileError",
    "NotCapturedError",
    "OutputInvalidError",
    "OverloadedError",
    "PreparedExecutionError",
    "PromptKitError",
    "QuotaError",
    "RateLimitError",
    "RejectedRequestError",
    "TemplateError",
    "UnknownBackendError",
    "UnknownProfileError",
    "UnknownPromptError",
    "UnknownSchemaError",
]


class PromptKitError(Exception):
    """Base of all errors of this package.

    Its attributes describe the run that the error ended; each is None where there was no run.

    Attributes:
        run_id: the id of the run.
        parent_run_id: the id of the run that it continued.
        attempts: how many attempts were made.
        usage: what the run used, with the attempts that completed before the failure.
    """

    run_id: str | None = None
    parent_run_id: str | None = None
    attempts: int | None = None
    usage: TokenUsage | None = None

    def __eq__(self, other: object) -> bool:
        """Say whether ``other`` is the same error: class, message and fields."""
        if type(other) is not type(self):
            return NotImplemented
        return self.args == other.args and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """Hash what does not change: the class and the message."""
        return hash((type(self), self.args))


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a catalog: where, what, and what to do.

    Faults encode with msgspec.json: what UTF-8 cannot carry is escaped.

    Attributes:
        message: what is wrong, and what to do.
        key: the path of keys inside the file, written as in TOML: ``profiles.fast.temperature``,
            ``messages[0].content``, ``backends."a.b".kind``. For a definition made in Python it starts with
            ``prompts``, ``profiles``, ``backends`` or ``schemas`` and the id.
        file: the file, relative to the catalog's folder; None where the definition did not come from one.
        line: the line in the file, from 1; None where it is not known.
        suggestion: what was probably meant, or None.
    """

    message: str
    key: str | None = None
    file: str | None = None
    line: int | None = None
    suggestion: str | None = None

    def __post_init__(self) -> None:
        for field in ("message", "key", "file", "suggestion"):
            text = getattr(self, field)
            if text is not None and not text.isascii():
                msgspec.structs.force_setattr(self, field, text.encode("utf-8", "backslashreplace").decode())

    def __str__(self) -> str:
        """Give the fault on one line, the place first. What cannot be printed is escaped."""
        place = ""
        if self.file is not None:
            place = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = [part for part in (place, self.key) if part]
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return _printable(": ".join([*parts, self.message]) + hint)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def near(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that ``name`` most likely stands for, or None."""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def with_article(name: str) -> str:
    """Put "a" or "an" before the name of a kind."""
    return f"{'an' if name[:1] in set('AEIOaeio') else 'a'} {name}"


def listed(names: Iterable[str], *, most: int = 8) -> str:
    """Name what there is, for the end of a sentence; long lists are cut with their count."""
    known = sorted(names)
    if not known:
        return "there are none"
    shown = ", ".join(repr(name) for name in known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"


class InvalidConfigError(PromptKitError):
    """Raised by load_catalog, Catalog and the definition types: ``faults`` has every fault found, in file order."""

    faults: tuple[Fault, ...]

    def __init__(self, *faults: Fault) -> None:
        """Hold the faults; the text lists one a line."""
        super().__init__(*faults)
        self.faults = faults

    def __str__(self) -> str:
        """List every fault, one a line, under a line that counts them when there are several."""
        if len(self.faults) == 1:
            return str(self.faults[0])
        return "\n".join([f"{len(self.faults)} faults in the configuration:", *(f"  {f}" for f in self.faults)])


class EngineStateError(PromptKitError):
    """Raised when an engine or a handle cannot do this now: closed, on a second running loop, run twice."""


class InvalidRequestError(PromptKitError):
    """Raised for a request that cannot be prepared; nothing was sent."""


class UnknownPromptError(InvalidRequestError):
    """Raised when the catalog has no prompt of the requested id."""


class UnknownProfileError(InvalidRequestError):
    """Raised when the catalog has no profile of the requested id."""


class UnknownBackendError(InvalidRequestError):
    """Raised when the catalog has no backend of the requested id."""


class UnknownSchemaError(InvalidRequestError):
    """Raised when a request's output contract names a schema that the catalog does not have."""


class MissingProfileError(InvalidRequestError):
    """Raised when neither the request nor the prompt names a profile."""


class TemplateError(InvalidRequestError):
    """Raised when a message of a prompt cannot be rendered with the request's values."""


class InputError(InvalidRequestError):
    """Raised when an input cannot be read: missing, outside the inputs folder, too large, not UTF-8."""


class NotCapturedError(PromptKitError):
    """Raised by RunResult.exchange when the run was not asked to capture its exchange."""


class PreparedExecutionError(PromptKitError):
    """Raised when a prepared execution was claimed before, was discarded, or belongs to another engine."""


class CredentialError(PromptKitError):
    """Raised when the backend needs a key and there is none, or the key cannot be sent in a header."""


class CapacityError(PromptKitError):
    """Raised when a backend admits no further run.

    Attributes:
        backend: the id of the backend.
        running: how many attempts were in flight when the run was refused.
        waiting: how many other runs were admitted.
        max_concurrency: the backend's limit of the first.
        max_waiting: the backend's limit of the second.
        reason: "full", or "re-entrant" for a run started from inside a model client that would have to wait for itself,
            or would close a ring of clients that wait for each other.
    """

    backend: str
    running: int
    waiting: int
    max_concurrency: int
    max_waiting: int
    reason: Literal["full", "re-entrant"]

    def __init__(  # one field each
        self,
        message: str = "",
        *,
        backend: str = "",
        running: int = 0,
        waiting: int = 0,
        max_concurrency: int = 0,
        max_waiting: int = 0,
        reason: Literal["full", "re-entrant"] = "full",
    ) -> None:
        """Hold the limits and the counts at the moment of refusal."""
        super().__init__(message)
        self.backend = backend
        self.running = running
        self.waiting = waiting
        self.max_concurrency = max_concurrency
        self.max_waiting = max_waiting
        self.reason = reason


class GenerationError(PromptKitError):
    """What a backend did instead of answering. A ModelClient raises it; ``transient`` decides whether to retry.

    Each attribute but ``transient`` is None where there was none.

    Attributes:
        transient: whether the same request may succeed later. Where it is not given, what failures of the class usually
            are.
        status: the HTTP status, or the one that an error object inside a 200 names.
        provider_code: the backend's own code, as text.
        retry_after: the wait that it demanded, in seconds.
        excerpt: a bounded piece of an unreadable reply.
        response_id: the backend's own id of the reply.
        reported: the usage that came with the failure.
    """

    usually_transient: ClassVar[bool] = False  # what ``transient`` is when it is not given

    transient: bool
    status: int | None
    provider_code: str | None
    retry_after: float | None
    excerpt: str | None
    response_id: str | None
    reported: ReportedUsage | None

    def __init__(
        self,
        message: str = "",
        *,
        transient: bool | None = None,
        status: int | None = None,
        provider_code: str | None = None,
        retry_after: float | None = None,
        excerpt: str | None = None,
        response_id: str | None = None,
        reported: ReportedUsage | None = None,
    ) -> None:
        """Hold what is known of the failure."""
        super().__init__(message)
        self.transient = self.usually_transient if transient is None else transient
        self.status = status
        self.provider_code = provider_code
        self.retry_after = retry_after
        self.excerpt = excerpt
        self.response_id = response_id
        self.reported = reported


class ConnectError(GenerationError):
    """The backend could not be reached: nothing was generated."""

    usually_transient = True


class AttemptTimeoutError(GenerationError):
    """One attempt took longer than the backend's ``attempt_timeout``; what was generated is unknown."""

    usually_transient = True


class DisconnectedError(GenerationError):
    """The connection was lost before the whole reply had arrived; what was generated is unknown."""

    usually_transient = True


class BackendStatusError(GenerationError):
    """The backend answered with an error status, or with an error object inside a 200."""


class AuthenticationError(BackendStatusError):
    """The backend refused the key (401 or 403)."""


class RateLimitError(BackendStatusError):
    """The backend asks to slow down (429); ``retry_after`` has its demand, if it made one."""

    usually_transient = True


class QuotaError(BackendStatusError):
    """The account's quota or credit is used up: waiting does not cure it."""


class OverloadedError(BackendStatusError):
    """The backend has no capacity at the moment (503 or 529)."""

    usually_transient = True


class RejectedRequestError(BackendStatusError):
    """The backend does not accept the request as it is (another 4xx)."""


class MalformedReplyError(GenerationError):
    """The reply was complete but cannot be read as one; ``excerpt`` has a bounded piece of it."""


class OutputInvalidError(PromptKitError):
    """Raised by RunResult.decode when the output does not satisfy its contract; ``violations`` say why."""

    violations: tuple[Violation, ...]

    def __init__(self, message: str = "", *, violations: tuple[Violation, ...] = ()) -> None:
        """Hold the violations."""
        super().__init__(message)
        self.violations = violations
