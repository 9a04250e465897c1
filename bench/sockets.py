"""Clients that open WebSockets and wait: a process of its own for `bench/store.py`.

    BENCH_KEY=… python -m bench.sockets PORT COUNT [kept|forgotten]

With a last word each of them has one turn first. Prints `open` when all are, then answers pings until its input ends, and prints
how many connections ended before.
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
BUFFER = 4096


def main(port: int, count: int, store: str = "") -> None:
    clients = Clients()
    for _ in range(count):
        clients.add(_opened(port, store))
        clients.answer_pings(0)  # opening them all may take longer than a server waits for the first
    print("open", flush=True)
    while not clients.answer_pings(None):
        pass
    print(clients.gone, flush=True)


class Clients:
    """Connections that are open, and nothing more."""

    def __init__(self) -> None:
        self.gone = 0
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)

    def add(self, connection: socket.socket) -> None:
        self._sockets[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def answer_pings(self, timeout: float | None) -> bool:
        """Those that are there. Whether our own input has ended."""
        for number, _ in self._poll.poll(timeout):
            if number == sys.stdin.fileno():
                return True
            came = self._sockets[number].recv(BUFFER)
            if not came:
                self.gone += 1
                self._poll.unregister(number)
            elif PING in came:
                self._sockets[number].sendall(PONG)
        return False


def _opened(port: int, store: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(
        f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {os.environ['BENCH_KEY']}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {b64encode(os.urandom(16)).decode()}\r\n\r\n".encode()
    )
    _read_until(connection, b"\r\n\r\n", b"HTTP/1.1 101 ")
    if store:
        asked = {
            "type": "response.create",
            "model": "mock-n16",
            "input": payloads.question(7),
            "store": store == "kept",
        }
        connection.sendall(_text_frame(payloads.encoded(asked)))
        _read_until(connection, b'"type":"response.completed"', b"")
    return connection


def _read_until(connection: socket.socket, end: bytes, beginning: bytes) -> None:
    came = b""
    while end not in came:
        piece = connection.recv(65536)
        came += piece
        if not piece or not came.startswith(beginning[: len(came)]):
            raise SystemExit(f"instead of a WebSocket there came {came[:500]!r}")


def _text_frame(text: bytes) -> bytes:
    """With a mask that changes nothing."""
    return b"\x81\xfe" + len(text).to_bytes(2) + bytes(4) + text


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
