"""A gateway on bad days, and the six invariants of docs/errors.md that hold after each of them.

`Lab.ask` judges every answer as it comes: a stream by the grammar and by its form, an error by its shape. `Lab.settle` ends each
case: sockets, tasks and file handles are back, no key was told to anybody, and the next plain request succeeds in the same process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from tests.api.probing import ALICE, UPSTREAM_KEY, Answer, Watched, head
from tests.running import BOUND, Running, read_all, running, until

from antiphon import testing
from antiphon.config import Config, KeyConfig, StoreConfig, Timeouts, UpstreamConfig
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.events import ErrorEvent, StreamEvent, TerminalEvent
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.response import Response
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, ReceivedRequest, Reply, ResponsesServer, turn
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.script import ScriptedTurn
from antiphon.upstream.http_response import HttpResponse

T = TypeVar("T")
DIALECTS = ("chat", "responses")
SERVERS: dict[str, tuple[Any, Any]] = {
    "chat": (ChatServer, ChatBehavior),
    "responses": (ResponsesServer, ResponsesBehavior),
    "messages": (MessagesServer, MessagesBehavior),
    "gemini": (GeminiServer, GeminiBehavior),
}
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
SETTLING = 30.0  # seconds: two on a machine that has nothing else to do
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Told(Answer):
    """What a client was told: a response, as a stream or in one piece, or an error."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.came = data
        if self.headers.get("transfer-encoding") == "chunked":
            self.body = unchunked(self.body)
        for secret in (UPSTREAM_KEY, ALICE):
            assert secret.encode() not in data  # invariant 5
        if self.status != 200:
            assert self.error  # invariant 3: asking for it is to check its shape

    @property
    def events(self) -> list[StreamEvent]:
        """Invariants 1 and 2: the whole of a stream, which is in order (HTTP-3, HTTP-4, STR-5 to STR-8)."""
        assert self.headers["content-type"].startswith("text/event-stream")
        blocks = [block for block in self.body.split(b"\n\n") if not block.startswith(b":")]
        assert blocks[-2:] == [b"data: [DONE]", b""], self.body[-300:]
        events = []
        for block in blocks[:-2]:
            name, data = block.split(b"\n")
            assert name == b"event: " + msgspec.json.decode(data.removeprefix(b"data: "))["type"].encode()
            events.append(decode_event(data.removeprefix(b"data: ")))
        assert find_violations(events) == []
        assert [isinstance(event, TerminalEvent) for event in events] == [False] * (len(events) - 1) + [True]
        errors = [at for at, event in enumerate(events) if isinstance(event, ErrorEvent)]
        assert errors in ([], [len(events) - 2])
        return events

    @property
    def response(self) -> Response:
        assert self.status == 200, self.body
        if self.headers["content-type"] == "application/json":
            return decode_response(self.body)
        end = self.events[-1]
        assert isinstance(end, TerminalEvent)
        return end.response

    @property
    def outcome(self) -> tuple[str, str | None]:
        """How it ended and with which code, wherever that was told."""
        if self.status != 200:
            return "failed", self.error["code"]
        response = self.response
        return response.status, response.error.code if response.error else None

    @property
    def text(self) -> str:
        """All text of all messages."""
        items = msgspec.json.decode(msgspec.json.encode(self.response.output))
        return "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])

    @property
    def gist(self) -> Any:
        """All that was told, but for ids, times and padding, which no two answers share."""
        if self.headers["content-type"] == "application/json":
            return _bare(self.json)
        return [_bare(msgspec.json.decode(msgspec.json.encode(event))) for event in self.events]


