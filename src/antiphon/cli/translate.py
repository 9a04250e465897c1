"""`antiphon translate`: translate a request, an answer or a recorded stream to another dialect, and print the losses.

It uses the gateway's translation without a gateway: nothing is sent or stored, and no earlier turn is loaded. Fields
that only a gateway can serve are reported as losses.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TextIO, assert_never

import msgspec
from msgspec.structs import asdict

from antiphon import sse, translate
from antiphon.cli.exits import LOSSY, OK, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import TextStyler, one_line, printable_json
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECT_NAMES, SERVER_DIALECTS
from antiphon.errors import InvalidJson
from antiphon.protocol.codec import decode_json
from antiphon.protocol.stamps import Stamps
from antiphon.translate import Translation

Kind = Literal["request", "response", "stream"]


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "translate",
        help=summary,
        description="Translates without a gateway and without a network. The translation goes to standard output. "
        "Losses go to standard error: the path, what was lost, and why.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="D",
        required=True,
        choices=SERVER_DIALECT_NAMES,
        help=f"the dialect of the input: one of {', '.join(SERVER_DIALECT_NAMES)}",
    )
    parser.add_argument(
        "--to",
        dest="target",
        metavar="D",
        required=True,
        choices=SERVER_DIALECT_NAMES,
        help="the dialect of the output: one of the same",
    )
    kind = parser.add_mutually_exclusive_group()
    for name, help_text in KIND_HELP.items():
        kind.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=help_text)
    parser.add_argument(
        "--profile",
        metavar="P",
        help="the profile of the server that receives the request or sent the answer: its name or its file",
    )
    parser.add_argument(
        "--model", metavar="M", help="the model name to use instead of the one in the input, or if the input has none"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 3 if anything was lost")
    parser.add_argument("--json", action="store_true", help="print the losses as one JSON object")
    parser.add_argument(
        "file", nargs="?", metavar="FILE", type=Path, help="the file to translate (default and `-`: standard input)"
    )


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    stdin: BinaryIO | None = None,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
) -> int:
    data = _read_input(args.file, stdin or sys.stdin.buffer)
    kind: Kind = args.kind or detect_kind(data, args.source)
    translation = _translate(args, kind, data, _counting_stamps(int(now())))
    out.write(
        "\n".join(map(printable_json, translation.body.split(b"\n")))
        + ("" if translation.body.endswith(b"\n") else "\n")
    )
    out.flush()  # the translation is written before the losses
    if args.json:
        report = {"kind": kind, "path": translation.path or None, "losses": list(map(asdict, translation.losses))}
        err.write(f"{printable_json(msgspec.json.encode(report))}\n")
    else:
        _print_losses(translation, err, TextStyler(err, environ))
    return LOSSY if args.strict and len(translation.losses) else OK


def detect_kind(data: bytes, dialect: ServerDialectName) -> Kind:
    """Guess the kind of an input: events, or several objects, are a stream; the fields of one object decide."""
    server = SERVER_DIALECTS[dialect]
    content = data.lstrip()
    if content.startswith((*EVENT_LINES, b"[")):
        return "stream"
    first_line, _, other_lines = content.partition(b"\n")
    if other_lines.strip() and _decode_object(first_line) is not None:
        return "stream"
    members = _decode_object(data)
    if members is None:
        raise InvalidUsage("the input is neither a JSON object nor a stream of events")
    if members.keys() & server.event_only_fields:
        return "stream"
    return "response" if members.keys() & server.response_only_fields else "request"


def _decode_object(data: bytes) -> dict[str, Any] | None:
    """Return the members of a JSON object; None if the data is not one."""
    try:
        return decode_json(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _read_input(file: Path | None, stdin: BinaryIO) -> bytes:
    if file is None or str(file) == "-":
        if stdin.isatty():
            raise InvalidUsage("nothing to translate; name a file, or pipe the input into the command")
        data = stdin.read()
    else:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InvalidUsage(f"cannot read {file}: {error.strerror}") from None
    data = data.removeprefix(sse.BOM)
    if not data.strip():
        raise InvalidUsage("nothing to translate; the input is empty")
    return data


def _translate(args: argparse.Namespace, kind: Kind, data: bytes, stamps: Stamps) -> Translation:
    dialects: dict[str, ServerDialectName] = {"from_": args.source, "to": args.target}
    match kind:
        case "request":
            return translate.request(data, **dialects, profile=args.profile, model=args.model)
        case "response":
            return translate.response(data, **dialects, profile=args.profile, model=args.model, stamps=stamps)
        case "stream":
            stream = translate.stream([data], **dialects, profile=args.profile, model=args.model, stamps=stamps)
            try:
                return Translation(b"".join(stream), stream.losses)
            except InvalidJson as error:
                raise InvalidUsage(error.message) from None
        case _ as never:
            assert_never(never)


def _counting_stamps(second: int) -> Stamps:
    """Return stamps with sequential ids, so that the same input gives the same output."""
    numbers = count(1)
    return Stamps(lambda prefix: f"{prefix}_{next(numbers):032x}", lambda: second)


def _print_losses(translation: Translation, err: TextIO, paint: TextStyler) -> None:
    if translation.path:
        err.write(f"{paint('dim', 'to:')} POST {one_line(translation.path)}\n")
    err.writelines(f"{paint('yellow', 'lost:')} {one_line(str(loss))}\n" for loss in translation.losses)


EVENT_LINES: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
KIND_HELP: Final[dict[Kind, str]] = {
    "request": "the input is a client's request",
    "response": "the input is a server's response that was not streamed, or its error",
    "stream": "the input is a recorded stream: server-sent events, a JSON array, or one object per line (without any "
    "of the three options the kind is detected)",
}
EPILOG: Final = """examples:
  antiphon translate --from messages --to chat request.json
  antiphon translate --from responses --to gemini --profile lab.toml --model mock-1 --strict request.json
  curl -N … | antiphon translate --from chat --to responses --stream

exit codes:
  0    translated
  1    failure: the input is not valid in its dialect, or cannot be translated at all
  2    the command line, the profile or the file is invalid; nothing was done
  3    translated with losses (only with --strict)"""
