"""Many requests of one tenant at once, several times, from a process of their own.

    python -m tests.faults_outside.crowd PORT KEY COUNT BURSTS open|new

The requests use connections that are open already, or each opens its own. Prints `ready`, waits for a line, sends the
bursts, and prints the number of answers with status 200 and the beginning and end of each burst on the monotonic clock,
which all processes share.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

PAUSE = 0.2  # seconds between two bursts


def turn_request(key: str) -> bytes:
    """A small turn."""
    body = json.dumps({"model": "m", "input": "Hi", "store": False}).encode()
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def is_complete(answer: bytes) -> bool:
    """Whether the bytes are a whole answer with a content length."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(separator) and len(body) >= int(length)


def start_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that are open or still being opened: all of them are asked for at once."""
    connections = [socket.socket() for _ in range(count)]
    for connection in connections:
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        connection.setblocking(True)
    return connections


def send_burst(connections: list[socket.socket], request: bytes) -> int:
    """Sends the request on every connection; returns the number of answers with status 200."""
    answers = {connection.fileno(): (connection, bytearray()) for connection in connections}
    accepted = 0
    with select.epoll() as poll:
        for connection in connections:
            poll.register(connection, select.EPOLLIN)
            connection.sendall(request)
        while answers:
            for descriptor, _ in poll.poll():
                connection, answer = answers[descriptor]
                piece = connection.recv(65536)
                answer += piece
                if not piece or is_complete(bytes(answer)):
                    accepted += answer.startswith(b"HTTP/1.1 200")
                    poll.unregister(descriptor)
                    del answers[descriptor]
    return accepted


def main(port: int, key: str, count: int, bursts: int, uses_open: bool) -> None:
    request, accepted, windows = turn_request(key), 0, list[tuple[float, float]]()
    connections = start_connections(port, count) if uses_open else []
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(bursts):
        started = time.monotonic()
        if not uses_open:
            connections = start_connections(port, count)
        accepted += send_burst(connections, request)
        windows.append((started, time.monotonic()))
        if not uses_open:
            for connection in connections:
                connection.close()
        time.sleep(PAUSE)
    print(json.dumps({"accepted": accepted, "windows": windows}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "open")
