"""The server's side of a WebSocket (RFC 6455), pure: the handshake, whole messages from bytes, and the frames that a
server sends. websockets parses the frames.

No extensions. A message that is announced as too large is refused before it is buffered.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Generator
from typing import Final

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from websockets.exceptions import ProtocolError
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.streams import StreamReader
from websockets.utils import accept_key

from antiphon.errors import ClientFault
from antiphon.http.asgi import Headers, Scope, header_values

# The handshake (4.2)


class BadHandshake(ClientFault):
    """An invalid upgrade request; `headers` tell the client what is supported."""

    def __init__(self, message: str, *, is_wrong_version: bool = False) -> None:
        code, status = ("upgrade_required", 426) if is_wrong_version else (None, None)
        super().__init__(f"WebSocket handshake: {message}", code=code, status=status)
        upgrade: Headers = [(b"upgrade", b"websocket"), (b"connection", b"close, upgrade")]
        self.headers: Headers = [
            (b"sec-websocket-version", b"13"),
            *(upgrade if is_wrong_version else [(b"connection", b"close")]),
        ]


def check_handshake(scope: Scope) -> None:
    """Refuses requests that are not a version 13 handshake."""
    if scope["method"] != "GET" or scope["http_version"] != "1.1":
        raise BadHandshake("expected GET and HTTP/1.1")
    if header_values(scope, b"transfer-encoding") or any(
        length.strip(b"0") for length in header_values(scope, b"content-length")
    ):
        raise BadHandshake("expected no body")
    tokens = [token.strip().lower() for value in header_values(scope, b"upgrade") for token in value.split(b",")]
    if b"websocket" not in tokens:
        raise BadHandshake("upgrade: expected `websocket`")
    if header_values(scope, b"sec-websocket-version") != [b"13"]:
        raise BadHandshake("sec-websocket-version: expected 13", is_wrong_version=True)
    match header_values(scope, b"sec-websocket-key"):
        case [key] if KEY_PATTERN.fullmatch(key):
            pass
        case _:
            raise BadHandshake("sec-websocket-key: expected 16 bytes in base64, once")


def handshake_response(scope: Scope, headers: Headers) -> bytes:
    """The response to a valid handshake. It selects no extension and no subprotocol."""
    [key] = header_values(scope, b"sec-websocket-key")
    lines = [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", accept_key(key.decode()).encode()),
        *headers,
    ]
    return STATUS_LINE[101] + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n"


# Frames


class TextMessage(Struct, frozen=True):
    """A whole text message, of any number of frames: valid UTF-8."""

    text: bytes


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

    __slots__ = ("_frame", "_max_message_size", "_opcode", "_payload", "_size", "_stream")

    def __init__(self, max_message: int) -> None:
        self._stream = StreamReader()
        self._frame: Generator[None, None, Frame] | None = None  # parses the frame whose head was checked
        self._max_message_size = max_message
        self._opcode: Opcode | None = None  # of the incomplete message
        self._payload = bytearray()  # of its frames so far, if it is a text
        self._size = 0  # bytes in its frames so far

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were fed but not processed."""
        return len(self._stream.buffer)

    @property
    def size(self) -> int:
        """Bytes of the incomplete message so far."""
        return self._size + self.buffered_bytes

    @property
    def is_in_message(self) -> bool:
        return self._opcode is not None

    @property
    def has_partial_input(self) -> bool:
        """Whether a message, a frame or a frame head is incomplete."""
        return self.is_in_message or self._frame is not None or self.buffered_bytes > 0

    def feed(self, data: bytes) -> None:
        self._stream.feed_data(data)

    def next_frame(self) -> ReceivedFrame | None:
        """The next whole frame; None if there is none. Raises `InvalidFrame`."""
        if self._frame is None and self._has_valid_head():
            self._frame = Frame.parse(self._read_exact, mask=True)
        if self._frame is None:
            return None
        try:
            next(self._frame)
        except StopIteration as end:
            self._frame = None
            return self._convert_frame(end.value)
        except ProtocolError as error:
            raise InvalidFrame(CloseCode.PROTOCOL_ERROR, str(error)) from None
        return None

    def _read_exact(self, size: int) -> Generator[None, None, bytearray]:
        """Reads bytes for the parser. If all input is a large payload, as of a client that waits for its answer, it is
        not copied."""
        stream = self._stream
        while len(stream.buffer) < size:
            yield
        if size < LARGE_PAYLOAD or len(stream.buffer) > size:
            return (yield from stream.read_exact(size))
        payload, stream.buffer = stream.buffer, bytearray()
        return payload

    def _has_valid_head(self) -> bool:
        """Whether the next frame has announced its length. RFC 6455, 5.2 and 5.5: checks it before any of the payload
        is buffered. websockets checks control frames after their payload, and does not require the shortest form."""
        head = self._stream.buffer
        if len(head) < 2:
            return False
        length = head[1] & 0x7F
        if length > MAX_SHORT_LENGTH:
            end, min_length = (4, MAX_SHORT_LENGTH + 1) if length == 126 else (10, 2**16)
            if len(head) < end:
                return False
            length = int.from_bytes(head[2:end])
            if not min_length <= length < 2**63:
                raise InvalidFrame(CloseCode.PROTOCOL_ERROR, "the length of a frame is not in its shortest form")
        if head[0] & CONTROL_BIT:
            if length > MAX_SHORT_LENGTH:
                raise InvalidFrame(CloseCode.PROTOCOL_ERROR, "a control frame is too long")
        elif self._size + length > self._max_message_size:
            raise InvalidFrame(
                CloseCode.MESSAGE_TOO_BIG, f"the message is too large: expected at most {self._max_message_size} bytes"
            )
        return True

    def _convert_frame(self, frame: Frame) -> ReceivedFrame:
        match frame.opcode:
            case Opcode.PING:
                return PingFrame(bytes(frame.data))
            case Opcode.PONG:
                return PongFrame()
            case Opcode.CLOSE:
                return _parse_close_frame(bytes(frame.data))
            case _:
                return self._join_frame(frame)

    def _join_frame(self, frame: Frame) -> ReceivedFrame:
        if (frame.opcode is Opcode.CONT) != self.is_in_message:
            raise InvalidFrame(
                CloseCode.PROTOCOL_ERROR, "unexpected continuation frame, or a new message inside another"
            )
        if frame.fin and not self.is_in_message:
            return _make_message(frame.opcode, frame.data)
        opcode = self._opcode = self._opcode or frame.opcode
        self._size += len(frame.data)
        if opcode is Opcode.TEXT:
            # A bytearray, not a list: a message in one-byte frames must not need one object per byte.
            self._payload += frame.data
        if not frame.fin:
            return PartialMessage()
        payload, self._payload, self._opcode, self._size = self._payload, bytearray(), None, 0
        return _make_message(opcode, payload)


