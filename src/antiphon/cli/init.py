"""`antiphon init`: write a configuration for the providers and servers that are found, and test it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.cli.exits import EXIT_CODES, FAILED, OK, CommandFailed, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.live_check import check_upstreams, describe_results
from antiphon.cli.local_servers import ANSWER_LIMIT, AnsweringServer, ServerSearch, find_local_servers
from antiphon.cli.terminal import StatusLine, TextStyler, one_line
from antiphon.config import parse_config
from antiphon.config.json_schema import config_schema
from antiphon.ops.free_port import is_port_free
from antiphon.profiles.local_servers import builtin_local_servers
from antiphon.profiles.providers import Provider, builtin_providers
from antiphon.protocol.suggestions import suggest_names
from antiphon.upstream.embedded import is_model_installed

SCHEMA_FILE: Final = "antiphon.schema.json"
DEFAULT_PORT: Final = 8080
MAX_PORT: Final = 65535
MAX_LISTED: Final = 20  # models of a local server that the file names


class Choice(Struct, frozen=True):
    """An upstream that can be configured: what it is, its part of the file, and its port here."""

    name: str
    description: str
    toml: str
    port: int | None = None


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "init",
        help=summary,
        description="Looks for keys of providers in the environment and for model servers on this machine, asks which "
        "of them to use, writes antiphon.toml, and asks each upstream for its models. Keys are not written: the file "
        "names the variables.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("-y", "--yes", action="store_true", help="use everything that was found, without asking")
    parser.add_argument(
        "--use", metavar="NAME", action="append", default=[], help="use this upstream without asking; may be repeated"
    )
    parser.add_argument(
        "-o", "--output", metavar="F", type=Path, default=Path("antiphon.toml"), help="the file (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument("--no-live", action="store_true", help="do not ask the upstreams for their models")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    ask: Callable[[str], str] = input,
    find_servers: Callable[[Mapping[str, str]], ServerSearch] = find_local_servers,
) -> int:
    if args.output.exists() and not args.force:
        raise InvalidUsage(f"{args.output} exists; replace it with --force, or name another file with -o")
    notes = TextStyler(err, environ)
    err.write(f"{notes('dim', 'looking for keys of providers and for servers on this machine')}\n")
    err.flush()
    search = find_servers(environ)
    for server in search.silent:
        err.write(f"{notes('yellow', f'the server at {server.base_url} did not answer within {ANSWER_LIMIT:g} s')}\n")
    embedded = [EMBEDDED] if is_model_installed() else []
    choices = [*_provider_choices(environ), *_server_choices(search.answering), *embedded]
    if not choices:
        raise InvalidUsage(f"nothing was found: {_advice()}")
    if args.yes:
        out.writelines(f"found {one_line(choice.description)}\n" for choice in choices)
    chosen = _choose(choices, args, ask)
    if not chosen:
        raise InvalidUsage("no upstream was chosen, so nothing was written")
    text = make_file(chosen, choose_port(chosen))
    config = parse_config(text, args.output, environ)
    _write(args.output, text)
    _write(args.output.with_name(SCHEMA_FILE), json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n")
    out.write(f"wrote {args.output} and {args.output.with_name(SCHEMA_FILE)}\n")
    out.flush()
    results = []
    if not args.no_live:
        with StatusLine(err, environ).show("asking the upstreams for their models"):
            results = check_upstreams(config, environ)
    out.writelines(f"  {line}\n" for line in describe_results(results, TextStyler(out, environ)))
    option = "" if args.output == Path("antiphon.toml") else f" --config {args.output}"
    out.write(f"start the gateway with: antiphon serve{option}\n")
    return FAILED if any(result.error for result in results) else OK


def make_file(choices: Iterable[Choice], port: int = DEFAULT_PORT) -> str:
    """Return the text of the file."""
    return HEAD.format(port=port) + "".join(f"\n{choice.toml}" for choice in choices)


def choose_port(choices: Iterable[Choice]) -> int:
    """Return the default port of the gateway. If a chosen server uses it, return the next one that is free."""
    used_ports = {choice.port for choice in choices}
    if DEFAULT_PORT not in used_ports:
        return DEFAULT_PORT
    return next(port for port in range(DEFAULT_PORT + 1, MAX_PORT) if port not in used_ports and is_port_free(port))


def _provider_choices(environ: Mapping[str, str]) -> list[Choice]:
    return [
        Choice(provider.name, f"{provider.name} ({provider.api_key_env} is set)", _provider_toml(provider))
        for provider in builtin_providers()
        if environ.get(provider.api_key_env)
    ]


def _provider_toml(provider: Provider) -> str:
    """A provider serves its own model names, and every model as `NAME/MODEL`."""
    rules = [f'{{ from = "{provider.name}/*", to = "*" }}', *map(json.dumps, provider.models)]
    return f"""[[upstreams]]
