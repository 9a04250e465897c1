"""A gateway that is asked improper things: raw requests, answers taken apart, and what must hold after every one of
them.

`Probed.settle` is the end of each test: the invariants of docs/errors.md that can be seen from outside, whatever was sent before.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

import msgspec
from tests.running import Running, one_upstream, read_all, running, until

from antiphon.config import Config, KeyConfig, Timeouts
from antiphon.testing import ChatServer, ReceivedRequest, ResponsesServer, text, turn
from antiphon.testing.harness import FakeServer
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import UpstreamResponse

ASKED: dict[str, Any] = {"model": "mock-1", "input": "Say hello."}
UPSTREAM_KEY = "lab-key-that-nobody-may-see-0123456789"
ALICE = "alice-key-that-nobody-may-see-0123456789"
BOB = "bob-key-that-nobody-may-see-0123456789"
# What an error never tells (ERR-5): how we are built, where we run, what stands behind us.
INNER = re.compile(r"(?i)traceback|msgspec|uvicorn|httptools|llhttp|asyncio|\.py\b|site-packages|://127")


class Answer:
    """An answer as it came over the wire."""

    def __init__(self, data: bytes) -> None:
        head, self.ended, self.body = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.status = int(lines[0].split()[1]) if data else 0
        pairs = [line.decode("latin-1").split(": ", 1) for line in lines[1:]]
        self.headers = {name.lower(): value for name, value in pairs}
        assert len(self.headers) == len(pairs), "a header came twice"

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """ERR-1, ERR-5, HTTP-8: what every answer that is not 2xx looks like."""
        assert self.status >= 400, (self.status, self.body[:200])
        assert self.headers["content-type"] == "application/json"
        assert int(self.headers["content-length"]) == len(self.body)
        assert re.fullmatch("req_[0-9a-f]{40}", self.headers["x-request-id"])
        assert "server" not in self.headers
        error = _told(self.json)
        assert set(error) == {"message", "type", "code", "param"}
        assert error["message"]
        assert not INNER.search(self.body.decode())
        return error

    def tells(self, status: int, code: str, param: str | None = None) -> None:
        """That this is what was told."""
        error = self.error
        assert self.status == status, error
        if error["code"] is not None:  # an error of Ollama's API has only a message
            assert (error["code"], error["param"]) == (code, param), error


def _told(body: dict[str, Any]) -> dict[str, Any]:
    """An error, in whichever dialect it is told."""
    match body:
        case {"error": {"status": str() as type, "message": message, "details": [dict() as info, *_]}}:
            return {
                "message": message,
                "type": type,
                "code": info["reason"],
                "param": info.get("metadata", {}).get("param"),
            }
        case {"error": str() as message}:
            return {"message": message, "type": None, "code": None, "param": None}
        case {"type": "error", "error": error}:
            return {"param": None, **error}
        case {"error": {"name": "Blocked" | "NoPermissions" | "NotFound"} as named}:
            return {name: told for name, told in named.items() if name != "name"}
        case _:
            assert set(body) == {"error"}
            return dict(body["error"])


def receive_json_body(client: socket.socket) -> bytes:
    """The JSON body of the next response on a connection that stays open."""
    data = b""
    while b"\r\n\r\n{" not in data:
        data += client.recv(65536)
    head, _, body = data.rpartition(b"\r\n\r\n")
    length = int(head.lower().rpartition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += client.recv(65536)
    return body


class Watched(HttpTransport):
    """The real network, which keeps a list of where it was asked to go."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[str] = []

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Any:
        self.asked.append(url)
        answer: UpstreamResponse = await super().send(method, url, headers, body, timeouts)
        return answer


