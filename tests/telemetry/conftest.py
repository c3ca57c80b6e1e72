"""An observer whose spans and measurements stay in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from promptkit.opentelemetry import OpenTelemetryObserver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan


class Telemetry:
    """An SDK that exports into memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def observer(self, **options: Any) -> OpenTelemetryObserver:
        return OpenTelemetryObserver(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, start: str = "") -> list[ReadableSpan]:
        """Give the ended spans whose names start so, in the order of their ends."""
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(start)]

    def points(self, name: str) -> list[HistogramDataPoint]:
        """Give what a histogram has counted, by its attributes."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        found = [point for scope in scopes for metric in scope.metrics if metric.name == name for point in _of(metric)]
        return sorted(found, key=lambda point: sorted((point.attributes or {}).items(), key=str))

    def everything(self) -> str:
        """Give all that was exported, as one text."""
        data = self.reader.get_metrics_data()
        return "\n".join([*(span.to_json() for span in self.spans()), data.to_json() if data else ""])


def _of(metric: Any) -> list[HistogramDataPoint]:
    return [point for point in metric.data.data_points if isinstance(point, HistogramDataPoint)]


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()
