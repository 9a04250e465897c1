"""Splits bytes into JSON lines, incrementally and without I/O, and escapes JSON for readers of lines.

Lines end in LF or CRLF. Blank lines are ignored.
"""

from __future__ import annotations

from typing import Final

from antiphon import sse
from antiphon.errors import UpstreamFault

MAX_LENGTH: Final = 64 * 1024 * 1024


class JsonLines:
    """Reads one stream of lines. A line longer than the limit raises an error."""

    def __init__(self, max_length: int = MAX_LENGTH) -> None:
        self._max_length = max_length
        self._rest: list[bytes] = []  # the pieces of an incomplete line
        self._rest_size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes."""
        *ends, rest = data.split(b"\n")
        if ends:
            ends[0] = b"".join([*self._rest, ends[0]])
            self._rest.clear()
            self._rest_size = 0
        if rest:
            self._rest.append(rest)
            self._rest_size += len(rest)
        if self._rest_size > self._max_length or any(len(line) > self._max_length for line in ends):
            raise UpstreamFault(
                f"the stream has a line of more than {self._max_length} bytes", code="upstream_invalid_response"
            )
        return [line for end in ends if (line := end.strip())]

    def finish(self) -> list[bytes]:
        """Ends the stream and returns its last line, if there is one. The line may be incomplete."""
        line = b"".join(self._rest).strip()
        self._rest.clear()
        return [line] if line else []


class JsonLinesDecoder:
    """Decodes JSON lines to frames, as `sse.Decoder` decodes server-sent events. Each line is a frame."""

    def __init__(self) -> None:
        self._lines = JsonLines()

    def feed(self, data: bytes) -> list[sse.Frame]:
        return [sse.Frame("", line) for line in self._lines.feed(data)]

    def finish(self) -> list[sse.Frame]:
        return [sse.Frame("", line) for line in self._lines.finish()]


def encode_line(frame: sse.Frame) -> bytes:
    """The data of a frame as one line."""
    return escape_line_ends(frame.data) + b"\n"


def escape_line_ends(data: bytes) -> bytes:
    """Escapes all characters that a reader of lines may treat as a line end; common clients also split at these three.

    Inside strings, where the three characters can occur, an escape is equivalent. Real line ends occur only between
    tokens, where a space is equivalent.
    """
    for end, escape in LINE_ENDS.items():
        if end in data:
            data = data.replace(end, escape)
    return data


LINE_ENDS: Final = {
    b"\n": b" ",
    b"\r": b" ",
    "\x85".encode(): b"\\u0085",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}
