"""Serves the API in this process or in workers: calls `ops.run` with the application and the HTTP protocol."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from antiphon.api.app import App
from antiphon.api.routes import openapi_document
from antiphon.config import Config
from antiphon.gateway.memory import return_large_blocks
from antiphon.gateway.upstreams import UpstreamAddress
from antiphon.http.connection import HttpProtocol
from antiphon.ops.logger import Logger
from antiphon.ops.reload import ConfigSource
from antiphon.ops.run import Announce, OpenTransport, make_garbage_collection_rare, run_server
from antiphon.ops.services import Services
from antiphon.upstream.http import HttpTransport


def serve_api(
    config: Config,
    *,
    debug: bool = False,
    announce: Announce | None = None,
    environ: Mapping[str, str] = os.environ,
    open_transport: OpenTransport = HttpTransport,
    source: ConfigSource | None = None,
) -> None:
    """Serves until a signal. `announce` is called with the address once the server listens. Each process opens a
    transport. With `source` the configuration can be reloaded."""
    run_server(
        config,
        make_app=make_app,
        protocol=HttpProtocol,
        debug=debug,
        announce=announce,
        environ=environ,
        open_transport=open_transport,
        source=source,
    )


def make_app(
    config: Config,
    environ: Mapping[str, str],
    addresses: Mapping[str, UpstreamAddress],
    debug: bool,
    metrics_folder: Path | None = None,
    open_transport: OpenTransport = HttpTransport,
) -> App:
    """Creates the application of one process."""
    make_garbage_collection_rare()
    return_large_blocks()
    logger = Logger(sys.stderr, config.server.log)
    logger.capture_logging()
    atexit.register(logger.flush)  # for an exit without a clean shutdown
    openapi_document()  # built at the start, so that no request waits for it
    services = Services(
        config,
        environ,
        open_transport(environ),
        logger,
        addresses=addresses,
        debug=debug,
        metrics_folder=metrics_folder,
    )
    return App(services, environ)
