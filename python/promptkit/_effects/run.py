"""Drives one run: carries out what the run machine decides, and tells what happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import msgspec

from promptkit._effects.cancellation import CancellationCheck, alone, cancellations
from promptkit._effects.credentials import resolve_credential
from promptkit._effects.gate import Inside
from promptkit._effects.narration import Narrator
from promptkit._effects.preparation import prepare_selected
from promptkit._effects.raising import or_raise
from promptkit._machines.run import (
    Answered,
    Broke,
    Elapsed,
    Fail,
    Finish,
    Repair,
    Run,
    Sent,
    Wait,
    failure_usage,
    step,
)
from promptkit._output.judgement import Judgement, judge
from promptkit._output.repair import repair_messages
from promptkit._prepare.selection import Selection, select
from promptkit._values.definitions import RetryPolicy
from promptkit._values.events import AttemptFinished, Outcome, RetryDelayed, RunFinished, RunStarted
from promptkit._values.exchange import exchange_of, node_of
from promptkit._values.generation import GenerationCall, GenerationReply
from promptkit._values.results import RunResult, Timing, with_exchange
from promptkit._values.usage import UNKNOWN_USAGE, ReportedUsage, TokenUsage, contribution, shown
from promptkit.errors import (
    AttemptTimeoutError,
    GenerationError,
    InvalidRequestError,
    MalformedReplyError,
    PromptKitError,
    with_article,
)

if TYPE_CHECKING:
    from promptkit._effects.gate import Gate, Lease
    from promptkit._effects.shared import LoopState, Shared
    from promptkit._machines.backoff import Delay
    from promptkit._prepare.pipeline import Prepared
    from promptkit._values.messages import Message
    from promptkit._values.requests import RunRequest
    from promptkit._values.secret import Secret

Generate = Callable[[GenerationCall], Awaitable[GenerationReply]]


MOST_BITS = 64  # of a number that a client gives: others cannot be reckoned with
ERROR_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "transient": ((bool,), "True or False"),
    "status": ((int, NoneType), "an integer or None"),
    "provider_code": ((str, NoneType), "a text or None"),
    "retry_after": ((float, int, NoneType), "a number of seconds or None"),
    "excerpt": ((str, NoneType), "a text or None"),
    "response_id": ((str, NoneType), "a text or None"),
    "reported": ((ReportedUsage, NoneType), "a ReportedUsage or None"),
}
UNSTARTED = Run(policy=RetryPolicy(), max_repairs=0)  # the totals of a run that has made no attempt


class Answer(NamedTuple):
    """A completed reply, and what it is worth."""

    reply: GenerationReply
    judgement: Judgement


class RunDriver:
    """One run, from its first event to its last."""

    def __init__(self, shared: Shared, loop: LoopState, request: RunRequest, namespace: str = "") -> None:
        self._shared = shared
        self._namespace = namespace
        self._loop = loop
        self._request = request
        self._surroundings = shared.surroundings
        self._narrator = Narrator(request.observer)
        self._run_id = self._surroundings.new_run_id()
        self._parent_run_id: str | None = None
        self._started_at = self._surroundings.now()
        self._started = self._surroundings.monotonic()
        self._selection: Selection | None = None
        self._run = UNSTARTED
        self._cancelled = CancellationCheck()

    async def drive(self, prepared: Prepared | None = None, credential: Secret | None = None) -> RunResult:
        """Run, and tell how it ended, whichever way that was.

        What was prepared before is not prepared again, and its credential, if there is one, was chosen then.
        """
        history = node_of(self._request.continue_from)
        self._parent_run_id = None if history is None else history.run_id
        self._narrator.tell(
            RunStarted(
                at=self._started_at,
                run_id=self._run_id,
                parent_run_id=self._parent_run_id,
                prompt_id=self._request.prompt_id,
            )
        )
        try:
            ready = await self._prepare() if prepared is None else prepared
            backend = ready.selection.backend
            self._selection = ready.selection
            if prepared is None:
                credential = or_raise(resolve_credential(backend, self._request.credential))
            answer = await self._admitted(ready, credential)
            result = self._result(ready, answer)
        except BaseException as error:
            self._tell_failure(error)
            raise
        self._narrator.tell(self._finished("completed", None, result))
        return result

    async def _prepare(self) -> Prepared:
        self._selection = or_raise(select(self._shared.definitions, self._request, self._namespace))
        return or_raise(await prepare_selected(self._shared, self._request, self._selection))

    async def _admitted(self, prepared: Prepared, credential: Secret | None) -> Answer:
        """Hold a lease from before the first attempt until the end."""
        backend = prepared.selection.backend
        client = self._shared.client_for(self._loop, backend)
        self._run = Run(policy=backend.retry, max_repairs=prepared.selection.contract.output.max_repairs)
        with (lease := or_raise(self._loop.gate(backend).admit())):
            return await self._attempts(prepared, lease, client.generate, credential)

    async def _attempts(
        self, prepared: Prepared, lease: Lease, generate: Generate, credential: Secret | None
    ) -> Answer:
        """Follow the run machine to its end. After a reply that completes the run, nothing here awaits."""
        contract = prepared.selection.contract
        extra: tuple[Message, ...] = ()
        while True:
            if self._run.attempts:
                await self._cancelled()  # nothing more is begun for a run that has been cancelled meanwhile
            outcome = await self._attempt(self._call(prepared, credential, extra), lease, generate)
            if isinstance(outcome, GenerationError):
                await self._after_failure(outcome)
                continue
            judgement = judge(outcome, contract.output, contract.schema)
            valid = judgement.validation.status != "invalid"
            self._run, command = step(self._run, Answered(contribution(outcome.usage), valid, judgement.curable))
            match command:
                case Repair():
                    extra = repair_messages(outcome.content, judgement.validation.violations)
                case Finish() | _:
                    return Answer(outcome, judgement)

    def _call(self, prepared: Prepared, credential: Secret | None, extra: tuple[Message, ...]) -> GenerationCall:
        selection = prepared.selection
        return GenerationCall(
            run_id=self._run_id,
            attempt=self._run.attempts + 1,
            purpose=self._run.purpose,
            backend=selection.backend,
            profile=selection.profile,
            output=selection.contract.output,
            session_id=prepared.session_id,
            credential=credential,
            _turn=prepared.turn,
            _extra=extra,
        )

    async def _after_failure(self, error: GenerationError) -> None:
        """Wait before the next attempt, without a permit; or end the run with the error."""
        broke = Broke(error, failure_usage(error), self._surroundings.chance())
        self._run, command = step(self._run, broke)
        match command:
            case Wait(delay=delay):
                self._tell_delay(delay)
                await self._surroundings.sleep(delay.seconds)
                self._run, _ = step(self._run, Elapsed())
            case Fail(reason=str(reason)) if reason not in str(error):
                error.args = (f"{error.args[0] if error.args else type(error).__name__} ({reason})", *error.args[1:])
                raise error
            case _:
                raise error

    async def _attempt(
        self, call: GenerationCall, lease: Lease, generate: Generate
    ) -> GenerationReply | GenerationError:
        """Make one attempt with a permit, and tell of it when the permit is back."""
        asked = self._surroundings.monotonic()
        await self._permit(lease)
        began = self._surroundings.monotonic()
        self._run, _ = step(self._run, Sent())
        try:
            outcome = await _bounded(call, lease.gate, generate)
        except BaseException as error:
            lease.release()
            self._run = msgspec.structs.replace(self._run, usage=self._run.usage + UNKNOWN_USAGE)
            self._tell_attempt(call, error, asked, began)
            raise
        lease.release()
        self._tell_attempt(call, outcome, asked, began)
        return outcome

    async def _permit(self, lease: Lease) -> None:
        """Wait for a permit. Not even a client that waits for nothing is called for a run that has been cancelled."""
        await lease.acquire()
        while self._cancelled.pending:
            lease.release()
            await self._cancelled()
            await lease.acquire()

    def _tell_attempt(
        self, call: GenerationCall, outcome: GenerationReply | BaseException, asked: float, began: float
    ) -> None:
        if not self._narrator.listening:
            return
        error = outcome if isinstance(outcome, BaseException) else None
        reply = outcome if isinstance(outcome, GenerationReply) else None
        said = outcome if isinstance(outcome, GenerationReply | GenerationError) else None
        cancelled = error is not None and isinstance(error, cancellations())
        event = AttemptFinished(
            at=self._surroundings.now(),
            run_id=self._run_id,
            parent_run_id=self._parent_run_id,
            profile=call.profile.id,
            backend=call.backend.id,
            backend_kind=call.backend.kind,
            model=(reply and reply.model) or call.profile.model,
            response_id=said.response_id if said else None,
            attempt=call.attempt,
            purpose=call.purpose,
            outcome="completed" if error is None else "cancelled" if cancelled else "failed",
            error=None if error is None else type(error).__name__,
            status=said.status if said else None,
            queued=began - asked,
            duration=self._surroundings.monotonic() - began,
            usage=shown(_attempt_usage(outcome)),
        )
        if error is not None and cancelled:
            self._narrator.tell_beside(error, event)
        else:
            self._narrator.tell(event)

    def _tell_delay(self, delay: Delay) -> None:
        self._narrator.tell(
            RetryDelayed(
                at=self._surroundings.now(),
                run_id=self._run_id,
                parent_run_id=self._parent_run_id,
                attempt=self._run.attempts,
                delay=delay.seconds,
                source=delay.source,
            )
        )

    def _tell_failure(self, error: BaseException) -> None:
        """Put the run's facts on the error, and tell the end."""
        # An error of another run, made inside a model client or an input reader, keeps the facts of that run.
        if isinstance(error, PromptKitError) and (error.run_id is None or isinstance(error, GenerationError)):
            error.run_id, error.parent_run_id = self._run_id, self._parent_run_id
            error.attempts, error.usage = self._run.attempts, shown(self._run.usage)
        if isinstance(error, cancellations()):
            self._narrator.tell_beside(error, self._finished("cancelled", type(error).__name__))
        else:
            self._narrator.tell(self._finished("failed", type(error).__name__))

    def _finished(self, outcome: Outcome, error: str | None, result: RunResult | None = None) -> RunFinished:
        selection = self._selection
        return RunFinished(
            at=self._surroundings.now(),
            run_id=self._run_id,
            parent_run_id=self._parent_run_id,
            prompt_id=self._request.prompt_id,
            profile=None if selection is None else selection.profile.id,
            backend=None if selection is None else selection.backend.id,
            model=result.model if result else None if selection is None else selection.profile.model,
            definition_hash=None if selection is None else selection.plan.definition_hash,
            outcome=outcome,
            error=error,
            validation=result.validation.status if result else None,
            attempts=self._run.attempts,
            transient_retries=self._run.transient_retries,
            repair_calls=self._run.repair_calls,
            usage=shown(self._run.usage),
            duration=self._surroundings.monotonic() - self._started,
        )

    def _result(self, prepared: Prepared, answer: Answer) -> RunResult:
        selection, reply = prepared.selection, answer.reply
        captured = self._request.capture_exchange or self._request.continue_from is not None
        result = RunResult(
            run_id=self._run_id,
            parent_run_id=self._parent_run_id,
            prompt_id=self._request.prompt_id,
            profile=selection.profile.id,
            backend=selection.backend.id,
            model=reply.model or selection.profile.model,
            response_id=reply.response_id,
            session_id=prepared.session_id,
            definition_hash=selection.plan.definition_hash,
            rendered_hash=prepared.rendered_hash,
            raw_output=reply.content,
            value=answer.judgement.value,
            finish_reason=reply.finish_reason,
            refusal=reply.refusal,
            validation=answer.judgement.validation,
            captured=captured,
            attempts=self._run.attempts,
            transient_retries=self._run.transient_retries,
            repair_calls=self._run.repair_calls,
            usage=shown(self._run.usage),
            timing=Timing(started_at=self._started_at, duration=self._surroundings.monotonic() - self._started),
        )
        if not captured:
            return result
        return with_exchange(result, exchange_of(prepared.turn.capture(self._run_id, reply.content)))


