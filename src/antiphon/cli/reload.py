"""`antiphon reload`: load the changed configuration of a running gateway."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

from antiphon.cli.exits import EXIT_CODES, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_address import gateway_url
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import StatusLine, printable
from antiphon.errors import ConfigError
from antiphon.ops.running_file import ReloadResult, RunningGateway, find_running_gateways


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "reload",
        help=summary,
        description="Sends SIGHUP to a gateway of this user on this machine, and prints what changed. No connection is "
        "dropped, and turns under way end with the configuration that they began with. An invalid configuration "
        "changes nothing.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument(
        "--url", metavar="U", help="the URL of the gateway (default: $ANTIPHON_URL, else the only one that runs)"
    )


def run(args: argparse.Namespace, out: TextIO, err: TextIO, *, environ: Mapping[str, str] = os.environ) -> int:
    gateway = _select_gateway(args.url, environ)
    with StatusLine(err, environ).show(f"waiting for the gateway at {gateway.url}"):
        result = _reload_gateway(gateway, environ)
    if result.problem:
        raise ConfigError(result.problem)
    out.write(printable(f"reloaded {gateway.config or 'the default configuration'} at {gateway.url}\n"))
    out.writelines(f"  {printable(change)}\n" for change in result.changes or ["nothing has changed"])
    out.writelines(f"  {printable(name)}: needs a restart of the gateway\n" for name in result.restart_settings)
    return OK


def _select_gateway(explicit_url: str | None, environ: Mapping[str, str]) -> RunningGateway:
    gateways = find_running_gateways(environ)
    if explicit_url or environ.get("ANTIPHON_URL"):
        url = gateway_url(explicit_url, environ)
        gateways = [gateway for gateway in gateways if gateway.url == url]
        if not gateways:
            raise CommandFailed(f"no gateway of this user listens on {url}; {ADVICE}")
    if not gateways:
        raise CommandFailed(f"no gateway of this user runs on this machine; {ADVICE}")
    if len(gateways) > 1:
        urls = ", ".join(gateway.url for gateway in gateways)
        raise InvalidUsage(f"several gateways run: select one of {urls} with --url")
    return gateways[0]


def _reload_gateway(gateway: RunningGateway, environ: Mapping[str, str]) -> ReloadResult:
    """Send the signal and wait for the result."""
    try:
        os.kill(gateway.pid, signal.SIGHUP)
    except OSError as error:
        raise CommandFailed(f"cannot signal the gateway (process {gateway.pid}): {error.strerror}") from None
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        newest = next((other for other in find_running_gateways(environ) if other.process == gateway.process), None)
        if newest is None:
            raise CommandFailed("the gateway stopped during the reload")
        if newest.reload.number != gateway.reload.number:
            return newest.reload
        time.sleep(POLL_INTERVAL)
    raise CommandFailed(f"the gateway (process {gateway.pid}) did not reload within {TIMEOUT:g} s; see its log")


ADVICE: Final = "a gateway of another user or in a container reloads at SIGHUP: kill -HUP PID"
TIMEOUT: Final = 15.0  # seconds
POLL_INTERVAL: Final = 0.02  # seconds
EPILOG: Final = f"""examples:
  antiphon reload
  antiphon reload --url http://127.0.0.1:9000

An invalid configuration gives the errors that `antiphon config check` prints, and the exit code 2.

environment:
  ANTIPHON_URL  the URL of the gateway, if --url is not given

{EXIT_CODES}"""
