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
from typing import Any, BinaryIO, Final, Literal, NamedTuple, TextIO, get_args

import msgspec
from msgspec import Raw
from msgspec.structs import asdict, replace

from antiphon import sse
from antiphon.cli.exits import LOSSY, OK, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import TextStyler, one_line, printable_json
from antiphon.config.schema import DEFAULT_PROFILES
from antiphon.errors import ApiError
from antiphon.gateway.client_dialect import CLIENT_DIALECTS
from antiphon.profiles import Dialect, Profile, load_profile
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.upstream.server_dialects import SERVER_DIALECTS

Kind = Literal["request", "response", "stream"]
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)


class Translated(NamedTuple):
    """A translation. `path` is the path of a request, if its dialect has the model in the URL."""

    body: bytes
    losses: Losses
    path: str = ""


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "translate",
        help="translate a request, a response or a recorded stream to another dialect",
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
        choices=DIALECTS,
        help=f"the dialect of the input: one of {', '.join(DIALECTS)}",
    )
    parser.add_argument(
        "--to",
        dest="target",
        metavar="D",
        required=True,
        choices=DIALECTS,
        help="the dialect of the output: one of the same",
    )
    kind = parser.add_mutually_exclusive_group()
    for name, about in ABOUT_KINDS.items():
        kind.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=about)
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
    data = _input(args.file, stdin or sys.stdin.buffer)
    kind: Kind = args.kind or detect_kind(data, args.source)
    profile = _profile(args.profile, args.target if kind == "request" else args.source)
    if kind == "request":
        translation = _request(data, args.source, profile, args.model)
    else:
        translation = _answer(data, kind, profile, args.target, args.model, _stamps(int(now())))
    out.write(
        "\n".join(map(printable_json, translation.body.split(b"\n")))
        + ("" if translation.body.endswith(b"\n") else "\n")
    )
    out.flush()  # the translation is written before the losses
    if args.json:
        report = {"kind": kind, "path": translation.path or None, "losses": list(map(asdict, translation.losses))}
        err.write(f"{printable_json(msgspec.json.encode(report))}\n")
    else:
        _write_losses(translation, err, TextStyler(err, environ))
    return LOSSY if args.strict and len(translation.losses) else OK


def detect_kind(data: bytes, dialect: Dialect) -> Kind:
    """Guess the kind of an input: events, or several objects, are a stream; the fields of one object decide."""
    content = data.lstrip()
    if content.startswith((*EVENT_LINES, b"[")):
        return "stream"
    first, _, rest = content.partition(b"\n")
    if rest.strip() and _members(first) is not None:
        return "stream"
    members = _members(data)
    if members is None:
        raise InvalidUsage("the input is neither a JSON object nor a stream of events")
    if members.keys() & EVENT_FIELDS[dialect]:
        return "stream"
    return "response" if members.keys() & RESPONSE_FIELDS[dialect] else "request"


