"""Reads the events of a stream over HTTP, reconnecting where the server stores the response. WebSocket turns are in
`sockets`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from antiphon.client.exchange import MAX_BODY_BYTES, RequestSender, is_json, losses_in_headers, read_answer_body
from antiphon.client.response_decoding import NumberedEvents, events_to_hub, raise_failure, read_response
from antiphon.client.server import PreparedCall, as_server_fault, request_id_in
from antiphon.dialects.common.server_turn import StreamReader
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import replay_response
from antiphon.protocol.losses import Losses
from antiphon.upstream.transport import UpstreamResponse

LINGER_SECONDS: Final = 2.0  # between the last event of a stream and the end of its connection


class EventSource(Protocol):
    """The source of a stream's events."""

    @property
    def error(self) -> ApiError | None:
        """The error of a failed response."""
        ...

    @property
    def losses(self) -> Losses: ...

    @property
    def request_id(self) -> str | None:
        """The id that the server gave to the request."""
        ...

    async def open(self) -> None:
        """Sends the request. Raises the server's error."""
        ...

    async def next_events(self) -> list[StreamEvent]:
        """The next events, as many as arrived together; empty at the end."""
        ...

    def end(self) -> None:
        """Called after the terminal event: nothing more is read."""
        ...

    def close(self) -> None:
        """Closes the connection. May be called at any time."""
        ...


class HttpEventSource:
    """A stream over HTTP. If the server stores the response, a broken connection is replaced and the stream
    continues."""

    def __init__(
        self,
        sender: RequestSender,
        send_request: Callable[[], Awaitable[UpstreamResponse]],
        prepared: PreparedCall,
        *,
        is_stored: bool,
    ) -> None:
        self.error: ApiError | None = None
        self.request_id: str | None = None
        self._sender = sender
        self._send_request = send_request
        self._prepared = prepared
        self._is_stored = is_stored
        self._to_hub = events_to_hub(sender.server, prepared.server_request, tracks_numbers=is_stored)
        self._reader = StreamReader(self._to_hub, framing=sender.server.dialect.framing)
        self._answer: UpstreamResponse | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._empty_connections = 0  # consecutive connections without an event
        self._has_ended = False

    @property
    def losses(self) -> Losses:
        losses = Losses()
        losses.extend(self._prepared.losses)
        losses.extend(self._reader.losses)
        return losses

    async def open(self) -> None:
        self._start_reading(await self._send_request())

    async def next_events(self) -> list[StreamEvent]:
        while not self._has_ended:
            if self._answer is not None and self._pieces is None:
                return await self._read_whole_response(self._answer)
            piece, fault = await self._next_piece()
            if piece is not None:
                events = self._reader.feed(piece)
            elif self._can_reconnect():
                await self._reconnect(fault)
                continue
            else:
                events = self._reader.finish(fault)
                self._has_ended = True
            if events:
                self._empty_connections = 0
                self.error = self._reader.error
                return events
        return []

    def end(self) -> None:
        """Leaves the connection open for `LINGER_SECONDS`, so that it can end and be reused; then closes it."""
        self._has_ended = True
        assert self._answer is not None  # the terminal event came from it
        # The iterator closes the connection when it is garbage-collected, so the timer keeps a reference to it.
        asyncio.get_running_loop().call_later(LINGER_SECONDS, _abort_answer, self._answer, self._pieces)
        self._answer = None

    def close(self) -> None:
        self._has_ended = True
        if self._answer is not None:
            self._answer.abort()

    def _start_reading(self, answer: UpstreamResponse) -> None:
        self._answer = answer
        self.request_id = self.request_id or request_id_in(answer.headers)
        self._prepared.losses.extend(losses_in_headers(answer))
        self._pieces = None if is_json(answer) else answer.pieces()

    async def _next_piece(self) -> tuple[bytes | None, UpstreamFault | None]:
        assert self._pieces is not None  # `open` was called, and the answer is a stream
        try:
            return await anext(self._pieces, None), None
        except UpstreamFault as fault:
            return None, as_server_fault(fault)

    async def _read_whole_response(self, answer: UpstreamResponse) -> list[StreamEvent]:
        """Replays a whole response as events: some servers ignore `stream`."""
        self._has_ended = True
        response, losses = read_response(
            self._sender.server, self._prepared.server_request, await read_answer_body(answer, MAX_BODY_BYTES)
        )
        raise_failure(self._sender.server, response)
        self._prepared.losses.extend(losses)
        return list(replay_response(response))

    # A stream of a stored response

    def _can_reconnect(self) -> bool:
        return self._is_stored and isinstance(self._to_hub, NumberedEvents) and self._to_hub.last_number is not None

    async def _reconnect(self, fault: UpstreamFault | None) -> None:
        """Opens another connection, for the events after the newest one. If that fails, the fault is raised: the
        response itself has not failed, and the caller can resume it later."""
        assert isinstance(self._to_hub, NumberedEvents)
        cut_fault = UpstreamFault(
            "the server ended the stream before the end of the response", code="upstream_disconnected"
        )
        if not await self._sender.retries.wait(self._empty_connections, cut_fault):
            raise fault or cut_fault
        self._empty_connections += 1
        self._reader = StreamReader(self._to_hub)  # a partial frame is sent again
        url = self._sender.server.response_url(
            self._to_hub.id or "", f"?stream=true&starting_after={self._to_hub.mark_reconnect()}"
        )
        self._start_reading(await self._sender.send("GET", url))


def _abort_answer(answer: UpstreamResponse, pieces: AsyncIterator[bytes] | None) -> None:
    del pieces
    answer.abort()
