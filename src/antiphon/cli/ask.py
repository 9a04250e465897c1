"""`antiphon ask`: send one question to a gateway and stream the answer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from antiphon.cli.exits import EXIT_CODES, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_address import add_url, gateway_url
from antiphon.cli.gateway_client import call_gateway, describe_failure, request_id_line
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.outcome import ResponseOutcome
from antiphon.cli.printers import EventPrinter, Printer, TextPrinter
from antiphon.client import AsyncClient, ResponseStream, image_from_file
from antiphon.errors import ClientFault
from antiphon.protocol.content import InputImageParam, InputText
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request_fields import Input
from antiphon.upstream.transport import Transport

PREFERRED_MODEL: Final = "local"  # the free model, if the gateway has it


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "ask",
        help=summary,
        description="Sends a prompt to a model through a running gateway and streams the answer. The text of the "
        "answer goes to standard output. Reasoning (on a terminal only), tool calls, losses and usage go "
        "to standard error.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument(
        "prompt",
        nargs="*",
        metavar="PROMPT",
        help="the prompt; `-`, or no prompt in a pipe, reads standard input",
    )
    parser.add_argument(
        "--model",
        metavar="M",
        help=f"the model to ask (default: `{PREFERRED_MODEL}` if the gateway lists it, else the first in its list)",
    )
    add_url(parser)
    parser.add_argument(
        "--image",
        metavar="F",
        action="append",
        type=Path,
        default=[],
        help="an image for the prompt; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the events of the answer, one JSON object per line")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    stdin: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
) -> int:
    text = _read_prompt(args.prompt, stdin or sys.stdin)
    model = _require_utf_8("the model name", args.model or "")
    images = [_read_image(file) for file in args.image]
    printer = EventPrinter(out) if args.json else TextPrinter(out, err, environ)
    url = gateway_url(args.url, environ)

    async def ask(client: AsyncClient) -> None:
        stream = client.stream(_make_input(text, images), model=model or await _default_model(client, url))
        await _print_answer(stream, printer, url)

    call_gateway(ask, url, environ, transport)
    return OK


def _read_prompt(arguments: list[str], stdin: TextIO) -> str:
    """Return the words of the command line, then standard input if `-` is among them or there are none."""
    texts = [" ".join(argument for argument in arguments if argument != "-")]
    if "-" in arguments or (not arguments and not stdin.isatty()):
        try:
            texts.append(stdin.read())
        except UnicodeDecodeError:
            raise InvalidUsage("standard input is not valid UTF-8") from None
    prompt = "\n\n".join(text.strip() for text in texts if text.strip())
    if not prompt:
        raise InvalidUsage('no prompt given; write `antiphon ask "What is 2+2?"`, or pipe a prompt into the command')
    return _require_utf_8("the prompt", prompt)


def _require_utf_8(subject: str, text: str) -> str:
    """Return `text`; reject invalid bytes of the command line, which Python represents as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidUsage(f"{subject} is not valid UTF-8") from None
    return text


async def _default_model(client: AsyncClient, url: str) -> str:
    names = [model.id for model in await client.models()]
    if not names:
        raise InvalidUsage(f"the gateway at {url} lists no models; choose one with --model")
    return PREFERRED_MODEL if PREFERRED_MODEL in names else names[0]


def _read_image(file: Path) -> InputImageParam:
    try:
        return image_from_file(file)
    except ClientFault as error:
        raise InvalidUsage(error.message) from None


def _make_input(text: str, images: list[InputImageParam]) -> Input:
    if not images:
        return text
    return [MessageParam(role="user", content=[InputText(text=text), *images])]


async def _print_answer(stream: ResponseStream, printer: Printer, url: str) -> None:
    outcome = ResponseOutcome()
    async with stream:
        printer.begin(stream.losses)
        async for event in stream:
            printer.show_event(event)
            outcome.add_event(event)
    printer.finish(outcome)
    error = stream.error
    failure = outcome.failure_message() if error is None else describe_failure(error, url)
    if failure is not None:
        raise CommandFailed(failure + request_id_line(stream.request_id))


EPILOG: Final = f"""examples:
  antiphon ask "What is the capital of Peru?"
  antiphon ask --model local --image cat.png "What is this?"
  git diff | antiphon ask "Review this change:" -
  antiphon ask --json "Say hello." | jq -r 'select(.type == "response.output_text.delta").delta'

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one
  NO_COLOR          disables colours on a terminal

{EXIT_CODES}"""
