"""WebSockets over real sockets: access, messages, refusals and closing; with an endpoint that echoes.

Two clients: ours, which is strict and reads frames with wsproto, and the `websockets` package, which the server uses too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

import pytest
import uvicorn
from tests.websocket_client import (
    BOUND,
    Closed,
    Refused,
    frame,
    open_websocket,
    parse_head,
    upgrade,
    upgraded,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from antiphon.config import Config, KeyConfig, ServerConfig
from antiphon.errors import ClientDisconnected
from antiphon.http.access_policy import ANONYMOUS_OWNER, AccessPolicy
from antiphon.http.asgi import LARGE_PIECE
from antiphon.http.connection import HttpProtocol
from antiphon.http.websocket import MAX_FRAMES_PER_STEP, WebSocket, WebSocketRoutes, WebSocketTimeouts

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
MAX = 200_000
KEY = "alice-key-that-nobody-may-see-0123456789"
PAGE = "https://page.example"


class Echo:
    """Echoes its messages. Some words are commands; it records what it receives."""

    def __init__(self) -> None:
        self.sockets: list[WebSocket] = []
        self.heard: list[str] = []
        self.gone = 0
        self.sent = 0
        self.left_while_draining = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def __call__(self, socket: WebSocket) -> None:
        self.sockets.append(socket)
        socket.on_message = lambda text: self._hear(socket, text.decode())
        socket.on_binary = lambda: socket.send(b"binary")
        socket.on_closed = self._count
        match socket.scope["query_string"]:
            case b"boom":
                raise ZeroDivisionError("a secret of the house")
            case b"bare":
                socket.on_binary = None
            case b"slow-end":
                socket.on_shutdown = lambda: socket.send(b"one moment")

    def _hear(self, socket: WebSocket, text: str) -> None:
        self.heard.append(text)
        match text.split(" ", 2):
            case ["boom"]:
                raise ZeroDivisionError("a secret of the house")
            case ["close", code, reason]:
                socket.close(int(code), reason)
                socket.close(4999, "nobody says goodbye twice")
                socket.send(b"and nothing is said after it")
            case ["pause"]:
                socket.pause()
                socket.send(b"paused")
            case ["large"]:
                socket.send(b"x" * (LARGE_PIECE + 1))
                socket.send(b"after it")
            case ["flood"]:
                task = asyncio.get_running_loop().create_task(self._flood(socket))
                self.tasks.add(task)
            case _:
                socket.send(text.encode())

    async def _flood(self, socket: WebSocket) -> None:
        """Sends as long as the client reads."""
        try:
            while True:
                await socket.wait_until_writable()
                socket.send(bytes(16_384))
                self.sent += 16_384
                await asyncio.sleep(0)
        except ClientDisconnected:
            self.left_while_draining += 1

    def _count(self) -> None:
        self.gone += 1


class App:
    """An application with one WebSocket, and one thing to GET."""

    def __init__(self, websockets: WebSocketRoutes | None) -> None:
        self.websockets = websockets
        self.gate = threading.Event()
        self.waiting = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del receive
        self.waiting.set()
        while scope["path"] == "/wait" and not self.gate.is_set():
            await asyncio.sleep(0.005)
        body = bytes(8 * 1024 * 1024) if scope["path"] == "/large" else b"ok"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Place:
    """A running server."""

    def __init__(self, app: App, echo: Echo, server: uvicorn.Server, port: int) -> None:
        self.app = app
        self.echo = echo
        self.server = server
        self.port = port

    def open(self, path: str = "/ws", *headers: tuple[str, str], **settings: Any) -> Any:
        return open_websocket(self.port, path, *headers, **settings)

    def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        """Sends raw bytes and returns the answer, after which the server must close."""
        with self.client() as client:
            client.sendall(data)
            return answer_of(to_the_end(client))

    @contextmanager
    def client(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=BOUND) as client:
            yield client

    def connections(self) -> set[Any]:
        return self.server.server_state.connections


def to_the_end(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(1_000_000):
        pieces.append(piece)
    return b"".join(pieces)


def answer_of(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    return *parse_head(head), body


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition in the server's thread."""
    end = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@contextmanager
