"""Plays exchanges through a gateway in this process, without sockets: the ASGI application and everything below it are
those of production, and only the transport to the upstream and the connection of the client are replaced."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from antiphon.api.app import App
from antiphon.config import Config, StoreConfig, Timeouts, UpstreamConfig
from antiphon.dialects.dialect import ServerDialectName
from antiphon.ops.logger import Logger
from antiphon.ops.services import Services
from antiphon.protocol.losses import Loss
from antiphon.trace.finished_trace import FinishedTrace
from antiphon.trace.records import LossList
from antiphon.trace.writer import Trace, TraceWriter


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request as a client of a dialect sends it."""

    dialect: ServerDialectName
    model: str
    body: dict[str, Any]
    is_stream: bool


class UpstreamAnswer(Struct, frozen=True, kw_only=True):
    """The answer of the upstream, in pieces."""

    status: int
    headers: dict[str, str]
    pieces: Sequence[bytes]


class Outcome(Struct, frozen=True, kw_only=True):
    """What the client received, what the upstream received, and what the gateway reported."""

    status: int
    headers: dict[str, str]
    body: bytes
    upstream_bodies: list[bytes]
    losses: list[Loss]
    events: list[dict[str, Any]]  # grammar violations and exceptions in the log

    @property
    def upstream_json(self) -> dict[str, Any] | None:
        """The first request that the upstream received."""
        return msgspec.json.decode(self.upstream_bodies[0]) if self.upstream_bodies else None


class Player:
    """Gateways with one upstream each, by dialect and profile. Plays one exchange at a time."""

    def __init__(self) -> None:
        self._gateways: dict[tuple[ServerDialectName, str], _Gateway] = {}

    async def play(
        self, request: ClientRequest, server: ServerDialectName, profile: str, answer: UpstreamAnswer
    ) -> Outcome:
        """Sends a request to the gateway, whose upstream gives the answer."""
        gateway = self._gateways.get((server, profile))
        if gateway is None:
            gateway = self._gateways[server, profile] = _Gateway(server, profile)
            await gateway.open()
        return await gateway.play(request, answer)

    async def close(self) -> None:
        for gateway in self._gateways.values():
            await gateway.close()


class _Gateway:
    def __init__(self, server: ServerDialectName, profile: str) -> None:
        upstream = UpstreamConfig(
            name="recorded", dialect=server, base_url="http://recorded/v1", models=["*"], profile=profile
        )
        config = Config(upstreams=[upstream], store=StoreConfig(url="off"))
        self._transport = _Transport()
        self._traces = _MemoryTraces()
        self._log = io.StringIO()
        self._services = Services(config, {}, self._transport, Logger(self._log, "json"), debug=True)
        self._services.traces = cast(TraceWriter, self._traces)
        self._app = App(self._services, {})

    async def open(self) -> None:
        await self._services.open()

    async def close(self) -> None:
        await self._services.close()

    async def play(self, request: ClientRequest, answer: UpstreamAnswer) -> Outcome:
        self._transport.answer = answer
        self._transport.bodies = []
        self._traces.losses = []
        client = _Client(msgspec.json.encode(request.body))
        await self._app(_scope(request, client.body), client.receive, client.send)
        self._services.logger.flush()
        lines = [msgspec.json.decode(line) for line in self._log.getvalue().splitlines()]
        self._log.seek(0)
        self._log.truncate()
        return Outcome(
            status=client.status,
            headers=client.headers,
            body=b"".join(client.received),
            upstream_bodies=self._transport.bodies,
            losses=self._traces.losses,
            events=[line for line in lines if line["event"] == "grammar_violation" or "exception" in line],
        )


class _Transport:
    """Gives every request the same answer."""

    answer: UpstreamAnswer

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> _Response:
        del method, url, headers, timeouts
        self.bodies.append(body)
        return _Response(self.answer)

    async def close(self) -> None:
        pass


class _Response:
    def __init__(self, answer: UpstreamAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._pieces = answer.pieces

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    def abort(self) -> None:
        pass


class _MemoryTraces:
    """Keeps the losses of the last request instead of writing traces."""

    dropped_traces = 0

    def __init__(self) -> None:
        self.losses: list[Loss] = []

    def start_trace(self, id: str) -> Trace:
        return Trace(id, 0.0, time.monotonic, self._take_losses)

    def close(self) -> None:
        pass

    def _take_losses(self, trace: FinishedTrace) -> None:
        lists = [entry.losses for entry in trace.entries if isinstance(entry, LossList)]
        self.losses = list(dict.fromkeys(loss for losses in lists for loss in losses))


class _Client:
    """Sends its body and reads the answer to its end."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.received: list[bytes] = []
        self._is_sent = False

    async def receive(self) -> dict[str, Any]:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await asyncio.Event().wait()  # never disconnects
        raise AssertionError

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            self.received.append(message["body"])


def _scope(request: ClientRequest, body: bytes) -> dict[str, Any]:
    path, query = _path_and_query(request)
    headers = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body))}
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "scheme": "http",
        "http_version": "1.1",
    }


def _path_and_query(request: ClientRequest) -> tuple[str, bytes]:
    if request.dialect != "gemini":
        return PATHS[request.dialect], b""
    action = "streamGenerateContent" if request.is_stream else "generateContent"
    return f"/v1beta/models/{request.model}:{action}", b"alt=sse" if request.is_stream else b""


PATHS: Final = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "ollama": "/api/chat",
}
