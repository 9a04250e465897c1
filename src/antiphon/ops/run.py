"""From a configuration to a running server: the socket, the embedded model if one is served, uvicorn, and a clean end.

`serve` blocks until it is told to stop. Everything that can be wrong with the machine (the port, the packages of the embedded
model) is a `ConfigError` before the first request.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import math
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.supervisors import Multiprocess

from antiphon.config import Config
from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.gateway.routes import UpstreamAddress
from antiphon.ops.telemetry import check_telemetry
from antiphon.store.opening import open_store
from antiphon.upstream.embedded import EMBEDDED_TIMEOUTS, EmbeddedModel
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

Announce = Callable[[str], None]
OpenTransport = Callable[[Mapping[str, str]], Transport]
MakeApp = Callable[[Config, Mapping[str, str], Mapping[str, UpstreamAddress], bool, Path | None, OpenTransport], Any]
BACKLOG: Final = 2048
LISTENER_COPIES: Final = 16
STOP_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
KEEP_ALIVE: Final = 75  # seconds; clients and proxies that reuse connections give them up earlier


def run_server(
    config: Config,
    *,
    make_app: MakeApp,
    protocol: type[asyncio.Protocol],
    debug: bool = False,
    announce: Announce | None = None,
    environ: Mapping[str, str] = os.environ,
    open_transport: OpenTransport = HttpTransport,
) -> None:
    """Serves until a signal ends it; `announce` gets the address once it answers. Each process calls `make_app`."""
    with bound_listener(config) as server_socket:
        check_telemetry(config, environ)
        asyncio.run(_check_store(config, environ))
        _serve(config, make_app, protocol, debug, announce, environ, server_socket, open_transport)


async def _check_store(config: Config, environ: Mapping[str, str]) -> None:
    """A store that cannot be used is said at once, and made ready before anybody shares it."""
    try:
        store = await open_store(config.store, environ)
    except StorageUnavailable as error:
        raise ConfigError(f"[store]: {error.message}") from error
    if store is not None:
        await store.close()


def _serve(
    config: Config,
    make_app: MakeApp,
    protocol: type[asyncio.Protocol],
    debug: bool,
    announce: Announce | None,
    environ: Mapping[str, str],
    server_socket: socket.socket,
    open_transport: OpenTransport,
) -> None:
    with embedded_models(config, environ) as addresses, _metrics_folder(config) as folder:
        factory = functools.partial(make_app, config, dict(environ), addresses, debug, folder, open_transport)
        settings = uvicorn_config(factory, config, protocol)
        if config.server.workers == 1:
            GatewayServer(settings, functools.partial(announce, listener_url(server_socket)) if announce else None).run(
                _copies_of_listener(server_socket)
            )
        else:
            if announce:
                announce(listener_url(server_socket))
            settings.workers = config.server.workers
            WorkerSupervisor(settings, _copies_of_listener(server_socket)).run()


@contextmanager
def _metrics_folder(config: Config) -> Iterator[Path | None]:
    """Where several processes put together what they measured."""
    if config.server.workers == 1:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="antiphon-metrics-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def uvicorn_config(app: Callable[..., Any], config: Config, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    """How uvicorn runs an application factory of ours."""
    return uvicorn.Config(
        app,
        factory=True,
        http=protocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(config.server.grace),
    )


def calm_collector() -> None:
    """Requests leave nothing for the collector to find (tests hold that), and what was made at the start stays: it may look rarely.
    Once a minute it looks through everything else (`Services`)."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


class GatewayServer(uvicorn.Server):
    """uvicorn, that says when it listens, and ends at once when it is told so twice."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            if self.started:
                self.config.loaded_app.force_shutdown()
        super().handle_exit(sig, frame)


class WorkerSupervisor(Multiprocess):
    """uvicorn's several processes. They are servers of its own kind, which a service manager may tell to stop as well as we do; so
    it is here that a second signal means haste."""

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()  # or else whoever calls from now on waits for somebody to answer
        super().terminate_all()

    def join_all(self) -> None:
        for worker in self.processes:
            while worker.process.is_alive():
                worker.process.join(0.1)
                if STOP_SIGNALS.intersection(self.signal_queue):
                    worker.kill()


def _copies_of_listener(server_socket: socket.socket) -> list[socket.socket]:
    """The same socket many times: uvloop takes in one client a turn of its loop through each, and a turn may be long."""
    return [server_socket, *(server_socket.dup() for _ in range(LISTENER_COPIES - 1))]


@contextmanager
def bound_listener(config: Config) -> Iterator[socket.socket]:
    """The socket: bound before anything else is started, so that a port in use costs nobody anything."""
    host, port = config.server.host, config.server.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        server_socket = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} is no address of this machine ({error.strerror})") from None
    with server_socket:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server_socket.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(f"server.host: {host!r} is no address of this machine ({error.strerror})") from None
            raise ConfigError(
                f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port or server.port"
            ) from None
        server_socket.listen(BACKLOG)
        server_socket.set_inheritable(True)
        yield server_socket


@contextmanager
def embedded_models(config: Config, environ: Mapping[str, str]) -> Iterator[dict[str, UpstreamAddress]]:
    """The embedded model, if any upstream is it: one process, however many workers there are."""
    names = [upstream.name for upstream in config.upstreams if upstream.embedded]
    if not names:
        yield {}
        return
    model = EmbeddedModel(environ)
    model.start()
    try:
        place = UpstreamAddress(base_url=model.base_url, key=model.key, timeouts=EMBEDDED_TIMEOUTS)
        yield dict.fromkeys(names, place)
    finally:
        model.stop()


def listener_url(server_socket: socket.socket) -> str:
    """Where a client finds it."""
    host, port = server_socket.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
