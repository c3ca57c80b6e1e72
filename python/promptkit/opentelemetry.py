"""Traces and metrics of runs for OpenTelemetry: an observer that tells what events say, never what was said.

Needs ``opentelemetry-api`` (``pip install 'promptkit-engine[opentelemetry]'``). Without an SDK in the program it emits
nothing. What it emits, and when: docs/guides/telemetry.md.

>>> from promptkit import RunRequest
>>> request = RunRequest(prompt_id="ask", observer=OpenTelemetryObserver())
"""

try:
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401  # asked for here, where the answer can say what to do
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "opentelemetry":
        raise
    _message = (
        "promptkit.opentelemetry needs opentelemetry-api: pip install 'promptkit-engine[opentelemetry]' "
        "(in a clone: pip install '.[opentelemetry]')"
    )
    raise ImportError(_message, name=_error.name) from _error

from promptkit._opentelemetry.observer import OpenTelemetryObserver

__all__ = ["OpenTelemetryObserver"]
