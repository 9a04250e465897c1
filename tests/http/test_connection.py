"""HTTP/1.1 over real sockets: what is refused and how, which clients are disconnected and when, and that one request
never affects the next."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from tests.api.probing import receive_json_body

from antiphon.gateway.admission import InputQueue
from antiphon.http.asgi import BODY_HIGH, DIRECT, HEADERS_BY_NAME
from antiphon.http.connection import HEAD_LIMIT, MAX_HEADERS, WRITE_HIGH, HttpProtocol

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
BOUND = 60.0  # seconds within which anything that is waited for must have happened


class TinyApp:
    """An application of a few paths; it records what it receives."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.waiting = threading.Event()
        self.left = threading.Event()
        self.gate = threading.Event()
        self.sent = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        match scope["path"]:
            case "/early":
                await answer(send, 413, b"too much")
            case "/boom":
                raise ZeroDivisionError("a secret of the house")
            case "/boom/late":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"some", "more_body": True})
                raise ZeroDivisionError("a secret of the house")
            case "/boom/deaf":
                await self._wait(scope, receive, send)
                raise ZeroDivisionError("a secret of the house")
            case "/boom/gated":
                self.waiting.set()
                while not self.gate.is_set():
                    await asyncio.sleep(0.005)
                raise ZeroDivisionError("a secret of the house")
            case "/nothing":
                pass
            case "/wait":
                await self._wait(scope, receive, send)
            case "/stuck":
                self.waiting.set()
                await asyncio.Event().wait()
            case "/flood":
                await self._flood(receive, send)
            case "/large":
                await answer(send, 200, bytes(32 * 1024 * 1024))
                self.waiting.set()
            case _:
                await self._echo(scope, receive, send)

    async def _echo(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        summary = {
            "path": scope["path"],
            "query": scope["query_string"].decode(),
            "length": len(body),
            "body": body[:100].decode(),
        }
        await answer(send, 200, json.dumps(summary).encode())

    async def _wait(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers when the gate opens, unless the client disconnects first."""
        if scope["method"] == "POST":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        watcher = asyncio.ensure_future(self._watch(receive))
        self.waiting.set()
        while not self.gate.is_set() and not watcher.done():
            await asyncio.sleep(0.005)
        watcher.cancel()
        if self.gate.is_set():
            await answer(send, 200, b"waited")

    async def _flood(self, receive: Any, send: Any) -> None:
        watcher = asyncio.ensure_future(self._watch(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not watcher.done():
            await send({"type": "http.response.body", "body": bytes(16_384), "more_body": True})
            self.sent += 16_384
            await asyncio.sleep(0)

    async def _watch(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


async def answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Place:
    """A running server."""

    def __init__(self, app: TinyApp, server: uvicorn.Server, port: int) -> None:
        self.app = app
        self.server = server
        self.port = port

    @contextmanager
    def client(self, *, small_buffer: bool = False) -> Iterator[socket.socket]:
        with socket.socket() as client:
            if small_buffer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(BOUND)
            client.connect(("127.0.0.1", self.port))
            yield client

    def ask(self, data: bytes) -> Answer:
        """All bytes that come back on a new connection, which the server must close."""
        with self.client() as client:
            client.sendall(data)
            return Answer(to_the_end(client))

    def protocols(self) -> int:
        return len(self.server.server_state.connections)

    def connection(self) -> HttpProtocol:
        """The server's side of the only connection."""
        until(lambda: self.protocols() == 1)
        [protocol] = self.server.server_state.connections
        assert isinstance(protocol, HttpProtocol)
        return protocol


class Answer:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first else 0
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}

    def error(self) -> dict[str, Any]:
        decoded = json.loads(self.body)
        assert set(decoded) == {"error"}
        error: dict[str, Any] = decoded["error"]
        assert set(error) == {"message", "type", "code", "param"}
        return error


def to_the_end(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(1_000_000):
        pieces.append(piece)
    return b"".join(pieces)


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition in the server's thread."""
    end = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@contextmanager
def serving(
    protocol: type[HttpProtocol] = HttpProtocol, *, app: TinyApp | None = None, **settings: Any
) -> Iterator[Place]:
    app = app or TinyApp()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="uvloop",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            **settings,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield Place(app, server, listener.getsockname()[1])
        finally:
            app.gate.set()
            server.should_exit = True
            server.force_exit = not settings
            thread.join(BOUND)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    with serving() as place:
        yield place


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """The shared server: after every test it has no connection left, and answers (docs/errors.md, invariants 4 and
    6)."""
    shared.app.__init__()  # type: ignore[misc]
    yield shared
    shared.app.gate.set()
    until(lambda: shared.protocols() == 0)
    assert shared.ask(b"GET /after HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").status == 200


GET = b"GET /x HTTP/1.1\r\nhost: a\r\n"
POST = b"POST /x HTTP/1.1\r\nhost: a\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"

REFUSED = {
    "no HTTP at all": b"hello there\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /x\r\n\r\n",
    "HTTP/3.0": b"GET /x HTTP/3.0\r\nhost: a\r\n\r\n",
    "unknown method": b"BREW /x HTTP/1.1\r\nhost: a\r\n\r\n",
    "CONNECT": b"CONNECT inner:80 HTTP/1.1\r\nhost: a\r\n\r\n",
    "a byte beyond ASCII in the target": b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n",
    "a target that is no path": b"GET http://[::1 HTTP/1.1\r\nhost: a\r\n\r\n",
    "NUL in a header": GET + b"x: a\x00b\r\n\r\n",
    "two lengths": POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"content-length: 3, 3\r\n\r\nabc",
    "a signed length": POST + b"content-length: +3\r\n\r\nabc",
    "an endless length": POST + b"content-length: 99999999999999999999999\r\n\r\nabc",
    "length and chunks": POST + b"content-length: 3\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    "chunks and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a coding besides chunked": POST + b"transfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "chunked twice": POST + b"transfer-encoding: chunked\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    "no chunked": POST + b"transfer-encoding: identity\r\n\r\nabc",
    "something like chunked": POST + b"transfer-encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /x HTTP/1.0\r\nhost: a\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    "a folded header": GET + b"x: a\r\n b\r\n\r\n",
    "a folded coding": POST + b"transfer-encoding:\r\n chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a space before the colon": GET + b"x : a\r\n\r\n",
    "bare LF after the request line": b"GET /x HTTP/1.1\nhost: a\r\n\r\n",
    "bare LF after a header": b"GET /x HTTP/1.1\r\nhost: a\nx: b\r\n\r\n",
    "bare LF at the end": GET + b"\n",
    "bare CR": b"GET /x HTTP/1.1\r\nhost: a\rx: b\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_invalid_request_gets_a_json_error_and_closes_the_connection(place: Place, data: bytes) -> None:
    """ERR-1, HTTP-8; invariant 3; docs/errors.md, "Security": ambiguous framing."""
    answer = place.ask(data + b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n")
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    assert re.fullmatch("req_[0-9a-f]{40}", answer.headers["x-request-id"])
    assert "server" not in answer.headers
    error = answer.error()
    assert (error["type"], error["code"], error["param"]) == ("invalid_request", "invalid_value", None)
    assert not re.search("(?i)llhttp|httptools|uvicorn|traceback", error["message"])
    assert place.app.seen == []


BROKEN_BODIES = {
    "bare LF after a size": b"3\nabc\n0\n\n",
    "bare LF after a chunk": b"3\r\nabc\n0\r\n\r\n",
    "no number": b"zz\r\nabc\r\n",
    "a negative size": b"-3\r\nabc\r\n",
    "an endless size": b"fffffffffffffffffff\r\nabc\r\n",
}


@pytest.mark.parametrize("data", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
def test_invalid_chunked_body_is_refused_and_its_reader_informed(place: Place, data: bytes) -> None:
    assert place.ask(POST + CHUNKED + data).error()["code"] == "invalid_value"
    until(place.app.left.is_set)


def test_invalid_chunked_body_after_the_answer_started_closes_the_connection(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"POST /wait HTTP/1.1\r\nhost: a\r\n" + CHUNKED)
        assert place.app.waiting.wait(BOUND)
        assert b"200 OK" in client.recv(1000)
        client.sendall(b"zz\r\n")
        assert to_the_end(client) == b""
    until(place.app.left.is_set)


# Sizes


def test_head_of_the_largest_size_is_accepted(place: Place) -> None:
    headers = b"".join(b"x-%d: %b\r\n" % (number, b"v" * 600) for number in range(MAX_HEADERS - 2))
    assert place.ask(GET + headers + b"connection: close\r\n\r\n").status == 200


TOO_LARGE = {
    "one long header": GET + b"x: " + b"a" * HEAD_LIMIT + b"\r\n\r\n",
    "an endless header": GET + b"x: " + b"a" * 2_000_000,
    "an endless name": GET + b"a" * 2_000_000,
    "an endless target": b"GET /" + b"a" * 2_000_000,
    "a long target and a header": b"GET /"
    + b"a" * (HEAD_LIMIT - 20)
    + b" HTTP/1.1\r\nhost: aaaaaaaaaaaaaaaaaaa\r\n\r\n",
    "many headers": GET + b"x: a\r\n" * MAX_HEADERS + b"\r\n",
    "many large headers": GET + (b"x: " + b"a" * 1000 + b"\r\n") * 70 + b"\r\n",
    "endless empty lines": b"\r\n" * 1_000_000,
    "endless trailers": POST + CHUNKED + b"0\r\nx: " + b"a" * 2_000_000,
    "an endless chunk extension": POST + CHUNKED + b"3;" + b"a" * 2_000_000,
}


@pytest.mark.parametrize("data", TOO_LARGE.values(), ids=TOO_LARGE)
def test_oversized_head_is_refused_before_it_is_complete(place: Place, data: bytes) -> None:
    """The client is still sending: it gets its answer anyway."""
    answer = place.ask(data)
    assert answer.status == 431
    assert answer.headers["connection"] == "close"
    assert (answer.error()["type"], answer.error()["code"]) == ("invalid_request", "headers_too_large")


def test_trailers_never_become_headers(place: Place) -> None:
    answer = place.ask(
        POST + b"connection: close\r\n" + CHUNKED + b"3\r\nabc\r\n0\r\nauthorization: Bearer forged\r\n\r\n"
    )
    assert json.loads(answer.body)["length"] == 3
    assert [name for name, _ in place.app.seen[0]["headers"]] == [b"host", b"connection", b"transfer-encoding"]


def test_many_small_chunks_do_not_count_as_head(place: Place) -> None:
    assert (
        json.loads(place.ask(POST + b"connection: close\r\n" + CHUNKED + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n").body)[
            "length"
        ]
        == 100_000
    )


def test_large_body_arrives_whole(place: Place) -> None:
    size = 5_000_000
    data = POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % size + b"b" * size
    assert json.loads(place.ask(data).body)["length"] == size


# Upgrades


@pytest.mark.parametrize("upgrade", [b"websocket", b"WebSocket", b"h2c, websocket"])
def test_websocket_upgrade_is_refused_with_426(place: Place, upgrade: bytes) -> None:
    answer = place.ask(
        GET + b"connection: keep-alive, Upgrade\r\nupgrade: " + upgrade + b"\r\nsec-websocket-version: 13\r\n\r\n"
    )
    assert answer.status == 426
    assert answer.error()["code"] == "upgrade_required"
    assert answer.headers["upgrade"] == "HTTP/1.1"
    assert "close" in answer.headers["connection"]
    assert place.app.seen == []


@pytest.mark.parametrize(
    "data",
    [b"content-length: 3\r\n\r\nabc", CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", b"\r\n"],
    ids=["length", "chunks", "none"],
)
@pytest.mark.parametrize("cut", [0, 1])
def test_other_upgrade_is_ignored_and_the_body_read(place: Place, data: bytes, cut: int) -> None:
    """The request of curl for HTTP/2 without TLS; the next request on the connection is read as well."""
    upgrading = POST + b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n" + data
    following = b"GET /second HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    with place.client() as client:
        client.sendall(upgrading[: len(upgrading) - cut])
        client.sendall(upgrading[len(upgrading) - cut :] + following)
        written = to_the_end(client)
    assert written.count(b"200 OK") == 2
    assert (b'"body": "abc"' in written) == (b"abc" in data)
    assert [scope["path"] for scope in place.app.seen] == ["/x", "/second"]


def test_many_ignored_upgrades_in_one_piece_are_answered(place: Place) -> None:
    one = GET + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
    assert place.ask(one * 500 + GET + b"connection: close\r\n\r\n").status == 200
    assert len(place.app.seen) == 501


# Several requests on one connection


def test_pipelined_requests_are_answered_in_order(place: Place) -> None:
    asked = [b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(30)]
    with place.client() as client:
        client.sendall(
            b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n"
            + b"".join(asked)
            + b"GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        )
        assert place.app.waiting.wait(BOUND)
        assert [scope["path"] for scope in place.app.seen] == ["/wait"]
        place.app.gate.set()
        data = to_the_end(client)
    assert re.findall(rb'"path": "/(\w+)"', data) == [*(b"%d" % number for number in range(30)), b"last"]


def test_refusal_is_sent_after_the_earlier_answers(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n" + GET + b"\r\n" + b"nonsense\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        client.sendall(b"more nonsense")
        place.app.gate.set()
        data = to_the_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", data) == [b"200", b"200", b"400"]


def test_pipelined_request_with_an_invalid_body_is_never_served(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n" + POST + CHUNKED + b"zz\r\n")
        assert place.app.waiting.wait(BOUND)
        place.app.gate.set()
        data = to_the_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", data) == [b"200", b"400"]
    assert [scope["path"] for scope in place.app.seen] == ["/wait"]


def test_no_answer_follows_an_answer_that_closes(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"GET /boom/gated HTTP/1.1\r\nhost: a\r\n\r\n" + GET + b"\r\n" + b"nonsense\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        place.app.gate.set()
        data = to_the_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", data) == [b"500"]
    until(lambda: place.protocols() == 0)
    assert [scope["path"] for scope in place.app.seen] == ["/boom/gated"]


@pytest.mark.parametrize("body", [b"abc", b""], ids=["some of the body", "none of it"])
def test_answer_before_the_end_of_the_body_closes_the_connection(place: Place, body: bytes) -> None:
    """The rest of the body is not read as a request."""
    with place.client() as client:
        client.sendall(b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n" + body)
        first = client.recv(10_000)
        client.sendall(GET + b"\r\n")
        answer = Answer(first + to_the_end(client))
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert answer.body == b"too much"
    assert [scope["path"] for scope in place.app.seen] == ["/early"]


def test_client_that_still_sends_gets_its_early_answer(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 20000000\r\n\r\n" + b"a" * 5_000_000)
        assert Answer(to_the_end(client)).body == b"too much"


def test_unread_complete_body_keeps_the_connection(place: Place) -> None:
    with place.client() as client:
        client.sendall(
            b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc" + GET + b"connection: close\r\n\r\n"
        )
        data = to_the_end(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", data) == [b"413", b"200"]


def test_expect_continue_is_answered_with_100(place: Place) -> None:
    with place.client() as client:
        client.sendall(POST + b"expect: 100-continue\r\ncontent-length: 3\r\nconnection: close\r\n\r\n")
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert json.loads(Answer(to_the_end(client)).body)["body"] == "abc"


def test_refused_expect_continue_closes_the_connection(place: Place) -> None:
    answer = place.ask(b"POST /early HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n")
    assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_request_targets_are_parsed_in_every_form(place: Place) -> None:
    for target in (b"/a%20b?c=d", b"http://b/a%20b?c=d", b"http://b:81/a%20b?c=d"):
        decoded = json.loads(place.ask(b"GET %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % target).body)
        assert (decoded["path"], decoded["query"]) == ("/a b", "c=d")
    hosts = [dict(scope["headers"])[b"host"] for scope in place.app.seen]
    assert hosts == [b"a", b"b", b"b:81"]  # RFC 9112, 3.2.2
    assert place.app.seen[0]["raw_path"] == b"/a%20b"


def test_asterisk_target_reaches_the_application(place: Place) -> None:
    assert place.ask(b"OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").status == 200


# Internal errors


@pytest.mark.parametrize("path", [b"boom", b"nothing"])
def test_internal_error_is_500_without_traceback_and_is_logged(
    place: Place, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-5, HTTP-8."""
    answer = place.ask(b"POST /%b HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc" % path)
    assert answer.status == 500
    assert answer.headers["connection"] == "close"
    assert (answer.error()["type"], answer.error()["code"]) == ("server_error", "internal_error")
    assert b"secret" not in answer.body
    [record] = [record for record in caplog.records if record.name == "antiphon.http"]
    assert record.exc_info
    assert record.fields["request_id"] == answer.headers["x-request-id"]  # type: ignore[attr-defined]


def test_internal_error_after_the_answer_started_truncates_it(place: Place) -> None:
    answer = place.ask(b"GET /boom/late HTTP/1.1\r\nhost: a\r\n\r\n")
    assert answer.status == 200
    assert answer.body == b"4\r\nsome\r\n"  # no last chunk: the client knows that the answer is incomplete


def test_internal_error_after_a_disconnect_is_only_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.client() as client:
        client.sendall(b"GET /boom/deaf HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
    until(lambda: any(record.exc_info for record in caplog.records))


def test_refusal_is_logged_with_its_request_id(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """HTTP-8."""
    with caplog.at_level(logging.INFO, "antiphon"):
        answer = place.ask(b"nonsense\r\n\r\n")
    [record] = [record for record in caplog.records if record.name == "antiphon.http"]
    assert record.fields["request_id"] == answer.headers["x-request-id"]  # type: ignore[attr-defined]
    assert record.fields["status"] == 400  # type: ignore[attr-defined]


def test_internal_error_while_parsing_a_head_is_500(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(HttpProtocol):
        def on_url(self, url: bytes) -> None:
            raise ZeroDivisionError(url)

    with serving(Faulty) as place:
        answer = place.ask(GET + b"\r\n")
    assert (answer.status, answer.error()["code"]) == (500, "internal_error")
    assert any(record.exc_info for record in caplog.records)


def test_request_running_at_shutdown_is_503() -> None:
    with serving(timeout_graceful_shutdown=0) as place, place.client() as client:
        client.sendall(b"GET /stuck HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        place.server.should_exit = True
        answer = Answer(to_the_end(client))
    assert (answer.status, answer.error()["code"]) == (503, "server_shutdown")


# Clients that disconnect, and slow clients


@pytest.mark.parametrize("waiting", [b"", GET + b"\r\n"], ids=["one request", "another behind it"])
@pytest.mark.parametrize("half", [False, True], ids=["closed", "half closed"])
def test_client_disconnect_is_detected(place: Place, waiting: bytes, half: bool) -> None:
    """A client that closes only its sending half counts as disconnected: the two cannot be distinguished here."""
    with place.client() as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        client.sendall(waiting)
        if half:
            client.shutdown(socket.SHUT_WR)
            assert to_the_end(client) == b""
    until(place.app.left.is_set)


class Impatient(HttpProtocol):
    """Short timeouts, but long enough for a busy machine to send in time."""

    head_timeout = 1.0
    body_timeout = 1.0
    stall_timeout = 0.05


def test_connection_without_a_byte_is_closed() -> None:
    with serving(Impatient) as place:
        assert place.ask(b"").status == 0


@pytest.mark.parametrize("data", [b"GET", GET + b"x: y"], ids=["a word", "most of it"])
def test_late_head_is_refused_with_408(data: bytes) -> None:
    with serving(Impatient) as place:
        answer = place.ask(data)
        assert answer.status == 408
        assert b"the head of the request was not received within 1 s" in answer.body
        assert place.app.seen == []


def test_timeout_of_a_second_head_closes_after_the_first_answer() -> None:
    with serving(Impatient) as place, place.client() as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        client.sendall(b"GET")
        protocol = place.connection()
        until(lambda: protocol._is_closing)
        place.app.gate.set()
        received = to_the_end(client)
        assert b"waited" in received
        assert b"HTTP/1.1 408 " in received.partition(b"waited")[2]


def test_late_body_is_refused_with_408_although_pieces_arrive() -> None:
    """The timer is called by hand, so the test does not depend on the speed of this machine."""
    with serving(Impatient) as place, place.client() as client:
        client.sendall(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345")
        protocol = place.connection()
        until(lambda: waits_for_body(protocol))
        timer = protocol._body_timer
        assert timer is not None
        client.sendall(b"6")
        until(lambda: protocol._body_timer is timer)  # a piece does not start it again
        protocol.loop.call_soon_threadsafe(protocol._on_late_body, 300.0)
        answer = Answer(to_the_end(client))
        assert answer.status == 408
        assert b"the whole body was not received within 300 s" in answer.body


def test_timer_of_the_whole_body_ends_with_the_body(place: Place) -> None:
    with place.client() as client:
        client.sendall(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345")
        protocol = place.connection()
        until(lambda: protocol._body_timer is not None)
        client.sendall(b"67890")
        until(lambda: protocol._body_timer is None)


def test_late_piece_of_a_body_is_refused_with_408() -> None:
    """An incomplete request does not hold a connection forever."""
    with serving(Impatient) as place:
        answer = place.ask(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345")
        assert answer.status == 408
        assert b"the rest of the body was not received" in answer.body


def test_body_timeout_does_not_count_the_time_of_the_application(place: Place) -> None:
    """The timer is called by hand, so the test does not depend on the speed of this machine."""
    with place.client() as client:
        client.sendall(b"POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n12345")
        protocol = place.connection()
        until(lambda: waits_for_body(protocol))
        first = protocol._input_timer
        protocol.flow.read_paused = True  # as if the application did not read
        protocol.loop.call_soon_threadsafe(protocol._on_body_timeout)
        until(lambda: protocol._input_timer is not first)
        assert waits_for_body(protocol)
        client.sendall(b"67890")
        assert Answer(to_the_end(client)).status == 200


def waits_for_body(protocol: HttpProtocol) -> bool:
    return protocol._input_timer is not None and not protocol._is_in_head


def test_head_in_pieces_within_the_timeout_is_served(place: Place) -> None:
    with place.client() as client:
        for piece in (b"GET /x HT", b"TP/1.1\r\nhost: a\r\nconnec", b"tion: close\r\n\r\n"):
            client.sendall(piece)
        assert Answer(to_the_end(client)).status == 200


def test_buffer_for_a_client_that_does_not_read_is_bounded() -> None:
    """docs/errors.md, "200 clients stop reading": at most 256 KiB buffered in user space, others unaffected."""
    with serving() as place, place.client(small_buffer=True) as client:
        client.sendall(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n")
        protocol = place.connection()
        until(lambda: protocol.flow.write_paused)
        assert WRITE_HIGH <= protocol.transport.get_write_buffer_size() < 256 * 1024
        assert place.ask(GET + b"connection: close\r\n\r\n").status == 200


def test_client_that_resumes_reading_gets_everything() -> None:
    with serving() as place, place.client(small_buffer=True) as client:
        client.sendall(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n")
        protocol = place.connection()
        until(lambda: protocol.flow.write_paused)
        before = place.app.sent
        held = 0
        while held < before + 1_000_000:
            held += len(client.recv(1_000_000))


def test_client_that_sends_again_before_reading_is_served() -> None:
    with serving() as place, place.client() as client:
        large = b"GET /large HTTP/1.1\r\nhost: a\r\n"
        client.sendall(large + b"\r\n" + large + b"connection: close\r\n\r\n")
        assert len(to_the_end(client)) > 2 * 32 * 1024 * 1024


def test_stalled_client_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    """docs/errors.md, "200 clients stop reading": the stalled client is disconnected, and the application is
    informed."""
    with (
        caplog.at_level(logging.INFO, "antiphon"),
        serving(Impatient) as place,
        place.client(small_buffer=True) as client,
    ):
        client.sendall(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.left.wait(BOUND)
        until(lambda: place.protocols() == 0)
    assert any("disconnected a client" in record.message for record in caplog.records)


def test_last_bytes_of_an_answer_have_a_stall_timer() -> None:
    with serving() as place, place.client() as client:
        client.sendall(GET + b"\r\n")
        assert b"200 OK" in client.recv(1000)
        assert place.connection()._stall_timer is None  # no data is pending, so there is no timer
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        protocol = place.connection()
        resumed = threading.Event()
        protocol.loop.call_soon_threadsafe(protocol.resume_writing)
        protocol.loop.call_soon_threadsafe(resumed.set)
        assert resumed.wait(BOUND)
        assert protocol._stall_timer is not None


def test_stall_timer_stops_when_the_client_has_read_everything() -> None:
    with serving() as place, place.client() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        protocol = place.connection()
        assert protocol._stall_timer is not None
        held = 0
        while held <= 32 * 1024 * 1024:
            held += len(client.recv(1_000_000))
        protocol.loop.call_soon_threadsafe(protocol._check_stall, 1)
        until(lambda: protocol._stall_timer is None)
        client.sendall(GET + b"connection: close\r\n\r\n")
        assert to_the_end(client).count(b"200 OK") == 1


@pytest.mark.parametrize("headers", [b"", b"connection: close\r\n"], ids=["kept", "closing"])
def test_client_that_never_reads_the_end_is_disconnected(headers: bytes) -> None:
    with serving(Impatient) as place, place.client(small_buffer=True) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n" + headers + b"\r\n")
        assert place.app.waiting.wait(BOUND)
        until(lambda: place.protocols() == 0)


def test_slow_but_reading_client_is_not_disconnected() -> None:
    with serving() as place, place.client() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        protocol = place.connection()
        waiting = protocol.transport.get_write_buffer_size()
        held = 0
        while protocol.transport.get_write_buffer_size() == waiting:
            held += len(client.recv(100_000))
        checked = threading.Event()
        protocol.loop.call_soon_threadsafe(protocol._check_stall, waiting)
        protocol.loop.call_soon_threadsafe(checked.set)
        assert checked.wait(BOUND)
        assert held + len(to_the_end(client)) > 32 * 1024 * 1024


# Idle connections


def test_idle_connection_is_closed_after_the_keep_alive_timeout() -> None:
    """One timer for many requests: it is called by hand here, since waiting takes too long."""
    with serving(timeout_keep_alive=1000) as place, place.client() as client:
        client.sendall(GET + b"\r\n")
        assert b"200 OK" in client.recv(1000)
        protocol = place.connection()
        first = protocol._idle_timer
        assert first is not None
        client.sendall(GET + b"\r\n")
        assert b"200 OK" in client.recv(1000)
        assert protocol._idle_timer is first
        protocol.loop.call_soon_threadsafe(protocol._close_if_idle)  # it is idle, but not long enough
        until(lambda: protocol._idle_timer not in (first, None))
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        assert place.app.waiting.wait(BOUND)
        protocol.loop.call_soon_threadsafe(protocol._close_if_idle)  # it waits for us
        until(lambda: protocol._idle_timer is None)
        place.app.gate.set()
        assert b"waited" in client.recv(1000)
        assert protocol._idle_since is not None
        protocol._idle_since -= 2000
        protocol.loop.call_soon_threadsafe(protocol._close_if_idle)
        assert to_the_end(client) == b""


@pytest.mark.parametrize("asked", [b"", b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n"], ids=["idle", "being answered"])
def test_shutdown_lets_a_running_request_finish(asked: bytes) -> None:
    with serving() as place, place.client() as client:
        client.sendall(asked)
        protocol = place.connection()
        if asked:
            assert place.app.waiting.wait(BOUND)
        protocol.loop.call_soon_threadsafe(protocol.shutdown)
        if asked:
            until(lambda: protocol._newest_cycle is not None and not protocol._newest_cycle.keep_alive)
            place.app.gate.set()
        assert to_the_end(client).endswith(b"waited" if asked else b"")


def test_early_answer_cancels_the_body_timeout() -> None:
    class Lingering(HttpProtocol):
        body_timeout = 0.05

    with serving(Lingering) as place, place.client() as client:
        client.sendall(b"POST /early HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n12345")
        protocol = place.connection()
        assert to_the_end(client).endswith(b"too much")
        assert protocol._input_timer is None


# Requests that clients send on one connection: the path, more header lines, and the length of the body.
HEADER_LINES = [
    b"",
    b"x-a: 1\r\n",
    b"x-a: 2\r\n",
    b"expect: 100-continue\r\n",
    b"x-a: 1\r\nx-a: 1\r\n",
    b"te: trailers\r\n",
]
REQUESTS = st.lists(
    st.tuples(st.sampled_from([b"/one", b"/two?q=%20"]), st.sampled_from(HEADER_LINES), st.integers(0, 40)), max_size=8
)


@given(requests=REQUESTS)
def test_requests_on_one_connection_are_parsed_the_same_for_any_split(
    shared: Place, requests: list[tuple[bytes, bytes, int]]
) -> None:
    whole, in_pieces = (_scopes_and_bodies(shared, requests, in_pieces=in_pieces) for in_pieces in (False, True))
    assert whole == in_pieces
    assert len(whole) == len(requests)


def _scopes_and_bodies(place: Place, requests: list[tuple[bytes, bytes, int]], *, in_pieces: bool) -> list[Any]:
    """The scope of each call of the application, and the body of its response."""
    place.app.seen.clear()
    bodies = []
    with place.client() as client:
        for path, lines, length in requests:
            data = (
                b"POST %b HTTP/1.1\r\nhost: a\r\n%bcontent-length: %d\r\n\r\n" % (path, lines, length) + b"x" * length
            )
            if in_pieces:
                client.sendall(data[:20])
                until(lambda: place.connection()._bytes_since_callback > 0)
                client.sendall(data[20:])
            else:
                client.sendall(data)
            bodies.append(receive_json_body(client))
    until(lambda: place.protocols() == 0)
    internal = (HEADERS_BY_NAME, DIRECT, "client")
    return [
        ({name: value for name, value in scope.items() if name not in internal}, body)
        for scope, body in zip(place.app.seen, bodies, strict=True)
    ]


# New connections


class RecordingTransport(asyncio.Transport):
    """A transport that records which of its details are asked for."""

    def __init__(self, addresses: dict[str, Any]) -> None:
        super().__init__()
        self.addresses = addresses
        self.asked: list[str] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        self.asked.append(name)
        return self.addresses.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("addresses", "client", "server"),
    [
        ({"peername": ("10.0.0.1", 5000), "sockname": ("10.0.0.2", 80)}, ("10.0.0.1", 5000), ("10.0.0.2", 80)),
        ({"peername": ("::1", 5000, 0, 0), "sockname": ("::1", 80, 0, 0)}, ("::1", 5000), ("::1", 80)),
        ({}, None, None),
    ],
)
def test_addresses_are_looked_up_with_the_first_request(
    addresses: dict[str, Any], client: tuple[str, int] | None, server: tuple[str, int] | None
) -> None:
    """Accepting a connection is cheap: while many are accepted, later ones wait."""

    async def run() -> None:
        app = TinyApp()
        config = uvicorn.Config(app, http=HttpProtocol, ws="none", lifespan="off", log_config=None, proxy_headers=False)
        protocol = HttpProtocol(config, uvicorn.server.ServerState(), {})
        transport = RecordingTransport(addresses)
        protocol.connection_made(transport)
        assert transport.asked == []
        for _ in range(2):
            protocol.on_message_begin()
            assert (protocol.scope["client"], protocol.scope["server"]) == (client, server)
        assert sorted(transport.asked) == ["peername", "sockname"]
        protocol.connection_lost(None)

    asyncio.run(run())


# Input that waits for its turn


class HoldingQueue(InputQueue):
    """A queue in which all input waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__(1)
        self.waiting: list[tuple[str, Callable[[], None]]] = []
        self.is_open = False

    def take_place(self, now: float) -> bool:
        del now
        return self.is_open

    def add(self, owner: str, process: Callable[[], None]) -> None:
        self.waiting.append((owner, process))


class QueueingApp(TinyApp):
    """An application whose connections queue their input. The owner is the path."""

    def __init__(self, queue: InputQueue | None = None) -> None:
        super().__init__()
        self.input_queue = queue or InputQueue(1)

    def guess_owner(self, data: bytes) -> str | None:
        return data.split(b" ")[1].decode() if data.startswith(b"GET /") else None


def process_next(place: Place, queue: HoldingQueue) -> str:
    """Lets the oldest input go on; returns its owner."""
    until(lambda: bool(queue.waiting))
    owner, process = queue.waiting.pop(0)
    run_in_loop(place.connection().loop, process)
    return owner


def run_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Calls a function in the server's event loop, and waits until it has returned."""
    done = threading.Event()
    loop.call_soon_threadsafe(call)
    loop.call_soon_threadsafe(done.set)
    assert done.wait(BOUND)


def test_all_requests_of_a_crowd_are_answered() -> None:
    with serving(app=QueueingApp()) as place, ExitStack() as stack:
        clients = [stack.enter_context(place.client()) for _ in range(100)]
        for client in clients:
            client.sendall(GET + b"connection: close\r\n\r\n")
        assert [Answer(to_the_end(client)).status for client in clients] == [200] * 100


def test_queued_input_is_kept_in_order_and_belongs_to_its_owner() -> None:
    queue = HoldingQueue()
    with serving(app=QueueingApp(queue)) as place, place.client() as client:
        client.sendall(b"GET /x HTTP/1.1\r\nhost: a\r\n")
        until(lambda: bool(queue.waiting))
        client.sendall(b"content-length: 3\r\n\r\n")
        until(lambda: place.connection()._queued_input.endswith(b"\r\n\r\n"))
        assert process_next(place, queue) == "/x"
        client.sendall(b"abc")
        assert process_next(place, queue) == "/x"  # a piece of a body: the owner of the head before it
        assert b'"body": "abc"' in client.recv(65536)


def test_little_input_is_read_while_it_waits() -> None:
    queue = HoldingQueue()
    size = 8 * 1024 * 1024
    with serving(app=QueueingApp(queue)) as place, place.client() as client:
        sender = threading.Thread(
            target=client.sendall, args=(GET + b"content-length: %d\r\n\r\n" % size + bytes(size),)
        )
        sender.start()
        connection = place.connection()
        until(lambda: connection.flow.read_paused)
        assert len(connection._queued_input) <= BODY_HIGH + 256 * 1024  # and one more read
        queue.is_open = True
        process_next(place, queue)
        while b'"length": %d' % size not in client.recv(65536):
            pass


def test_request_of_a_client_that_left_the_queue_is_not_served() -> None:
    queue = HoldingQueue()
    with serving(app=QueueingApp(queue)) as place:
        with place.client() as client:
            client.sendall(GET + b"\r\n")
            until(lambda: bool(queue.waiting))
            loop = place.connection().loop
        until(lambda: place.protocols() == 0)
        run_in_loop(loop, queue.waiting[0][1])
        assert place.app.seen == []


def test_time_in_the_queue_is_not_the_clients() -> None:
    class Hasty(HttpProtocol):
        head_timeout = 0.05
        body_timeout = 0.05

    queue = HoldingQueue()
    with serving(Hasty, app=QueueingApp(queue)) as place, place.client() as client:
        client.sendall(GET + b"content-length: 3\r\n\r\n")
        until(lambda: bool(queue.waiting))
        time.sleep(0.2)
        client.sendall(b"abc")
        until(lambda: place.connection()._queued_input.endswith(b"abc"))
        process_next(place, queue)
        assert b'"body": "abc"' in client.recv(65536)


def test_queued_request_is_served_at_shutdown() -> None:
    queue = HoldingQueue()
    with serving(app=QueueingApp(queue), timeout_graceful_shutdown=30) as place, place.client() as client:
        client.sendall(GET + b"\r\n")
        until(lambda: bool(queue.waiting))
        place.server.should_exit = True
        assert Answer(to_the_end(client)).status == 200