def _members(data: bytes) -> dict[str, Any] | None:
    """Return the members of a JSON object; None if the data is not one."""
    try:
        return decode_json(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _input(file: Path | None, stdin: BinaryIO) -> bytes:
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


def _profile(name: str | None, dialect: Dialect) -> Profile:
    """Return the profile of the server, to which a request goes or from which an answer comes."""
    profile = load_profile(name or DEFAULT_PROFILES[dialect])
    if profile.dialect != dialect:
        raise InvalidUsage(
            f"the profile {name!r} is for servers of dialect {profile.dialect!r}; expected a profile of "
            f"dialect {dialect!r}"
        )
    return profile


# Requests


def _request(data: bytes, source: Dialect, profile: Profile, model: str | None) -> Translated:
    request, losses = CLIENT_DIALECTS[source].request_to_hub(data)
    if model:
        request = replace(request, model=model)
    sent, quirk_losses = profile.apply_quirks(request)
    losses.extend(quirk_losses)
    server_dialect = SERVER_DIALECTS[profile.dialect]
    body, wire_losses = server_dialect.request_from_hub(sent, profile.wire)
    losses.extend(wire_losses)
    _report_gateway_fields(request, body, losses)
    path = (
        server_dialect.url("", request.model, streams=bool(request.stream))
        if request.model and "{model}" in server_dialect.path
        else ""
    )
    return Translated(body, losses, path)


def _report_gateway_fields(request: Request, body: bytes, losses: Losses) -> None:
    """Report the fields that a gateway would serve. The dialects do not report them, and here is no gateway."""
    members = msgspec.json.decode(body)
    for name in GATEWAY_FIELDS:
        requested = getattr(request, name)
        if requested and requested != "disabled" and members.get(name) != requested:
            losses.add(
                name,
                f"the field {name!r}",
                "the server has no such field, and there is no gateway that could implement it",
            )


# Answers


def _answer(
    data: bytes, kind: Kind, profile: Profile, target: Dialect, model: str | None, stamps: Stamps
) -> Translated:
    client = CLIENT_DIALECTS[target]
    frames = _frames(data) if kind == "stream" else []
    request = replace(
        PERMISSIVE_REQUEST, model=model or _model_in(frames[0].data if frames else data), stream=kind == "stream"
    )
    initial_response = make_initial_response(request, id=stamps.new_id("resp"), created_at=stamps.now())
    server = SERVER_DIALECTS[profile.dialect]
    losses = Losses()
    if kind == "stream":
        to_hub = server.events_to_hub(request, initial_response, stamps, profile.wire)
        from_hub = client.events_from_hub(request)
        events: list[StreamEvent] = [event for frame in frames for event in to_hub.feed(frame)] + to_hub.finish()
        body = b"".join(map(from_hub.feed, events)) + from_hub.finish()
        losses.extend(to_hub.losses)
        losses.extend(from_hub.losses)
        return Translated(body, losses)
    try:
        response, new_losses = server.response_to_hub(data, request, initial_response, stamps, profile.wire)
        losses.extend(new_losses)
        body, new_losses = client.response_from_hub(response, request)
        losses.extend(new_losses)
    except ApiError as error:
        if error.code == "upstream_invalid_response":
            raise
        body = client.error_from_hub(error)[1]  # an error is an answer too
    return Translated(body, losses)


def _frames(data: bytes) -> list[sse.Frame]:
    """Return the events of a recording, the members of an array, or the objects of JSON lines."""
    content = data.lstrip()
    if content.startswith(b"["):
        try:
            return [sse.Frame("", bytes(member)) for member in decode_json(data, type=list[Raw])]
        except msgspec.DecodeError as error:
            raise InvalidUsage(f"the input starts like a JSON array but is not valid: {error}") from None
    if content.startswith(b"{"):
        return [sse.Frame("", line) for line in data.split(b"\n") if line.strip()]
    decoder = sse.Decoder()
    return decoder.feed(data) + decoder.finish()


def _model_in(data: bytes) -> str:
    """Return the model in an answer, or in the first event of one."""
    match _members(data):
        case {"model": str() as model} | {"modelVersion": str() as model}:
            return model
        case {"response": {"model": str() as model}} | {"message": {"model": str() as model}}:
            return model
        case _:
            return NO_MODEL


def _stamps(second: int) -> Stamps:
    """Return stamps with sequential ids, so that the same input gives the same output."""
    numbers = count(1)
    return Stamps(lambda prefix: f"{prefix}_{next(numbers):032x}", lambda: second)


def _write_losses(translation: Translated, err: TextIO, paint: TextStyler) -> None:
    if translation.path:
        err.write(f"{paint('dim', 'to:')} POST {one_line(translation.path)}\n")
    err.writelines(f"{paint('yellow', 'lost:')} {one_line(str(loss))}\n" for loss in translation.losses)


NO_MODEL: Final = "unknown"
# An answer is translated without its request; this one requests every optional part of an answer.
PERMISSIVE_REQUEST: Final = Request(
    reasoning=ReasoningConfigParam(summary="auto"),
    include=["reasoning.encrypted_content", "message.output_text.logprobs"],
    extra={"chat:stream_options": Raw(b'{"include_usage":true}')},
)
GATEWAY_FIELDS: Final = (
    "previous_response_id",
    "conversation",
    "background",
    "store",
    "truncation",
    "context_management",
)
EVENT_LINES: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
# Fields of answers that no request has.
RESPONSE_FIELDS: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset({"choices", "error"}),
    "responses": frozenset({"output", "error"}),
    "messages": frozenset({"content", "error"}),
    "gemini": frozenset({"candidates", "promptFeedback", "usageMetadata", "error"}),
}
# Fields of stream events that nothing else has.
EVENT_FIELDS: Final[dict[Dialect, frozenset[str]]] = {
    "chat": frozenset(),
    "responses": frozenset({"sequence_number"}),
    "messages": frozenset({"message", "index", "delta"}),
    "gemini": frozenset(),
}
ABOUT_KINDS: Final[dict[Kind, str]] = {
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