async def _bounded(call: GenerationCall, gate: Gate, generate: Generate) -> GenerationReply | GenerationError:
    """Call the client, bounded by the attempt's timeout over its whole duration."""
    seconds = call.backend.attempt_timeout
    with anyio.move_on_after(seconds), Inside(gate):
        try:
            pending: Any = generate(call)
            if not isinstance(pending, Awaitable):
                msg = "the model client's generate is not an async function: it must be awaitable"
                raise InvalidRequestError(msg)
            reply: Any = await pending
        except GenerationError as error:
            return own(well_formed(error))
        except BaseExceptionGroup as group:
            single = alone(group)
            if single is group:
                raise
            raise single from None
        if isinstance(reply, GenerationReply):
            return reply
        return MalformedReplyError(
            f"the model client returned {with_article(type(reply).__name__)}: it must return a GenerationReply"
        )
    message = f"backend {call.backend.id!r} did not finish within its attempt_timeout of {seconds:g} s"
    remedy = "raise it, or bound the answer with the profile's max_output_tokens"
    return AttemptTimeoutError(f"{message}: {remedy}", transient=True)


def well_formed(error: GenerationError) -> GenerationError:
    """Give the error of a model client, or what is wrong with it where its fields are not what they must be."""
    for name, (kinds, meaning) in ERROR_FIELDS.items():
        value = getattr(error, name, error)
        if not isinstance(value, kinds) or (type(value) is int and value.bit_length() > MOST_BITS):
            kind = "missing" if value is error else with_article(type(value).__name__)
            raised = with_article(type(error).__name__)
            return GenerationError(f"the model client raised {raised} whose {name} is {kind}: it must be {meaning}")
    return error


def own(error: GenerationError) -> GenerationError:
    """Give the run an error of its own to put its facts on: a client may raise one in several runs, or keep it.

    One of a class that makes no instance from its arguments is taken as it is.
    """
    kind = type(error)
    try:
        made = kind.__new__(kind, *error.args)
    except Exception:  # noqa: BLE001  # it is the client's own method, and can raise anything
        return error
    made.args = error.args
    made.__dict__.update(error.__dict__)
    if hasattr(error, "__notes__"):
        made.__notes__ = list(error.__notes__)
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    return made.with_traceback(error.__traceback__)


def _attempt_usage(outcome: GenerationReply | BaseException) -> TokenUsage:
    if isinstance(outcome, GenerationReply):
        return contribution(outcome.usage)
    return failure_usage(outcome) if isinstance(outcome, GenerationError) else UNKNOWN_USAGE
