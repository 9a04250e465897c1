"""Delivers a turn to its client over HTTP, streamed or whole, in the dialect of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from antiphon.errors import ApiError
from antiphon.gateway.pipe import EventsFromHub, Pipe
from antiphon.gateway.turn import UpstreamTurn, is_json
from antiphon.gateway.turn_lifecycle import (
    drain_upstream,
    finish_turn,
    record_abandoned_turn,
    shutdown_error,
    violation_reporter,
)
from antiphon.http.asgi import JSON, Headers
from antiphon.http.body import ClientDisconnected
from antiphon.http.event_stream import KEEPALIVE_COMMENT, SSE_HEADERS, EventStream
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol.request import Request
from antiphon.upstream.transport import Flow


class StreamFormat(Struct, frozen=True, kw_only=True):
    """The format of a stream for one client."""

    events_from_hub: Callable[[Request], EventsFromHub]
    headers: Headers = field(default_factory=lambda: SSE_HEADERS)
    keepalive: bytes = KEEPALIVE_COMMENT  # sent when there are no events
    reports_losses: bool = False


async def deliver(
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
    try:
        response = await turn.read_response(await turn.send_request(services.transport))
    except asyncio.CancelledError:
        exchange.uncancel_current_task()
        if exchange.is_disconnected:
            await record_abandoned_turn(services, turn, None)
            raise ClientDisconnected from None
        raise shutdown_error() from None
    exchange.note_response(response)
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
        await _pump(services, exchange, turn, pipe, stream)
    finally:
        stream.close()
        exchange.note_losses(pipe.losses)
        if pipe.response is not None:
            exchange.note_response(pipe.response, pipe.event_count)


async def _pump(services: Services, exchange: Exchange, turn: UpstreamTurn, pipe: Pipe, stream: EventStream) -> None:
    """Moves upstream pieces to the client. An error before the 200 is raised; a later one is sent in the stream
    (STR-8)."""
    flow: Flow | None = None
    tap = _Tap(exchange, pipe, stream)
    try:
        answer = await turn.send_request(services.transport)
        if is_json(answer):
            out = pipe.write_events(await turn.read_response_as_events(answer))
        else:
            flow = turn.body_flow(answer)
            while not await flow(tap) and not pipe.has_ended:
                await stream.write(tap.out)
                tap.out = b""
            out = b"" if pipe.has_ended else pipe.finish()
    except ApiError as error:
        if not stream.has_started:
            raise
        out = pipe.finish(error)
    except asyncio.CancelledError:
        exchange.uncancel_current_task()
        if exchange.is_disconnected:
            await record_abandoned_turn(services, turn, pipe)
            raise ClientDisconnected from None
        if not stream.has_started:
            raise shutdown_error() from None
        out = pipe.finish(shutdown_error())  # the server stops, but the client is still connected
    except Exception as error:
        if not stream.has_started:
            raise
        services.logger.fault("a stream was interrupted by a fault inside the gateway", error, request_id=exchange.id)
        out = pipe.finish(ApiError(f"internal error; see the log for request id {exchange.id}"))
    if pipe.error is not None and not stream.has_started:
        raise pipe.error.without_traceback()
    exchange.log_entry.note_first_event()
    await stream.end(tap.out + out + (await finish_turn(services, turn, pipe))[0])
    if flow is not None and not pipe.is_cut_off:
        exchange.unwatch_disconnect()
        await drain_upstream(turn, flow)


class _Tap:
    """Passes the pieces of an upstream to the client's stream as they arrive. If the stream cannot take a piece, the
    flow stops and the task writes `out`, because the task can wait and can be cancelled. The flow also stops at the
    end, because the task may have to save the response."""

    def __init__(self, exchange: Exchange, pipe: Pipe, stream: EventStream) -> None:
        self.out = b""
        self._log_entry = exchange.log_entry
        self._pipe = pipe
        self._deliver_stream = stream

    def __call__(self, piece: bytes) -> bool:
        out = self._pipe.feed(piece)
        if self._pipe.response is None:
            if not out:
                return True
            if self._log_entry.first_event_ms is None:
                self._log_entry.note_first_event()
            if self._deliver_stream.try_write(out):
                return True
        self.out = out
        return False
