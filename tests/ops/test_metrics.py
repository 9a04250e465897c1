"""`GET /metrics`: which values are counted, under which names, and who may read them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.ops import prometheus_text
from tests.ops.prometheus_text import Family
from tests.running import Running, running, until
from tests.running import one_upstream as config_of_one_upstream
from tests.websocket_client import open_websocket

from antiphon.config import Config, KeyConfig, StoreConfig, UpstreamConfig
from antiphon.errors import StorageUnavailable
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.exposition import SharedMetrics
from antiphon.ops.metrics import MAX_CODES, MAX_MODELS, Metrics, timed_store
from antiphon.testing import ChatServer

pytestmark = pytest.mark.without_coverage
PATHS = [
    *("/v1/responses", "/v1/responses/{id}", "/v1/responses/{id}/input_items", "/v1/responses/input_tokens"),
    *("/v1/models/{model}", "/v1/models/{model}:countTokens"),
]
METRICS_KEY = {"METRICS_KEY": "the-key-of-metrics"}
TURN = {"endpoint": "/v1/responses", "model": "m", "upstream": "lab"}


def a_line(**fields: Any) -> RequestLog:
    usual = {"request_id": "req_1", "method": "POST", "path": "/v1/responses", "status": 200, "duration_ms": 20.0}
    return RequestLog(**{**usual, "model": "m", "upstream": "lab", **fields})


def measured(*lines: RequestLog, models: Sequence[str] = ()) -> dict[str, Family]:
    metrics = Metrics(models)
    metrics.register_paths(PATHS)
    for line in lines:
        metrics.count_request(line)
    return prometheus_text.read(metrics.render().decode())


def one_upstream(base_url: str) -> Config:
    config = config_of_one_upstream(base_url)
    return replace(config, server=replace(config.server, metrics_key_env="METRICS_KEY"))


def scraped(gateway: Running, **headers: str) -> dict[str, Family]:
    """The metrics, as the operator sees them; tests that need it give the gateway the key."""
    headers = headers or {"authorization": f"Bearer {METRICS_KEY['METRICS_KEY']}"}
    answer = gateway.get("/metrics", **headers)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return prometheus_text.read(answer.text)


# Counters


def test_requests_are_counted_by_status() -> None:
    lines = [
        a_line(),
        a_line(),
        a_line(status=502, error="upstream_unavailable"),
        a_line(status=None, client_disconnected=True),
    ]
    read = measured(*lines, a_line(method="WEBSOCKET"))
    requests = read["antiphon_requests_total"]
    assert requests.value(method="POST", status="2xx", **TURN) == 2
    assert requests.value(method="POST", status="5xx", **TURN) == 1
    assert requests.value(method="POST", status="none", **TURN) == 1
    assert requests.value(method="WEBSOCKET", status="2xx", **TURN) == 1
    assert read["antiphon_client_disconnects_total"].value(**TURN) == 1
    assert read["antiphon_request_duration_seconds"].value("_count", **TURN) == 5
    assert read["antiphon_request_duration_seconds"].value("_bucket", le="0.025", **TURN) == 5
    assert read["antiphon_request_duration_seconds"].value("_bucket", le="0.01", **TURN) == 0


def test_tokens_and_losses_are_summed() -> None:
    line = a_line(input_tokens=100, output_tokens=20, cached_tokens=80, reasoning_tokens=5, losses=2)
    read = measured(line, line, a_line())
    tokens = {
        type: read["antiphon_tokens_total"].value(type=type, **TURN)
        for type in ("input", "cached", "output", "reasoning")
    }
    assert tokens == {"input": 200, "cached": 160, "output": 40, "reasoning": 10}
    assert read["antiphon_losses_total"].value(**TURN) == 4


def test_errors_are_counted_by_code_including_those_inside_a_stream() -> None:
    read = measured(
        a_line(error="upstream_timeout"), a_line(status=400, error="invalid_json", model=None, upstream=None)
    )
    assert read["antiphon_errors_total"].value(code="upstream_timeout", upstream="lab") == 1
    assert read["antiphon_errors_total"].value(code="invalid_json", upstream="") == 1


def test_first_event_and_event_intervals_of_streams_are_measured() -> None:
    read = measured(
        a_line(duration_ms=1000.0, first_event_ms=200.0, events=11),
        a_line(duration_ms=90.0, first_event_ms=80.0),
        a_line(),
    )
    assert read["antiphon_first_event_seconds"].value("_count", **TURN) == 2
    assert read["antiphon_first_event_seconds"].value("_sum", **TURN) == pytest.approx(0.28)
    assert read["antiphon_between_events_seconds"].value("_count", **TURN) == 1
    assert read["antiphon_between_events_seconds"].value("_sum", **TURN) == pytest.approx(0.08)


# Names


def test_paths_are_labelled_by_their_route() -> None:
    paths = [
        "/v1/responses/resp_1",
        "/v1/responses/resp_2",
        "/v1/responses/resp_1/input_items",
        "/v1/responses/input_tokens",
        "/v1/models/lab/m:free",
        "/v1/models/lab/m:countTokens",
        "/x/y",
        "/v1/models/" + "m" * 512,  # longer than any route
    ]
    read = measured(*(a_line(method="GET", path=path, model=None, upstream=None) for path in paths))[
        "antiphon_requests_total"
    ]
    assert {dict(labels)["endpoint"]: count for (_, labels), count in read.samples.items()} == {
        "/v1/responses/{id}": 2,
        "/v1/responses/{id}/input_items": 1,
        "/v1/responses/input_tokens": 1,
        "/v1/models/{model}": 1,
        "/v1/models/{model}:countTokens": 1,
        "other": 2,
    }


def test_unknown_methods_share_one_label() -> None:
    lines = [a_line(method=method, status=405, model=None, upstream=None) for method in ("BREW", "WHEN", "BREW")]
    assert (
        measured(*lines)["antiphon_requests_total"].value(method="other", status="4xx", endpoint="/v1/responses") == 3
    )


def test_model_name_becomes_a_label_after_its_first_success() -> None:
    refused = a_line(model="dreamt-up", status=404, error="not_found")
    unknown = a_line(model="nobody-serves-it", upstream=None, status=404, error="model_not_found")
    failed = a_line(model="dreamt-up", error="upstream_error")
    listed = a_line(model="listed", status=502, error="upstream_error")
    read = measured(refused, unknown, failed, listed, refused, models=["listed"])["antiphon_requests_total"]
    counts = [(dict(labels)["model"], dict(labels)["status"], count) for (_, labels), count in read.samples.items()]
    assert sorted(counts) == [("", "4xx", 1), ("listed", "5xx", 1), ("other", "2xx", 1), ("other", "4xx", 2)]
    served = measured(a_line(model="new"), a_line(model="new", status=502, error="upstream_error"))[
        "antiphon_requests_total"
    ]
    assert served.value(model="new", status="2xx") == served.value(model="new", status="5xx") == 1


def test_number_of_label_values_is_limited() -> None:
    many = [a_line(model=f"model-{number}", error=None) for number in range(MAX_MODELS + 50)]
    long = a_line(model="m" * 1000)
    codes = [a_line(status=502, error=f"code_{number}") for number in range(MAX_CODES + 50)]
    read = measured(*many, long, *codes)
    assert len({dict(labels)["model"] for _, labels in read["antiphon_requests_total"].samples}) == MAX_MODELS + 1
    assert read["antiphon_requests_total"].value(model="other", status="2xx") == 51
    assert read["antiphon_errors_total"].value(code="other") == 50


# The store


class _Flaky:
    """The calls of a store that these tests use."""

    def __init__(self) -> None:
        self.name = "flaky"

    async def get(self, owner: str, id: str) -> str:
        return f"{owner} {id}"

    async def delete(self, owner: str, id: str) -> bool:
        raise StorageUnavailable(f"{owner} {id}")


def test_store_calls_are_timed_and_failures_counted() -> None:
    metrics = Metrics()
    store: Any = timed_store(_Flaky(), metrics)  # type: ignore[arg-type]

    async def ask() -> None:
        assert await store.get("alice", id="resp_1") == "alice resp_1"
        assert await store.get("alice", "resp_2") == "alice resp_2"
        with pytest.raises(StorageUnavailable):
            await store.delete("alice", "resp_1")

    asyncio.run(ask())
    assert store.name == "flaky"
    with pytest.raises(AttributeError):
        _ = store.nothing
    read = prometheus_text.read(metrics.render().decode())
    assert read["antiphon_store_duration_seconds"].value("_count", operation="get") == 2
    assert read["antiphon_store_failures_total"].value(operation="get") == 0
    assert read["antiphon_store_failures_total"].value(operation="delete") == 1


# Several processes


def test_metrics_of_processes_are_shared_and_never_decrease(tmp_path: Path) -> None:
    async def serve() -> list[float]:
        ours, theirs = (Metrics(shared=SharedMetrics(tmp_path, pid)) for pid in (os.getpid(), os.getppid()))
        ours.add_gauge("room", "Room.", lambda: 1)
        theirs.add_gauge("room", "Room.", lambda: 2)
        ours.start()
        theirs.start()
        values = []
        for metrics in (ours, theirs, theirs, ours):
            metrics.count_request(a_line())
            read = prometheus_text.read(metrics.render().decode())
            values.append(read["antiphon_requests_total"].value(status="2xx"))
            assert read["room"].value() == 3
        ours.stop()
        theirs.count_request(a_line())
        read = prometheus_text.read(theirs.render().decode())
        assert read["room"].value() == 2
        theirs.stop()
        return [*values, read["antiphon_requests_total"].value(status="2xx")]

    # Unrequested changes are shared within a second; shared values never decrease.
    assert asyncio.run(serve()) == [1, 2, 3, 4, 5]


def test_single_process_writes_no_shared_metrics() -> None:
    metrics = Metrics()
    metrics.start()
    metrics.stop()
    assert b"antiphon_build_info" in metrics.render()


# Over HTTP


@pytest.mark.io
def test_gateway_exposes_request_and_process_metrics() -> None:
    with ChatServer() as chat, running(one_upstream(chat.base_url), environ=METRICS_KEY) as gateway:
        assert gateway.post({"model": "m", "input": "Hello"}).status_code == 200
        assert gateway.post({"model": "m", "input": "Hello", "stream": True}).status_code == 200
        assert gateway.post({"model": "m", "input": 1}).status_code == 400
        assert gateway.get("/v1/responses/resp_1").status_code == 404
        gateway.requests(4)
        read = scraped(gateway)
        assert read["antiphon_requests_total"].value(method="POST", status="2xx", **TURN) == 2
        assert read["antiphon_tokens_total"].value(type="output", **TURN) > 0
        assert read["antiphon_first_event_seconds"].value("_count", **TURN) == 1
        assert read["antiphon_between_events_seconds"].value("_count", **TURN) == 1
        assert read["antiphon_errors_total"].value(code="invalid_value", upstream="") == 1
        assert read["antiphon_requests_in_flight"].value() == 1
        assert read["antiphon_upstream_connections"].value() == 1
        assert read["antiphon_upstream_connections_in_use"].value() == 0
        assert read["process_resident_memory_bytes"].value() > 1_000_000
        assert read["process_cpu_seconds_total"].value() > 0
        assert scraped(gateway)["antiphon_requests_total"].value(endpoint="/metrics", status="2xx") == 1


@pytest.mark.io
def test_websocket_turns_and_open_websockets_are_counted() -> None:
    with ChatServer() as chat, running(one_upstream(chat.base_url), environ=METRICS_KEY) as gateway:
        with open_websocket(gateway.port, "/v1/responses") as socket:
            socket.send(msgspec.json.encode({"type": "response.create", "model": "m", "input": "Hello"}).decode())
            gateway.requests(1)
            read = scraped(gateway)
            assert read["antiphon_websockets"].value() == 1
            assert read["antiphon_requests_total"].value(method="WEBSOCKET", status="2xx", **TURN) == 1
        until(lambda: scraped(gateway)["antiphon_websockets"].value() == 0)


@pytest.mark.io
def test_gateway_exposes_store_metrics(tmp_path: Path) -> None:
    with ChatServer() as chat:
        config = replace(one_upstream(chat.base_url), store=StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db"))
        with running(config, environ=METRICS_KEY) as gateway:
            id = gateway.post({"model": "m", "input": "Hello"}).json()["id"]
            assert gateway.get(f"/v1/responses/{id}").status_code == 200
            read = scraped(gateway)
    assert read["antiphon_store_duration_seconds"].value("_count", operation="save") == 1
    assert read["antiphon_store_failures_total"].value(operation="get") == 0


@pytest.mark.io
def test_configured_models_are_labels_from_the_start() -> None:
    upstream = UpstreamConfig(name="away", dialect="chat", base_url="http://127.0.0.1:1/v1", models=["far", "far-*"])
    with running(replace(one_upstream("http://127.0.0.1:1/v1"), upstreams=[upstream]), environ=METRICS_KEY) as gateway:
        for model in ("far", "far-away"):
            assert gateway.post({"model": model, "input": "Hello"}).status_code == 502
        requests = scraped(gateway)["antiphon_requests_total"]
        assert requests.value(model="far", status="5xx") == requests.value(model="other", status="5xx") == 1


@pytest.mark.io
@pytest.mark.parametrize("is_public", [False, True])
def test_metrics_require_a_key_unless_public(is_public: bool) -> None:
    config = replace(one_upstream("http://127.0.0.1:1/v1"), keys=[KeyConfig(name="alice", env="ALICE")])
    config = replace(config, server=replace(config.server, public_metrics=is_public))
    with running(config, environ={"ALICE": "the-key-of-alice", **METRICS_KEY}) as gateway:
        assert gateway.get("/metrics").status_code == (200 if is_public else 401)
        assert gateway.get("/v1/models").status_code == 401
        assert "antiphon_errors_total" in scraped(gateway, authorization="Bearer the-key-of-alice")


@pytest.mark.io
@pytest.mark.parametrize("is_public", [False, True])
def test_only_the_key_of_the_metrics_shows_the_names_of_models(is_public: bool) -> None:
    with ChatServer() as chat:
        config = replace(one_upstream(chat.base_url), keys=[KeyConfig(name="alice", env="ALICE")])
        config = replace(config, server=replace(config.server, public_metrics=is_public))
        with running(config, environ={"ALICE": "the-key-of-alice", **METRICS_KEY}) as gateway:
            alice = {"authorization": "Bearer the-key-of-alice"}
            for model in ("secret-1", "secret-2"):
                assert gateway.post({"model": model, "input": "Hello"}, **alice).status_code == 200
            named = scraped(gateway)["antiphon_requests_total"]
            masked = scraped(gateway, **alice)
            assert gateway.get("/v1/models", authorization="Bearer the-key-of-metrics").status_code == 401
            text = gateway.get("/metrics", **({} if is_public else alice)).text
    assert named.value(model="secret-1", status="2xx") == named.value(model="secret-2", status="2xx") == 1
    assert masked["antiphon_requests_total"].value(model="other", status="2xx") == 2
    assert masked["antiphon_request_duration_seconds"].value("_count", model="other") == 2
    assert "secret" not in text


@pytest.mark.io
def test_metrics_contain_no_content_and_no_keys() -> None:
    with ChatServer() as chat:
        config = replace(one_upstream(chat.base_url), keys=[KeyConfig(name="alice", env="ALICE")])
        with running(config, environ={"ALICE": "the-key-of-alice", **METRICS_KEY}) as gateway:
            key = {"authorization": "Bearer the-key-of-alice"}
            gateway.post({"model": "m", "input": "my secret plan", "metadata": {"a": "hidden"}}, **key)
            gateway.post({"model": "my secret plan", "input": 7}, **key)
            text = gateway.get("/metrics", **key).text
    for word in ("secret", "hidden", "the-key", "alice"):
        assert word not in text
