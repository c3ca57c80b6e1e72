"""The observer: spans and measurements from the events of runs."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, ParamSpec

from opentelemetry import metrics, trace
from opentelemetry.trace import INVALID_SPAN, Link, SpanKind, StatusCode

from promptkit._opentelemetry import conventions as names
from promptkit._opentelemetry.arguments import expect_arguments
from promptkit._opentelemetry.attributes import (
    UNCONFIGURED,
    attempt_attributes,
    configured,
    error_attributes,
    nanoseconds,
    operation_attributes,
    run_attributes,
    text,
)
from promptkit._values.events import AttemptFinished, RetryDelayed, RunFinished, RunStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from promptkit import ExecutionEvent
    from promptkit._load_catalog import Catalog
    from promptkit._opentelemetry.attributes import Attributes

MAX_OPEN_RUNS = 4_096  # spans kept for runs whose end has not been seen
MAX_PARENTS = 16_384  # completed runs that can still be linked to

P = ParamSpec("P")

logger = logging.getLogger("promptkit.opentelemetry")


class OpenRun:
    """A run that has not ended, as far as this observer has seen."""

    __slots__ = ("attempt", "attempts", "context", "delays", "span")

    def __init__(self) -> None:
        self.span: Span = INVALID_SPAN  # until it is started, and if it cannot be
        self.context: Context | None = None  # that of the application's code, with the span in it
        self.attempt: Context | None = None  # the same, with the span of the newest attempt
        self.attempts = 0  # the newest that was told
        self.delays = 0  # the attempt after which the newest wait was told


class OpenTelemetryObserver:
    """An observer that emits spans and metrics by the GenAI semantic conventions: names and numbers, never content.

    Each run is a span "run_prompt <prompt>", a child of the span that is current where the run was started; each
    attempt is a client span "chat <model>" below it, each wait before a retry an event of the run's span, and the run
    that it continues a link. The guide on telemetry has all names.

    ``catalog`` is the one that the engine has: from it come the model that was asked for, the server's address and the
    sampling settings, which events do not have. ``providers`` says who is behind a backend, by its id, as
    ``gen_ai.provider.name`` has it: without it that is told from the backend's address in the catalog, else from its
    kind. Without ``tracer_provider`` and ``meter_provider`` the program's own are used, also when they are set later.

    One observer serves any number of engines, event loops and threads. It makes no span current. It never raises: the
    first problem of an SDK is logged as a warning of the logger "promptkit.opentelemetry", later ones are not. An event
    that it is told twice counts once.

    A run whose end is never told (another observer raised) keeps its span open until 4,096 later ones are open too;
    then it ends with the outcome "unobserved". The 16,384 newest completed runs can be linked to.
    """

    __slots__ = (
        "__weakref__",
        "_configured",
        "_duration",
        "_lock",
        "_open",
        "_parents",
        "_providers",
        "_queue",
        "_run_duration",
        "_tokens",
        "_tracer",
        "_warned",
    )

    def __init__(
        self,
        *,
        catalog: Catalog | None = None,
        providers: Mapping[str, str] | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Take what the program knows beside the events; nothing is emitted yet.

        Raises InvalidRequestError for a catalog or a provider that is none, and for ``providers`` that name a backend
        which the catalog has not.
        """
        expect_arguments(catalog, providers, tracer_provider, meter_provider)
        release = _release()
        self._configured = configured(catalog)
        self._providers = dict(providers or {})
        self._tracer = trace.get_tracer("promptkit", release, tracer_provider, names.SCHEMA_URL)
        meter = metrics.get_meter("promptkit", release, meter_provider, names.SCHEMA_URL)

        def histogram(name: str, unit: str, description: str, boundaries: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(
                name, unit=unit, description=description, explicit_bucket_boundaries_advisory=boundaries
            )

        self._duration = histogram(names.OPERATION_DURATION, "s", "GenAI operation duration.", names.SECONDS)
        self._tokens = histogram(names.TOKEN_USAGE, "{token}", "Number of input and output tokens used.", names.TOKENS)
        self._run_duration = histogram(names.RUN_DURATION, "s", "Duration of a run, waits included.", names.SECONDS)
        self._queue = histogram(names.QUEUE_DURATION, "s", "Time that an attempt waited for a permit.", names.SECONDS)
        self._lock = threading.Lock()  # never held while anything of OpenTelemetry is called
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._parents: OrderedDict[str, SpanContext] = OrderedDict()
        self._warned = False

    def __call__(self, event: ExecutionEvent) -> None:
        """Tell an event to OpenTelemetry. Raises nothing."""
        match event:
            case RunStarted():
                self._guarded(self._run_started, event)
            case AttemptFinished():
                self._guarded(self._attempt_finished, event)
            case RetryDelayed():
                self._guarded(self._retry_delayed, event)
            case RunFinished():
                self._guarded(self._run_finished, event)

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.opentelemetry.OpenTelemetryObserver>"

    def _run_started(self, event: RunStarted) -> None:
        run, unobserved = self._opened(event.run_id)
        if unobserved is not None:
            self._guarded(_give_up, unobserved)
        if run is None:
            return
        attributes: Attributes = {names.RUN_ID: text(event.run_id), names.PROMPT_NAME: text(event.prompt_id)}
        parent = None
        if event.parent_run_id is not None:
            attributes[names.PARENT_RUN_ID] = text(event.parent_run_id)
            with self._lock:
                parent = self._parents.get(event.parent_run_id)
        run.span = self._tracer.start_span(
            f"run_prompt {attributes[names.PROMPT_NAME]}",
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            links=() if parent is None else (Link(parent),),
            start_time=nanoseconds(event.at),
        )
        run.context = trace.set_span_in_context(run.span)

    def _attempt_finished(self, event: AttemptFinished) -> None:
        with self._lock:
            run = self._open.get(event.run_id) or OpenRun()
            if event.attempt <= run.attempts:
                return
            run.attempts = event.attempt
        found = self._configured.get((event.profile, event.backend), UNCONFIGURED)
        shared = operation_attributes(event, found, self._providers)
        self._guarded(self._trace_attempt, event, run, shared | attempt_attributes(event, found))
        self._guarded(self._measure_attempt, event, run, shared)

    def _trace_attempt(self, event: AttemptFinished, run: OpenRun, attributes: Attributes) -> None:
        end = nanoseconds(event.at)
        span = self._tracer.start_span(
            f"{names.CHAT} {attributes.get(names.REQUEST_MODEL) or attributes[names.RESPONSE_MODEL]}",
            context=run.context,
            kind=SpanKind.INTERNAL if event.backend_kind == "embedded" else SpanKind.CLIENT,
            attributes=attributes,
            start_time=end - int(event.duration * 1e9),
        )
        if event.outcome == "failed":
            span.set_status(StatusCode.ERROR)
        span.end(end)
        run.attempt = trace.set_span_in_context(span, run.context)

    def _measure_attempt(self, event: AttemptFinished, run: OpenRun, shared: Attributes) -> None:
        self._duration.record(event.duration, shared, run.attempt)
        self._queue.record(event.queued, {names.BACKEND: text(event.backend)}, run.attempt)
        without_error = {name: value for name, value in shared.items() if name != names.ERROR_TYPE}
        for kind, count in (("input", event.usage.input_tokens), ("output", event.usage.output_tokens)):
            # Of a failed attempt only what it used after all: its zero says nothing about how much an operation uses.
            if count.known and count.complete and (count.value or event.outcome == "completed"):
                self._tokens.record(count.value, without_error | {names.TOKEN_TYPE: kind}, run.attempt)

    def _retry_delayed(self, event: RetryDelayed) -> None:
        with self._lock:
            run = self._open.get(event.run_id)
            if run is None or event.attempt <= run.delays:
                return
            run.delays = event.attempt
        attributes: Attributes = {
            names.ATTEMPT: event.attempt,
            names.RETRY_DELAY: event.delay,
            names.RETRY_SOURCE: event.source,
        }
        run.span.add_event(names.RETRY, attributes, nanoseconds(event.at))

    def _run_finished(self, event: RunFinished) -> None:
        with self._lock:
            run = self._open.pop(event.run_id, None)
        if run is not None:
            self._guarded(self._end_span, event, run)
            self._guarded(self._measure_run, event, run.context)

    def _end_span(self, event: RunFinished, run: OpenRun) -> None:
        where = run.span.get_span_context()
        if event.outcome == "completed" and where.is_valid:
            with self._lock:
                self._parents[event.run_id] = where
                if len(self._parents) > MAX_PARENTS:
                    self._parents.popitem(last=False)
        if run.span.is_recording():
            run.span.set_attributes(run_attributes(event))
            if event.definition_hash is None:  # there may be no such prompt: what was asked for is in no name
                run.span.update_name("run_prompt")
            if event.outcome == "failed":
                run.span.set_status(StatusCode.ERROR)
        run.span.end(nanoseconds(event.at))

    def _measure_run(self, event: RunFinished, context: Context | None) -> None:
        attributes: Attributes = {names.OUTCOME: event.outcome, **error_attributes(event)}
        if event.definition_hash is not None:
            attributes[names.PROMPT_NAME] = text(event.prompt_id)
        if event.validation is not None:
            attributes[names.VALIDATION] = event.validation
        self._run_duration.record(event.duration, attributes, context)

    def _opened(self, run_id: str) -> tuple[OpenRun | None, OpenRun | None]:
        """Open a run, unless it is open; and take the oldest one out, if there are too many."""
        with self._lock:
            if run_id in self._open:
                return None, None
            run = self._open[run_id] = OpenRun()
            return run, self._open.popitem(last=False)[1] if len(self._open) > MAX_OPEN_RUNS else None

    def _guarded(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            work(*args, **kwargs)
        except Exception:  # what an observer raises would end the run
            with self._lock:
                first, self._warned = not self._warned, True
            if first:
                logger.warning("telemetry failed; the run goes on, and later failures are not logged", exc_info=True)


def _give_up(run: OpenRun) -> None:
    run.span.set_attribute(names.OUTCOME, names.UNOBSERVED)
    run.span.end()


def _release() -> str:
    try:
        return version("promptkit-engine")
    except PackageNotFoundError:  # it is not installed, only importable
        return ""
