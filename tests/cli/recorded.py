"""Traces for tests: requests that went through the real server, over a network without sockets."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.gateway.scripted import ScriptedAnswer, ScriptedTransport

from antiphon.api.app import App
from antiphon.config import Config, StoreConfig, TraceConfig, UpstreamConfig
from antiphon.config.model_rules import ModelRule
from antiphon.errors import ApiError
from antiphon.ops.logger import Logger
from antiphon.ops.services import Services

KEY = "lab-key-0123456789"


def record(
    folder: Path,
    body: Mapping[str, Any] | bytes,
    *answers: ScriptedAnswer | ApiError,
    headers: Mapping[str, str] | None = None,
    dialect: str = "chat",
    path: str = "/v1/responses",
    leaves_after: int | None = None,
    store: str = "off",
    models: Sequence[str | ModelRule] = ("mock-*",),
) -> bytes:
    """Sends one request and returns what was answered; the trace of it is in `folder` afterwards."""
    upstream = UpstreamConfig(
        name="lab",
        dialect=dialect,  # type: ignore[arg-type]
        base_url="http://lab/v1",
        api_key_env="LAB_KEY",
        models=list(models),
    )
    config = Config(upstreams=[upstream], trace=TraceConfig(dir=str(folder)), store=StoreConfig(url=store))
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return asyncio.run(_ask(config, raw, answers, headers or {}, path, leaves_after))


async def _ask(
    config: Config,
    body: bytes,
    answers: tuple[ScriptedAnswer | ApiError, ...],
    headers: Mapping[str, str],
    path: str,
    leaves_after: int | None,
) -> bytes:
    environ = {"LAB_KEY": KEY}
    services = Services(config, environ, ScriptedTransport(*answers), Logger(io.StringIO(), "json"))
    await services.open()
    client = _Client(body, leaves_after)
    sent = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "scheme": "http",
        "http_version": "1.1",
    }
    try:
        await App(services, environ)(scope, client.receive, client.send)
    finally:
        await services.close()
    return b"".join(client.got)


class _Client:
    """Sends its body, reads what comes, and may leave after so many pieces."""

    def __init__(self, body: bytes, leaves_after: int | None) -> None:
        self.got: list[bytes] = []
        self._body: bytes | None = body
        self._leaves_after = leaves_after
        self._left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self.got.append(message["body"])
            if len(self.got) == self._leaves_after:
                self._left.set()
                await asyncio.sleep(0)  # the watcher learns of it, and cancels the turn
                await asyncio.sleep(0)
