"""`AsyncClient`: calls a server of any dialect. One client belongs to one event loop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from antiphon.client.event_sources import HttpEventSource
from antiphon.client.exchange import MAX_BODY, RequestSender, is_stream, losses_in_headers, read_body
from antiphon.client.functions import Function
from antiphon.client.response_decoding import raise_failure, read_response
from antiphon.client.retries import Retries
from antiphon.client.server import DEFAULT_URL, PreparedCall, prepare_call, server_at
from antiphon.client.sockets import ResponseSocket
from antiphon.client.stream import OnLosses, ResponseStream
from antiphon.client.tool_loop import ToolRun, run_tools
from antiphon.config import Timeouts
from antiphon.profiles import Dialect, Profile
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import UpstreamResponse

# Text, or items: typed, or as JSON objects.
Input = str | Sequence[ItemParam | Mapping[str, Any]] | None


class AsyncClient:
    """Calls one server. The default address is `$ANTIPHON_URL`, else the gateway on this machine.

    Errors are `ApiError`s: `ClientFault` if the request is at fault, `UpstreamFault` if the server or the network is.
    `on_losses` is called with what could not be translated, in the request or in the answer (F-4).
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        model: str | None = None,
        dialect: Dialect | None = None,
        profile: str | Profile | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        on_losses: OnLosses | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        if url is None:
            url = environ.get("ANTIPHON_URL") or DEFAULT_URL
            key = key or environ.get("ANTIPHON_API_KEY")  # the key belongs to that address and is sent to no other
        server = server_at(url, key, dialect=dialect, profile=profile, headers=headers, timeouts=timeouts)
        self._sender = RequestSender(server, HttpTransport(environ), retries or Retries())
        self._defaults: dict[str, Any] = {"model": model} if model else {}
        self._on_losses = on_losses

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._sender.network.close()

    async def create(self, input: Input = None, **settings: Any) -> Response:
        """Creates a response. `settings` are request fields, named as in the specification (`instructions`, `tools`,
        …)."""
        prepared = self._prepare(input, settings)
        answer = await self._sender.send("POST", prepared.url, prepared.body)
        if is_stream(answer):  # some servers always stream
            source = HttpEventSource(self._sender, _return_answer(answer), prepared, is_stored=False)
            return await ResponseStream(source, on_losses=self._on_losses).final()
        response, losses = read_response(self._sender.server, prepared.sent, await read_body(answer, MAX_BODY))
        prepared.losses.extend(losses)
        prepared.losses.extend(losses_in_headers(answer))
        self._report(prepared.losses)
        raise_failure(self._sender.server, response)
        return response

    def stream(self, input: Input = None, **settings: Any) -> ResponseStream:
        """Streams a response. With `background=True` a broken connection is replaced without missing an event."""
        prepared = self._prepare(input, {**settings, "stream": True})

        async def ask() -> UpstreamResponse:
            return await self._sender.send("POST", prepared.url, prepared.body)

        source = HttpEventSource(self._sender, ask, prepared, is_stored=bool(prepared.request.background))
        return ResponseStream(source, on_losses=self._on_losses)

    async def retrieve(self, id: str) -> Response:
        """Returns a stored response, whatever its status."""
        return await self._stored_response("GET", self._sender.server.response_url(id))

    def resume(self, id: str, after: int | None = None) -> ResponseStream:
        """Streams a stored response: the events after number `after`, or all. A broken connection is replaced without
        missing an event. The snapshot is always complete: events up to `after` are read, but not yielded."""
        url = self._sender.server.response_url(id, "?stream=true")

        async def ask() -> UpstreamResponse:
            return await self._sender.send("GET", url)

        no_call = PreparedCall(request=Request(), sent=Request(), body=b"", url=url, losses=Losses())
        return ResponseStream(HttpEventSource(self._sender, ask, no_call, is_stored=True), after)

    async def cancel(self, id: str) -> Response:
        """Cancels a background response. One that has ended is returned unchanged."""
        return await self._stored_response("POST", self._sender.server.response_url(id, "/cancel"))

    async def delete(self, id: str) -> None:
        """Deletes a stored response."""
        await self._sender.send_and_read("DELETE", self._sender.server.response_url(id))

    async def run_tools(
        self,
        input: Input,
        functions: Sequence[Function],
        *,
        max_tool_calls: int = 32,
        on_event: Callable[[StreamEvent], None] | None = None,
        **settings: Any,
    ) -> ToolRun:
        """Repeats turns, calling these functions for the model, until it answers without a call. The calls of one
        response run concurrently; an exception is sent to the model. `on_event` gets every event of every turn."""

        async def ask(turn: dict[str, Any]) -> Response:
            if on_event is None:
                return await self.create(**turn)
            async with self.stream(**turn) as stream:
                async for event in stream:
                    on_event(event)
                return await stream.final()

        return await run_tools(ask, functions, {**settings, "input": input}, max_tool_calls)

    def connect(self) -> ResponseSocket:
        """Opens a WebSocket for turns: `async with client.connect() as socket`. The server remembers its newest
        response."""
        return ResponseSocket(self._sender, self._defaults, self._on_losses)

    def _prepare(self, input: Input, settings: Mapping[str, Any]) -> PreparedCall:
        return prepare_call(self._sender.server, {**self._defaults, "input": input, **settings})

    async def _stored_response(self, method: str, url: str) -> Response:
        body = await self._sender.send_and_read(method, url)
        return read_response(self._sender.server, Request(), body)[0]

    def _report(self, losses: Losses) -> None:
        if self._on_losses is not None and len(losses):
            self._on_losses(losses)


def _return_answer(answer: UpstreamResponse) -> Callable[[], Awaitable[UpstreamResponse]]:
    async def ask() -> UpstreamResponse:
        return answer

    return ask