def serving(*, off: bool = False, keys: bool = False, force: bool = True, **times: float) -> Iterator[Place]:
    echo = Echo()
    key_configs = [KeyConfig(name="alice", sha256=sha256(KEY.encode()).hexdigest())] if keys else []
    edge = AccessPolicy.from_config(Config(server=ServerConfig(allowed_origins=[PAGE]), keys=key_configs), {})
    app = App(None if off else WebSocketRoutes(edge, {"/ws": echo}, MAX, WebSocketTimeouts(**times)))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            loop="uvloop",
            lifespan="off",
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # a layer around the application would hide its WebSocketRoutes
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield Place(app, echo, server, listener.getsockname()[1])
        finally:
            app.gate.set()
            server.should_exit = True
            server.force_exit = force
            thread.join(BOUND)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    with serving() as place:
        yield place


@pytest.fixture
def place(shared: Place, caplog: pytest.LogCaptureFixture) -> Iterator[Place]:
    """The shared server: after every test no connection is left, each ended once, and no exception reached the loop."""
    shared.echo.__init__()  # type: ignore[misc]
    shared.app.gate.clear()
    shared.app.waiting.clear()
    with caplog.at_level(logging.INFO):
        yield shared
        shared.app.gate.set()
        until(lambda: not shared.connections())
    until(lambda: shared.echo.gone == len(shared.echo.sockets))
    assert not [
        record
        for record in caplog.records
        if record.name in ("asyncio", "uvicorn.error") and record.levelno > logging.INFO
    ]


# The handshake


def test_valid_handshake_is_answered(place: Place) -> None:
    """HTTP-8: the answer to the upgrade has an id too."""
    with place.open("/ws?a=b") as client:
        [opened] = place.echo.sockets
        assert re.fullmatch("req_[0-9a-f]{40}", client.headers["x-request-id"])
        assert client.headers["x-request-id"] == opened.id
        assert (opened.scope["type"], opened.scope["path"], opened.scope["query_string"]) == (
            "websocket",
            "/ws",
            b"a=b",
        )
        assert (b"sec-websocket-version", b"13") in opened.scope["headers"]
        assert opened.owner == ANONYMOUS_OWNER
        client.send("hello")
        assert client.receive() == "hello"
        assert client.close() == Closed(1000, "")


def test_extensions_and_subprotocols_are_not_selected(place: Place) -> None:
    """The client would refuse an extension or a subprotocol."""
    offers = [
        ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
        ("sec-websocket-protocol", "chat"),
    ]
    with place.open("/ws", *offers, ("connection", "keep-alive, Upgrade"), ("upgrade", "h2c, WebSocket")) as client:
        client.send("hello")
        assert client.receive() == "hello"


SAMPLE_KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
BAD = {
    "no key": (("sec-websocket-key", ""), 400),
    "a key of other length": (("sec-websocket-key", "c2hvcnQ="), 400),
    "a key that is no base64": (("sec-websocket-key", "!" * 22 + "=="), 400),
    "another version": (("sec-websocket-version", "8"), 426),
    "no version": (("sec-websocket-version", ""), 426),
    "something like it": (("upgrade", "websockets"), 400),
    "a body": (("content-length", "5"), 400),
    "chunks": (("transfer-encoding", "chunked"), 400),
}


@pytest.mark.parametrize(("header", "status"), BAD.values(), ids=BAD.keys())
def test_invalid_handshake_is_refused_in_our_error_form(place: Place, header: tuple[str, str], status: int) -> None:
    with pytest.raises(Refused) as caught, place.open("/ws", header):
        pass
    assert caught.value.status == status
    assert caught.value.headers["sec-websocket-version"] == "13"
    assert caught.value.headers.get("upgrade") == ("websocket" if status == 426 else None)
    assert caught.value.error["type"] == "invalid_request"
    assert "x-request-id" in caught.value.headers
    assert place.echo.sockets == []


