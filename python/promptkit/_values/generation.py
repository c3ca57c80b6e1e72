"""The seam to a model: one call, one reply, and the protocol between them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, final

import msgspec

from promptkit._values.construction import Checked
from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import Backend, Profile
from promptkit._values.messages import Message, from_tuples, to_tuple
from promptkit._values.secret import Secret
from promptkit._values.usage import ReportedUsage
from promptkit.errors import MalformedReplyError, PromptKitError

if TYPE_CHECKING:
    from os import PathLike

    from promptkit._history import Turn

Purpose = Literal["generate", "repair"]


class EncodedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a call as JSON.

    Attributes:
        messages: an array.
        system: an array of text blocks where the dialect carries system text apart, else None.
    """

    messages: bytes
    system: bytes | None = None


@final
class GenerationCall(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One attempt, as a ModelClient receives it. Only engines make one.

    Attributes:
        run_id: the id of the run.
        attempt: the number of the attempt within the run, from 1.
        purpose: "generate" for the first try and its retries, "repair" for a repair and its retries.
        backend: the backend that is asked.
        profile: the model and its settings.
        output: the contract, with its schema in place of the schema's id.
        session_id: the session id that was selected, or None.
        credential: the key, or None where there is none.
    """

    run_id: str
    attempt: int
    purpose: Purpose
    backend: Backend
    profile: Profile
    output: OutputContract
    session_id: str | None
    credential: Secret | None
    _turn: Any
    _extra: Sequence[Message] = ()

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The effective messages, built on first use."""
        turn: Turn = self._turn
        return (*from_tuples(turn.messages()), *self._extra)

    def encoded_messages(self, form: Literal["chat_completions", "anthropic_messages"]) -> EncodedMessages:
        """Encode the messages for a dialect, with the cache markers in the form that the backend takes.

        Each array for a history is, without its closing bracket, a byte prefix of that of every continuation.
        For "anthropic_messages" the leading system and developer messages are in ``system``. A later one stays in
        ``messages``, with its role or as the user's, as the backend's ``late_system`` says. That form has no
        ``prompt_cache_breakpoint``: ValueError for a backend with it.
        """
        turn: Turn = self._turn
        extra = [to_tuple(message) for message in self._extra]
        markers = self.backend.cache_markers
        late: Literal["send", "as_user"] = "as_user" if self.backend.late_system_treatment == "as_user" else "send"
        match form:
            case "chat_completions":
                return EncodedMessages(messages=turn.encode_chat(markers, extra, late))
            case "anthropic_messages":
                if markers == "prompt_cache_breakpoint":
                    msg = f"backend {self.backend.id!r}: the form {form!r} has no cache markers {markers!r}"
                    raise ValueError(msg)
                messages, system = turn.encode_anthropic(markers, extra, late)
                return EncodedMessages(messages=messages, system=system)
        msg = f'unknown form {form!r}: there are "chat_completions" and "anthropic_messages"'
        raise ValueError(msg)

    def __repr__(self) -> str:
        """Name the call without its content."""
        return f"GenerationCall(run_id={self.run_id!r}, attempt={self.attempt}, purpose={self.purpose!r})"


class GenerationReply(Checked, frozen=True, kw_only=True):
    """One finished reply: the exact text of the answer, and what the backend said about it.

    What is no such reply is a MalformedReplyError.

    Attributes:
        content: the exact text of the answer.
        finish_reason: why it ended, in the backend's own words: an open set; or None.
        refusal: the text of a refusal, or None.
        model: the model as the backend reported it, or None.
        response_id: the backend's own id of the answer, or None.
        status: the HTTP status that it came with, if it came over HTTP; the event of the attempt shows it.
        usage: the counts that were reported. None: nothing was reported, which is not zero.
    """

    _refused_with: ClassVar[type[PromptKitError]] = MalformedReplyError

    content: str
    finish_reason: str | None = None
    refusal: str | None = None
    model: str | None = None
    response_id: str | None = None
    status: int | None = None
    usage: ReportedUsage | None = None


class ModelClient(Protocol):
    """The seam for other backends and for tests."""

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Make one attempt and give its reply.

        Raise GenerationError (its ``transient`` decides a retry); anything else ends the run unchanged. The engine
        bounds the attempt by the backend's ``attempt_timeout`` and counts it against the backend's concurrency. A run
        that is started in here on the same backend is refused if it would have to wait. So is one that would close a
        ring of backends whose clients wait for each other; only what context variables do not reach waits until its
        attempt times out.
        """
        ...


class InputReader(Protocol):
    """Reads file inputs in place of the file system."""

    async def read(self, path: PathLike[str], limit: int) -> bytes:
        """Give the content of ``path``, as the request names it; raise InputError when it is longer than ``limit``.

        An InputError or an OSError becomes an InputError that names the input; anything else leaves as itself. Files
        of one request are read at the same time, eight at most.
        """
        ...
