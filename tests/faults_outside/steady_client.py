"""A client that sends one small turn after another, from a process of its own, until its input is closed.

    python -m tests.faults_outside.steady_client PORT KEY open|new

It uses one connection, or a new one for each turn. Prints `ready`, and at the end when each turn began on the monotonic
clock and how long it took.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from tests.faults_outside.crowd import is_complete, turn_request

PAUSE = 0.002  # seconds between two turns
TIMEOUT = 60.0


def send_turn(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    answer = b""
    while not is_complete(answer):
        piece = connection.recv(65536)
        assert piece, "the gateway closed the connection"
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200"), answer[:500]


def main(port: int, key: str, uses_open: bool) -> None:
    request, turns = turn_request(key), list[tuple[float, float]]()
    connection: socket.socket | None = None
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        started = time.monotonic()
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        send_turn(connection, request)
        if not uses_open:
            connection.close()
            connection = None
        turns.append((started, time.monotonic() - started))
    print(json.dumps(turns), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3] == "open")
