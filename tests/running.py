"""A gateway that runs: uvicorn in a thread of this process, on a free loopback port, stopped when the test is over.

What it logs is kept, its own output is judged by the grammar, and at the end no violation may have been found.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec

from antiphon.api.app import App
from antiphon.config import Config, ModelRule, Timeouts, UpstreamConfig
from antiphon.gateway.upstreams import UpstreamAddress
from antiphon.http.connection import HttpProtocol
from antiphon.ops.logger import Logger
from antiphon.ops.run import bound_listener, listener_url, uvicorn_config
from antiphon.ops.services import Services
from antiphon.ops.supervisor import GatewayServer
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

BOUND = 60.0  # seconds after which a test that waits has failed


class Running:
    """A gateway as a test sees it."""

    def __init__(self, url: str, log: io.StringIO, services: Services, app: App) -> None:
        self.url = url
        self.services = services
        self.app = app
        self._log = log

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> list[dict[str, Any]]:
        """Every line that was written."""
        return [msgspec.json.decode(line) for line in self.written.splitlines()]

    @property
    def written(self) -> str:
        """The same as text, which is cheaper to look through."""
        self.services.logger.flush()
        return self._log.getvalue()

    def requests(self, count: int) -> list[dict[str, Any]]:
        """The lines of requests, once there are so many."""
        until(lambda: len(self._requests()) >= count)
        return self._requests()

    def _requests(self) -> list[dict[str, Any]]:
        return [line for line in self.log if line["event"] == "request"]

    def post(self, body: Mapping[str, Any] | bytes, path: str = "/v1/responses", **headers: str) -> httpx2.Response:
        """A request, and its whole answer."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx2.Client(timeout=BOUND) as client:
            return client.post(self.url + path, content=content, headers={"content-type": "application/json", **names})

    def get(self, path: str, **headers: str) -> httpx2.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx2.Client(timeout=BOUND) as client:
            return client.get(self.url + path, headers=names)

    def raw(self, data: bytes) -> bytes:
        """Bytes as they are, and all that is answered until the server closes or nothing more comes."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=BOUND)


@contextmanager
def running(
    config: Config,
    *,
    environ: Mapping[str, str] | None = None,
    transport: Transport | None = None,
    addresses: Mapping[str, UpstreamAddress] | None = None,
    has_a_fault: bool = False,
    condoned: Collection[str] = (),
    **settings: Any,
) -> Iterator[Running]:
    """A gateway for this configuration; its port is any that is free. Violations of the rows in `condoned` are not
    counted."""
    environ = environ or {}
    log = io.StringIO()
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=0))
    if config.store.url is None:  # never the user's own
        config = msgspec.structs.replace(config, store=msgspec.structs.replace(config.store, url="off"))
    services = Services(
        config,
        environ,
        transport or HttpTransport({}),
        Logger(log, "json"),
        addresses=addresses,
        debug=True,
        **settings,
    )
    started = threading.Event()
    with bound_listener(config) as server_socket:
        server = GatewayServer(uvicorn_config(lambda: App(services, environ), config, HttpProtocol), started.set)
        thread = threading.Thread(target=server.run, args=([server_socket],), daemon=True)
        thread.start()
        try:
            assert started.wait(BOUND), "the gateway did not start"
            gateway = Running(listener_url(server_socket), log, services, server.config.loaded_app)
            yield gateway
        finally:
            server.should_exit = True
            thread.join(BOUND)
    assert not thread.is_alive(), "the gateway did not stop"
    violations = [line for line in gateway.log if line["event"] == "grammar_violation" and line["row"] not in condoned]
    assert violations == []
    assert any("exception" in line for line in gateway.log) == has_a_fault


def one_upstream(
    base_url: str,
    *,
    dialect: Any = "chat",
    timeouts: Timeouts | None = None,
    models: Collection[str | ModelRule] = ("*",),
    **settings: Any,
) -> Config:
    """The simplest configuration: one upstream, which serves every model unless some are named."""
    upstream = UpstreamConfig(name="lab", dialect=dialect, base_url=base_url, models=[*models], **settings)
    return Config(upstreams=[upstream], timeouts=timeouts or Timeouts())


def until(condition: Callable[[], bool], seconds: float = BOUND) -> None:
    """Waits for something that other threads bring about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    pieces: list[bytes] = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)
