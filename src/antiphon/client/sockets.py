"""Sends turns over a WebSocket, one at a time. The connection remembers the newest response; nothing is stored
(WS-5)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec
from msgspec import Struct

from antiphon import sse
from antiphon.client.exchange import RequestSender
from antiphon.client.response_decoding import events_to_hub
from antiphon.client.server import PreparedCall, as_server_fault, error_from_answer, prepare_call
from antiphon.client.stream import OnLosses, ResponseStream
from antiphon.errors import ApiError, ClientFault, UnsupportedParameter, UpstreamFault
from antiphon.protocol.codec import decode_json
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request_fields import Input, RequestFields
from antiphon.protocol.response import Response
from antiphon.upstream.websocket import UpgradeRefused, WebSocket, open_websocket


class ResponseSocket:
    """A WebSocket for turns. `async with` connects. Leaving a turn before its end closes the connection.

    Example:
        async with client.connect() as socket:
            response = await socket.create("Hello.")
        print(response.output_text)
    """

    def __init__(self, sender: RequestSender, defaults: dict[str, Any], on_losses: OnLosses | None) -> None:
        self._sender = sender
        self._on_losses = on_losses
        self._defaults = defaults
        self._socket: WebSocket | None = None
        self._turn: SocketEventSource | None = None

    async def __aenter__(self) -> Self:
        server = self._sender.server
        if not server.dialect.has_websocket:
            raise UnsupportedParameter(f"a server of the dialect {server.profile.dialect!r} has no WebSocket")
        try:
            self._socket = await open_websocket(
                self._sender.transport, f"{server.base_url}/responses", server.headers, server.timeouts
            )
        except UpgradeRefused as refusal:
            raise error_from_answer(server, refusal.status, refusal.headers, refusal.body) from None
        except UpstreamFault as fault:
            raise as_server_fault(fault) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def create(self, input: Input = None, **fields: Unpack[RequestFields]) -> Response:
        """Sends one turn and waits for the response.

        Example:
            async with client.connect() as socket:
                response = await socket.create("Hello.")
            print(response.output_text)
        """
        return await self.stream(input, **fields).final()

    def stream(self, input: Input = None, **fields: Unpack[RequestFields]) -> ResponseStream:
        """Sends one turn and streams the response.

        Example:
            async with client.connect() as socket:
                async for piece in socket.stream("Hello.").texts():
                    print(piece, end="")
        """
        if self._socket is None:
            raise ClientFault("the WebSocket is not open: use it as `async with client.connect() as socket`")
        prepared = prepare_call(self._sender.server, {**self._defaults, "input": input, **fields})
        return ResponseStream(
            SocketEventSource(self._sender, self._socket, prepared, self._on_start), on_losses=self._on_losses
        )

    def close(self) -> None:
        """Closes the connection. `async with` does this too.

        Example:
            async with client.connect() as socket:
                socket.close()
        """
        if self._socket is not None:
            self._socket.close()

    def _on_start(self, turn: SocketEventSource) -> None:
        if self._turn is not None and self._turn.is_in_flight:
            raise ClientFault("a turn is in progress on this WebSocket: read it to its end first (WS-4)")
        self._turn = turn


class SocketEventSource:
    """The events of one turn over a WebSocket."""

    def __init__(
        self,
        sender: RequestSender,
        socket: WebSocket,
        prepared: PreparedCall,
        on_start: Callable[[SocketEventSource], None],
    ) -> None:
        self.error: ApiError | None = None
        self.request_id: str | None = None  # the turns of a WebSocket have no ids
        self.is_in_flight = False
        self._sender = sender
        self._socket = socket
        self._prepared = prepared
        self._on_start = on_start
        self._to_hub = events_to_hub(sender.server, prepared.server_request)
        self._has_events = False

    @property
    def losses(self) -> Losses:
        losses = Losses()
        losses.extend(self._prepared.losses)
        losses.extend(self._to_hub.losses)
        return losses

    async def open(self) -> None:
        self._on_start(self)
        self._socket.send('{"type":"response.create",' + self._prepared.body.decode()[1:])
        self.is_in_flight = True

    async def next_events(self) -> list[StreamEvent]:
        while self.is_in_flight:
            try:
                events = self._decode((await self._socket.receive()).encode())
            except UpstreamFault as fault:
                self.is_in_flight = False
                if not self._has_events:
                    raise
                events = self._to_hub.finish(fault)
            self.error = self._to_hub.error
            if events:
                self._has_events = True
                return events
        return []

    def end(self) -> None:
        """Frees the connection for the next turn."""
        self.is_in_flight = False

    def close(self) -> None:
        """Closes the connection if the turn is in flight: there is no other way to cancel a turn (WS-12)."""
        if self.is_in_flight:
            self.is_in_flight = False
            self._socket.close()

    def _decode(self, message: bytes) -> list[StreamEvent]:
        status = _status_of(message)
        if status is None:
            return self._to_hub.feed(sse.Frame("", message))
        # WS-10: an error instead of the response, or in the middle of it.
        error = error_from_answer(self._sender.server, status, {}, message)
        self.is_in_flight = False
        if not self._has_events:
            raise error
        return self._to_hub.finish(error)


class _WithStatus(Struct, frozen=True):
    type: str = ""
    status: int | None = None


def _status_of(message: bytes) -> int | None:
    """The status of an error message; None for an event."""
    try:
        error_message = decode_json(message, type=_WithStatus)
    except msgspec.DecodeError:
        return None
    return error_message.status if error_message.type == "error" else None
