"""Opens idle WebSockets to a gateway, in a separate process for `bench/store.py`.

    BENCH_KEY=… python -m bench.sockets PORT COUNT [stored|not-stored]

With the last argument every connection runs one turn first. Prints `open` when all connections are open, answers pings
until its input ends, and then prints how many connections were closed by the gateway.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from base64 import b64encode

from bench import payloads

PING = b"\x89\x00"
PONG = b"\x8a\x80" + bytes(4)
BUFFER_SIZE = 4096


def main(port: int, count: int, turn: str = "") -> None:
    connections = IdleConnections()
    for _ in range(count):
        connections.add(_open_websocket(port, turn))
        connections.answer_pings(0)  # the first pings may come before all connections are open
    print("open", flush=True)
    while not connections.answer_pings(None):
        pass
    print(connections.closed_count, flush=True)


class IdleConnections:
    """Open WebSockets that only answer pings."""

    def __init__(self) -> None:
        self.closed_count = 0
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)

    def add(self, connection: socket.socket) -> None:
        self._sockets[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def answer_pings(self, timeout: float | None) -> bool:
        """Answers the pings that have arrived. Returns True when the input of this process has ended."""
        for descriptor, _ in self._poll.poll(timeout):
            if descriptor == sys.stdin.fileno():
                return True
            received = self._sockets[descriptor].recv(BUFFER_SIZE)
            if not received:
                self.closed_count += 1
                self._poll.unregister(descriptor)
            elif PING in received:
                self._sockets[descriptor].sendall(PONG)
        return False


def _open_websocket(port: int, turn: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(
        f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {os.environ['BENCH_KEY']}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {b64encode(os.urandom(16)).decode()}\r\n\r\n".encode()
    )
    _read_until(connection, b"\r\n\r\n", b"HTTP/1.1 101 ")
    if turn:
        message = {
            "type": "response.create",
            "model": "mock-n16",
            "input": payloads.question(7),
            "store": turn == "stored",
        }
        connection.sendall(_text_frame(payloads.encode_json(message)))
        _read_until(connection, b'"type":"response.completed"', b"")
    return connection


def _read_until(connection: socket.socket, end: bytes, expected_prefix: bytes) -> None:
    received = b""
    while end not in received:
        piece = connection.recv(65536)
        received += piece
        if not piece or not received.startswith(expected_prefix[: len(received)]):
            raise SystemExit(f"the gateway did not answer as a WebSocket server: {received[:500]!r}")


def _text_frame(text: bytes) -> bytes:
    """Returns a masked text frame. The mask is zero."""
    return b"\x81\xfe" + len(text).to_bytes(2) + bytes(4) + text


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
