"""An upstream that never stops: it answers every request with the same frame again and again, or says nothing at all.

It speaks just enough HTTP for a gateway: one request per connection, an answer without a length.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PAUSE = 0.05  # seconds between two frames of a slow server


@contextmanager
def endless_upstream(opening: bytes, frame: bytes, *, pace: str = "flood") -> Iterator[str]:
    """Its base URL. `pace`: `flood` sends as fast as the gateway reads, `slow` a frame now and then, `silent` only the
    head, `no head` nothing."""
    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        threads = [threading.Thread(target=_accept, args=(listener, opening, frame, pace, stopping))]
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopping.set()
            threads[0].join()


def _accept(listener: socket.socket, opening: bytes, frame: bytes, pace: str, stopping: threading.Event) -> None:
    answering: list[threading.Thread] = []
    while not stopping.is_set():
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            thread = threading.Thread(target=_answer, args=(connection, opening, frame, pace, stopping))
            thread.start()
            answering.append(thread)
    for thread in answering:
        thread.join()


def _answer(connection: socket.socket, opening: bytes, frame: bytes, pace: str, stopping: threading.Event) -> None:
    connection.settimeout(0.2)
    with connection, suppress(ConnectionError):
        _read_request(connection, stopping)
        if pace != "no head":
            connection.sendall(HEAD + opening)
        data = frame * max(1, 65536 // len(frame)) if pace == "flood" else frame
        while not stopping.is_set():
            if pace in ("flood", "slow"):
                _send(connection, data, stopping)
            if pace != "flood":
                stopping.wait(PAUSE)


def _read_request(connection: socket.socket, stopping: threading.Event) -> None:
    """Reads until nothing more comes for a moment: what was asked does not matter."""
    while not stopping.is_set():
        try:
            if not connection.recv(1 << 20):
                return
        except TimeoutError:
            return


def _send(connection: socket.socket, data: bytes, stopping: threading.Event) -> None:
    view = memoryview(data)
    while view and not stopping.is_set():
        with suppress(TimeoutError):
            view = view[connection.send(view) :]