name = {json.dumps(provider.name)}
dialect = {json.dumps(provider.dialect)}
base_url = {json.dumps(provider.base_url)}
api_key_env = {json.dumps(provider.api_key_env)}  # the variable that holds the key
profile = {json.dumps(provider.profile)}
models = [{", ".join(rules)}]  # names, patterns, and renames
"""


def _server_choices(servers: list[AnsweringServer]) -> list[Choice]:
    return [
        Choice(
            answering.server.name,
            f"{answering.server.title} at {answering.server.base_url} ({len(answering.models)} models)",
            _server_toml(answering),
            urlsplit(answering.server.base_url).port,
        )
        for answering in servers
    ]


def _server_toml(answering: AnsweringServer) -> str:
    server = answering.server
    rules = [f'{{ from = "{server.name}/*", to = "*" }}', *map(json.dumps, answering.models[:MAX_LISTED])]
    lines = "".join(f"  {rule},\n" for rule in rules)
    return f"""[[upstreams]]
name = {json.dumps(server.name)}
dialect = {json.dumps(server.dialect)}
base_url = {json.dumps(server.base_url)}
profile = {json.dumps(server.profile)}
models = [
{lines}]
"""


def _choose(choices: list[Choice], args: argparse.Namespace, ask: Callable[[str], str]) -> list[Choice]:
    """Return the upstreams that the options or the answers name."""
    names = [choice.name for choice in choices]
    if missing := [name for name in args.use if name not in names]:
        raise InvalidUsage(f"cannot use {one_line(missing[0])!r}: {_describe_missing(missing[0])}")
    if args.use:
        return [choice for choice in choices if choice.name in args.use]
    if args.yes:
        return choices
    if ask is input and not sys.stdin.isatty():
        raise InvalidUsage(
            "cannot ask what to use, because standard input is no terminal: add --yes, or --use with one of "
            f"{', '.join(names)}"
        )
    return [choice for choice in choices if _is_wanted(choice, ask)]


def _describe_missing(name: str) -> str:
    """Say why an upstream was not found, and what to do."""
    for provider in builtin_providers():
        if provider.name == name:
            return f"set its key in the variable {provider.api_key_env}"
    for server in builtin_local_servers():
        if server.name == name:
            return f"{server.title} does not answer at {server.base_url}: start it, or write its other address by hand"
    if name == EMBEDDED.name:
        return f"the embedded model is not installed; install it with: {_install_command()}"
    return f"no such upstream{suggest_names(name, _upstream_names())}"


def _upstream_names() -> list[str]:
    names = [*(provider.name for provider in builtin_providers()), *(server.name for server in builtin_local_servers())]
    return [*names, EMBEDDED.name]


def _advice() -> str:
    variables = ", ".join(provider.api_key_env for provider in builtin_providers())
    servers = ", ".join(f"{server.title} ({server.base_url})" for server in builtin_local_servers())
    return (
        f"set the key of a provider ({variables}), start a model server ({servers}), or install the embedded model "
        f"with: {_install_command()}"
    )


def _install_command() -> str:
    from antiphon.upstream.embedded_install import current_installation, install_command  # rarely needed

    return install_command(current_installation())


def _is_wanted(choice: Choice, ask: Callable[[str], str]) -> bool:
    try:
        return ask(f"Use {choice.description}? [Y/n] ").strip().lower() in ("", "y", "yes")
    except EOFError:
        return False


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write {file}: {error.strerror}") from None


HEAD: Final = f"""#:schema {SCHEMA_FILE}
# The configuration of Antiphon. `antiphon config check` checks it, `antiphon serve` uses it.
# `antiphon config schema` describes every setting. A request goes to the first upstream below that serves its model.

[server]
host = "127.0.0.1"  # any other address needs [[keys]]
port = {{port}}
"""
EMBEDDED: Final = Choice(
    "local",
    "the embedded model, which needs no key",
    '[[upstreams]]\nname = "local"\ndialect = "chat"\nembedded = true  # a small model inside Antiphon\n'
    'models = ["local"]\n',
)
EPILOG: Final = f"""examples:
  antiphon init
  antiphon init --yes
  antiphon init --use ollama --use local -o lab.toml

{EXIT_CODES}"""
