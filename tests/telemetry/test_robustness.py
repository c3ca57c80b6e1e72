from __future__ import annotations

import gc
import importlib
import logging
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, cast

import msgspec
import opentelemetry.trace
import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, StatusCode

import promptkit.opentelemetry
from promptkit import (
    AttemptFinished,
    CoordinateRequest,
    Engine,
    ExecutionEvent,
    InvalidRequestError,
    RunFinished,
    RunRequest,
    RunStarted,
    compose_observers,
)
from promptkit._opentelemetry.observer import MAX_OPEN_RUNS, MAX_PARENTS
from promptkit.opentelemetry import OpenTelemetryObserver
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from telemetry.conftest import Telemetry

pytestmark = pytest.mark.anyio


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


async def events_of(*steps: Any, **fields: Any) -> list[ExecutionEvent]:
    recorder = EventRecorder()
    await Engine(small_catalog(), client=ScriptedClient(*steps)).run(ask(observer=recorder, **fields))
    return recorder.events


def of_run(events: Sequence[ExecutionEvent], run_id: str, parent: str | None = None) -> list[ExecutionEvent]:
    return [msgspec.structs.replace(event, run_id=run_id, parent_run_id=parent) for event in events]


# ---------------------------------------------------------------- it never harms a run


@pytest.mark.parametrize("broken", ["on_start", "on_end"])
async def test_what_an_sdk_raises_ends_no_run_and_is_logged_once(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        msg = "the processor is broken"
        raise RuntimeError(msg)

    processor = SpanProcessor()
    setattr(processor, broken, fail)
    tracers = TracerProvider()
    tracers.add_span_processor(processor)
    reader = InMemoryMetricReader()
    observer = OpenTelemetryObserver(tracer_provider=tracers, meter_provider=MeterProvider([reader]))
    engine = Engine(small_catalog(), client=ScriptedClient("x", "y"))
    with caplog.at_level(logging.DEBUG, "promptkit.opentelemetry"):
        assert (await engine.run(ask(observer=observer))).raw_output == "x"
        assert (await engine.run(ask(observer=observer))).raw_output == "y"
    (record,) = (record for record in caplog.records if record.name == "promptkit.opentelemetry")
    assert record.levelno == logging.WARNING
    assert "the run goes on" in record.getMessage()
    data = reader.get_metrics_data()
    assert data is not None
    assert "promptkit.run.duration" in data.to_json()  # what fails for spans does not for metrics
    assert not observer._open  # noqa: SLF001  # nothing else shows a leak


async def test_an_exporter_that_fails_ends_no_run(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    class Exporter(SpanExporter):
        def export(self, spans: object) -> Any:
            msg = "no route"
            raise ConnectionError(msg)

    telemetry.tracers.add_span_processor(SimpleSpanProcessor(Exporter()))
    engine = Engine(small_catalog(), client=ScriptedClient("x"))
    assert (await engine.run(ask(observer=telemetry.observer()))).raw_output == "x"
    assert len(telemetry.spans()) == 2


def test_an_event_that_it_cannot_read_is_ignored(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    started = RunStarted(at=cast("Any", "yesterday"), run_id="r", parent_run_id=None, prompt_id="p")
    observer = telemetry.observer()
    observer(started)
    observer(cast("Any", object()))
    assert telemetry.spans() == []
    assert len(caplog.records) == 1


async def test_a_catalog_that_is_none_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequestError, match=r"catalog: Expected a Catalog, got `str`: give what the engine was"):
        OpenTelemetryObserver(catalog=cast("Any", "."))


NO_TRACERS = "tracer_provider: Expected a TracerProvider, got"
NO_METERS = "meter_provider: Expected a MeterProvider, got"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"tracer_provider": TracerProvider().get_tracer("x")},
            f"{NO_TRACERS} `Tracer`: give the provider that made it",
        ),
        (
            {"tracer_provider": InMemorySpanExporter()},
            f"{NO_TRACERS} `InMemorySpanExporter`: give TracerProvider() with a span processor, or nothing for the",
        ),
        ({"tracer_provider": TracerProvider}, f"{NO_TRACERS} the class `"),
        (
            {"meter_provider": NoOpMeterProvider().get_meter("x")},
            f"{NO_METERS} `NoOpMeter`: give the provider that made it",
        ),
        (
            {"meter_provider": TracerProvider()},
            f"{NO_METERS} `TracerProvider`: give MeterProvider(metric_readers=[...]), or nothing for the program's own",
        ),
        (
            {"catalog": small_catalog(), "providers": {"sever": "x"}},
            "providers: there is no backend 'sever' in the catalog: did you mean 'server'? the backends are: 'server'",
        ),
        ({"providers": "server"}, "providers: Expected a mapping of ids of backends to names of providers, got `str`"),
        ({"providers": {"server": 3}}, "providers['server']: Expected the name of a provider, a str, got `int`"),
    ],
)
async def test_what_it_could_do_nothing_with_is_refused_with_what_to_do(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        OpenTelemetryObserver(**arguments)
    assert str(refused.value).startswith(f"OpenTelemetryObserver: {says}")


async def test_without_a_catalog_any_backend_may_be_named() -> None:
    assert callable(OpenTelemetryObserver(providers={"elsewhere": "x"}))


async def test_without_an_sdk_nothing_is_emitted_and_nothing_fails(caplog: pytest.LogCaptureFixture) -> None:
    nothing = NoOpTracerProvider(), NoOpMeterProvider()  # what the API gives where no SDK is set
    observer = OpenTelemetryObserver(tracer_provider=nothing[0], meter_provider=nothing[1])
    for event in await events_of("x"):
        observer(event)
    assert caplog.records == []
    assert not observer._parents  # noqa: SLF001  # what has no place in a trace is not kept


# ---------------------------------------------------------------- it stays bounded


async def test_a_run_whose_end_is_never_told_ends_as_unobserved_when_too_many_are_open(telemetry: Telemetry) -> None:
    class AuditError(Exception):
        pass

    def audit(event: ExecutionEvent) -> None:
        if isinstance(event, AttemptFinished):
            raise AuditError

    observer = telemetry.observer()
    engine = Engine(small_catalog(), client=ScriptedClient("x"))
    with pytest.raises(AuditError):
        await engine.run(ask(observer=compose_observers(observer, audit)))
    assert telemetry.spans("run_prompt") == []
    start = (await events_of("x"))[:1]
    for number in range(MAX_OPEN_RUNS):
        observer(of_run(start, f"later-{number}")[0])
    (span,) = telemetry.spans("run_prompt")
    assert (span.attributes or {})["promptkit.outcome"] == "unobserved"
    assert span.status.status_code is StatusCode.UNSET


async def test_events_of_a_run_that_is_no_longer_open_do_no_harm(telemetry: Telemetry) -> None:
    events = await events_of("x")
    observer = telemetry.observer()
    for event in events[1:]:  # its start was never told
        observer(event)
    assert [span.name for span in telemetry.spans()] == ["chat warm-model"]
    assert telemetry.points("promptkit.run.duration") == []


async def test_the_newest_parents_are_kept_for_links(telemetry: Telemetry) -> None:
    events = [event for event in await events_of("x") if isinstance(event, RunStarted | RunFinished)]
    observer = telemetry.observer()
    for number in range(MAX_PARENTS + 1):
        for event in of_run(events, f"run-{number}"):
            observer(event)
    telemetry.exporter.clear()
    for parent in ("run-1", "run-0", f"run-{MAX_PARENTS}"):
        for event in of_run(events, f"child of {parent}", parent):
            observer(event)
    assert [len(span.links) for span in telemetry.spans()] == [1, 0, 1]
    assert len(observer._parents) == MAX_PARENTS  # noqa: SLF001  # the bound is what the docstring says


async def test_a_dropped_observer_is_collected(telemetry: Telemetry) -> None:
    observer = telemetry.observer()
    for event in await events_of("x"):
        observer(event)
    seen = weakref.ref(observer)
    del observer
    gc.collect()
    assert seen() is None


async def test_many_threads_may_tell_it_events_at_once(telemetry: Telemetry) -> None:
    events = await events_of("x")
    observer = telemetry.observer()

    def tell(thread: int) -> None:
        for number in range(50):
            for event in of_run(events, f"{thread}-{number}"):
                observer(event)

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(telemetry.spans("run_prompt")) == len(telemetry.spans("chat")) == 400
    assert sum(point.count for point in telemetry.points("promptkit.run.duration")) == 400
    assert not observer._open  # noqa: SLF001  # nothing else shows a leak


async def test_one_observer_serves_a_coordination_and_its_requests(telemetry: Telemetry) -> None:
    observer = telemetry.observer()
    engine = Engine(small_catalog(), client=ScriptedClient("one", "two", "three"))
    first = await engine.run(ask(observer=observer, capture_exchange=True))
    request = CoordinateRequest(
        start=first.exchange, additional_turns=2, next=lambda turn: ask(observer=observer), observer=observer
    )
    await engine.coordinate(request)
    spans = telemetry.spans("run_prompt")
    assert [len(span.links) for span in spans] == [0, 1, 1]
    assert len(telemetry.spans("chat")) == 3


# ---------------------------------------------------------------- the package


def test_the_package_of_its_name_is_not_the_one_that_it_imports() -> None:
    assert opentelemetry.trace.__name__ == "opentelemetry.trace"
    assert vars(importlib.import_module("promptkit._opentelemetry.observer"))["trace"] is opentelemetry.trace


def test_without_the_extra_the_import_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import promptkit\n"
        "try: import promptkit.opentelemetry\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'promptkit-engine[opentelemetry]'" in done.stdout


def test_importing_promptkit_does_not_import_opentelemetry() -> None:
    program = "import sys, promptkit; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_providers_that_are_set_later_are_used() -> None:
    program = (
        "import anyio\n"
        "from opentelemetry import metrics, trace\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "from promptkit import Engine, RunRequest\n"
        "from promptkit.opentelemetry import OpenTelemetryObserver\n"
        "from promptkit.testing import ScriptedClient\n"
        "from servers.catalogs import small_catalog\n"
        "observer = OpenTelemetryObserver()\n"
        "exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()\n"
        "tracers = TracerProvider()\n"
        "tracers.add_span_processor(SimpleSpanProcessor(exporter))\n"
        "trace.set_tracer_provider(tracers)\n"
        "metrics.set_meter_provider(MeterProvider([reader]))\n"
        "request = RunRequest(prompt_id='more', observer=observer)\n"
        "anyio.run(Engine(small_catalog(), client=ScriptedClient('x')).run, request)\n"
        "print([span.name for span in exporter.get_finished_spans()])\n"
        "print('promptkit.run.duration' in reader.get_metrics_data().to_json())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=__file__.rsplit("/", 2)[0]
    )
    assert done.stdout.splitlines() == ["['chat cold-model', 'run_prompt more']", "True"], done.stderr


def test_what_is_exported_is_documented_and_not_private() -> None:
    assert promptkit.opentelemetry.__all__ == ["OpenTelemetryObserver"]
    assert OpenTelemetryObserver.__doc__
    assert repr(OpenTelemetryObserver()) == "<promptkit.opentelemetry.OpenTelemetryObserver>"