@pytest.mark.parametrize(
    "change",
    [
        (b"GET /", b"POST /"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"sec-websocket-key:", b"sec-websocket-key: eA==\r\nsec-websocket-key:"),
    ],
    ids=["another method", "HTTP/1.0", "two keys"],
)
def test_handshake_must_be_a_get_in_http_1_1_with_one_key(place: Place, change: tuple[bytes, bytes]) -> None:
    status, headers, _ = place.ask(upgrade("/ws", SAMPLE_KEY).replace(*change))
    assert status == 400
    assert headers["sec-websocket-version"] == "13"
    assert headers["connection"] == "close"


def test_upgrade_without_connection_header_is_an_ordinary_request(place: Place) -> None:
    status, _, body = place.ask(upgrade("/ws", SAMPLE_KEY, ("connection", "close")))
    assert (status, body) == (200, b"ok")


def test_websocket_on_another_path_is_404(place: Place) -> None:
    with pytest.raises(Refused) as caught, place.open("/other"):
        pass
    assert (caught.value.status, caught.value.error["code"]) == (404, "not_found")


def test_disabled_websocket_is_426() -> None:
    with serving(off=True) as place, pytest.raises(Refused) as caught, place.open():
        pass
    assert (caught.value.status, caught.value.error["code"]) == (426, "upgrade_required")
    assert caught.value.headers["upgrade"] == "HTTP/1.1"


# The same access rules as for every other request


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (("host", "evil.example"), "forbidden_host"),
        (("origin", "https://evil.example"), "forbidden_origin"),
        (("origin", "null"), "forbidden_origin"),
    ],
)
def test_foreign_host_or_origin_is_refused_first(place: Place, header: tuple[str, str], code: str) -> None:
    for path in ("/ws", "/other"):
        with pytest.raises(Refused) as caught, place.open(path, header, ("sec-websocket-key", "")):
            pass
        assert (caught.value.status, caught.value.error["code"]) == (403, code)
        assert not [name for name in caught.value.headers if name.startswith("access-control")]


def test_allowed_origin_may_open_a_websocket(place: Place) -> None:
    with place.open("/ws", ("origin", PAGE)) as client:
        assert client.close() == Closed(1000, "")


def test_websocket_requires_a_key_that_identifies_the_owner() -> None:
    """HTTP-6, for upgrades: one answer for all wrong keys and one for no key, also on unknown paths."""
    with serving(keys=True) as place:
        missing: set[str] = set()
        wrong: set[str] = set()
        for path in ("/ws", "/other"):
            for headers in ([], [("authorization", "Bearer wrong")], [("x-api-key", "é")]):
                with pytest.raises(Refused) as caught, place.open(path, *headers):
                    pass
                assert caught.value.status == 401
                (wrong if headers else missing).add(json.loads(caught.value.body)["error"]["message"])
        assert [message.partition(":")[0] for message in (*missing, *wrong)] == ["no key", "invalid key"]
        with place.open("/ws", ("authorization", f"Bearer {KEY}")) as client:
            assert place.echo.sockets[0].owner == "alice"
            client.close()
        with pytest.raises(Refused) as caught, place.open("/other", ("x-api-key", KEY)):
            pass
        assert caught.value.status == 404


# Other requests on the same connection


def test_upgrade_may_follow_an_answered_request(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"GET /x HTTP/1.1\r\nhost: localhost\r\n\r\n")
        data = b""
        while not data.endswith(b"ok"):
            data += client.recv(65536)
        websocket = upgraded(client, "/ws")
        websocket.send("hello")
        assert websocket.receive() == "hello"
        assert websocket.close() == Closed(1000, "")


def test_upgrade_is_refused_while_another_request_runs(place: Place) -> None:
    with place.client() as client:
        client.sendall(
            b"GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n" + upgrade("/ws", SAMPLE_KEY) + frame(1, b"hello")
        )
        assert place.app.waiting.wait(BOUND)
        place.app.gate.set()
        data = to_the_end(client)
    assert data.startswith(b"HTTP/1.1 200 OK")
    _, _, second = data.partition(b"\r\n\r\nok")
    status, headers, _ = answer_of(second)
    assert (status, headers["sec-websocket-version"]) == (400, "13")
    assert place.echo.sockets == []


