"""Server-sent events: bytes ⇄ frames, incremental and pure.

`Decoder.feed` takes any cut of the bytes and returns whole frames; `finish` gives what the end leaves over. Lines end in LF, CR or
CRLF and nothing else: U+2028, U+2029 and U+0085 are text (never `splitlines()`). An event may be as long as the limit, no longer.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from antiphon.errors import UpstreamFault

DONE: Final = b"[DONE]"
MAX_LINE: Final = 64 * 1024 * 1024
BOM: Final = b"\xef\xbb\xbf"


class Frame(Struct, frozen=True, gc=False):
    """One event: its name, empty if the stream gave none, and its data, lines joined by LF."""

    event: str
    data: bytes


class Decoder:
    """Bytes in, frames out; comments, ids and retry hints are passed over."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._buffer = b""
        self._scanned = 0
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._begun = False
        self._between = False  # the BOM was dealt with, and no byte of a frame is held
        self._after_cr = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        # The common case on a paced stream: exactly one frame, of one data line.
        end = len(data) - 2
        if self._between and data[:6] == b"data: " and data[-1] == LF and data.find(b"\n") == end and CR not in data:
            self._check(end)
            return [Frame("", data[6:end])]
        return self._feed(data)

    def finish(self) -> list[Frame]:
        """The stream ended. A frame whose last blank line never came counts; one that was cut inside a line counts only if
        its data is whole all the same, which cut JSON never is."""
        frames: list[Frame] = []
        cut_line, self._buffer, self._scanned = self._buffer, b"", 0
        if cut_line:
            self._line(cut_line, frames)
        if self._data and (not cut_line or _is_whole(b"\n".join(self._data))):
            self._dispatch(frames)
        self._data, self._event = [], ""
        return frames

    @property
    def pending(self) -> bool:
        """Whether bytes of an unfinished frame are held."""
        return bool(self._buffer or self._data)

    def _feed(self, data: bytes) -> list[Frame]:
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":  # the second half of a CRLF that was cut in two
                data = data[1:]
        buffer = self._buffer + data if self._buffer else data
        if not self._begun:
            if len(buffer) < len(BOM) and BOM.startswith(buffer):
                self._buffer = buffer
                return []
            self._begun = True
            buffer = buffer.removeprefix(BOM)
        frames: list[Frame] = []
        start = 0
        at = self._scanned  # no line ends before here: a line that comes byte by byte is not searched again and again
        while True:
            end = _line_end(buffer, at)
            if end < 0:
                break
            self._check(end - start)
            self._line(buffer[start:end], frames)
            start = end + 1
            if buffer[end] == CR:
                if start == len(buffer):
                    self._after_cr = True
                elif buffer[start] == LF:
                    start += 1
            at = start
        self._buffer = buffer[start:] if start else buffer
        self._scanned = len(self._buffer)
        self._check(self._scanned)
        self._between = not (self._buffer or self._data or self._event or self._after_cr)
        return frames

    def _check(self, length: int) -> None:
        if length + self._size > self._max_line:
            raise UpstreamFault(
                f"the upstream sent a line or an event of more than {self._max_line} bytes", code="upstream_invalid_response"
            )

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        if not line:
            if self._data:
                self._dispatch(frames)
            self._event = ""
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")

    def _dispatch(self, frames: list[Frame]) -> None:
        frames.append(Frame(self._event, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
        self._data = []
        self._event = ""
        self._size = 0


def encode(event: str, data: bytes) -> bytes:
    """One frame on the wire (HTTP-3). `data` holds no line ending: JSON never does."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


def encode_data(data: bytes) -> bytes:
    """One frame without a name, as chat servers send them."""
    return b"data: %b\n\n" % data


def comment(text: str = "") -> bytes:
    """A line that every reader passes over: it keeps a silent connection alive (HTTP-7)."""
    return b": %b\n\n" % text.replace("\r", " ").replace("\n", " ").encode()


def _is_whole(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return data == DONE
    return True


def _line_end(buffer: bytes, at: int) -> int:
    """Where the line that goes on at `at` ends, -1 if it does not."""
    lf = buffer.find(b"\n", at)
    cr = buffer.find(b"\r", at, lf if lf >= 0 else len(buffer))
    return cr if cr >= 0 else lf


CR: Final = 13
LF: Final = 10
END: Final = encode_data(DONE)  # HTTP-4
