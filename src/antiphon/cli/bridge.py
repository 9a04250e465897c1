"""`antiphon bridge`: translate an agent's JSON lines on standard input to a conformant stream (B-5)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, TextIO

from msgspec import Raw

from antiphon import sse
from antiphon.cli.exits import EXIT_CODES, FAILED, INTERRUPTED, OK
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import one_line, printable_json
from antiphon.dialects import agent_log
from antiphon.dialects.agent_log.wire import ThreadWire
from antiphon.dialects.common.json_lines import JsonLines
from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.system_stamps import SYSTEM_STAMPS


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "bridge",
        help=summary,
        description="Reads the JSON lines that a command-line agent prints while it works, and translates them into a "
        "stream of Open Responses or another API as they arrive. Losses are listed on standard error at "
        "the end.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("--from", dest="source", required=True, choices=SOURCES, help="the agent that prints the lines")
    parser.add_argument(
        "--to",
        dest="target",
        default="responses",
        choices=sorted(TARGETS),
        help="the API of the stream (default: responses)",
    )
    parser.add_argument("--model", metavar="M", help="the model name in the stream (default: the value of --from)")
    output_format = parser.add_mutually_exclusive_group()
    output_format.add_argument("--sse", action="store_true", help="write server-sent events (default)")
    output_format.add_argument("--ndjson", action="store_true", help="write one JSON object per line")


def run(args: argparse.Namespace, out: TextIO, err: TextIO, *, lines: BinaryIO | None = None) -> int:
    bridge = Bridge(args.source, args.target, args.model or args.source, ndjson=args.ndjson)
    # The bytes are UTF-8 regardless of the locale. A terminal gets text without direction characters.
    sink: BinaryIO | None = None if out.isatty() else getattr(out, "buffer", None)

    def write(data: bytes) -> None:
        if sink is None:
            out.write("\n".join(map(printable_json, data.split(b"\n"))))
            out.flush()
        elif data:
            sink.write(data)
            sink.flush()

    code = OK
    try:
        for piece in _read_pieces(lines or sys.stdin.buffer):
            write(bridge.feed(piece))
        write(bridge.finish())
    except UpstreamFault as error:
        write(bridge.finish(error))
    except KeyboardInterrupt:
        write(bridge.finish(ApiError("the agent was interrupted", code="cancelled")))
        code = INTERRUPTED
    for loss in bridge.losses:
        err.write(f"lost: {one_line(loss)}\n")
    if bridge.error is not None:
        err.write(f"the turn failed: {one_line(bridge.error.message)}\n")
    return code or (FAILED if bridge.error else OK)


class Bridge:
    """Translates the lines of one agent to the stream of one API, bytes to bytes."""

    def __init__(self, source: str, target: ClientDialectName, model: str, *, ndjson: bool) -> None:
        request = Request(
            model=model, store=False, stream=True, extra={"chat:stream_options": Raw(b'{"include_usage":true}')}
        )
        initial_response = make_initial_response(
            request, id=SYSTEM_STAMPS.new_id("resp"), created_at=SYSTEM_STAMPS.now()
        )
        self._lines = JsonLines()
        self._to_hub = agent_log.EventsToHub(request, initial_response, SYSTEM_STAMPS, ThreadWire(slug=source))
        self._from_hub = CLIENT_DIALECTS[target].events_from_hub(request)
        self._frames = sse.Decoder() if ndjson else None

    @property
    def error(self) -> ApiError | None:
        """The error of a failed turn; None if it did not fail."""
        return self._to_hub.error

    @property
    def losses(self) -> list[str]:
        """The losses of both translations."""
        return [str(loss) for translator in (self._to_hub, self._from_hub) for loss in translator.losses]

    def feed(self, data: bytes) -> bytes:
        return self._encode([event for line in self._lines.feed(data) for event in self._to_hub.feed(line)])

    def finish(self, error: ApiError | None = None) -> bytes:
        """End the input and return the rest of the stream."""
        events = [event for line in self._lines.finish() for event in self._to_hub.feed(line)]
        return self._encode([*events, *self._to_hub.finish(error)]) + self._change_framing(self._from_hub.finish())

    def _encode(self, events: list[StreamEvent]) -> bytes:
        return self._change_framing(b"".join(map(self._from_hub.feed, events)))

    def _change_framing(self, data: bytes) -> bytes:
        if self._frames is None:
            return data
        return b"".join(frame.data + b"\n" for frame in self._frames.feed(data) if frame.data != sse.DONE)


def _read_pieces(lines: BinaryIO) -> Iterator[bytes]:
    read = getattr(lines, "read1", lines.read)  # returns available bytes without waiting for more
    while piece := read(READ_SIZE):
        yield piece


READ_SIZE: Final = 64 * 1024
SOURCES: Final = ("codex", "vtcode")
TARGETS: Final = tuple(name for name, dialect in CLIENT_DIALECTS.items() if dialect.framing == "sse")
EPILOG: Final = f"""examples:
  codex exec --json "Fix the test." | antiphon bridge --from codex
  codex exec --json "Fix the test." | antiphon bridge --from codex --to chat --ndjson

{EXIT_CODES}"""