def test_websocket_after_an_unread_answer_starts_write_paused(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        client.sendall(upgrade("/ws", SAMPLE_KEY) + frame(1, b"hello"))
        until(lambda: place.echo.heard == ["hello"])
        [opened] = place.echo.sockets
        until(lambda: opened.is_write_paused)
        data = b""
        while not data.endswith(b"\x81\x05hello"):
            data += client.recv(1_000_000)
        until(lambda: not opened.is_write_paused)


# Messages


def test_data_received_with_the_upgrade_is_processed(place: Place) -> None:
    with place.open(behind=frame(1, b"one") + frame(1, b"two")) as client:
        assert (client.receive(), client.receive()) == ("one", "two")


def test_large_message_is_one_frame_and_the_next_follows_it(place: Place) -> None:
    with place.open() as client:
        client.send("large")
        assert client.receive() == "x" * (LARGE_PIECE + 1)
        assert client.receive() == "after it"


def test_large_data_with_the_upgrade_is_processed(place: Place) -> None:
    """More than any head may have, which the HTTP side reads in pieces."""
    texts = [chr(ord("a") + at) * 60_000 for at in range(5)]
    with place.open(behind=b"".join(frame(1, text.encode()) for text in texts)) as client:
        assert [client.receive() for _ in texts] == texts


def test_messages_sent_byte_by_byte_are_read(place: Place) -> None:
    with place.client() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in upgrade("/ws", SAMPLE_KEY) + frame(1, "Grüße 🎶".encode()) + frame(1, b"two"):
            client.sendall(bytes([byte]))
        until(lambda: place.echo.heard == ["Grüße 🎶", "two"])


def test_fragments_are_joined_and_pings_between_them_answered(place: Place) -> None:
    with place.open() as client:
        client.write(frame(1, b"one ", fin=False))
        client.ping(b"in between")
        client.wait_for_pong(b"in between")
        client.write(frame(0, b"message"))
        assert client.receive() == "one message"


def test_message_at_the_size_limit_is_echoed(place: Place) -> None:
    with place.open() as client:
        for text in ("x" * MAX, "🎶" * (MAX // 4)):
            client.send(text)
            assert client.receive() == text


def test_oversized_message_is_refused_by_its_frame_head(place: Place) -> None:
    with place.open() as client:
        client.write(frame(1, b"x" * (MAX + 1))[:14])
        assert client.end().code == 1009


def test_client_that_still_sends_too_much_gets_1009(place: Place) -> None:
    with place.open() as client:
        for _ in range(40):
            client.write(frame(1 if not _ else 0, b"x" * 10_000, fin=False))
        assert client.end().code == 1009


def test_websocket_stays_open_after_a_binary_message(place: Place) -> None:
    with place.open() as client:
        client.write(frame(2, b"\x00\xff") + frame(1, b"text"))
        assert (client.receive(), client.receive()) == ("binary", "text")


def test_endpoint_without_binary_support_closes_with_1003(place: Place) -> None:
    with place.open("/ws?bare") as client:
        client.write(frame(2, b"\x00\xff") + frame(1, b"text"))
        assert client.end().code == 1003
    assert place.echo.heard == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(1, b"\xff"), 1007),
        (frame(1, b"no mask", mask=b""), 1002),
        (frame(1, b"x", bits=0x40), 1002),
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
    ],
    ids=["UTF-8", "mask", "reserved bit", "HTTP"],
)
def test_invalid_input_closes_with_a_code(place: Place, data: bytes, code: int) -> None:
    with place.open() as client:
        client.send("before")
        client.write(data + frame(1, b"behind"))
        assert client.receive() == "before"
        assert client.end().code == code
    assert place.echo.heard == ["before"]


def test_thousands_of_pings_are_answered_without_delaying_others(place: Place) -> None:
    count = 5000
    assert count > MAX_FRAMES_PER_STEP * 10
    with place.open() as loud, place.open() as other:
        loud.write(b"".join(frame(9, b"%d" % at, mask=b"mask") for at in range(count)) + frame(1, b"the last"))
        other.send("hello")
        assert other.receive() == "hello"
        assert loud.receive() == "the last"
        assert loud.pongs == [b"%d" % at for at in range(count)]


