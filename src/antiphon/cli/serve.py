"""`antiphon serve`: run the gateway until it is stopped."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import msgspec
from msgspec.structs import replace

from antiphon import __version__
from antiphon.cli import exit_on_interrupt, restore_interrupt
from antiphon.cli.exits import EXIT_CODES, INTERRUPTED, OK, CommandFailed
from antiphon.cli.first_model import first_model
from antiphon.cli.gateway_address import DEFAULT_URL, gateway_url
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.store import describe_retention
from antiphon.cli.terminal import TextStyler, printable
from antiphon.config import (
    Config,
    UpstreamConfig,
    check_config,
    default_config,
    describe_config,
    find_config,
    find_warnings,
    load_config,
)
from antiphon.config.loading import EMBEDDING_UPSTREAM


class Serve(Protocol):
    """The signature of `antiphon.api.serve_api.serve_api`; tests pass their own."""

    def __call__(
        self, config: Config, *, debug: bool, announce: Callable[[str], None], source: CommandLineSource
    ) -> None: ...


class CommandLineSource:
    """The configuration that a command line names, with the options of the command line."""

    def __init__(self, args: argparse.Namespace, environ: Mapping[str, str], folder: Path) -> None:
        self._args = args
        self._environ = environ
        self._folder = folder
        self.file = find_config(args.config, environ, folder)

    def load(self) -> Config:
        """Load and check it."""
        return _load_configuration(self._args, self._environ, self._folder)


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "serve",
        help=summary,
        description="Starts the gateway and prints its upstreams, its URL, what it stores, and a command to try it. "
        "Without a configuration it serves the embedded model as `local`, and every provider whose usual "
        "key variable is set.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument(
        "--config",
        metavar="F",
        type=Path,
        help="the configuration file (default: $ANTIPHON_CONFIG, else ./antiphon.toml, else none)",
    )
    parser.add_argument(
        "--agent",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="serve this agent; may be repeated; without a configuration nothing else is served",
    )
    parser.add_argument("--host", metavar="H", help="the address to listen on; any other than loopback needs keys")
    parser.add_argument("--port", metavar="P", type=port, help="the port to listen on; 0 selects a free one")
    parser.add_argument(
        "--debug", action="store_true", help="check every event that is sent against the grammar of the protocol"
    )
    parser.add_argument(
        "--watch", action="store_true", help="reload the configuration when its file changes, as [server] watch"
    )
    parser.add_argument("--trace", metavar="DIR", type=Path, help="write a trace of each request to this folder")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    serve: Serve | None = None,
) -> int:
    folder = cwd or Path.cwd()
    source = CommandLineSource(args, environ, folder)
    config = source.load()
    urls: list[str] = []
    _announce_start(config, err, environ)

    def announce(base_url: str) -> None:
        urls.append(base_url)
        out.writelines(f"{line}\n" for line in _greeting(config, base_url, TextStyler(out, environ), environ))
        out.flush()

    try:
        with _interrupt_on_sigterm():
            (serve or _import_serve(config, folder))(config, debug=args.debug, announce=announce, source=source)
    except KeyboardInterrupt:
        # Ctrl-C is the normal way to stop, unless the gateway had not started.
        return OK if urls else INTERRUPTED
    if not urls:
        raise CommandFailed("the gateway did not start; see the log above")
    return OK


def _announce_start(config: Config, err: TextIO, environ: Mapping[str, str]) -> None:
    """Write what is started before it is: the embedded model takes a few seconds. The line stays, because the log is
    written below it."""
    if err.isatty():
        has_model = any(upstream.embedded for upstream in config.upstreams)
        subject = "the gateway and the embedded model" if has_model else "the gateway"
        err.write(f"{TextStyler(err, environ)('dim', f'starting {subject} …')}\n")
        err.flush()


def port(text: str) -> int:
    """Parse a port of the command line."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"invalid port {text!r}: expected 0–65535")
    return int(text)


