"""Server-sent events: decodes bytes to frames and encodes frames, incrementally and without I/O.

`Decoder.feed` takes bytes in any pieces and returns complete frames; `finish` returns a frame that the end of the
stream completes. Lines end in LF, CR or CRLF and nothing else: U+2028, U+2029 and U+0085 are text (never
`splitlines()`). The length of an event is limited.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.errors import UpstreamFault
from antiphon.protocol.codec import decode_json

DONE: Final = b"[DONE]"
MAX_EVENT_LENGTH: Final = 64 * 1024 * 1024


class Frame(Struct, frozen=True, gc=False):
    """One event: its name (empty if the stream has none), and its data with lines joined by LF."""

    event: str
    data: bytes


class Decoder:
    """Decodes one stream. Comments, ids and retry hints are ignored."""

    def __init__(self, max_length: int = MAX_EVENT_LENGTH) -> None:
        self._max_length = max_length
        self._line = bytearray()  # an incomplete line
        self._event = ""
        self._data = bytearray()  # the data lines of an incomplete event, each with an LF
        self._is_bom_handled = False  # whether the BOM was removed or is known to be absent
        self._is_between_frames = False  # the same, and no part of a frame is buffered
        self._is_after_cr = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        if not self._is_bom_handled and data[:6] in FIRST_BYTES and not self._line:
            self._is_bom_handled = self._is_between_frames = True  # the common case: no BOM
        # The common case of a slow stream: exactly one frame with one data line.
        end = len(data) - 2
        if (
            self._is_between_frames
            and data[:6] == b"data: "
            and data[-1] == LF
            and data.find(b"\n") == end
            and CR not in data
        ):
            self._check_length(end)
            return [Frame("", data[6:end])]
        # The common case of a fast stream: several complete frames at once.
        if self._is_between_frames and data[-2:] == b"\n\n" and CR not in data and end <= self._max_length:
            frames = _plain_frames(data) or _named_frames(data) or _mixed_frames(data[:-2].split(b"\n\n"))
            if frames is not None:
                return frames
        # The same for lines that end in CRLF.
        if self._is_between_frames and data[-4:] == b"\r\n\r\n" and end <= self._max_length:
            frames = _crlf_frames(data)
            if frames is not None:
                return frames
        return self._feed_slowly(data)

    def finish(self) -> list[Frame]:
        """Ends the stream and returns its last frame, if there is one.

        A frame without its final blank line counts. A frame that was cut inside a line counts only if its data is
        complete JSON or `[DONE]`.
        """
        frames: list[Frame] = []
        was_cut = bool(self._line)
        if self._line.startswith((b"data:", b"error:")):
            self._take_line(bytes(self._line), frames)
        if self._data and (not was_cut or _is_complete_data(bytes(self._data))):
            self._append_frame(frames)
        self._line.clear()
        self._data.clear()
        self._event = ""
        return frames

    def _feed_slowly(self, data: bytes) -> list[Frame]:
        if self._is_after_cr and data:
            self._is_after_cr = False
            data = data.removeprefix(b"\n")  # the LF of a CRLF that was split between two calls
        if not self._is_bom_handled:
            data = bytes(self._line) + data
            self._line.clear()
            if len(data) < len(BOM) and BOM.startswith(data):
                self._line += data
                return []
            self._is_bom_handled = True
            data = data.removeprefix(BOM)
        lines = LINE_END.split(data) if CR in data else data.split(b"\n")
        self._is_after_cr = self._is_after_cr or data[-1:] == b"\r"
        frames: list[Frame] = []
        self._take_lines(lines, frames)
        self._is_between_frames = not (self._line or self._data or self._event or self._is_after_cr)
        return frames

    def _take_lines(self, lines: list[bytes], frames: list[Frame]) -> None:
        """Takes lines of one call: the first may continue the buffered line, the last is incomplete."""
        incomplete_line = lines.pop()
        if lines and self._line:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        for line in lines:
            self._check_length(len(line))
            self._take_line(line, frames)
        self._line += incomplete_line
        self._check_length(len(self._line))

    def _check_length(self, length: int) -> None:
        if length + len(self._data) > self._max_length:
            raise UpstreamFault(
                f"the upstream sent a line or an event of more than {self._max_length} bytes",
                code="upstream_invalid_response",
            )

    def _take_line(self, line: bytes, frames: list[Frame]) -> None:
        if not line:
            if self._data:
                self._append_frame(frames)
            self._event = ""
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data += value.removeprefix(b" ")
            self._data.append(LF)
        elif name == b"event":
            self._event = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name == b"error" and not self._data:
            self._event = "error"
            self._data += _error_data(value.strip())
            self._data.append(LF)

    def _append_frame(self, frames: list[Frame]) -> None:
        self._data.pop()  # the LF after the last line
        frames.append(Frame(self._event, bytes(self._data)))
        self._data.clear()


def _error_data(value: bytes) -> bytes:
    """The data of a line `error: …`, which some servers send in place of an event: an object under `error`."""
    try:
        error = decode_json(value)
    except ValueError:
        error = value.decode("utf-8", "replace")
    match error:
        case {"error": _}:
            return value
        case dict():
            return b'{"error":%b}' % value
        case _:
            return b'{"error":%b}' % msgspec.json.encode({"message": str(error)})


def _plain_frames(data: bytes) -> list[Frame] | None:
    """Decodes frames that have one data line each and nothing else; None if there is anything else."""
    if data[:6] != b"data: ":
        return None
    blocks = data[6:-2].split(b"\n\ndata: ")
    frames = [Frame("", block) for block in blocks if b"\n" not in block]  # `count` would take eight times as long
    return frames if len(frames) == len(blocks) else None


def _named_frames(data: bytes) -> list[Frame] | None:
    """The same for frames that also have a name. A name equal to the previous one is not decoded again."""
    if data[:7] != b"event: ":
        return None
    blocks = data[7:-2].split(b"\n\nevent: ")
    if data.count(b"\n") != 3 * len(blocks):
        return None
    frames: list[Frame] = []
    event, previous_name = "", b""
    for block in blocks:
        name, separator, line = block.partition(b"\ndata: ")
        if not separator:
            return None
        if name != previous_name:
            event, previous_name = name.decode("utf-8", "replace"), name
        frames.append(Frame(event, line))
    return frames


def _crlf_frames(data: bytes) -> list[Frame] | None:
    """The same for lines that end in CRLF."""
    blocks = data[6:-4].split(b"\r\n\r\ndata: ")
    if data[:6] != b"data: " or not data.count(b"\n") == data.count(b"\r") == 2 * len(blocks):
        return None
    return [Frame("", block) for block in blocks]


def _mixed_frames(blocks: list[bytes]) -> list[Frame] | None:
    """Decodes frames that have one data line each, with or without a name; None if there is anything else."""
    frames: list[Frame] = []
    for block in blocks:
        event, line = "", block
        if block[:7] == b"event: ":
            name, _, line = block[7:].partition(b"\n")
            event = name.decode("utf-8", "replace")
        if line[:6] != b"data: " or b"\n" in line:
            return None
        frames.append(Frame(event, line[6:]))
    return frames


def encode(frame: Frame) -> bytes:
    """Encodes a decoded frame."""
    return encode_frame(frame.event, frame.data) if frame.event else encode_data(frame.data)


def encode_frame(event: str, data: bytes) -> bytes:
    """Encodes one frame (HTTP-3)."""
    if "\n" in event or "\r" in event:  # an unknown name from an upstream must not start a new line
        event = event.replace("\r", " ").replace("\n", " ")
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _replace_line_ends(data))


def encode_data(data: bytes) -> bytes:
    """Encodes one frame without a name, as chat servers send it."""
    return b"data: %b\n\n" % _replace_line_ends(data)


def encode_comment(text: str = "") -> bytes:
    """Encodes a comment, which readers ignore. It keeps an idle connection alive (HTTP-7)."""
    return b": %b\n\n" % _replace_line_ends(text.encode())


def insert_before_end(stream: bytes, piece: bytes) -> bytes:
    """Puts a piece directly before the terminal event of the encoded frames that end a stream: the last frame, or the
    one before it if that has a name and only `[DONE]` follows."""
    *frames, last, _ = stream.split(b"\n\n")
    if last + b"\n\n" == DONE_FRAME and frames and frames[-1].startswith(b"event:"):
        last = frames.pop() + b"\n\n" + last
    return b"".join([frame + b"\n\n" for frame in frames]) + piece + last + b"\n\n"


def _replace_line_ends(data: bytes) -> bytes:
    """Replaces line ends by spaces. JSON has line ends only between tokens, where a space is equivalent."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ") if LF in data or CR in data else data


def _is_complete_data(data: bytes) -> bool:
    try:
        decode_json(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return data.rstrip() == DONE
    return True


BOM: Final = b"\xef\xbb\xbf"
FIRST_BYTES: Final = frozenset({b"data: ", b"event:"})  # the first bytes of nearly every stream
LINE_END: Final = re.compile(rb"\r\n|\r|\n")
CR: Final = 13
LF: Final = 10
DONE_FRAME: Final = encode_data(DONE)  # HTTP-4