def text_frame(text: bytes) -> bytes:
    """A text message in one frame."""
    return text_frame_head(len(text)) + text


def text_frame_head(size: int) -> bytes:
    """The head of a text message of `size` bytes in one frame."""
    if size < 126:
        return b"\x81%c" % size
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2)
    return b"\x81\x7f" + size.to_bytes(8)


def pong_frame(payload: bytes) -> bytes:
    return b"\x8a%c%b" % (len(payload), payload)


def close_frame(code: int | None, reason: str = "") -> bytes:
    """A close frame. RFC 6455, 5.5: at most 125 bytes; a longer reason is cut between characters."""
    if code is None:
        return b"\x88\x00"
    encoded_reason = reason.encode()[: 125 - 2].decode(errors="ignore").encode()
    return b"\x88%c%b%b" % (len(encoded_reason) + 2, code.to_bytes(2), encoded_reason)


def _make_message(opcode: Opcode, payload: bytes | bytearray | memoryview) -> TextMessage | BinaryMessage:
    if opcode is Opcode.BINARY:
        return BinaryMessage()
    try:
        _check_utf8(payload)
    except UnicodeDecodeError:
        raise InvalidFrame(CloseCode.INVALID_DATA, "a text message is not valid UTF-8") from None
    return TextMessage(bytes(payload))


def _check_utf8(payload: bytes | bytearray | memoryview) -> None:
    """Decodes the payload. A large one in one part takes five times as long as in small ones, because of its memory."""
    if len(payload) <= UTF8_PART:
        str(payload, "utf-8")
        return
    decoder = getincrementaldecoder("utf-8")()
    with memoryview(payload) as view:
        for start in range(0, len(view), UTF8_PART):
            decoder.decode(view[start : start + UTF8_PART])
    decoder.decode(b"", True)


def _parse_close_frame(payload: bytes) -> CloseFrame:
    """RFC 6455, 7.4: checks the close code."""
    try:
        close = Close.parse(payload)
    except ProtocolError:
        raise InvalidFrame(CloseCode.PROTOCOL_ERROR, "a close frame has an invalid code") from None
    except UnicodeDecodeError:
        raise InvalidFrame(CloseCode.INVALID_DATA, "the reason of a close frame is not UTF-8") from None
    return CloseFrame(close.code if payload else None)


PING: Final = b"\x89\x00"
CONTROL_BIT: Final = 0x08  # of an opcode
MAX_SHORT_LENGTH: Final = 125  # a longer length has its own bytes, and a control frame has none longer
LARGE_PAYLOAD: Final = 1024 * 1024  # bytes
UTF8_PART: Final = 64 * 1024  # bytes
KEY_PATTERN: Final = re.compile(rb"[A-Za-z0-9+/]{22}==")