def test_thousands_of_empty_fragments_are_one_message(place: Place) -> None:
    with place.open() as client:
        client.write(frame(1, b"x", fin=False) + frame(0, fin=False, mask=b"mask") * 5000 + frame(0, b"y"))
        assert client.receive() == "xy"


# Closing


def test_close_by_the_client_is_answered_with_its_code(place: Place) -> None:
    for code, answered in ((1000, 1000), (1001, 1001), (4321, 4321), (None, 1005)):
        with place.open() as client:
            assert client.close(code) == Closed(answered, "")
    until(lambda: place.echo.gone == 4)


def test_close_by_the_endpoint_is_sent_once(place: Place) -> None:
    with place.open() as client:
        client.send("close 4000 that is all")
        assert client.end() == Closed(4000, "that is all")


def test_input_after_our_close_frame_is_ignored(place: Place) -> None:
    with place.open() as client:
        client.write(frame(1, b"close 1000 enough") + frame(1, b"but") + frame(9, b"?") + frame(2, b"!"))
        assert client.end() == Closed(1000, "enough")
    assert place.echo.heard == ["close 1000 enough"]
    assert client.pongs == []


def test_invalid_input_after_our_close_frame_ends_the_connection(place: Place) -> None:
    with place.open() as client:
        client.write(frame(1, b"close 1000 enough") + b"\x00\x00\x00")
        assert client.end() == Closed(1000, "enough")


@pytest.mark.parametrize("how", ["in peace", "in the middle of a frame", "with a reset"])
def test_client_disconnect_without_close_is_detected_at_once(place: Place, how: str) -> None:
    """WS-12: the endpoint is informed without waiting for a timer."""
    with place.open() as client:
        client.send("hello")
        assert client.receive() == "hello"
        if how == "in the middle of a frame":
            client.write(frame(1, b"x" * 1000)[:100])
        if how == "with a reset":
            client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.connection.close()
        until(lambda: place.echo.gone == 1)


def test_client_disconnect_is_detected_while_paused(place: Place) -> None:
    """WS-12, while the endpoint has enough messages waiting."""
    with place.open() as client:
        client.send("pause")
        assert client.receive() == "paused"
        client.send("this one waits")
        client.connection.close()
        until(lambda: place.echo.gone == 1)
    assert place.echo.heard == ["pause"]


def test_paused_websocket_reads_little_ahead_and_loses_nothing(place: Place) -> None:
    sent = 0
    with place.open() as client:
        client.send("pause")
        assert client.receive() == "paused"
        client.connection.settimeout(0.5)
        with suppress(TimeoutError):  # the kernel's buffers on both sides are full, ours is not
            while True:
                client.write(frame(1, b"x" * 60_000))
                sent += 1
        client.connection.settimeout(BOUND)
        [opened] = place.echo.sockets
        assert opened._reader.buffered_bytes < 600_000
        assert place.echo.heard == ["pause"]
        opened._loop.call_soon_threadsafe(opened.resume)
        for _ in range(sent):
            assert client.receive() == "x" * 60_000


