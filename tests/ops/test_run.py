"""Starting and stopping processes: the socket first, one process or several, an orderly stop. The gateways are real
processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.ops import prometheus_text
from tests.ops.served_process import START, gateway
from tests.running import BOUND, one_upstream, running, until

from antiphon import testing
from antiphon.api.serve_api import serve_api
from antiphon.config import Config, ServerConfig, default_config
from antiphon.errors import ConfigError
from antiphon.ops.run import bound_listener, embedded_models, listener_url
from antiphon.testing import ChatServer, Gate, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


def on(host: str, port: int = 0) -> Config:
    return Config(server=ServerConfig(host=host, port=port))


# The socket


def test_port_in_use_is_refused_with_a_remedy() -> None:
    with bound_listener(on("127.0.0.1")) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"127\.0\.0\.1 port {port}.*--port"),
            bound_listener(on("127.0.0.1", port)),
        ):
            pass


def test_port_can_be_bound_again_at_once() -> None:
    with bound_listener(on("127.0.0.1")) as first:
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            first.accept()[0].close()  # the server's side closes first, so its port stays in TIME_WAIT
    with bound_listener(on("127.0.0.1", port)) as second:
        assert second.getsockname()[1] == port


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-name.invalid"])
def test_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.host.*not an address of this machine"), bound_listener(on(host)):
        pass


def test_forbidden_port_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ConfigError, match=r"port 80: Permission denied.*--port"), bound_listener(on("127.0.0.1", 80)):
        pass


def test_listener_url_is_usable_by_clients() -> None:
    for host in ("127.0.0.1", "0.0.0.0", "localhost"):
        with bound_listener(on(host)) as server_socket:
            url = listener_url(server_socket)
            assert url in (
                f"http://127.0.0.1:{server_socket.getsockname()[1]}",
                f"http://[::1]:{server_socket.getsockname()[1]}",
            )


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_listener_url_of_ipv6_has_brackets(host: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:  # a machine without IPv6 refuses
        with pytest.raises(ConfigError, match=re.escape(host)), bound_listener(on(host)):
            pass
        return
    with bound_listener(on(host)) as server_socket:
        assert listener_url(server_socket) == f"http://[::1]:{server_socket.getsockname()[1]}"


def test_embedded_models_start_only_if_configured() -> None:
    with embedded_models(one_upstream("http://127.0.0.1:1/v1"), {}) as places:
        assert places == {}


def test_port_in_use_is_refused_before_the_model_starts() -> None:
    """The socket comes first: the refusal precedes the loading of a model, and no address is announced."""
    announced: list[str] = []
    with bound_listener(on("127.0.0.1")) as taken:
        config = msgspec.structs.replace(default_config({}), server=ServerConfig(port=taken.getsockname()[1]))
        with pytest.raises(ConfigError, match="cannot listen"):
            serve_api(config, announce=announced.append, environ={})
    assert announced == []


# Processes


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_single_process_announces_answers_and_stops(how: signal.Signals) -> None:
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url)) as served:
        assert served.url.startswith("http://127.0.0.1:")
        assert served.get("/health").status_code == 200
        answers = [served.post(), served.post(stream=True), served.post(model=5)]
        assert [answer.status_code for answer in answers] == [200, 200, 400]
        assert served.workers() == set()
        assert served.stop(how) == "over\n"
        upstream.wait_closed()
        lines = [line for line in served.log if line["event"] == "request"]
    assert [line["path"] for line in lines] == ["/health", *["/v1/responses"] * 3]
    assert [line["request_id"] for line in lines[1:]] == [answer.headers["x-request-id"] for answer in answers]


def test_parser_refusals_are_logged_by_a_real_gateway() -> None:
    """HTTP-8."""
    with gateway(one_upstream("http://127.0.0.1:1/v1")) as served:
        with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), timeout=BOUND) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 400 ")
        served.stop()
        ids = [line["request_id"] for line in served.log if line["event"] == "refused"]
    assert len(ids) == 1
    assert f"x-request-id: {ids[0]}".encode() in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"this is not HTTP\r\n\r\n",
        b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ],
    ids=["health", "not found", "parser refusal", "websocket"],
)
def test_every_answer_forbids_browsers_to_guess_and_embed_it(request_bytes: bytes) -> None:
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway, gateway.connect() as connection:
        connection.sendall(request_bytes)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
    assert b"\r\nx-content-type-options: nosniff\r\n" in head.lower()
    assert b"\r\ncross-origin-resource-policy: same-origin\r\n" in head.lower()


def test_process_survives_invalid_requests() -> None:
    """Invariant 6."""
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url)) as served:
        port = int(served.url.rpartition(":")[2])
        for data in (
            b"\x00" * 100_000,
            b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 1000,
            b"POST /v1/responses HTTP/1.1\r\ncontent-length: 9\r\n\r\n{",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=BOUND) as connection:
                connection.sendall(data)
        for body in (b"[" * 100_000, b"\xff", b"{", b'{"model":"mock-1","input":1e400}'):
            answer = httpx2.post(
                f"{served.url}/v1/responses", content=body, headers={"content-type": "application/json"}, timeout=BOUND
            )
            assert answer.status_code == 400
        assert served.process.poll() is None
        assert served.post().status_code == 200
        served.stop()
        assert not [line for line in served.log if "exception" in line]


def test_worker_processes_answer_and_stop_together() -> None:
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url), workers=2) as served:
        assert served.post().status_code == 200
        # Requests are sequential here, and each process has its own connections: two connections mean that two
        # processes answered.
        until(lambda: served.post().status_code == 200 and upstream.open_connections == 2, START)
        workers = served.workers()
        assert len(workers) == 2
        assert served.stop() == "over\n"
        upstream.wait_closed()
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_dead_worker_process_is_replaced() -> None:
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url), workers=2) as served:
        until(lambda: len(served.workers()) == 2, START)
        assert served.post().status_code == 200
        before = served.workers()
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(served.workers() - {victim}) == 2, START)
        assert served.post().status_code == 200
        served.stop()


def test_metrics_of_worker_processes_are_summed_after_one_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url), workers=2) as served:

        def metric(name: str, **labels: str) -> float:
            return prometheus_text.read(served.get("/metrics").text)[name].value(**labels)

        sent = 1
        assert served.post().status_code == 200
        while upstream.open_connections < 2:  # until both processes have answered
            sent += 1
            assert served.post().status_code == 200
        seen = 0.0
        end = time.monotonic() + START
        while seen < sent:  # the other process writes within a second
            assert time.monotonic() < end
            before, seen = seen, metric("antiphon_requests_total", endpoint="/v1/responses", status="2xx")
            assert before <= seen <= sent
        assert metric("antiphon_build_info") == 2
        victim = min(served.workers())
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(served.workers() - {victim}) == 2, START)
        assert metric("antiphon_requests_total", endpoint="/v1/responses", status="2xx") == sent
        until(lambda: metric("antiphon_build_info") == 2, START)
        served.stop()
    assert list(tmp_path.glob("antiphon-metrics-*")) == []


def test_running_answer_is_finished_before_the_stop() -> None:
    gate = Gate()
    answers: list[httpx2.Response] = []
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as upstream:
        with gateway(one_upstream(upstream.base_url), grace=30) as served:
            client = threading.Thread(target=lambda: answers.append(served.post(stream=True)))
            client.start()
            gate.wait_reached()
            served.process.send_signal(signal.SIGTERM)
            until(lambda: _is_refused(served.url))  # it accepts no new connections
            gate.open()
            client.join(BOUND)
            served.process.wait(START)
    assert "response.completed" in answers[0].text


def _is_refused(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=BOUND).close()
    except ConnectionError:
        return True
    return False


def test_default_configuration_serves_an_answering_model() -> None:
    """F-3, API-5: without any file a real model answers, plain and streaming."""
    with gateway(default_config({})) as served:
        models = [model["id"] for model in served.get("/v1/models").json()["data"]]
        assert models == ["local"]
        asked = {"model": "local", "input": "Say hello.", "max_output_tokens": 16, "temperature": 0}
        whole = served.post(**asked).json()
        assert whole["status"] in ("completed", "incomplete")
        text = whole["output"][0]["content"][0]["text"]
        assert text.strip()
        streamed = served.post(**asked, stream=True)
        assert streamed.status_code == 200
        assert "response.output_text.delta" in streamed.text
        children = served.children()
        assert children
        assert served.stop() == "over\n"
    until(lambda: not [pid for pid in children if Path(f"/proc/{pid}").exists()])