def _load_configuration(args: argparse.Namespace, environ: Mapping[str, str], cwd: Path) -> Config:
    """Load the configuration, apply the options of the command line, and validate the result."""
    file = find_config(args.config, environ, cwd)
    agents = _load_agents(args.agent, cwd)
    base_config = Config() if agents else _with_installed_models(default_config(environ))
    config = load_config(file, environ) if file else base_config
    server = replace(
        config.server,
        host=config.server.host if args.host is None else args.host,
        port=config.server.port if args.port is None else args.port,
        watch=config.server.watch or args.watch,
    )
    trace = config.trace if args.trace is None else replace(config.trace, dir=str(cwd / args.trace))
    config = replace(config, server=server, trace=trace, upstreams=[*agents, *config.upstreams])
    check_config(config, environ)
    return config


def _with_installed_models(config: Config) -> Config:
    """Leave the embedded model out if it is not installed and providers are served; add the local embedding model if it
    is installed."""
    # Imported here, because `--help` does not need it.
    from antiphon.upstream.embedded import is_embedding_model_installed, is_model_installed

    upstreams = config.upstreams
    providers = [upstream for upstream in upstreams if not upstream.embedded]
    if providers and not is_model_installed():
        upstreams = providers
    if is_embedding_model_installed():
        upstreams = [*upstreams, EMBEDDING_UPSTREAM]
    return replace(config, upstreams=upstreams)


def _load_agents(specs: list[str], cwd: Path) -> list[UpstreamConfig]:
    """Return the agents of the command line; they come before those of the configuration."""
    if not specs:
        return []
    from antiphon.producer.serving import agent_upstream, load_agent

    return [agent_upstream(spec, load_agent(spec, str(cwd))) for spec in specs]


def _import_serve(config: Config, cwd: Path) -> Serve:
    # Imported here because no other command needs the server and the import is slow.
    exit_on_interrupt()
    from antiphon.api.serve_api import serve_api

    restore_interrupt()

    if not any(upstream.agent for upstream in config.upstreams):
        return serve_api
    from antiphon.producer.serving import transport_opener

    return partial(serve_api, open_transport=transport_opener(config, str(cwd)))


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that everything is closed, including the embedded model."""
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _greeting(config: Config, base_url: str, paint: TextStyler, environ: Mapping[str, str]) -> list[str]:
    url = gateway_url(base_url, {})
    usable = [upstream for upstream in config.upstreams if not upstream.lacks_key(environ)]
    model = first_model(replace(config, upstreams=usable).listed_models()) or "MODEL"
    key = ' -H "Authorization: Bearer $YOUR_KEY"' if config.keys else ""
    body = msgspec.json.encode({"model": model, "input": "Say hello.", "stream": True}).decode()
    key_variable = "ANTIPHON_API_KEY=$YOUR_KEY " if config.keys else ""
    url_option = "" if url == DEFAULT_URL else f" --url {url}"
    return [
        f"{paint('bold', f'Antiphon {__version__}')} listens on {paint('bold', f'{url}/v1')}",
        *(f"  {printable(line)}" for line in (*describe_config(config), describe_retention(config.store, environ))),
        *(f"{paint('yellow', 'warning:')} {printable(str(warning))}" for warning in find_warnings(config, environ)),
        "Try it:",
        f"  curl -N {url}/v1/responses -H 'Content-Type: application/json'{key} -d {shlex.quote(body)}",
        f'  {key_variable}{_command_name(environ)} ask{url_option} --model {shlex.quote(model)} "Say hello."',
        paint("dim", "Press Ctrl-C to stop."),
    ]


def _command_name(environ: Mapping[str, str]) -> str:
    """Return the command as the user can type it: its path, if it is not on `PATH`."""
    return "antiphon" if shutil.which("antiphon", path=environ.get("PATH", "")) else shlex.quote(sys.argv[0])


EPILOG: Final = f"""examples:
  antiphon serve
  antiphon serve --config lab.toml --port 9000
  antiphon serve --debug --trace traces
  antiphon serve --agent my_agents:run

The first Ctrl-C (or SIGTERM) lets the requests in flight finish, then the gateway exits with 0.
A second Ctrl-C stops it immediately.
SIGHUP, `antiphon reload` and --watch load a changed configuration without dropping a connection.
The log goes to standard error: on a terminal one line per request that fits its width, else JSON.

environment:
  ANTIPHON_CONFIG  the configuration file, if --config is not given
  NO_COLOR         disables colours on a terminal

{EXIT_CODES}"""
