"""A strict little WebSocket client for tests: wsproto over a blocking socket.

It refuses what a careful client would refuse: a handshake that is not quite one, masked frames, reserved bits, broken UTF-8, binary
messages, anything behind a goodbye, a goodbye that no end of the connection follows. Odd things to send are made with `frame`.
"""

from __future__ import annotations

import json
import os
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from wsproto.frame_protocol import FrameProtocol, Opcode
from wsproto.utilities import generate_accept_token

BOUND = 60.0  # seconds after which a test that waits has failed


class Closed(NamedTuple):
    """The server's goodbye; 1005: without a code, 1006: there was none."""

    code: int
    reason: str


class Refused(Exception):
    """The upgrade was answered with something else."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(status, headers, body)
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def error(self) -> dict[str, Any]:
        """What every answer that is not 2xx has to say."""
        told = json.loads(self.body)
        assert set(told) == {"error"}
        assert set(told["error"]) == {"message", "type", "code", "param"}
        error: dict[str, Any] = told["error"]
        return error


class WebSocketClient:
    """A connection after the upgrade. Pings are answered unless `answers_pings` is False; pongs are collected."""

    def __init__(self, connection: socket.socket, headers: dict[str, str], rest: bytes) -> None:
        self.connection = connection
        self.headers = headers
        self.answers_pings = True
        self.pings = 0
        self.pongs: list[bytes] = []
        self.closed: Closed | None = None
        self._protocol = FrameProtocol(client=True, extensions=[])
        self._protocol.receive_bytes(rest)
        self._parts: list[str] = []
        self._messages: list[str] = []
        self._take()

    def send(self, message: str | Any) -> None:
        """One text message; what is no text is sent as JSON."""
        self.write(frame(1, (message if isinstance(message, str) else json.dumps(message)).encode()))

    def ping(self, payload: bytes = b"") -> None:
        self.write(frame(9, payload))

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        self.connection.sendall(data)

    def receive(self) -> str:
        """The next message. There must be one."""
        while not self._messages:
            assert self.closed is None, f"wanted a message, got {self.closed}"
            self._read()
        return self._messages.pop(0)

    def receive_json(self) -> Any:
        return json.loads(self.receive())

    def wait_for_pong(self, payload: bytes = b"") -> None:
        while payload not in self.pongs:
            assert self.closed is None, f"wanted a pong, got {self.closed}"
            self._read()

    def close(self, code: int | None = 1000, reason: str = "") -> Closed:
        """Says goodbye, and waits for the server's."""
        self.write(frame(8, b"" if code is None else code.to_bytes(2) + reason.encode()))
        return self.end()

    def end(self) -> Closed:
        """The server's goodbye. It must be the last thing that comes, and the end of the connection must follow."""
        while self.closed is None:
            self._read()
        assert self._messages == [], "messages came before the goodbye that nobody asked for"
        return self.closed

    def _read(self) -> None:
        """Something more, if only a part of a message."""
        try:
            data = self.connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = Closed(1006, "")
            return
        self._protocol.receive_bytes(data)
        self._take()

    def _take(self) -> None:
        for received in self._protocol.received_frames():
            match received.opcode, received.payload:
                case Opcode.TEXT, str(text):
                    self._parts.append(text)
                    if received.message_finished:
                        self._messages.append("".join(self._parts))
                        self._parts.clear()
                case Opcode.PING, bytes(payload):
                    self.pings += 1
                    if self.answers_pings:
                        self.write(frame(10, payload))
                case Opcode.PONG, bytes(payload):
                    self.pongs.append(payload)
                case Opcode.CLOSE, (int(code), str(reason)):
                    self._part(int(code), reason)
                case other:
                    raise AssertionError(f"a server of ours does not send {other}")

    def _part(self, code: int, reason: str) -> None:
        self.closed = Closed(code, reason)
        try:
            self.write(frame(8, b"" if code == 1005 else code.to_bytes(2)))  # harmless where we were first
            self.connection.shutdown(socket.SHUT_WR)
            assert self.connection.recv(65536) == b"", "something came behind the goodbye"
        except OSError:
            pass  # the server was quicker


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes | None = None, bits: int = 0) -> bytes:
    """One frame as a client sends it; `mask` as given or random, and none at all if it is empty."""
    mask = os.urandom(4) if mask is None else mask
    size = len(payload)
    marked = 0x80 if mask else 0
    head = bytes([opcode | bits | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([marked | size])
    elif size < 65536:
        head += bytes([marked | 126]) + size.to_bytes(2)
    else:
        head += bytes([marked | 127]) + size.to_bytes(8)
    return head + mask + (masked(payload, mask) if mask else payload)


def masked(payload: bytes, mask: bytes) -> bytes:
    key = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(len(payload))


def upgrade(path: str, key: bytes, *headers: tuple[str, str], host: str = "localhost") -> bytes:
    """A sound upgrade request; a header whose name is among the usual ones takes its place, an empty value takes it
    away."""
    usual = {
        "host": host,
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key.decode(),
    }
    lines = [*{**usual, **dict(headers)}.items()]
    return "".join(
        [f"GET {path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in lines if value), "\r\n"]
    ).encode()


@contextmanager
def open_websocket(
    port: int, path: str = "/v1/responses", *headers: tuple[str, str], behind: bytes = b"", small_buffer: bool = False
) -> Iterator[WebSocketClient]:
    """A WebSocket to this machine; `behind` is sent in one piece with the upgrade. Raises `Refused`."""
    with socket.socket() as connection:
        if small_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(BOUND)
        connection.connect(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield upgraded(connection, path, *headers, behind=behind)


def upgraded(connection: socket.socket, path: str, *headers: tuple[str, str], behind: bytes = b"") -> WebSocketClient:
    """A connection that becomes a WebSocket."""
    key = b64encode(os.urandom(16))
    connection.sendall(upgrade(path, key, *headers) + behind)
    head, rest = _read_head(connection)
    status, found = parse_head(head)
    if status != 101:
        length = int(found.get("content-length", "0"))
        while len(rest) < length and (more := connection.recv(65536)):
            rest += more
        raise Refused(status, found, rest)
    assert found["upgrade"].lower() == "websocket"
    assert found["connection"].lower() == "upgrade"
    assert found["sec-websocket-accept"].encode() == generate_accept_token(key)
    assert not {"sec-websocket-extensions", "sec-websocket-protocol", "content-length", "transfer-encoding"} & set(
        found
    )
    return WebSocketClient(connection, found, rest)


def _read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        assert piece, f"the connection ended in the middle of a head: {data!r}"
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers, of which none may come twice."""
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines]
    headers = {name.lower(): value for name, value in pairs}
    assert len(headers) == len(pairs), "a header came twice"
    return int(first.split(" ")[1]), headers
