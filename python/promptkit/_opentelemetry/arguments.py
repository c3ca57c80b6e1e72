"""What an observer is made with: refused, with the remedy, where it would otherwise fail at the first event."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from promptkit._load_catalog import Catalog
from promptkit._values.frozen import shown
from promptkit.errors import InvalidRequestError, listed, near

_INSTEAD = {
    "TracerProvider": "TracerProvider() with a span processor",
    "MeterProvider": "MeterProvider(metric_readers=[...])",
}


def expect_arguments(catalog: object, providers: object, tracer_provider: object, meter_provider: object) -> None:
    """Raise InvalidRequestError for what an observer could do nothing with."""
    backends = catalog.backends if isinstance(catalog, Catalog) else None
    faults = (
        _fault_of_catalog(catalog),
        _fault_of_providers(providers, backends),
        _fault_of_provider("tracer_provider", tracer_provider, "TracerProvider", "get_tracer"),
        _fault_of_provider("meter_provider", meter_provider, "MeterProvider", "get_meter"),
    )
    for fault in faults:
        if fault is not None:
            msg = f"OpenTelemetryObserver: {fault}"
            raise InvalidRequestError(msg)


def _fault_of_catalog(given: object) -> str | None:
    if given is None or isinstance(given, Catalog):
        return None
    return f"catalog: Expected a Catalog, got `{type(given).__name__}`: give what the engine was given"


def _fault_of_providers(given: object, backends: Collection[str] | None) -> str | None:
    """Its keys are ids of backends: one that the catalog lacks is a slip of the pen."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        return f"providers: Expected a mapping of ids of backends to names of providers, got `{kind}`"
    for backend, name in given.items():
        if not isinstance(name, str):
            kind = type(name).__name__
            return f"providers[{shown(backend)}]: Expected the name of a provider, a str, got `{kind}`"
        if backends is not None and backend not in backends:
            meant = near(str(backend)[:100], backends)
            hint = f"did you mean {meant!r}? " if meant else ""
            lacks = f"there is no backend {shown(backend)} in the catalog"
            return f"providers: {lacks}: {hint}the backends are: {listed(backends)}"
    return None


def _fault_of_provider(place: str, given: object, expected: str, method: str) -> str | None:
    if given is None or (callable(getattr(given, method, None)) and not isinstance(given, type)):
        return None
    kind = f"the class `{given.__name__}`" if isinstance(given, type) else f"`{type(given).__name__}`"
    made = any(callable(getattr(given, name, None)) for name in ("start_span", "create_counter"))
    remedy = "give the provider that made it"
    if not made:
        remedy = f"give {_INSTEAD[expected]}, or nothing for the program's own"
    return f"{place}: Expected a {expected}, got {kind}: {remedy}"
