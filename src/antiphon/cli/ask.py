"""`antiphon ask`: send one question to a gateway and stream the answer."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from antiphon.cli.attachments import Attachment, attach_file
from antiphon.cli.exits import EXIT_CODES, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_address import add_url, gateway_url
from antiphon.cli.gateway_client import call_gateway, describe_failure, request_id_line, suggested_model
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.last_response import LastResponse, load_last_response, save_last_response
from antiphon.cli.model_choice import default_model, list_models
from antiphon.cli.outcome import ResponseOutcome
from antiphon.cli.printers import EventPrinter, Printer, TextPrinter
from antiphon.cli.terminal import StatusLine
from antiphon.client import AsyncClient, ResponseStream
from antiphon.protocol.content import InputText
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request_fields import Input, RequestFields
from antiphon.upstream.transport import Transport


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
        help="the prompt; a pipe or a file on standard input is added after it, or at `-`; `</dev/null` adds nothing",
    )
    add_model_options(parser)
    add_url(parser)
    parser.add_argument(
        "-f",
        "--file",
        "--image",
        metavar="F",
        action="append",
        type=Path,
        default=[],
        dest="files",
        help="a file for the prompt: text, an image or a PDF; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the events of the answer, one JSON object per line")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `ask` and `chat` share."""
    parser.add_argument(
        "-m",
        "--model",
        metavar="M",
        help="the model to ask (default: the first in the gateway's list that is not embedded, else `local`)",
    )
    parser.add_argument("-s", "--system", metavar="TEXT", help="the system prompt")
    parser.add_argument(
        "-c",
        "--continue",
        dest="continue_",
        action="store_true",
        help="continue the last answer of `antiphon ask` or `antiphon chat`",
    )
    parser.add_argument("--response", metavar="ID", help="continue the stored response with this id")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    stdin: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
) -> int:
    status = StatusLine(err, environ)
    with status:
        text = _read_prompt(args.prompt, stdin or sys.stdin, status)
    model = _require_utf_8("the model name", args.model or "")
    system = _require_utf_8("the system prompt", args.system or "")
    attachments = [attach_file(file) for file in args.files]
    printer = EventPrinter(out, status) if args.json else TextPrinter(out, err, environ, status)
    url = gateway_url(args.url, environ)
    last = load_last_response(url, environ) if args.continue_ and not args.response else None
    previous_id = last.id if last else args.response

    async def ask(client: AsyncClient) -> None:
        status.show(f"asking the gateway at {url}")
        fields: RequestFields = {"model": model or (last.model if last else await _default_model(client, url))}
        status.show(f"waiting for {fields['model']}")
        if system:
            fields["instructions"] = system
        if previous_id:
            fields["previous_response_id"] = previous_id
        stream = client.stream(_make_input(text, attachments), **fields)
        async with suggested_model(client, model):
            await _print_answer(stream, printer, url)
        if stream.response.store:
            save_last_response(LastResponse(url, stream.response.id, fields["model"] or ""), environ)

    with status:
        call_gateway(ask, url, environ, transport)
    return OK


def _read_prompt(arguments: list[str], stdin: TextIO, status: StatusLine) -> str:
    """Return the words of the command line with standard input at `-`. Without `-`, a pipe or a file follows them."""
    if "-" not in arguments and (_is_pipe_or_file(stdin) or not (arguments or stdin.isatty())):
        arguments = [*arguments, "-"]
    texts = [""]
    for argument in arguments:
        if argument == "-":
            status.show("reading standard input")
            texts += [_read_text(stdin), ""]
        else:
            texts[-1] = f"{texts[-1]} {argument}"
    prompt = "\n\n".join(text.strip() for text in texts if text.strip())
    if not prompt:
        raise InvalidUsage('no prompt given; write `antiphon ask "What is 2+2?"`, or pipe a prompt into the command')
    return _require_utf_8("the prompt", prompt)


def _read_text(stdin: TextIO) -> str:
    try:
        return stdin.read()
    except UnicodeDecodeError:
        raise InvalidUsage("standard input is not valid UTF-8") from None


def _is_pipe_or_file(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # closed, or no file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _require_utf_8(subject: str, text: str) -> str:
    """Return `text`; reject invalid bytes of the command line, which Python represents as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidUsage(f"{subject} is not valid UTF-8") from None
    return text


async def _default_model(client: AsyncClient, url: str) -> str:
    return default_model(await list_models(client), url)


def _make_input(text: str, attachments: list[Attachment]) -> Input:
    if not attachments:
        return text
    return [MessageParam(role="user", content=[InputText(text=text), *attachments])]


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
  antiphon ask -m local -f cat.png "What is this?"
  antiphon ask -c "And of Chile?"         continue the last answer
  git diff | antiphon ask "Review this change:"
  antiphon ask --json "Say hello." | jq -r 'select(.type == "response.output_text.delta").delta'

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one
  NO_COLOR          disables colours on a terminal

{EXIT_CODES}"""
