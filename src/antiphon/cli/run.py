"""`antiphon run`: start a command-line agent on a gateway, with a configuration of its own for this run."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from antiphon.cli.agents import AGENTS, NO_KEY, Endpoint
from antiphon.cli.exits import EXIT_CODES, CommandFailed, InvalidUsage
from antiphon.cli.first_model import EMBEDDED_MODEL
from antiphon.cli.gateway_address import add_url, gateway_key, gateway_url
from antiphon.cli.gateway_client import call_gateway
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.model_choice import ServedModels, default_model, list_models, suggest_model
from antiphon.cli.own_gateway import own_gateway, stop_process
from antiphon.cli.stop_signals import SIGNAL_EXIT, StopRequest, StopSignals
from antiphon.cli.terminal import TextStyler, one_line
from antiphon.client import AsyncClient
from antiphon.ops.running_file import state_folder

AGENT_STOP_LIMIT: Final = 10.0  # seconds between a stop signal and the kill of an agent that ignores it

SMALL_MODEL: Final = (
    f"the embedded model `{EMBEDDED_MODEL}` is too small for agents; `antiphon init` finds other models"
)


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "run",
        help=summary,
        description="Starts an agent on a gateway. The agent gets a configuration of its own for this run; the user's "
        "files stay as they are. If no gateway answers at the default address, one is started and stopped with the "
        "agent.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    add_agent(parser)
    parser.usage = "%(prog)s [-h] [-m M] [--url U] AGENT [-- ARGUMENT ...]"


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `run` and `setup` share."""
    parser.add_argument("agent", choices=AGENTS, metavar="AGENT", help=f"one of {', '.join(AGENTS)}")
    parser.add_argument(
        "-m", "--model", metavar="M", help="the model for the agent (default: the same as for `antiphon ask`)"
    )
    add_url(parser)


def run(args: argparse.Namespace, out: TextIO, err: TextIO, *, environ: Mapping[str, str] = os.environ) -> int:
    agent = AGENTS[args.agent]
    program = shutil.which(agent.program, path=environ.get("PATH"))
    if program is None:
        raise InvalidUsage(f"{agent.program} is not installed; install it with: {agent.install}")
    out.flush()
    notes = TextStyler(err, environ)
    with (
        StopSignals() as signals,
        running_gateway(args.url, environ, err, signals) as url,
        tempfile.TemporaryDirectory(prefix="antiphon-") as folder,
    ):
        endpoint = choose_endpoint(url, args.model, environ)
        note_small_model(endpoint.model, err, environ)
        err.write(f"{notes('dim', f'{agent.program} with {endpoint.model} at {url}')}\n")
        err.flush()
        launch = agent.launch(endpoint, Path(folder))
        _write_files(launch.files, Path(folder))
        _link_kept_folders(launch.kept_folders, Path(folder), args.agent, environ)
        return _run_program([program, *launch.options, *args.passed], {**environ, **launch.variables}, signals)


@contextmanager
def running_gateway(
    explicit_url: str | None, environ: Mapping[str, str], err: TextIO, signals: StopSignals
) -> Iterator[str]:
    """Yield the URL of a gateway: the one that answers, or one that is started for the block."""
    url = gateway_url(explicit_url, environ)
    is_named = bool(explicit_url or environ.get("ANTIPHON_URL"))
    try:
        is_gateway = served_models(url, environ).is_gateway
    except CommandFailed:
        if is_named:
            raise
        is_gateway = False
    if is_named or is_gateway:
        yield url
        return
    err.write(f"{TextStyler(err, environ)('dim', f'no gateway answers at {url}: starting one')}\n")
    err.flush()
    with own_gateway(environ, signals) as own_url:
        yield own_url


def choose_endpoint(url: str, model: str | None, environ: Mapping[str, str], *, is_named: bool = True) -> Endpoint:
    """Return the gateway with the named model, or with the default one. A model that is nearly listed is an error."""
    served = served_models(url, environ)
    if not served.is_gateway and not is_named:
        raise CommandFailed(f"the server at {url} is not an Antiphon gateway; name one with --url")
    is_served = model in served.names or served.matches_pattern(model or "")
    if model and not is_served and (hint := suggest_model(model, served)):
        raise InvalidUsage(f"unknown model {one_line(model)!r}{hint}")
    return Endpoint(url, model or default_model(served, url), gateway_key(environ) or NO_KEY)


def note_small_model(model: str, err: TextIO, environ: Mapping[str, str]) -> None:
    """Warn about the embedded model."""
    if model == EMBEDDED_MODEL:
        err.write(f"{TextStyler(err, environ)('yellow', SMALL_MODEL)}\n")


def served_models(url: str, environ: Mapping[str, str]) -> ServedModels:
    """Return the models that the gateway serves."""
    results: list[ServedModels] = []

    async def ask(client: AsyncClient) -> None:
        results.append(await list_models(client))

    call_gateway(ask, url, environ)
    return results[0]


def _write_files(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _link_kept_folders(names: tuple[str, ...], folder: Path, agent: str, environ: Mapping[str, str]) -> None:
    """Put folders of the agent into the user's state folder. Without one, they end with the run."""
    state = state_folder(environ)
    if state is None:
        return
    for name in names:
        kept = state / "run" / agent / name
        try:
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"cannot make {kept}, the folder of the sessions: {error.strerror}") from None
        (folder / name).symlink_to(kept, target_is_directory=True)


def _run_program(command: list[str], environ: Mapping[str, str], signals: StopSignals) -> int:
    """Run the agent to its end, and return its exit code. A stop signal ends the agent first."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with signals.deferred():
            process = subprocess.Popen(command, env=dict(environ))
        with _ignored_interrupts():
            code = process.wait()
    except StopRequest as request:
        if process is not None:
            stop_process(process, request.number, AGENT_STOP_LIMIT)
        raise
    return code if code >= 0 else SIGNAL_EXIT - code


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the agent, which gets it from the terminal too."""
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


EPILOG: Final = f"""examples:
  antiphon run claude
  antiphon run codex --model local -- exec "Explain this folder."
  antiphon run llm -- "Say hello."

`antiphon setup` writes the same settings permanently. The exit code is that of the agent.
SIGTERM and SIGHUP are passed on to the agent; then the gateway that was started and the files of the run end too.
Sessions of claude are kept in the user's state folder (antiphon/run/claude) and continue with:
antiphon run claude -- --resume. Sessions of other agents end with the run.

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one

{EXIT_CODES}"""
