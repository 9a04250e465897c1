"""Decides whether telemetry is enabled, and opens it. OpenTelemetry is an optional extra that is imported only then.

If the configuration names a collector and the extra is not installed, the gateway does not start. If only the
environment names a collector, it logs a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol

from antiphon.config import Config
from antiphon.errors import ConfigError
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.logger import Logger
from antiphon.ops.metrics import Metrics


class Telemetry(Protocol):
    """Receives the start and end of turns."""

    def start_turn(self, log_entry: RequestLog) -> dict[str, str]:
        """Called when a turn starts. Returns the headers with which its upstream can join the trace."""
        ...

    def end_request(self, log_entry: RequestLog) -> None:
        """Called when a request has ended."""
        ...

    async def close(self) -> None: ...


OTEL_MODULE: Final = "antiphon.ops.otel"
TelemetryOpener = Callable[[Config, Mapping[str, str], Metrics, Logger], Telemetry | None]


def is_telemetry_enabled(config: Config, environ: Mapping[str, str]) -> bool:
    """Whether the configuration or the environment names a collector."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return bool(config.telemetry.otlp_endpoint or any(environ.get(name) for name in ENDPOINT_VARIABLES))


def check_telemetry(config: Config, environ: Mapping[str, str], library: str = OTEL_MODULE) -> None:
    """Raises if telemetry is configured and its packages are missing."""
    if config.telemetry.otlp_endpoint and is_telemetry_enabled(config, environ):
        try:
            import_module(library)
        except ImportError as error:
            raise ConfigError(
                f"[telemetry]: OpenTelemetry is not installed: pip install 'antiphon[otel]' ({error})"
            ) from None


def open_telemetry(
    config: Config, environ: Mapping[str, str], metrics: Metrics, logger: Logger, library: str = OTEL_MODULE
) -> Telemetry | None:
    """Opens telemetry. None if it is disabled or not installed."""
    if not is_telemetry_enabled(config, environ):
        return None
    check_telemetry(config, environ, library)
    try:
        otel = import_module(library)
    except ImportError as error:
        message = (
            "the environment names an OpenTelemetry collector, but OpenTelemetry is not installed: pip install "
            "'antiphon[otel]'"
        )
        logger.event(message, level="warning", reason=str(error))
        return None
    telemetry: Telemetry = otel.open_exporter(config, metrics)
    return telemetry


ENDPOINT_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
