"""Frames as messages, and messages as frames: RFC 6455, without a socket."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.websocket_client import frame
from wsproto.frame_protocol import FrameProtocol

from antiphon.http.websocket_protocol import (
    LARGE_PAYLOAD,
    PING,
    BinaryMessage,
    CloseFrame,
    FrameReader,
    InvalidFrame,
    PartialMessage,
    PingFrame,
    PongFrame,
    ReceivedFrame,
    TextMessage,
    close_frame,
    pong_frame,
    text_frame,
)

pytestmark = pytest.mark.without_coverage
MAX = 1000


def read(*pieces: bytes, max_message: int = MAX) -> list[ReceivedFrame]:
    """All complete messages."""
    reader = FrameReader(max_message)
    frames: list[ReceivedFrame] = []
    for piece in pieces:
        reader.feed(piece)
        while (received := reader.next_frame()) is not None:
            if received != PartialMessage():
                frames.append(received)
    return frames


def broken(data: bytes, max_message: int = MAX) -> int:
    with pytest.raises(InvalidFrame) as caught:
        read(data, max_message=max_message)
    assert caught.value.reason
    with pytest.raises(InvalidFrame) as again:
        read(*(data[at : at + 1] for at in range(len(data))), max_message=max_message)
    assert again.value.code == caught.value.code
    return caught.value.code


# Messages

FRAMES = (
    frame(1, "Grüße, 🎶".encode())
    + frame(1, b"")
    + frame(9, b"are you there")
    + frame(1, b"in ", fin=False)
    + frame(9, b"?")
    + frame(0, "dreí".encode()[:-1], fin=False)
    + frame(10, b"yes")
    + frame(0, b"", fin=False)
    + frame(0, "dreí".encode()[-1:])
    + frame(2, b"\xff\x00", fin=False)
    + frame(0, b"\xfe")
    + frame(1, b"x" * 300)
    + frame(8, (1000).to_bytes(2) + b"bye")
)
EXPECTED: list[ReceivedFrame] = [
    TextMessage("Grüße, 🎶".encode()),
    TextMessage(b""),
    PingFrame(b"are you there"),
    PingFrame(b"?"),
    PongFrame(),
    TextMessage("in dreí".encode()),
    BinaryMessage(),
    TextMessage(b"x" * 300),
    CloseFrame(1000),
]


def test_reader_joins_messages_and_returns_control_frames_between() -> None:
    assert read(FRAMES) == EXPECTED


def test_reader_returns_the_same_messages_for_every_split() -> None:
    for at in range(len(FRAMES)):
        assert read(FRAMES[:at], FRAMES[at:]) == EXPECTED
    assert read(*(FRAMES[at : at + 1] for at in range(len(FRAMES)))) == EXPECTED


@st.composite
def _messages(draw: st.DrawFn) -> tuple[bytes, list[ReceivedFrame]]:
    """Texts in any number of frames, split anywhere, with pings in between."""
    data, expected = b"", list[ReceivedFrame]()
    for text in draw(st.lists(st.text(max_size=50), max_size=4)):
        encoded = text.encode()
        cuts = sorted(draw(st.lists(st.integers(0, len(encoded)), max_size=3)))
        parts = [encoded[a:b] for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
        for at, part in enumerate(parts):
            data += frame(0 if at else 1, part, fin=at == len(parts) - 1, mask=draw(st.binary(min_size=4, max_size=4)))
            if at < len(parts) - 1 and draw(st.booleans()):
                data += frame(9, b"%d" % at)
                expected.append(PingFrame(b"%d" % at))
        expected.append(TextMessage(text.encode()))
    return data, expected


@settings(max_examples=30)
@given(_messages(), st.lists(st.integers(0, 400), max_size=5))
def test_reader_joins_any_text_from_any_fragments_and_splits(
    sent: tuple[bytes, list[ReceivedFrame]], cuts: list[int]
) -> None:
    data, expected = sent
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert read(*(data[a:b] for a, b in pairwise(marks))) == expected


def test_has_partial_input_from_first_byte_to_last() -> None:
    reader = FrameReader(MAX)
    data = frame(1, b"ab", fin=False) + frame(9) + frame(0, b"c")
    for byte in data[:-1]:
        reader.feed(bytes([byte]))
        while reader.next_frame() is not None:
            pass
        assert reader.has_partial_input
    assert reader.is_in_message
    reader.feed(data[-1:])
    assert reader.next_frame() == TextMessage(b"abc")
    assert not reader.has_partial_input


# Limits


def test_message_at_the_size_limit_is_accepted() -> None:
    assert read(frame(1, b"x" * MAX)) == [TextMessage(b"x" * MAX)]
    assert read(frame(1, b"x" * 600, fin=False) + frame(9, b"y" * 125) + frame(0, b"x" * 400)) == [
        PingFrame(b"y" * 125),
        TextMessage(b"x" * MAX),
    ]
    assert read(frame(2, b"x" * MAX)) == [BinaryMessage()]


@pytest.mark.parametrize("opcode", [1, 2])
def test_message_over_the_size_limit_is_refused(opcode: int) -> None:
    assert broken(frame(opcode, b"x" * (MAX + 1))) == 1009
    assert broken(frame(opcode, b"x" * MAX, fin=False) + frame(0, b"x")) == 1009


@pytest.mark.parametrize("announced", [MAX + 1, 2**62])
def test_message_announced_too_large_is_refused_before_buffering(announced: int) -> None:
    """The frame head is enough."""
    size = b"\xfe" + announced.to_bytes(2) if announced < 65536 else b"\xff" + announced.to_bytes(8)
    assert broken(b"\x81" + size + b"mask") == 1009
    assert broken(frame(1, b"x" * 10, fin=False) + b"\x80" + b"\xfe" + (MAX - 9).to_bytes(2) + b"mask") == 1009


@pytest.mark.parametrize("announced", [126, 2**40])
def test_control_frame_announced_too_long_is_refused_before_buffering(announced: int) -> None:
    """RFC 6455, 5.5: the head is enough."""
    size = b"\xfe" + announced.to_bytes(2) if announced < 65536 else b"\xff" + announced.to_bytes(8)
    assert broken(b"\x89" + size + b"mask", max_message=2**50) == 1002


def test_size_counts_every_byte_of_the_incomplete_message() -> None:
    reader = FrameReader(MAX)
    rest = frame(0, b"x" * 400)
    reader.feed(frame(1, b"x" * 600, fin=False) + rest[:300])
    assert reader.next_frame() == PartialMessage()
    assert reader.next_frame() is None
    assert 600 + 290 <= reader.size <= 600 + 300
    reader.feed(rest[300:])
    assert reader.next_frame() == TextMessage(b"x" * MAX)
    assert reader.size == 0


def test_ping_within_a_message_is_not_counted() -> None:
    whole = frame(1, b"x" * MAX, fin=False)
    ping = frame(9, b"y" * 100)
    assert read(whole, ping[:10], ping[10:], frame(0)) == [PingFrame(b"y" * 100), TextMessage(b"x" * MAX)]


# Invalid frames

BROKEN = {
    "no mask": (frame(1, b"hi", mask=b""), 1002),
    "a reserved bit": (frame(1, b"hi", bits=0x40), 1002),
    "an opcode that is not known": (frame(3, b"hi"), 1002),
    "a control opcode that is not known": (frame(11), 1002),
    "a ping in fragments": (frame(9, b"hi", fin=False), 1002),
    "a ping that is too long": (frame(9, b"x" * 126), 1002),
    "a length in two bytes that needs one": (b"\x81\xfe\x00\x05mask", 1002),
    "a length in eight bytes that needs two": (b"\x81\xff" + (500).to_bytes(8) + b"mask", 1002),
    "a negative length": (b"\x81\xff\xff" + bytes(7) + b"mask", 1002),
    "the rest of nothing": (frame(0, b"hi"), 1002),
    "a message inside a message": (frame(1, b"a", fin=False) + frame(1, b"b"), 1002),
    "a binary message inside a text": (frame(1, b"a", fin=False) + frame(2, b"b", fin=False), 1002),
    "no UTF-8": (frame(1, b"\xff"), 1007),
    "half a character at the end": (frame(1, "é".encode()[:1]), 1007),
    "half a surrogate pair": (frame(1, b"\xed\xa0\x80"), 1007),
    "no UTF-8 over two frames": (frame(1, b"\xc3", fin=False) + frame(0, b"x"), 1007),
    "a goodbye of one byte": (frame(8, b"\x03"), 1002),
    "a goodbye whose reason is no UTF-8": (frame(8, (1000).to_bytes(2) + b"\xff"), 1007),
}


@pytest.mark.parametrize(("data", "code"), BROKEN.values(), ids=BROKEN.keys())
def test_invalid_frames_have_distinct_codes(data: bytes, code: int) -> None:
    assert broken(data) == code


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65535])
def test_reserved_close_codes_are_refused(code: int) -> None:
    assert broken(frame(8, code.to_bytes(2))) == 1002


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999])
def test_allowed_close_codes_are_accepted(code: int) -> None:
    assert read(frame(8, code.to_bytes(2) + "Grüße".encode())) == [CloseFrame(code)]


def test_close_frame_may_have_no_code() -> None:
    assert read(frame(8)) == [CloseFrame(None)]


# Sent frames


def read_by_client(data: bytes) -> list[object]:
    client = FrameProtocol(client=True, extensions=[])
    client.receive_bytes(data)
    return [received.payload for received in client.received_frames()]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 70000])
def test_client_library_reads_our_text_frames(size: int) -> None:
    assert read_by_client(text_frame(b"x" * size)) == ["x" * size]


def test_client_library_reads_our_control_frames() -> None:
    assert read_by_client(PING + pong_frame(b"p" * 125) + close_frame(1001, "going")) == [
        b"",
        b"p" * 125,
        (1001, "going"),
    ]
    assert read_by_client(close_frame(None)) == [(1005, "")]


def test_long_close_reason_is_truncated_between_characters() -> None:
    assert read_by_client(close_frame(1008, "é" * 100)) == [(1008, "é" * 61)]


@pytest.mark.parametrize("rest", [b"", frame(9, b"?")], ids=["at the end of the input", "before another frame"])
def test_large_message_is_read_in_any_pieces(rest: bytes) -> None:
    text = "dreí".encode() * (LARGE_PAYLOAD // 4)
    data = frame(1, text) + rest
    pieces = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    expected = [TextMessage(text), *read(rest)]
    assert read(*pieces, max_message=2 * LARGE_PAYLOAD) == expected
    assert read(data, max_message=2 * LARGE_PAYLOAD) == expected
