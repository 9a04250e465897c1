"""One gateway, a server of each dialect behind it, a client of each before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import httpx2
import ollama
from tests.matrix.gemini_client import GeminiClient
from tests.matrix.messages_client import MessagesClient
from tests.matrix.neutral import Answer, Asked, Result
from tests.matrix.ollama_client import OllamaClient
from tests.matrix.openai_clients import ChatClient, ResponsesClient
from tests.matrix.servers import KINDS, Server
from tests.running import running, until

from antiphon.config import Config, TraceConfig, UpstreamConfig
from antiphon.protocol.losses import Loss
from antiphon.trace.folder import trace_files
from antiphon.trace.reader import read_trace


class Client(Protocol):
    """One conversation at a time."""

    def begin(self, model: str, asked: Asked) -> None: ...

    def ask(self, *, streams: bool, on_text: Callable[[], None]) -> Answer:
        """Says `on_text` with each piece of text in a stream. Raises `Failed`."""

    def move(self, model: str) -> None:
        """The same conversation goes on with another model."""

    def give(self, results: list[Result]) -> None: ...


class Rig:
    """What the cells share."""

    def __init__(
        self, clients: dict[str, Client], servers: dict[str, Server], traces: Path, heads: list[httpx2.Headers]
    ) -> None:
        self.clients = clients
        self.servers = servers
        self._traces = traces
        self._heads = heads
        self.last_answer = b""  # the client's last answer, set by `losses`

    def losses(self, *, streams: bool) -> list[Loss]:
        """All that was lost on the way of the last request and its answer, there and back. What was known when the
        answer began is in its head (F-4)."""
        head = self._heads[-1]
        id = head["x-request-id"]
        until(lambda: any(file.id == id for file in trace_files(self._traces)))
        trace = read_trace(self._traces, id)
        losses = trace.losses
        self.last_answer = b"".join(piece.data.raw for piece in trace.client_pieces)
        for file in trace_files(self._traces):
            file.path.unlink()
        told = head.get("antiphon-losses", "").partition("; ")[2]
        assert set(filter(None, told.split(", "))) <= {loss.path for loss in losses}
        if not streams:
            assert told == ", ".join(dict.fromkeys(loss.path for loss in losses))
        return losses


@contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    servers = {kind.dialect: Server(kind) for kind in KINDS}
    (folder / "chat-that-thinks.toml").write_text(THINKS, encoding="utf-8")
    heads: list[httpx2.Headers] = []
    hooks: Any = {"response": [lambda response: heads.append(response.headers)]}
    for server in servers.values():
        server.fake.start()
    try:
        config = Config(
            upstreams=[_upstream(server, folder) for server in servers.values()],
            trace=TraceConfig(dir=str(folder / "traces")),
        )
        with (
            running(config) as gateway,
            httpx2.Client(event_hooks=hooks, timeout=60) as http,
            ollama.Client(host=gateway.url, timeout=60, event_hooks=hooks) as ollama_sdk,
        ):
            clients: dict[str, Client] = {name: make(gateway.url, http) for name, make in CLIENTS.items()}
            clients["ollama"] = OllamaClient(ollama_sdk)  # its SDK makes its own HTTP client
            yield Rig(clients, servers, folder / "traces", heads)
    finally:
        for server in servers.values():
            server.fake.stop()


def _upstream(server: Server, folder: Path) -> UpstreamConfig:
    kind = server.kind
    profile = str(folder / kind.profile) if kind.profile.endswith(".toml") else kind.profile
    return UpstreamConfig(
        name=kind.dialect, dialect=kind.dialect, base_url=server.fake.base_url, models=[kind.model], profile=profile
    )


#: Servers of chat that think and want their thoughts back have that in common, and little else.
THINKS: Final = """
about = "A chat server whose model thinks."
extends = "chat"

[wire]
reasoning_field = "reasoning_content"
"""
#: The clients that share one HTTP client.
CLIENTS: Final[dict[str, Any]] = {
    "responses": ResponsesClient,
    "chat": ChatClient,
    "messages": MessagesClient,
    "gemini": GeminiClient,
}