class Network(Watched):
    """The real network, that tells in which loop it is used."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[HttpResponse] = []

    async def send(self, *args: Any, **settings: Any) -> Any:
        self.loop = asyncio.get_running_loop()
        answer = await super().send(*args, **settings)
        self.answers.append(answer)
        return answer


class Lab:
    """A gateway before one scripted server. `says` is what the server answers next; after each case it is well
    again."""

    def __init__(self, gateway: Running, upstream: FakeServer, network: Network, dialect: str) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.network = network
        self.dialect = dialect
        self.says: Reply | Callable[[ReceivedRequest], Reply] = HELLO
        assert self.ask().outcome == ("completed", None)
        self.upstream.wait_idle(BOUND)
        self.never = ['"exception"', '"grammar_violation"', UPSTREAM_KEY, ALICE]  # in its log
        self.spare = (0, 0, 0)  # upstream connections, tasks and file handles that it may have more of later, and keep
        self._before = self._in_use()

    def ask(self, *, stream: bool = False, model: str = "mock-1", **settings: Any) -> Told:
        """A turn on a connection of its own, until the client has all of it and the gateway is done with it too."""
        with self.gateway.connect() as connection:
            connection.sendall(request(stream=stream, model=model, **settings))
            told = Told(read_all(connection))
        until(lambda: told.headers["x-request-id"] in self.gateway.written)
        if told.status == 200:
            assert told.response
            assert told.headers["content-type"].startswith("text/event-stream" if stream else "application/json")
        return told

    def wire(self, said: ScriptedTurn, *, stream: bool) -> list[bytes]:
        """A turn as this upstream spells it for the request that it got last: the frames of a stream, or one body."""
        received = self.upstream.received[-1]
        manners = SERVERS[self.dialect][1]()
        if not stream:
            return [manners.render_body(said, received)]
        frames = manners.render_stream(said, received)
        return [frame for frame in frames if isinstance(frame, bytes)]

    def settle(self) -> None:
        """Invariants 3 to 6."""
        self.says = HELLO
        self.network.answers.clear()
        after = self.ask()
        assert (after.outcome, after.text) == (("completed", None), "Hello.")
        self.upstream.wait_idle(BOUND)
        most = [before + spare for before, spare in zip(self._before, self.spare, strict=True)]
        until(lambda: all(now <= allowed for now, allowed in zip(self._in_use(), most, strict=True)), SETTLING)
        for never in self.never:
            assert never not in self.gateway.written

    def on_loop(self, ask: Callable[[], T]) -> T:
        """What the gateway's own thread has to say."""
        told: Future[T] = Future()
        self.network.loop.call_soon_threadsafe(lambda: told.set_result(ask()))
        return told.result(BOUND)

    def _in_use(self) -> tuple[int, int, int]:
        """Upstream connections, tasks, and file handles where they can be counted."""
        handles = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        return self.network.open_connections, self.on_loop(lambda: len(asyncio.all_tasks())), handles


def request(*, stream: bool = False, model: str = "mock-1", close: bool = True, **settings: Any) -> bytes:
    """A turn, as bytes."""
    body = msgspec.json.encode({"model": model, "input": "Say hello.", "tools": TOOLS, "stream": stream, **settings})
    lines = [("host", "localhost"), ("content-type", "application/json"), ("authorization", f"Bearer {ALICE}")]
    if close:
        lines.append(("connection", "close"))
    return head("POST", "/v1/responses", *lines, ("content-length", str(len(body)))) + body


@contextmanager
def laboratory(
    dialect: Any, *others: UpstreamConfig, store: StoreConfig | None = None, **settings: Any
) -> Iterator[Lab]:
    """A lab. `hasty-1` is the same upstream with little patience for silence, `short-1` with little time for the whole.
    `settings` are those of `running`."""
    lab: list[Lab] = []
    before, level = list(logging.getLogger().handlers), logging.getLogger("antiphon").level
    network = Network()

    def script(received: ReceivedRequest) -> Reply:
        said = lab[0].says if lab else HELLO
        return said(received) if callable(said) else said

    kind, _ = SERVERS[dialect]
    with kind(script, key=UPSTREAM_KEY) as server:
        usual = {"dialect": dialect, "base_url": server.base_url, "api_key_env": "LAB_KEY"}
        upstreams = [
            UpstreamConfig(name="hasty", models=["hasty-*"], timeouts=Timeouts(first_byte=0.15, idle=0.15), **usual),
            UpstreamConfig(name="short", models=["short-*"], timeouts=Timeouts(total=0.4), **usual),
            *others,
            UpstreamConfig(name="lab", models=["*"], **usual),
        ]
        keys = [KeyConfig(name="alice", sha256=sha256(ALICE.encode()).hexdigest())]
        config = Config(upstreams=upstreams, keys=keys, store=store or StoreConfig(url="off"))
        with running(config, environ={"LAB_KEY": UPSTREAM_KEY}, transport=network, **settings) as gateway:
            gateway.services.logger.capture_logging()  # what libraries have to say is in the log too, as where it really runs
            try:
                lab.append(Lab(gateway, server, network, dialect))
                yield lab[0]
            finally:
                logging.getLogger().handlers[:] = before
                logging.getLogger("antiphon").setLevel(level)
        assert not server.refusals


def chunked(pieces: Sequence[bytes]) -> bytes:
    """Pieces as the body of an answer that says where it ends."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def unchunked(data: bytes) -> bytes:
    """The body, which must have come to its end."""
    pieces: list[bytes] = []
    while True:
        size, _, data = data.partition(b"\r\n")
        assert re.fullmatch(rb"[0-9a-fA-F]+", size), (size[:40], pieces[-1:])
        length = int(size, 16)
        pieces.append(data[:length])
        assert data[length : length + 2] == b"\r\n"
        data = data[length + 2 :]
        if not length:
            assert data == b""
            return b"".join(pieces)


def json_answer(body: bytes, *headers: bytes) -> bytes:
    """An answer of 200 in one piece."""
    lines = [b"HTTP/1.1 200 OK", b"content-type: application/json", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", b""]) + body


def _bare(value: Any) -> Any:
    match value:
        case dict():
            return {key: _bare(inner) for key, inner in value.items() if key not in PASSING}
        case list():
            return [_bare(inner) for inner in value]
        case _:
            return value


PASSING = frozenset({"id", "item_id", "created_at", "completed_at", "obfuscation", "model"})
