"""`AsyncClient`: calls a server of any dialect. One client belongs to one event loop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, cast

from antiphon.client.event_sources import HttpEventSource
from antiphon.client.exchange import MAX_BODY_BYTES, RequestSender, is_stream, losses_in_headers, read_answer_body
from antiphon.client.functions import Function
from antiphon.client.model_list import Model, read_models
from antiphon.client.response_decoding import raise_failure, read_response
from antiphon.client.retries import Retries
from antiphon.client.server import DEFAULT_URL, PreparedCall, prepare_call, server_at
from antiphon.client.sockets import ResponseSocket
from antiphon.client.stream import OnLosses, ResponseStream
from antiphon.client.tool_loop import ToolRun, run_tools
from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.profiles import Profile
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.request_fields import Input, RequestFields, ToolRunFields
from antiphon.protocol.response import Response
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport, UpstreamResponse


class AsyncClient:
    """Calls one server. The default address is `$ANTIPHON_URL`, else the gateway on this machine.

    `model` is the default model of all calls. `dialect` or `profile` describe a server that is not a gateway.
    `on_losses` is called with what could not be translated, in the request or in the answer. Errors are `ApiError`s:
    `ClientFault` if the request is at fault, `UpstreamFault` if the server or the network is.

    Example:
        async with AsyncClient(model="mock-1") as client:
            response = await client.create("What is the capital of Peru?")
        print(response.output_text)
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        model: str | None = None,
        dialect: ServerDialectName | None = None,
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
        """Closes all connections. `async with` does this too.

        Example:
            client = AsyncClient(model="mock-1")
            await client.close()
        """
        await self._sender.transport.close()

    async def create(self, input: Input = None, **fields: Unpack[RequestFields]) -> Response:
        """Creates a response. `fields` are request fields, named as in the specification (`instructions`, `tools`, …).

        Example:
            response = await client.create("What is 2+2?", instructions="Answer with a number.", max_output_tokens=100)
            print(response.output_text, response.usage)
            follow_up = await client.create([*response.output, {"role": "user", "content": "Why?"}])
        """
        prepared = self._prepare(input, fields)
        answer = await self._sender.send("POST", prepared.url, prepared.body)
        if is_stream(answer):  # some servers always stream
            source = HttpEventSource(self._sender, _return_answer(answer), prepared, is_stored=False)
            return await ResponseStream(source, on_losses=self._on_losses).final()
        response, losses = read_response(
            self._sender.server, prepared.server_request, await read_answer_body(answer, MAX_BODY_BYTES)
        )
        prepared.losses.extend(losses)
        prepared.losses.extend(losses_in_headers(answer))
        self._report(prepared.losses)
        raise_failure(self._sender.server, response)
        return response

    def stream(self, input: Input = None, **fields: Unpack[RequestFields]) -> ResponseStream:
        """Streams a response. With `background=True` a broken connection is replaced without missing an event.

        Example:
            async with client.stream("Tell me a story.") as stream:
                async for piece in stream.texts():
                    print(piece, end="")
        """
        prepared = self._prepare(input, {**fields, "stream": True})

        async def send_request() -> UpstreamResponse:
            return await self._sender.send("POST", prepared.url, prepared.body)

        source = HttpEventSource(self._sender, send_request, prepared, is_stored=bool(prepared.request.background))
        return ResponseStream(source, on_losses=self._on_losses)

    async def models(self) -> list[Model]:
        """Lists the models of the server.

        Example:
            for model in await client.models():
                print(model.id, model.owned_by)
        """
        server = self._sender.server
        return read_models(await self._sender.send_and_read("GET", f"{server.base_url}{server.dialect.models_path}"))

    async def retrieve(self, id: str) -> Response:
        """Returns a stored response, whatever its status.

        Example:
            response = await client.create("Hello.")
            stored = await client.retrieve(response.id)
            assert stored.output_text == response.output_text
        """
        return await self._stored_response("GET", self._sender.server.response_url(id))

    def resume(self, id: str, after: int | None = None) -> ResponseStream:
        """Streams a stored response: the events after number `after`, or all. A broken connection is replaced without
        missing an event. The snapshot is always complete: events up to `after` are read, but not yielded.

        Example:
            response = await client.stream("Write a long story.", background=True).final()
            async with client.resume(response.id, after=2) as stream:
                async for event in stream:
                    print(event.sequence_number)
        """
        url = self._sender.server.response_url(id, "?stream=true")

        async def send_request() -> UpstreamResponse:
            return await self._sender.send("GET", url)

        no_call = PreparedCall(request=Request(), server_request=Request(), body=b"", url=url, losses=Losses())
        return ResponseStream(HttpEventSource(self._sender, send_request, no_call, is_stored=True), after)

    async def cancel(self, id: str) -> Response:
        """Cancels a background response. One that has ended is returned unchanged.

        Example:
            response = await client.create("Write a long story.", background=True)
            print((await client.cancel(response.id)).status)
        """
        return await self._stored_response("POST", self._sender.server.response_url(id, "/cancel"))

    async def delete(self, id: str) -> None:
        """Deletes a stored response.

        Example:
            response = await client.create("Hello.")
            await client.delete(response.id)
        """
        await self._sender.send_and_read("DELETE", self._sender.server.response_url(id))

    async def run_tools(
        self,
        input: Input,
        functions: Sequence[Function],
        *,
        max_tool_calls: int = 32,
        on_event: Callable[[StreamEvent], None] | None = None,
        **fields: Unpack[ToolRunFields],
    ) -> ToolRun:
        """Repeats turns, calling these functions for the model, until it answers without a call. The calls of one
        response run concurrently; an exception is sent to the model. `on_event` gets every event of every turn.

        Example:
            def weather(city: str) -> str:
                "Return the weather in a city."
                return f"It is sunny in {city}."

            run = await client.run_tools("What is the weather in Lima?", [weather])
            print(run.response.output_text, [call.output for call in run.calls])
        """

        async def run_turn(turn: dict[str, Any]) -> Response:
            if on_event is None:
                return await self.create(**turn)
            async with self.stream(**turn) as stream:
                async for event in stream:
                    on_event(event)
                return await stream.final()

        return await run_tools(run_turn, functions, {**fields, "input": input}, max_tool_calls)

    def connect(self) -> ResponseSocket:
        """Opens a WebSocket for turns. The server remembers the newest response of the connection.

        Example:
            async with client.connect() as socket:
                first = await socket.create("My name is Ada.", store=False)
                await socket.create("Who am I?", previous_response_id=first.id, store=False)
        """
        return ResponseSocket(self._sender, self._defaults, self._on_losses)

    def _prepare(self, input: Input, fields: Mapping[str, Any]) -> PreparedCall:
        return prepare_call(self._sender.server, {**self._defaults, "input": input, **fields})

    async def _stored_response(self, method: str, url: str) -> Response:
        body = await self._sender.send_and_read(method, url)
        return read_response(self._sender.server, Request(), body)[0]

    def _report(self, losses: Losses) -> None:
        if self._on_losses is not None and len(losses):
            self._on_losses(losses)


async def request_json(client: AsyncClient, method: str, path: str, body: bytes = b"") -> bytes:
    """The answer to a request to a path after the base URL, for commands."""
    sender = client._sender
    return await sender.send_and_read(method, f"{sender.server.base_url}{path}", body)


def with_transport(client: AsyncClient, transport: Transport) -> AsyncClient:
    """Makes a client send its requests over another transport, for tests. It cannot open WebSockets then."""
    client._sender.transport = cast(HttpTransport, transport)
    return client


def _return_answer(answer: UpstreamResponse) -> Callable[[], Awaitable[UpstreamResponse]]:
    async def return_answer() -> UpstreamResponse:
        return answer

    return return_answer
