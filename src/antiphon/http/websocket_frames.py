"""WebSocket frames (RFC 6455): bytes in, whole messages out, and the frames that a server sends. Pure; wsproto reads
the frames.

No extensions. A message that is announced as too large is refused before it is buffered.
"""

from __future__ import annotations

from typing import Final, cast

from msgspec import Struct
from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, Opcode, ParseFailed


class TextMessage(Struct, frozen=True):
    """A whole text message, of any number of frames."""

    text: str


class BinaryMessage(Struct, frozen=True):
    """A whole binary message. Its bytes are not kept, since no endpoint reads them."""


class PartialMessage(Struct, frozen=True):
    """Part of a message."""


class PingFrame(Struct, frozen=True):
    payload: bytes


class PongFrame(Struct, frozen=True):
    """A pong. Its payload is ignored."""


class CloseFrame(Struct, frozen=True):
    """A close frame; `code` is None if it has none."""

    code: int | None


ReceivedFrame = TextMessage | BinaryMessage | PartialMessage | PingFrame | PongFrame | CloseFrame


class InvalidFrame(Exception):
    """Invalid input; nothing after it can be read. `code` and `reason` are for the close frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class FrameReader:
    """Reads the frames of a client."""

    __slots__ = ("_decoder", "_max", "_opcode", "_payload", "size")

    def __init__(self, max_message: int) -> None:
        self._decoder = FrameDecoder(client=False)
        self._payload = bytearray()
        self._max = max_message
        self._opcode: Opcode | None = None  # of the incomplete message
        self.size = 0  # bytes of that message so far

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were fed but not processed."""
        return len(self._decoder.buffer)

    @property
    def in_message(self) -> bool:
        return self._opcode is not None

    @property
    def has_partial_input(self) -> bool:
        """Whether a message, a frame or a frame head is incomplete."""
        return self.in_message or self._decoder.header is not None or self.buffered_bytes > 0

    def feed(self, data: bytes) -> None:
        self._decoder.receive_bytes(data)

    def next_frame(self) -> ReceivedFrame | None:
        """The next frame, or the available part of it; None if there is none. Raises `InvalidFrame`."""
        try:
            frame = self._decoder.process_buffer()
        except ParseFailed as error:
            raise InvalidFrame(error.code, str(error)) from None
        if frame is not None and frame.opcode.iscontrol():
            return _control(frame.opcode, cast(bytes, frame.payload))
        self._check_size(frame)
        return None if frame is None else self._join(frame)

    def _check_size(self, frame: Frame | None) -> None:
        if frame is not None:
            self.size += len(cast(bytes, frame.payload))
        header = self._decoder.header
        announced = (
            0 if header is None or header.opcode.iscontrol() else header.payload_len - self._decoder.payload_consumed
        )
        if self.size + announced > self._max:
            raise InvalidFrame(
                CloseReason.MESSAGE_TOO_BIG, f"the message is too large: expected at most {self._max} bytes"
            )

    def _join(self, frame: Frame) -> ReceivedFrame:
        if (frame.opcode is Opcode.CONTINUATION) != self.in_message:
            raise InvalidFrame(
                CloseReason.PROTOCOL_ERROR, "unexpected continuation frame, or a new message inside another"
            )
        opcode = self._opcode = self._opcode or frame.opcode
        if opcode is Opcode.TEXT:
            # A bytearray, not a list: a message in one-byte frames must not need one object per byte.
            self._payload += cast(bytes, frame.payload)
        if not (frame.frame_finished and frame.message_finished):
            return PartialMessage()
        payload, self._payload, self._opcode, self.size = self._payload, bytearray(), None, 0
        if opcode is Opcode.BINARY:
            return BinaryMessage()
        try:
            return TextMessage(payload.decode())
        except UnicodeDecodeError:
            raise InvalidFrame(CloseReason.INVALID_FRAME_PAYLOAD_DATA, "a text message is not valid UTF-8") from None


def text_frame(text: bytes) -> bytes:
    """A text message in one frame."""
    size = len(text)
    if size < 126:
        return b"\x81%c%b" % (size, text)
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2) + text
    return b"\x81\x7f" + size.to_bytes(8) + text


def pong_frame(payload: bytes) -> bytes:
    return b"\x8a%c%b" % (len(payload), payload)


def close_frame(code: int | None, reason: str = "") -> bytes:
    """A close frame. RFC 6455, 5.5: at most 125 bytes; a longer reason is cut between characters."""
    if code is None:
        return b"\x88\x00"
    encoded_reason = reason.encode()[: 125 - 2].decode(errors="ignore").encode()
    return b"\x88%c%b%b" % (len(encoded_reason) + 2, code.to_bytes(2), encoded_reason)


def _control(opcode: Opcode, payload: bytes) -> ReceivedFrame:
    match opcode:
        case Opcode.PING:
            return PingFrame(payload)
        case Opcode.PONG:
            return PongFrame()
        case _:
            return _close(payload)


def _close(payload: bytes) -> CloseFrame:
    """RFC 6455, 7.4: checks the close code."""
    if not payload:
        return CloseFrame(None)
    code = int.from_bytes(payload[:2])
    if len(payload) == 1 or not (code in CODES or 3000 <= code < 5000):
        raise InvalidFrame(CloseReason.PROTOCOL_ERROR, "a close frame has an invalid code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise InvalidFrame(CloseReason.INVALID_FRAME_PAYLOAD_DATA, "the reason of a close frame is not UTF-8") from None
    return CloseFrame(code)


PING: Final = b"\x89\x00"
CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
