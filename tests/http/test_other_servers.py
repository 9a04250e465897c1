"""The application behind a plain ASGI server: everything works there, at a higher cost."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import uvicorn
from tests.api.probing import ASKED, head
from tests.running import BOUND, Running, one_upstream, until

from antiphon import sse, testing
from antiphon.api.app import App
from antiphon.config import StoreConfig
from antiphon.ops.logger import Logger
from antiphon.ops.run import bound_listener, listener_url
from antiphon.ops.services import Services
from antiphon.ops.supervisor import GatewayServer
from antiphon.protocol.codec import decode_event
from antiphon.protocol.fold import fold_events
from antiphon.testing import ChatServer, Gate, turn
from antiphon.upstream.http import HttpTransport

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
STREAMED = {**ASKED, "stream": True}


@contextmanager
def plain_uvicorn(base_url: str) -> Iterator[Running]:
    config = one_upstream(base_url)
    config = msgspec.structs.replace(
        config, server=msgspec.structs.replace(config.server, port=0), store=StoreConfig(url="off")
    )
    log = io.StringIO()
    services = Services(config, {}, HttpTransport({}), Logger(log, "json"))
    app = App(services, {})
    settings = uvicorn.Config(app, http="httptools", ws="none", lifespan="on", log_config=None, access_log=False)
    started = threading.Event()
    with bound_listener(config) as server_socket:
        server = GatewayServer(settings, started.set)
        thread = threading.Thread(target=server.run, args=([server_socket],), daemon=True)
        thread.start()
        try:
            assert started.wait(BOUND)
            yield Running(listener_url(server_socket), log, services, app)
        finally:
            server.should_exit = True
            thread.join(BOUND)
    assert not thread.is_alive()


def test_plain_asgi_server_answers_plain_and_streamed() -> None:
    reply = turn(testing.text("Hel", "lo."))
    with ChatServer([reply, reply]) as upstream, plain_uvicorn(upstream.base_url) as gateway:
        assert gateway.post(ASKED).json()["status"] == "completed"
        frames = sse.Decoder().feed(gateway.post(STREAMED).content)
        assert (
            fold_events([decode_event(frame.data) for frame in frames if frame.data != sse.DONE]).status == "completed"
        )
        lines = gateway.requests(2)
        assert [line["status"] for line in lines] == [200, 200]
        assert ["first_event_ms" in line for line in lines] == [False, True]


def test_plain_asgi_server_detects_a_client_disconnect() -> None:
    gate = Gate()
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as upstream:
        with plain_uvicorn(upstream.base_url) as gateway:
            body = msgspec.json.encode(STREAMED)
            with gateway.connect() as client:
                headers = (
                    ("host", "localhost"),
                    ("content-type", "application/json"),
                    ("content-length", str(len(body))),
                )
                client.sendall(head("POST", "/v1/responses", *headers) + body)
                data = b""
                while b"Hel" not in data:
                    data += client.recv(65536)
            upstream.wait_disconnected(1)
            assert gateway.requests(1)[0]["client_left"]
            until(lambda: gateway.services.transport.open_connections == 0)  # type: ignore[attr-defined]
