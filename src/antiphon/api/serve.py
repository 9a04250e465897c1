"""Serves the API in this process or in workers: `ops.run` with our application and our HTTP protocol."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from antiphon.api import openapi
from antiphon.api.app import App
from antiphon.config import Config
from antiphon.gateway.routes import UpstreamAddress
from antiphon.http.connection import HttpProtocol
from antiphon.ops.logger import Logger
from antiphon.ops.run import Announce, OpenTransport, calm_collector, run_server
from antiphon.ops.services import Services
from antiphon.upstream.http import HttpTransport


def serve(
    config: Config,
    *,
    debug: bool = False,
    announce: Announce | None = None,
    environ: Mapping[str, str] = os.environ,
    open_transport: OpenTransport = HttpTransport,
) -> None:
    """Serves until a signal ends it; `announce` gets the address once it answers. Each process opens a transport of its own."""
    run_server(
        config,
        make_app=make_app,
        protocol=HttpProtocol,
        debug=debug,
        announce=announce,
        environ=environ,
        open_transport=open_transport,
    )


def make_app(
    config: Config,
    environ: Mapping[str, str],
    addresses: Mapping[str, UpstreamAddress],
    debug: bool,
    metrics_folder: Path | None = None,
    open_transport: OpenTransport = HttpTransport,
) -> App:
    """The application of one process."""
    calm_collector()
    logger = Logger(sys.stderr, config.server.log)
    logger.capture_logging()
    atexit.register(logger.flush)  # for an end that is no proper one
    openapi.document()  # made once, and not while somebody waits
    services = Services(
        config, environ, open_transport(environ), logger, addresses=addresses, debug=debug, metrics_folder=metrics_folder
    )
    return App(services, environ)
