"""The client's side of a WebSocket, without a socket. wsproto is the server: it shares no code with websockets."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.upstream.websocket_peer import text
from wsproto.frame_protocol import FrameProtocol

from antiphon.upstream.websocket_protocol import WebSocketProtocol

MAX = 100_000


def read_by_server(data: bytes) -> list[Any]:
    server = FrameProtocol(client=False, extensions=[])
    server.receive_bytes(data)  # it refuses frames without a mask
    return [frame.payload for frame in server.received_frames()]


FRAMES = (
    text("Grüße, 🎶")
    + text("")
    + text("in ", fin=False)
    + b"\x89\x01?"
    + text("dr", fin=False, opcode=0)
    + b"\x8a\x03yes"
    + text("eí", opcode=0)
    + text("bin", fin=False, opcode=2)
    + text("ary", opcode=0)
    + text("x" * 300)
)
TEXTS = ["Grüße, 🎶", "", "in dreí", "x" * 300]


def test_any_cut_gives_the_same_texts_and_one_pong() -> None:
    cuts = [[FRAMES[:at], FRAMES[at:]] for at in range(len(FRAMES))]
    for pieces in [*cuts, [FRAMES[at : at + 1] for at in range(len(FRAMES))]]:
        protocol = WebSocketProtocol(MAX)
        assert [message for piece in pieces for message in protocol.receive_texts(piece)] == TEXTS
        assert read_by_server(b"".join(protocol.data_to_send())) == [b"?"]


def test_fragments_of_another_implementation_are_joined() -> None:
    server = FrameProtocol(client=False, extensions=[])
    protocol = WebSocketProtocol(MAX)
    assert protocol.receive_texts(bytes(server.send_data("é" * 40_000, fin=False))) == []
    assert protocol.receive_texts(bytes(server.send_data("end", fin=True))) == ["é" * 40_000 + "end"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_server_reads_sent_texts(size: int) -> None:
    protocol = WebSocketProtocol(MAX)
    protocol.send_text(b"x" * size)
    assert read_by_server(b"".join(protocol.data_to_send())) == ["x" * size]


def test_message_may_be_exactly_as_large_as_the_limit() -> None:
    protocol = WebSocketProtocol(10)
    assert protocol.receive_texts(text("0123456", fin=False) + text("789", opcode=0)) == ["0123456789"]
    assert protocol.receive_texts(text("before") + text("0123456", fin=False) + text("789x", opcode=0)) == ["before"]
    assert read_by_server(b"".join(protocol.data_to_send()))[0][0] == 1009


def test_texts_before_invalid_data_are_delivered() -> None:
    protocol = WebSocketProtocol(MAX)
    assert protocol.receive_texts(text("one") + b"\x81\x01\xff" + text("two")) == ["one"]
    assert read_by_server(b"".join(protocol.data_to_send()))[0][0] == 1007


@pytest.mark.io
def test_websockets_is_imported_when_a_websocket_is_opened() -> None:
    program = "import sys, antiphon.cli, antiphon.client, antiphon.testing; sys.exit('websockets' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