def test_failing_endpoint_closes_only_its_connection(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.open() as other, place.open() as client:
        client.send("boom")
        ended = client.end()
        assert ended.code == 1011
        assert "secret" not in ended.reason
        other.send("hello")
        assert other.receive() == "hello"
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.name == "antiphon.http.websocket"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_endpoint_that_fails_on_open_closes_with_1011(place: Place) -> None:
    with place.open("/ws?boom") as client:
        assert client.end().code == 1011


# Clients that do not read, or are silent


def test_endpoint_waits_for_a_stalled_client_without_delaying_others(place: Place) -> None:
    with place.open(small_buffer=True) as stalled, place.open() as other:
        stalled.send("flood")
        opened = place.echo.sockets[0]
        until(lambda: opened.is_write_paused)
        sent = place.echo.sent
        for text in ("one", "two", "three"):
            other.send(text)
            assert other.receive() == text
        assert place.echo.sent - sent <= 16_384
        assert opened._transport.get_write_buffer_size() < 256 * 1024
        for _ in range(2 * sent // 16_384):
            assert stalled.receive() == "\0" * 16_384
        until(lambda: place.echo.sent > sent)
        stalled.connection.close()
        until(lambda: place.echo.left_while_draining == 1)


def test_stalled_websocket_client_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "antiphon"), serving(stall_timeout=0.05) as place:
        with place.open(small_buffer=True) as client:
            client.send("flood")
            until(lambda: place.echo.gone == 1)
            until(lambda: place.echo.left_while_draining == 1)
            until(lambda: not place.connections())
    assert "disconnected a client that reads nothing" in [record.message for record in caplog.records]


def test_client_that_pings_but_never_reads_is_disconnected() -> None:
    with serving(stall_timeout=0.2) as place, place.open(small_buffer=True) as client:
        with suppress(ConnectionResetError, BrokenPipeError):
            while True:
                client.write(frame(9, b"x" * 125, mask=b"mask") * 500)
        until(lambda: place.echo.gone == 1)


def test_silent_client_is_pinged_and_kept_if_it_answers() -> None:
    with serving(ping_interval=0.02) as place, place.open() as client:
        while client.pings < 3:
            client._read()
        client.send("still here")
        assert client.receive() == "still here"


def test_client_that_answers_no_ping_is_disconnected() -> None:
    with serving(ping_interval=0.02, pong_timeout=0.02) as place, place.open() as client:
        client.answers_pings = False
        assert client.end() == Closed(1006, "")
        assert client.pings == 1
        until(lambda: place.echo.gone == 1)


@pytest.mark.parametrize(
    "data",
    [b"\x81", frame(1, b"hello")[:8], frame(1, b"hello", fin=False), frame(9, b"hello")[:7]],
    ids=["a byte", "most of a frame", "a fragment", "half a ping"],
)
def test_unfinished_message_times_out_with_1008(data: bytes) -> None:
    with serving(message_timeout=0.05) as place, place.open() as client:
        client.write(data)
        assert client.end().code == 1008


def test_unanswered_close_times_out() -> None:
    with serving(close_timeout=0.05) as place, place.open() as client:
        client.write(frame(1, b"close 1000 bye"))
        assert to_the_end(client.connection) == b"\x88\x05\x03\xe8bye"
        until(lambda: not place.connections())


# Shutdown


def test_shutdown_closes_websockets_with_1001() -> None:
    with serving(force=False) as place, place.open() as client:
        place.server.should_exit = True
        assert client.end().code == 1001


def test_endpoint_can_delay_its_close_at_shutdown() -> None:
    """The endpoint is informed once, and the server waits for it."""
    with serving(force=False) as place, place.open("/ws?slow-end") as client:
        place.server.should_exit = True
        assert client.receive() == "one moment"
        client.send("one more turn")
        assert client.receive() == "one more turn"
        client.send("close 1001 now")
        assert client.end() == Closed(1001, "now")


# The `websockets` package


def test_websockets_package_exchanges_messages(place: Place) -> None:
    with connect(f"ws://127.0.0.1:{place.port}/ws", open_timeout=BOUND) as client:
        assert client.response is not None
        assert client.response.headers["x-request-id"].startswith("req_")
        for text in ("hello", "", "Grüße 🎶", "x" * MAX):
            client.send(text)
            assert client.recv(BOUND) == text
        client.send(["in ", "three ", "parts"])
        assert client.recv(BOUND) == "in three parts"
        client.send(b"\x00")
        assert client.recv(BOUND) == "binary"
        assert client.ping(b"payload").wait(BOUND)
        client.send("close 4000 that is all")
        with pytest.raises(ConnectionClosed) as caught:
            client.recv(BOUND)
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4000, "that is all")


def test_websockets_package_gets_refusal_and_close_codes(place: Place) -> None:
    with (
        pytest.raises(InvalidStatus) as caught,
        connect(f"ws://127.0.0.1:{place.port}/ws", origin=Origin("https://evil.example")),
    ):
        pass
    assert caught.value.response.status_code == 403
    with connect(f"ws://127.0.0.1:{place.port}/ws") as client:
        client.send("x" * (MAX + 1))
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(BOUND)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
