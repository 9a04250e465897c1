"""Where the events of a stream come from: HTTP, in as many connections as it takes. WebSocket turns are in `sockets`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from antiphon.client.exchange import MAX_BODY, RequestSender, is_json, losses_in_headers, read_body
from antiphon.client.response_decoding import NumberedEvents, events_to_hub, raise_failure, read_response
from antiphon.client.server import PreparedCall, as_server_fault
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import replay
from antiphon.protocol.losses import Losses
from antiphon.upstream.stream_reader import StreamReader
from antiphon.upstream.transport import UpstreamResponse

LINGER: Final = 2.0  # seconds between the last event of a stream and the end of its connection


class EventSource(Protocol):
    """What a stream is read from."""

    @property
    def error(self) -> ApiError | None:
        """What the response failed with."""
        ...

    @property
    def losses(self) -> Losses: ...

    async def open(self) -> None:
        """Asks. Raises what the server says instead of an answer."""
        ...

    async def next(self) -> list[StreamEvent]:
        """The events that come next, together as they came; none at the end."""
        ...

    def end(self) -> None:
        """The terminal event has come: nothing more is wanted of the server."""
        ...

    def close(self) -> None:
        """Lets go of the server, wherever it is. Harmless at any time."""
        ...


class HttpEventSource:
    """A stream over HTTP. Where the server keeps it, a connection that breaks is replaced by another that goes on behind it."""

    def __init__(
        self, sender: RequestSender, ask: Callable[[], Awaitable[UpstreamResponse]], prepared: PreparedCall, *, is_stored: bool
    ) -> None:
        self.error: ApiError | None = None
        self._sender = sender
        self._ask = ask
        self._prepared = prepared
        self._is_kept = is_stored
        self._to_hub = events_to_hub(sender.server, prepared.sent, counts=is_stored)
        self._reader = StreamReader(self._to_hub)
        self._answer: UpstreamResponse | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._barren = 0  # connections in a row that brought nothing
        self._over = False

    @property
    def losses(self) -> Losses:
        losses = Losses()
        losses.extend(self._prepared.losses)
        losses.extend(self._reader.losses)
        return losses

    async def open(self) -> None:
        self._begin(await self._ask())

    async def next(self) -> list[StreamEvent]:
        while not self._over:
            if self._answer is not None and self._pieces is None:
                return await self._whole(self._answer)
            piece, fault = await self._piece()
            if piece is not None:
                events = self._reader.feed(piece)
            elif self._can_go_on():
                await self._go_on(fault)
                continue
            else:
                events = self._reader.finish(fault)
                self._over = True
            if events:
                self._barren = 0
                self.error = self._reader.error
                return events
        return []

    def end(self) -> None:
        """The connection may bring its own end and serve the next request; a server that does not come to it is let go of."""
        self._over = True
        assert self._answer is not None  # it brought the event
        # Whoever reads pieces hangs up when nobody holds it any more, so it is held until then.
        asyncio.get_running_loop().call_later(LINGER, _hang_up, self._answer, self._pieces)
        self._answer = None

    def close(self) -> None:
        self._over = True
        if self._answer is not None:
            self._answer.abort()

    def _begin(self, answer: UpstreamResponse) -> None:
        self._answer = answer
        self._prepared.losses.extend(losses_in_headers(answer))
        self._pieces = None if is_json(answer) else answer.pieces()

    async def _piece(self) -> tuple[bytes | None, UpstreamFault | None]:
        assert self._pieces is not None  # it was opened, and is a stream
        try:
            return await anext(self._pieces, None), None
        except UpstreamFault as fault:
            return None, as_server_fault(fault)

    async def _whole(self, answer: UpstreamResponse) -> list[StreamEvent]:
        """Servers that ignore `stream` exist."""
        self._over = True
        response, losses = read_response(self._sender.server, self._prepared.sent, await read_body(answer, MAX_BODY))
        raise_failure(self._sender.server, response)
        self._prepared.losses.extend(losses)
        return list(replay(response))

    # A stream that is kept

    def _can_go_on(self) -> bool:
        return self._is_kept and isinstance(self._to_hub, NumberedEvents) and self._to_hub.last is not None

    async def _go_on(self, fault: UpstreamFault | None) -> None:
        """Another connection, for what comes behind the newest event. The response itself has not failed: if none can be had, the
        fault is raised, and whoever reads can come back later."""
        assert isinstance(self._to_hub, NumberedEvents)
        cut = UpstreamFault("the server ended the stream before the response", code="upstream_disconnected")
        if not await self._sender.retries.wait(self._barren, cut):
            raise fault or cut
        self._barren += 1
        self._reader = StreamReader(self._to_hub)  # half a frame that came is told again
        url = self._sender.server.response_url(self._to_hub.id or "", f"?stream=true&starting_after={self._to_hub.go_on()}")
        self._begin(await self._sender.send("GET", url))


def _hang_up(answer: UpstreamResponse, pieces: AsyncIterator[bytes] | None) -> None:
    del pieces
    answer.abort()
