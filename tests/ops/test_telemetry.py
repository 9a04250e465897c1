"""OpenTelemetry: one span per turn, the standard metrics, and no import where it is not configured."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.api.askers import ASKERS, Asker
from tests.running import Running, one_upstream, running, until
from tests.websocket_client import open_websocket

from antiphon.config import Config, KeyConfig, TelemetryConfig, UpstreamConfig
from antiphon.errors import ConfigError
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.logger import Logger
from antiphon.ops.metrics import Metrics
from antiphon.ops.otel import OtelTelemetry, open_exporter, provider_names
from antiphon.ops.telemetry import check_telemetry, is_telemetry_enabled, open_telemetry
from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ASKED = {"model": "m", "input": "my secret plan"}


class Collected:
    """The exported spans and metrics of a gateway."""

    def __init__(self, *, propagates: bool = False) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._propagates = propagates

    def open(self, config: Config, environ: Mapping[str, str], metrics: Metrics, logger: Logger) -> OtelTelemetry:
        del environ, logger
        spans = SimpleSpanProcessor(self._spans)
        return OtelTelemetry(spans, self._reader, metrics, provider_names(config), propagates=self._propagates)

    def spans(self, count: int) -> list[ReadableSpan]:
        until(lambda: len(self._spans.get_finished_spans()) >= count)
        assert len(self._spans.get_finished_spans()) == count
        return list(self._spans.get_finished_spans())

    def measures(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def gateway_with_telemetry(
    collected: Collected, config: Config, environ: Mapping[str, str] | None = None
) -> Iterator[Running]:
    with running(config, environ=environ, open_telemetry=collected.open) as gateway:
        yield gateway


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# Spans


@pytest.mark.parametrize("stream", [False, True])
def test_turn_is_one_span_with_the_conventional_attributes(stream: bool) -> None:
    collected = Collected()
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        answer = gateway.post({**ASKED, "stream": stream})
        [span] = collected.spans(1)
    assert (span.name, span.kind, span.status.status_code) == ("chat m", SpanKind.SERVER, StatusCode.UNSET)
    assert span.parent is None
    span_attributes = attributes(span)
    assert span_attributes["gen_ai.operation.name"] == "chat"
    assert span_attributes["gen_ai.provider.name"] == "lab"
    assert span_attributes["gen_ai.request.model"] == "m"
    assert span_attributes["gen_ai.response.id"].startswith("resp_")
    assert span_attributes["gen_ai.usage.input_tokens"] > 0
    assert span_attributes["gen_ai.usage.output_tokens"] > 0
    assert span_attributes["http.response.status_code"] == 200
    assert span_attributes["antiphon.request.id"] == answer.headers["x-request-id"]
    assert ("gen_ai.response.time_to_first_chunk" in span_attributes) == stream
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 < span.end_time - span.start_time < 60e9
    assert span.resource.attributes["service.name"] == "antiphon"


def test_client_trace_is_continued_but_not_propagated_upstream() -> None:
    collected = Collected()
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        assert gateway.post(ASKED, traceparent=PARENT).status_code == 200
        [span] = collected.spans(1)
        [seen] = chat.received
    assert span.context.trace_id == int("0af7651916cd43dd8448eb211c80319c", 16)
    assert span.parent is not None
    assert span.parent.span_id == int("b7ad6b7169203331", 16)
    assert "traceparent" not in seen.headers


@pytest.mark.parametrize("header", ["", "nonsense", "00-0-0-01", "é" * 100])
def test_invalid_traceparent_starts_a_new_trace(header: str) -> None:
    collected = Collected()
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        gateway.raw(
            b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntraceparent: %b\r\n\r\n"
            % header.encode("latin-1")
        )
        assert gateway.post(ASKED, traceparent=header.encode("ascii", "replace").decode()).status_code == 200
        [span] = collected.spans(1)
    assert span.parent is None


def test_trace_is_propagated_upstream_if_configured() -> None:
    collected = Collected(propagates=True)
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        assert gateway.post({**ASKED, "stream": True}, traceparent=PARENT).status_code == 200
        [span] = collected.spans(1)
        [seen] = chat.received
    assert seen.headers["traceparent"] == f"00-0af7651916cd43dd8448eb211c80319c-{span.context.span_id:016x}-01"


def test_websocket_turns_are_spans() -> None:
    collected = Collected()
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        with open_websocket(gateway.port, "/v1/responses", ("traceparent", PARENT)) as socket:
            for count in (1, 2):
                socket.send({"type": "response.create", **ASKED})
                spans = collected.spans(count)
    assert [attributes(span)["http.request.method"] for span in spans] == ["WEBSOCKET"] * 2
    assert {span.parent and span.parent.span_id for span in spans} == {int("b7ad6b7169203331", 16)}


@pytest.mark.parametrize("asker", ASKERS, ids=lambda asker: asker.dialect)
def test_turns_of_other_dialects_are_spans(asker: Asker) -> None:
    """Without keys, wherever they were sent."""
    collected = Collected()
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        asker.ask(gateway, **asker.key("the-key-of-alice"))
        gateway.post(
            asker.streamed, f"{asker.stream_path}{'&' if '?' in asker.stream_path else '?'}key=the-key-of-alice"
        )
        if asker.count_path:
            assert gateway.post(asker.asked, asker.count_path).status_code == 200
        spans = collected.spans(2)
    assert [attributes(span)["gen_ai.request.model"] for span in spans] == ["mock-1", "mock-1"]
    assert "the-key-of-alice" not in str([attributes(span) for span in spans])


def test_failed_turn_is_a_span_with_error_and_other_requests_have_no_span() -> None:
    collected = Collected()
    with gateway_with_telemetry(collected, one_upstream("http://127.0.0.1:1/v1")) as gateway:
        assert gateway.get("/health").status_code == 200
        assert gateway.post(ASKED, "/v1/responses/input_tokens").status_code == 200
        assert gateway.post({"input": "no model"}).status_code == 400
        assert gateway.post({**ASKED, "previous_response_id": "resp_1"}).status_code == 400
        assert gateway.post(ASKED).status_code == 502
        before, failed = collected.spans(2)
    assert attributes(before)["error.type"] == "previous_response_not_found"
    assert attributes(failed)["error.type"] == "upstream_unavailable"
    assert before.status.status_code == failed.status.status_code == StatusCode.ERROR


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [
        ("/v1/embeddings", {"model": "mock-1", "input": "text"}, "embeddings"),
        ("/api/embed", {"model": "mock-1", "input": "text"}, "embeddings"),
        ("/api/embeddings", {"model": "mock-1", "prompt": "text"}, "embeddings"),
        ("/v1beta/models/mock-1:embedContent", {"content": {"parts": [{"text": "text"}]}}, "embeddings"),
        (
            "/v1beta/models/mock-1:batchEmbedContents",
            {"requests": [{"content": {"parts": [{"text": "text"}]}}]},
            "embeddings",
        ),
        ("/v1/completions", {"model": "mock-1", "prompt": "text"}, "text_completion"),
    ],
)
def test_embeddings_and_completions_are_spans(path: str, body: dict[str, Any], operation: str) -> None:
    collected = Collected(propagates=True)
    with ChatServer() as upstream:
        with gateway_with_telemetry(collected, one_upstream(upstream.base_url)) as gateway:
            answer = gateway.post(body, path, traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
            assert answer.status_code == 200, answer.text
            [span] = collected.spans(1)
    assert span.name == f"{operation} mock-1"
    assert attributes(span)["gen_ai.operation.name"] == operation
    assert attributes(span)["antiphon.upstream"] == "lab"
    assert attributes(span)["antiphon.attempts"] == 1
    assert attributes(span)["gen_ai.usage.input_tokens"] > 0
    assert span.context is not None
    assert upstream.received[0].headers["traceparent"] == f"00-{'a' * 32}-{span.context.span_id:016x}-01"
    assert collected.measures()["gen_ai.server.request.duration"][0].attributes["gen_ai.operation.name"] == operation


def test_failed_embeddings_are_a_span_with_error() -> None:
    collected = Collected()
    with gateway_with_telemetry(collected, one_upstream("http://127.0.0.1:1/v1")) as gateway:
        assert gateway.post({"model": "m", "input": "text"}, "/v1/embeddings").status_code == 502
        [span] = collected.spans(1)
    assert attributes(span)["error.type"] == "upstream_unavailable"
    assert span.status.status_code == StatusCode.ERROR


def test_telemetry_contains_no_content_and_no_keys() -> None:
    collected = Collected(propagates=True)
    with ChatServer() as chat:
        config = one_upstream(chat.base_url, api_key_env="LAB")
        config = replace(config, keys=[KeyConfig(name="alice", env="ALICE")])
        environ = {"ALICE": "the-key-of-alice", "LAB": "the-key-of-lab"}
        with gateway_with_telemetry(collected, config, environ) as gateway:
            key = {"authorization": "Bearer the-key-of-alice"}
            gateway.post({**ASKED, "instructions": "hidden", "metadata": {"a": "hidden"}}, **key)
            gateway.post({"model": "sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "input": "hidden"}, **key)
            gateway.post({"model": "m" * 5000, "input": "hidden"}, **key)
            exported = str([(span.name, attributes(span)) for span in collected.spans(3)]) + str(collected.measures())
    for word in ("secret", "hidden", "the-key", "sk-aaaa", "m" * 300):
        assert word not in exported


# Metrics


def test_turn_metrics_follow_the_conventions() -> None:
    collected = Collected()
    with ChatServer() as chat, gateway_with_telemetry(collected, one_upstream(chat.base_url)) as gateway:
        gateway.post(ASKED)
        gateway.post({**ASKED, "stream": True})
        collected.spans(2)
        metrics = collected.measures()
    assert set(metrics) == {
        "gen_ai.client.token.usage",
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
    }
    assert {point.attributes["gen_ai.token.type"] for point in metrics["gen_ai.client.token.usage"]} == {
        "input",
        "output",
    }
    [duration] = metrics["gen_ai.server.request.duration"]
    assert duration.count == 2
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "lab",
    }
    [first] = metrics["gen_ai.server.time_to_first_token"]
    assert first.count == 1


def test_unknown_models_share_one_label_in_metrics() -> None:
    collected = Collected()
    otel = collected.open(Config(), {}, Metrics(["m"]), Logger(io.StringIO()))
    for model in ("m", "made-up", "dreamt-up"):
        line = RequestLog(
            request_id="req_1", method="POST", path="/v1/responses", model=model, upstream="lab", status=404, error="e"
        )
        otel.end_request(line)
    labels = [
        point.attributes["gen_ai.request.model"] for point in collected.measures()["gen_ai.server.request.duration"]
    ]
    assert sorted(labels) == ["m", "other"]


def test_provider_name_comes_from_profile_or_upstream() -> None:
    upstreams = [
        UpstreamConfig(name="mine", dialect="chat", base_url="http://a/v1"),
        UpstreamConfig(name="theirs", dialect="responses", base_url="http://a/v1", profile="openai"),
        UpstreamConfig(name="filed", dialect="chat", base_url="http://a/v1", profile="/some/where/lab.toml"),
    ]
    assert provider_names(Config(upstreams=upstreams)) == {"mine": "mine", "theirs": "openai", "filed": "lab"}


# Whether it is enabled


def with_endpoint(endpoint: str | None) -> Config:
    return Config(telemetry=TelemetryConfig(otlp_endpoint=endpoint))


def test_telemetry_is_enabled_by_an_endpoint() -> None:
    assert not is_telemetry_enabled(Config(), {})
    assert not is_telemetry_enabled(Config(), {"OTEL_EXPORTER_OTLP_ENDPOINT": ""})
    assert is_telemetry_enabled(with_endpoint("http://localhost:4318"), {})
    assert is_telemetry_enabled(Config(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})
    assert is_telemetry_enabled(Config(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"})
    assert not is_telemetry_enabled(with_endpoint("http://localhost:4318"), {"OTEL_SDK_DISABLED": "true"})


def test_missing_extra_is_an_error_if_configured_and_a_warning_otherwise() -> None:
    config, log = with_endpoint("http://localhost:4318"), io.StringIO()
    with pytest.raises(ConfigError, match=r"pip install 'antiphon\[otel\]'"):
        check_telemetry(config, {}, "antiphon.no_such_module")
    check_telemetry(Config(), {}, "antiphon.no_such_module")
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    assert open_telemetry(Config(), environ, Metrics(), Logger(log, "json"), "antiphon.no_such_module") is None
    assert "antiphon[otel]" in log.getvalue()
    assert open_telemetry(Config(), {}, Metrics(), Logger(log, "json"), "antiphon.no_such_module") is None


def test_opentelemetry_is_not_imported_if_disabled() -> None:
    program = (
        "import sys; from antiphon.api.serve_api import make_app; from antiphon.config import Config, StoreConfig;"
        "make_app(Config(store=StoreConfig(url='off')), {}, {}, False);"
        "print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout == "[]\n"


# A collector


class _Collector(BaseHTTPRequestHandler):
    paths: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert body
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


def test_spans_and_metrics_are_exported_at_shutdown() -> None:
    paths: list[str] = []
    collector = HTTPServer(("127.0.0.1", 0), type("Collector", (_Collector,), {"paths": paths}))
    thread = threading.Thread(target=collector.serve_forever, daemon=True)
    thread.start()
    try:
        telemetry = TelemetryConfig(otlp_endpoint=f"http://127.0.0.1:{collector.server_port}/")
        with ChatServer() as chat, running(replace(one_upstream(chat.base_url), telemetry=telemetry)) as gateway:
            assert gateway.post(ASKED).status_code == 200
    finally:
        collector.shutdown()
        collector.server_close()
        thread.join()
    assert {"/v1/traces", "/v1/metrics"} <= set(paths)


def test_unresponsive_collector_does_not_block_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    import antiphon.ops.otel as module

    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.05)
    silent = threading.Event()

    async def serve() -> None:
        otel = open_exporter(with_endpoint("http://127.0.0.1:1"), Metrics())
        monkeypatch.setattr(otel._tracer_provider, "shutdown", lambda: silent.wait(600))
        await otel.close()

    asyncio.run(asyncio.wait_for(serve(), 60))
    silent.set()
