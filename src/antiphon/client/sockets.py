"""Turns over a WebSocket: one after the other, the newest response remembered by the connection, with nothing stored (WS-5)."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from antiphon import sse
from antiphon.client.exchange import Line
from antiphon.client.reading import events_to_hub
from antiphon.client.server import Prepared, in_our_words, prepare, refusal
from antiphon.client.stream import OnLosses, ResponseStream
from antiphon.errors import ApiError, ClientFault, UnsupportedParameter, UpstreamFault
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.response import Response
from antiphon.upstream.websocket import UpgradeRefused, WebSocket, open_websocket


class ResponseSocket:
    """A connection for turns. Entering it connects; a turn that is left before its end ends the connection."""

    def __init__(self, line: Line, defaults: dict[str, Any], on_losses: OnLosses | None) -> None:
        self._line = line
        self._on_losses = on_losses
        self._defaults = defaults
        self._socket: WebSocket | None = None
        self._turn: SocketSource | None = None

    async def __aenter__(self) -> Self:
        server = self._line.server
        if server.profile.dialect != "responses":
            raise UnsupportedParameter(f"a server of the dialect {server.profile.dialect!r} takes no turns over a WebSocket")
        try:
            self._socket = await open_websocket(self._line.network, f"{server.base_url}/responses", server.headers, server.timeouts)
        except UpgradeRefused as refused:
            raise refusal(server, refused.status, refused.headers, refused.body) from None
        except UpstreamFault as fault:
            raise in_our_words(fault) from None
        return self

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def create(self, input: Any = None, **settings: Any) -> Response:
        """One turn, to its end."""
        return await self.stream(input, **settings).final()

    def stream(self, input: Any = None, **settings: Any) -> ResponseStream:
        """One turn, as it comes."""
        if self._socket is None:
            raise ClientFault("the WebSocket is not open: use it as `async with client.connect() as socket`")
        prepared = prepare(self._line.server, {**self._defaults, "input": input, **settings})
        return ResponseStream(SocketSource(self._line, self._socket, prepared, self._begins), on_losses=self._on_losses)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _begins(self, turn: SocketSource) -> None:
        if self._turn is not None and self._turn.is_under_way:
            raise ClientFault("a turn is under way on this WebSocket: read it to its end first (WS-4)")
        self._turn = turn


class SocketSource:
    """One turn over a WebSocket."""

    def __init__(self, line: Line, socket: WebSocket, prepared: Prepared, begins: Callable[[SocketSource], None]) -> None:
        self.error: ApiError | None = None
        self.is_under_way = False
        self._line = line
        self._socket = socket
        self._prepared = prepared
        self._begins = begins
        self._to_hub = events_to_hub(line.server, prepared.sent)
        self._has_begun = False

    @property
    def losses(self) -> Losses:
        losses = Losses()
        losses.extend(self._prepared.losses)
        losses.extend(self._to_hub.losses)
        return losses

    async def open(self) -> None:
        self._begins(self)
        self._socket.send('{"type":"response.create",' + self._prepared.body.decode()[1:])
        self.is_under_way = True

    async def next(self) -> list[StreamEvent]:
        while self.is_under_way:
            try:
                events = self._take((await self._socket.receive()).encode())
            except UpstreamFault as fault:
                self.is_under_way = False
                if not self._has_begun:
                    raise
                events = self._to_hub.finish(fault)
            self.error = self._to_hub.error
            if events:
                self._has_begun = True
                return events
        return []

    def end(self) -> None:
        """The connection is free for the next turn."""
        self.is_under_way = False

    def close(self) -> None:
        """After its end the connection is free for the next turn; before that, leaving is the only way to have it ended (WS-12)."""
        if self.is_under_way:
            self.is_under_way = False
            self._socket.close()

    def _take(self, message: bytes) -> list[StreamEvent]:
        status = _status_of(message)
        if status is None:
            return self._to_hub.feed(sse.Frame("", message))
        # WS-10: an error in place of the response, or in the middle of it.
        error = refusal(self._line.server, status, {}, message)
        self.is_under_way = False
        if not self._has_begun:
            raise error
        return self._to_hub.finish(error)


class _WithStatus(Struct, frozen=True):
    type: str = ""
    status: int | None = None


def _status_of(message: bytes) -> int | None:
    """The status of an error message; events have none."""
    try:
        told = decode_json(message, type=_WithStatus)
    except msgspec.DecodeError:
        return None
    return told.status if told.type == "error" else None
