"""The server's end of a WebSocket, byte for byte."""

from __future__ import annotations

import re

from tests.upstream.scripted import Peer
from wsproto.utilities import generate_accept_token


def text(message: str, *, fin: bool = True, opcode: int = 1) -> bytes:
    """A frame as a server sends it."""
    data = message.encode()
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2)
    return bytes([opcode | (0x80 if fin else 0)]) + size + data


async def accept(peer: Peer, behind: bytes = b"", headers: bytes = b"") -> bytes:
    """Upgrades; `behind` comes in one piece with the answer, which has more `headers`."""
    request = await peer.request()
    key = re.search(rb"sec-websocket-key: (\S+)", request)
    assert key is not None
    token = generate_accept_token(key[1])
    lines = b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: " + token
    await peer.say(b"HTTP/1.1 101 Switching Protocols\r\n" + headers + lines + b"\r\n\r\n" + behind)
    return request