class Probed:
    """A gateway, its one upstream, and the network between them."""

    def __init__(self, gateway: Running, upstream: FakeServer, network: Watched, key: str | None) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.network = network
        self._key = key

    @property
    def seen(self) -> list[ReceivedRequest]:
        """What reached the upstream in this test."""
        return self.upstream.received

    def begin(self) -> None:
        self.upstream.received.clear()
        self.upstream.refusals.clear()
        self.network.asked.clear()

    def post(
        self, body: Mapping[str, Any] | bytes, *headers: tuple[str, str | bytes], key: str | None = None
    ) -> Answer:
        """A turn, with these headers besides the proper ones."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.ask("POST", "/v1/responses", ("content-type", "application/json"), *headers, body=content, key=key)

    def ask(
        self,
        method: str,
        target: str,
        *headers: tuple[str, str | bytes],
        body: bytes = b"",
        host: str = "localhost",
        key: str | None = None,
    ) -> Answer:
        """Any request on a connection of its own."""
        lines = [("host", host), ("connection", "close"), *headers]
        if body or method == "POST":
            lines.append(("content-length", str(len(body))))
        if key := key or self._key:
            lines.append(("authorization", f"Bearer {key}"))
        return self.raw(head(method, target, *lines) + body)

    def raw(self, data: bytes) -> Answer:
        """Bytes as they are. The gateway must close the connection by itself."""
        with self.gateway.connect() as connection:
            with suppress(ConnectionResetError, BrokenPipeError):  # it may be refused before all of it is sent
                connection.sendall(data)
            return Answer(read_all(connection))

    def settle(self) -> None:
        """Invariants 3 to 6: nothing is left of what was asked, and the gateway is as good as before."""
        before = len(self.seen)
        answer = self.post(ASKED)
        assert (answer.status, answer.json["status"]) == (200, "completed"), answer.body
        assert len(self.seen) == before + 1
        self.upstream.wait_idle()
        # Requests come one after the other here: a connection that is still in use would be a second one.
        until(lambda: self.network.connections_in_use == 0)
        log = self.gateway.log
        assert not [line for line in log if "exception" in line]
        written = str(log)
        for secret in (UPSTREAM_KEY, ALICE, BOB):
            assert secret not in written


def head(method: str, target: str, *headers: tuple[str, str | bytes]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1")]
    for name, value in headers:
        lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
    return b"\r\n".join([*lines, b"", b""])


@contextmanager
def probed(*, keys: bool = False, dialect: str = "chat", strict: bool = True, **server: Any) -> Iterator[Probed]:
    """A gateway before one server, which wants a key. With `keys` it knows alice (by hash) and bob (by variable)."""
    before = list(logging.getLogger().handlers)
    level = logging.getLogger("antiphon").level
    kind = ChatServer if dialect == "chat" else ResponsesServer
    network = Watched()
    environ = {"LAB_KEY": UPSTREAM_KEY, "BOB_KEY": BOB}
    script = None if strict else lambda _: turn(text("Hello."))
    with kind(script, key=UPSTREAM_KEY, strict=strict) as upstream:
        config = one_upstream(upstream.base_url, dialect=dialect, api_key_env="LAB_KEY")
        with running(_with(config, keys, server), environ=environ, transport=network) as gateway:
            gateway.services.logger.capture_logging()  # what the HTTP parser refuses is in the log too, as where it really runs
            try:
                yield Probed(gateway, upstream, network, ALICE if keys else None)
            finally:
                logging.getLogger().handlers[:] = before
                logging.getLogger("antiphon").setLevel(level)


def _with(config: Config, keys: bool, server: Mapping[str, Any]) -> Config:
    known = (
        [KeyConfig(name="alice", sha256=sha256(ALICE.encode()).hexdigest()), KeyConfig(name="bob", env="BOB_KEY")]
        if keys
        else []
    )
    settled = msgspec.structs.replace(config.server, **{"max_body_mib": 1, **server})
    return msgspec.structs.replace(config, server=settled, keys=known)


class Canary:
    """Places on this machine where nobody may call: IPv4 and, where there is any, IPv6."""

    def __init__(self) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port: int = self._sockets[0].getsockname()[1]
        with suppress(OSError):  # where there is no IPv6
            self._sockets.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        for listening in self._sockets:
            listening.setblocking(False)

    def callers(self) -> int:
        """How many have called: the kernel has taken their calls, whether or not anybody answers."""
        count = 0
        for listening in self._sockets:
            try:
                while True:
                    listening.accept()[0].close()
                    count += 1
            except BlockingIOError:
                pass
        return count

    def close(self) -> None:
        for listening in self._sockets:
            listening.close()


@contextmanager
def canary() -> Iterator[Canary]:
    """A canary that must have been left alone at the end."""
    bird = Canary()
    try:
        yield bird
        assert bird.callers() == 0
    finally:
        bird.close()
