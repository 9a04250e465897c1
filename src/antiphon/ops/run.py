"""Runs the server: opens the listener, starts the embedded model if it is configured, and runs uvicorn until a signal.

Problems of the machine (the port, the packages of the embedded model) are a `ConfigError` before the first request.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import math
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn

from antiphon.config import Config, UpstreamConfig
from antiphon.config.schema import EMBEDDINGS
from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.gateway.upstreams import UpstreamAddress
from antiphon.ops.file_descriptors import raise_descriptor_limit
from antiphon.ops.logger import Logger
from antiphon.ops.permissions import warn_about_readable_data
from antiphon.ops.reload import ApplyConfig, ConfigReloader, ConfigSource
from antiphon.ops.supervisor import AppFactory, GatewayServer, WorkerSupervisor, handle_hangup
from antiphon.ops.telemetry import check_telemetry
from antiphon.store.opening import open_store
from antiphon.upstream.embedded import (
    EMBEDDED_TIMEOUTS,
    EMBEDDING_COMMAND,
    EmbeddedModel,
    embedding_model_settings,
)
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

Announce = Callable[[str], None]
OpenTransport = Callable[[Mapping[str, str]], Transport]
MakeApp = Callable[[Config, Mapping[str, str], Mapping[str, UpstreamAddress], bool, Path | None, OpenTransport], Any]
BACKLOG: Final = 2048
LISTENER_COPIES: Final = 16
#: On every answer: browsers do not guess its type, and pages of other origins cannot embed it. CORS is not affected.
SECURITY_HEADERS: Final = [("X-Content-Type-Options", "nosniff"), ("Cross-Origin-Resource-Policy", "same-origin")]
KEEP_ALIVE: Final = 75  # seconds; longer than clients and proxies keep idle connections


def run_server(
    config: Config,
    *,
    make_app: MakeApp,
    protocol: type[asyncio.Protocol],
    debug: bool = False,
    announce: Announce | None = None,
    environ: Mapping[str, str] = os.environ,
    open_transport: OpenTransport = HttpTransport,
    source: ConfigSource | None = None,
) -> None:
    """Serves until a signal. `announce` is called with the address once the server listens. Each process calls
    `make_app`. With `source` the configuration can be reloaded."""
    handle_hangup()
    raise_descriptor_limit()
    with bound_listener(config) as server_socket:
        check_telemetry(config, environ)
        logger = Logger(sys.stderr, config.server.log)
        logger.capture_logging()  # each worker has its own
        warn_about_readable_data(config, environ, logger)
        asyncio.run(_check_store(config, environ))
        _serve(config, make_app, protocol, debug, announce, environ, server_socket, open_transport, source)


async def _check_store(config: Config, environ: Mapping[str, str]) -> None:
    """Opens the store once, so that its errors appear at the start and it is migrated before several processes use
    it."""
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
    source: ConfigSource | None,
) -> None:
    url = listener_url(server_socket)
    with embedded_models(config, environ) as addresses, _metrics_folder(config) as folder:

        def make_factory(config: Config) -> AppFactory:
            return functools.partial(make_app, config, dict(environ), addresses, debug, folder, open_transport)

        settings = uvicorn_config(make_factory(config), config, protocol)
        listeners = _copies_of_listener(server_socket)
        run: Callable[[], None]
        apply_config: ApplyConfig
        if config.server.workers == 1:
            server = GatewayServer(settings, functools.partial(announce, url) if announce else None)
            run, apply_config = functools.partial(server.run, listeners), server.apply_config
        else:
            settings.workers = config.server.workers
            supervisor = WorkerSupervisor(settings, listeners, make_factory)
            handle_hangup()  # uvicorn's supervisor would restart its workers
            run, apply_config = supervisor.run, supervisor.apply_config
            if announce:
                announce(url)
        if source is None:
            run()
            return
        with ConfigReloader(config, source, apply_config, url, environ) as reloader:
            handle_hangup(reloader.request)
            run()


@contextmanager
def _metrics_folder(config: Config) -> Iterator[Path | None]:
    """The folder in which several processes share their metrics."""
    if config.server.workers == 1:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="antiphon-metrics-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def uvicorn_config(app: Callable[..., Any], config: Config, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    """The configuration of uvicorn for an application factory."""
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
        headers=SECURITY_HEADERS,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(config.server.grace),
    )


def make_garbage_collection_rare() -> None:
    """Makes garbage collection rare: requests leave no reference cycles (tests check that), and objects from the start
    stay. `Services` runs a full collection once a minute."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _copies_of_listener(server_socket: socket.socket) -> list[socket.socket]:
    """Duplicates of the listener: uvloop accepts one connection per listener and loop iteration, and an iteration may
    be long."""
    return [server_socket, *(server_socket.dup() for _ in range(LISTENER_COPIES - 1))]


@contextmanager
def bound_listener(config: Config) -> Iterator[socket.socket]:
    """Binds the listener before anything else is started, so that a port in use fails at once."""
    host, port = config.server.host, config.server.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        server_socket = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} is not an address of this machine ({error.strerror})") from None
    with server_socket:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server_socket.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(
                    f"server.host: {host!r} is not an address of this machine ({error.strerror})"
                ) from None
            raise ConfigError(
                f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port or server.port"
            ) from None
        server_socket.listen(BACKLOG)
        server_socket.set_inheritable(True)
        yield server_socket


@contextmanager
def embedded_models(config: Config, environ: Mapping[str, str]) -> Iterator[dict[str, UpstreamAddress]]:
    """Runs the embedded models that upstreams use: one process each for all workers."""
    addresses: dict[str, UpstreamAddress] = {}
    with ExitStack() as stack:
        for upstream in config.upstreams:
            if upstream.embedded:
                model = _make_embedded_model(upstream, environ)
                stack.callback(model.stop)
                model.start()
                addresses[upstream.name] = UpstreamAddress(
                    base_url=model.base_url, key=model.key, timeouts=EMBEDDED_TIMEOUTS
                )
        yield addresses


def _make_embedded_model(upstream: UpstreamConfig, environ: Mapping[str, str]) -> EmbeddedModel:
    if upstream.embedded == EMBEDDINGS:
        return EmbeddedModel(environ, EMBEDDING_COMMAND, make_settings=embedding_model_settings)
    return EmbeddedModel(environ)


def listener_url(server_socket: socket.socket) -> str:
    """The URL of a listener for clients."""
    host, port = server_socket.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
