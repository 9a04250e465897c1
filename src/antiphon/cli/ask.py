"""`antiphon ask`: send one question to a gateway and stream the answer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TextIO

from antiphon.cli.exits import EXIT_CODES, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_client import GatewayClient, add_url, call_gateway, request_id_line
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.images import data_url
from antiphon.cli.outcome import ResponseOutcome
from antiphon.cli.printers import EventPrinter, Printer, TextPrinter
from antiphon.protocol.content import ContentParam, InputImageParam, InputText
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request import Request
from antiphon.upstream.transport import Transport

FAVOURITE: Final = "local"  # the free model, if the gateway has it


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ask",
        help="ask a model through a running gateway",
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
        help=f"the model to ask (default: `{FAVOURITE}` if the gateway lists it, else the first in its list)",
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
    text = _prompt(args.prompt, stdin or sys.stdin)
    named = _utf_8("the model name", args.model or "")
    images = [data_url(file) for file in args.image]
    printer = EventPrinter(out) if args.json else TextPrinter(out, err, environ)

    async def ask(gateway: GatewayClient) -> None:
        model = named or await _some_model(gateway)
        await _print_answer(gateway, _request(model, text, images), printer)

    call_gateway(ask, args.url, environ, transport)
    return OK


def _prompt(words: list[str], stdin: TextIO) -> str:
    """Return the words of the command line, then standard input if `-` is among them or there are none."""
    texts = [" ".join(word for word in words if word != "-")]
    if "-" in words or (not words and not stdin.isatty()):
        try:
            texts.append(stdin.read())
        except UnicodeDecodeError:
            raise InvalidUsage("standard input is not valid UTF-8") from None
    prompt = "\n\n".join(text.strip() for text in texts if text.strip())
    if not prompt:
        raise InvalidUsage('no prompt given; write `antiphon ask "What is 2+2?"`, or pipe a prompt into the command')
    return _utf_8("the prompt", prompt)


def _utf_8(what: str, text: str) -> str:
    """Return `text`; reject invalid bytes of the command line, which Python represents as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidUsage(f"{what} is not valid UTF-8") from None
    return text


async def _some_model(gateway: GatewayClient) -> str:
    names = [model.id for model in await gateway.models()]
    if not names:
        raise InvalidUsage(f"the gateway at {gateway.url} lists no models; choose one with --model")
    return FAVOURITE if FAVOURITE in names else names[0]


def _request(model: str, text: str, images: list[str]) -> Request:
    if not images:
        return Request(model=model, input=text, stream=True)
    parts: list[ContentParam] = [InputText(text=text), *(InputImageParam(image_url=image) for image in images)]
    return Request(model=model, input=[MessageParam(role="user", content=parts)], stream=True)


async def _print_answer(gateway: GatewayClient, request: Request, printer: Printer) -> None:
    outcome = ResponseOutcome()
    answer = await gateway.start_response(request)
    printer.begin(answer.headers.get("antiphon-losses", ""))
    try:
        async with aclosing(gateway.events(answer)) as events:
            async for received in events:
                printer.show(received)
                outcome.add_event(received.event)
        fault = outcome.fault()
    except CommandFailed as failure:
        fault = str(failure)
    finally:
        answer.abort()
    printer.finish(outcome)
    if fault is not None:
        raise CommandFailed(fault + request_id_line(answer))


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
