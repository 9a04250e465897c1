"""Exports OpenTelemetry: one span for each turn, embedding or text completion, and metrics, by the semantic conventions
for generative AI.

This module is imported only if telemetry is enabled, so that the SDK is optional. The SDK exports in its own threads
and drops what it cannot send, so no answer waits for a collector. Spans have the same fields as the log: no content and
no keys.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from antiphon import __version__
from antiphon.config import Config
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.gateway.client_body import is_turn_path
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.metrics import Metrics
from antiphon.redaction import mask_keys

Attributes = dict[str, AttributeValue]


def open_exporter(config: Config, metrics: Metrics) -> OtelTelemetry:
    """Opens an exporter to the configured collector, else to the one that the `OTEL_…` variables name."""
    base = (config.telemetry.otlp_endpoint or "").rstrip("/")
    span_exporter = OTLPSpanExporter(endpoint=f"{base}/v1/traces" if base else None)
    metric_exporter = OTLPMetricExporter(endpoint=f"{base}/v1/metrics" if base else None)
    reader = PeriodicExportingMetricReader(metric_exporter)
    return OtelTelemetry(
        BatchSpanProcessor(span_exporter),
        reader,
        metrics,
        provider_names(config),
        propagates=config.telemetry.propagate,
    )


def provider_names(config: Config) -> dict[str, str]:
    """The provider name of each upstream: the name of its profile, or of the upstream if its profile is generic."""
    return {
        upstream.name: upstream.name if upstream.profile_name in GENERIC_PROFILES else Path(upstream.profile_name).stem
        for upstream in config.upstreams
    }


class OtelTelemetry:
    """Spans and metrics of turns. `providers` names the provider of each upstream; `metrics` decides which models are
    labels."""

    def __init__(
        self,
        span_processor: SpanProcessor,
        reader: MetricReader,
        metrics: Metrics,
        providers: Mapping[str, str],
        *,
        propagates: bool = False,
    ) -> None:
        resource = Resource({"service.name": "antiphon", "service.version": __version__}).merge(
            OTELResourceDetector().detect()
        )
        self._tracer_provider = TracerProvider(resource=resource)
        self._tracer_provider.add_span_processor(span_processor)
        self._meter_provider = MeterProvider(metric_readers=[reader], resource=resource)
        self._metrics = metrics
        self._providers = providers
        self._propagates = propagates
        self._open_spans: dict[str, Span] = {}  # by the id of the request
        self._tracer = self._tracer_provider.get_tracer("antiphon", __version__)
        meter = self._meter_provider.get_meter("antiphon", __version__)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Input and output tokens.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
        )
        self._duration, self._first_event, self._per_token = (
            meter.create_histogram(
                f"gen_ai.server.{name}", "s", description, explicit_bucket_boundaries_advisory=bounds
            )
            for name, description, bounds in HISTOGRAMS
        )

    def start_turn(self, log_entry: RequestLog) -> dict[str, str]:
        """Starts the span of a turn, or of a request for embeddings or a text completion."""
        if operation_name(log_entry.path) is None:
            return {}
        span = self._open_spans[log_entry.request_id] = self._start_span(log_entry)
        headers: dict[str, str] = {}
        if self._propagates:
            PROPAGATOR.inject(headers, context=set_span_in_context(span))
        return headers

    def end_request(self, log_entry: RequestLog) -> None:
        """Ends the span of a turn. Other requests are ignored."""
        span = self._open_spans.pop(log_entry.request_id, None)
        if span is None:
            if log_entry.model is None or operation_name(log_entry.path) is None:
                return
            span = self._start_span(log_entry)  # it failed before `start_turn`
        self._set_attributes(span, log_entry)
        span.end(int((log_entry.time + (log_entry.duration_ms or 0) / 1000) * 1e9))
        self._record_metrics(log_entry)

    async def close(self) -> None:
        """Sends what is left, for at most `CLOSE_TIMEOUT` seconds."""
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut_down() -> None:
            self._tracer_provider.shutdown()
            self._meter_provider.shutdown(timeout_millis=CLOSE_TIMEOUT * 1000)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

        threading.Thread(
            target=shut_down, daemon=True
        ).start()  # a daemon: a collector that hangs does not keep the process alive
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), CLOSE_TIMEOUT)

    def _start_span(self, log_entry: RequestLog) -> Span:
        parent = PROPAGATOR.extract({"traceparent": log_entry.traceparent}) if log_entry.traceparent else None
        return self._tracer.start_span(
            f"{operation_name(log_entry.path)} {_mask_name(log_entry.model or '')}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes=self._shared_attributes(log_entry),
            start_time=int(log_entry.time * 1e9),
        )

    def _shared_attributes(self, log_entry: RequestLog) -> Attributes:
        """The attributes that spans and metrics share."""
        labels: Attributes = {"gen_ai.operation.name": operation_name(log_entry.path) or "chat"}
        if log_entry.model is not None:
            labels["gen_ai.request.model"] = _mask_name(log_entry.model)
        if log_entry.upstream is not None:
            labels["gen_ai.provider.name"] = self._providers.get(log_entry.upstream, log_entry.upstream)
        if log_entry.error is not None:
            labels["error.type"] = log_entry.error
        return labels

    def _set_attributes(self, span: Span, log_entry: RequestLog) -> None:
        attributes: dict[str, AttributeValue | None] = {
            "gen_ai.response.id": log_entry.response_id,
            "gen_ai.usage.input_tokens": log_entry.input_tokens,
            "gen_ai.usage.output_tokens": log_entry.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": log_entry.cached_tokens or None,
            "gen_ai.usage.cache_creation.input_tokens": log_entry.cache_write_tokens or None,
            "gen_ai.usage.reasoning.output_tokens": log_entry.reasoning_tokens or None,
            "gen_ai.response.time_to_first_chunk": None
            if log_entry.first_event_ms is None
            else log_entry.first_event_ms / 1000,
            "http.response.status_code": log_entry.status,
            "http.request.method": log_entry.method,
            "antiphon.request.id": log_entry.request_id,
            "antiphon.upstream": log_entry.upstream,
            "antiphon.losses": log_entry.losses,
            "antiphon.attempts": len(log_entry.attempts) or None,
            "error.type": log_entry.error,
        }
        span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        for attempt in log_entry.attempts[:-1]:
            fields: dict[str, AttributeValue] = {
                "antiphon.attempt": attempt.number,
                "antiphon.upstream": attempt.upstream,
                "antiphon.outcome": attempt.outcome,
                "error.type": attempt.error or "",
            }
            span.add_event("antiphon.attempt_failed", fields)
        if log_entry.error is not None:
            span.set_status(Status(StatusCode.ERROR))

    def _record_metrics(self, log_entry: RequestLog) -> None:
        labels = self._shared_attributes(log_entry) | {"gen_ai.request.model": self._metrics.model_label(log_entry)}
        for type, count in (("input", log_entry.input_tokens), ("output", log_entry.output_tokens)):
            if count is not None:
                self._tokens.record(count, {**labels, "gen_ai.token.type": type})
        duration = (log_entry.duration_ms or 0) / 1000
        self._duration.record(duration, labels)
        if log_entry.first_event_ms is not None:
            first_event = log_entry.first_event_ms / 1000
            self._first_event.record(first_event, labels)
            if log_entry.output_tokens is not None and log_entry.output_tokens > 1:
                self._per_token.record((duration - first_event) / (log_entry.output_tokens - 1), labels)


def operation_name(path: str) -> str | None:
    """The conventional name of the operation at a path; None if requests to it have no span."""
    if is_turn_path(path):
        return "chat"
    return next((name for suffix, name in OPERATIONS if path.endswith(suffix)), None)


def _mask_name(name: str) -> str:
    """Masks keys in a name that a client sent, and limits its length."""
    return mask_keys(name, MAX_NAME)


MAX_NAME: Final = 200
#: The ends of paths that are no turns and have a span.
OPERATIONS: Final = (
    ("/embeddings", "embeddings"),
    ("/api/embed", "embeddings"),
    (":embedContent", "embeddings"),
    (":batchEmbedContents", "embeddings"),
    ("/v1/completions", "text_completion"),
)
GENERIC_PROFILES: Final = frozenset(
    dialect.default_profile for dialect in SERVER_DIALECTS.values()
)  # not named after a server
CLOSE_TIMEOUT: Final = 3.0  # seconds
PROPAGATOR: Final = TraceContextTextMapPropagator()
TOKEN_BOUNDS: Final = [4**power for power in range(14)]
DURATION_SECONDS: Final = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
FIRST_TOKEN_SECONDS: Final = [
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
]
NEXT_TOKEN_SECONDS: Final = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
HISTOGRAMS: Final = (
    ("request.duration", "From a request to the end of its answer.", DURATION_SECONDS),
    ("time_to_first_token", "From a request to the first event of its stream.", FIRST_TOKEN_SECONDS),
    ("time_per_output_token", "The mean time between two output tokens of a stream.", NEXT_TOKEN_SECONDS),
)
