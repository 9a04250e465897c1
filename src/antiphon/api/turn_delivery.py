"""Delivers a turn to its client over HTTP, streamed or whole, in the dialect of the client."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from antiphon.dialects.dialect import KEEPALIVE_COMMENT, EventsFromHub
from antiphon.gateway.run_turn import WholeTurn, drain_upstream, run_turn, violation_reporter
from antiphon.gateway.turn import UpstreamTurn
from antiphon.http.asgi import JSON, Headers
from antiphon.http.event_stream import SSE_HEADERS, EventStream
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol.request import Request
from antiphon.store.interface import StoredTurn


class StreamFormat(Struct, frozen=True, kw_only=True):
    """The format of a stream for one client."""

    events_from_hub: Callable[[Request], EventsFromHub]
    headers: Headers = field(default_factory=lambda: SSE_HEADERS)
    keepalive: bytes = KEEPALIVE_COMMENT  # sent when there are no events
    reports_losses: bool = False


async def deliver_turn(
    services: Services, exchange: Exchange, turn: UpstreamTurn, stream_format: Callable[[], StreamFormat]
) -> None:
    """Runs a prepared turn to its end."""
    exchange.watch_disconnect()
    try:
        if turn.prepared.request.stream:
            await _deliver_stream(services, exchange, turn, stream_format())
        else:
            await _deliver_whole(services, exchange, turn)
    finally:
        exchange.unwatch_disconnect()
        turn.abort()


async def _deliver_whole(services: Services, exchange: Exchange, turn: UpstreamTurn) -> None:
    whole_turn = WholeTurn(services, turn)
    exchange.request_scope.turn = whole_turn
    response = await whole_turn.run()
    exchange.log_entry.note_response(response)
    body, losses = exchange.dialect.response_from_hub(response, turn.prepared.request)
    turn.losses.extend(losses)
    exchange.note_losses(turn.losses)
    await exchange.respond(200, [JSON, *losses_header(turn.losses)], body)


async def _deliver_stream(
    services: Services, exchange: Exchange, turn: UpstreamTurn, stream_format: StreamFormat
) -> None:
    pipe = turn.make_pipe(
        stream_format.events_from_hub(turn.prepared.request),
        reports_losses=stream_format.reports_losses,
        on_violation=violation_reporter(services, exchange.id),
    )
    stream = EventStream(
        exchange.send,
        lambda: [*stream_format.headers, *losses_header(pipe.losses)],
        first_byte_timeout=services.first_byte_timeout,
        keepalive_interval=services.keepalive_interval,
        send_now=exchange.send_now,
        write_now=exchange.write_now,
        keepalive=stream_format.keepalive,
    )
    try:
        flow = await run_turn(services, exchange.request_scope, turn, pipe, HttpSink(stream))
    finally:
        stream.close()
    if flow is not None:
        exchange.unwatch_disconnect()
        await drain_upstream(turn, flow)


class HttpSink:
    """Writes a turn to an HTTP client as server-sent events."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self.try_write = stream.try_write
        self.write = stream.write

    @property
    def has_started(self) -> bool:
        return self._stream.has_started

    async def end(self, data: bytes, stored_turn: StoredTurn | None) -> None:
        del stored_turn
        await self._stream.end(data)
