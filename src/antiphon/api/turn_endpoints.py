"""The endpoints that run a turn, from the body of the request to the end of the answer, in every client dialect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from msgspec import Struct, field

from antiphon.api.background_endpoints import enqueue_response
from antiphon.api.request_options import (
    agent_session,
    forwarded_headers,
    requested_strictness,
    requested_style,
    wants_loss_events,
)
from antiphon.dialects import responses
from antiphon.dialects.dialect import KEEPALIVE_COMMENT, STREAM_TYPES, ClientDialect, EventsFromHub, Framing
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.history import HistorySource
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.prepare_turn import ClientHeaders, PreparedTurn, TurnPreparer, prepare_turn
from antiphon.gateway.run_turn import WholeTurn, drain_upstream, run_turn, violation_reporter
from antiphon.gateway.turn import UpstreamTurn
from antiphon.http.asgi import JSON, Headers, Scope
from antiphon.http.exchange import (
    SSE_HEADERS,
    EventStream,
    Exchange,
    losses_comment,
    losses_header,
    route_headers,
)
from antiphon.ops.services import Services
from antiphon.protocol.request import Request
from antiphon.store.interface import StoredTurn


async def create_response(services: Services, exchange: Exchange) -> None:
    """`POST /v1/responses`: a turn in the dialect of the hub, streamed, whole or in the background."""
    with services.admission.admit(exchange.owner):
        prepared_turn = await _prepare_turn(services, exchange)
        if prepared_turn.queued_request is not None:
            await enqueue_response(services, exchange, prepared_turn)
            return
        await deliver_turn(services, exchange, prepared_turn, lambda: _responses_stream_format(services, exchange))


async def create_dialect_turn(services: Services, exchange: Exchange) -> None:
    """A turn in another client dialect, streamed or whole: `POST /v1/chat/completions`, `/v1/messages`,
    `/v1beta/models/{model}:generateContent` and `:streamGenerateContent`, `/v1/vscode/chat`."""
    dialect = exchange.dialect
    client_headers = partial(forwarded_headers, dialect, exchange.scope)
    with services.admission.admit(exchange.owner):
        prepared_turn = await _prepare_turn(services, exchange, client_headers)
        await deliver_turn(services, exchange, prepared_turn, lambda: stream_format_for(dialect, exchange.scope))


async def _prepare_turn(
    services: Services, exchange: Exchange, client_headers: ClientHeaders | None = None
) -> PreparedTurn:
    strict = requested_strictness(exchange.scope)
    content = await exchange.read_body(services.max_body)
    body = ClientBody(content=content, dialect=exchange.dialect.name, path=exchange.scope["path"])
    preparer = TurnPreparer(
        services,
        body,
        lambda _: HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body),
        exchange.log_entry,
        exchange.trace,
        strict=strict,
        client_headers=client_headers,
        find_session=partial(agent_session, exchange.scope),
    )
    prepared_turn = await prepare_turn(preparer)
    exchange.release_body()
    return prepared_turn


def _responses_stream_format(services: Services, exchange: Exchange) -> StreamFormat:
    style = requested_style(exchange.scope, exchange.key_style, services.config.server.style)
    if exchange.trace is not None:
        exchange.trace.record_note("style", style)
    return StreamFormat(
        events_from_hub=partial(responses.EventsFromHub, style=style),
        reports_losses=wants_loss_events(exchange.scope),
    )


class StreamFormat(Struct, frozen=True, kw_only=True):
    """The format of a stream for one client."""

    events_from_hub: Callable[[Request], EventsFromHub]
    headers: Headers = field(default_factory=lambda: SSE_HEADERS)
    keepalive: bytes = KEEPALIVE_COMMENT  # sent when there are no events
    reports_losses: bool = False
    client_dialect: ClientDialect | None = None  # set if frames of the same dialect may pass as they came

    @property
    def accepts_comments(self) -> bool:
        """Whether clients ignore comments. Some read them as data, and get blank bytes to stay connected."""
        return self.keepalive == KEEPALIVE_COMMENT


async def deliver_turn(
    services: Services, exchange: Exchange, prepared_turn: PreparedTurn, stream_format: Callable[[], StreamFormat]
) -> None:
    """Runs a prepared turn to its end."""
    exchange.watch_disconnect()
    try:
        if prepared_turn.turn.prepared.request.stream:
            await _deliver_stream(services, exchange, prepared_turn, stream_format())
        else:
            await _deliver_whole(services, exchange, prepared_turn)
    finally:
        exchange.unwatch_disconnect()
        prepared_turn.turn.abort()


async def _deliver_whole(services: Services, exchange: Exchange, prepared_turn: PreparedTurn) -> None:
    exchange.answer_headers = partial(route_headers, prepared_turn)
    response = await WholeTurn(services, exchange.request_scope, prepared_turn).run()
    turn = prepared_turn.turn
    exchange.log_entry.note_response(response)
    body = turn.answer_client(exchange.dialect, response)
    exchange.note_losses(turn.losses)
    await exchange.respond(200, [JSON, *losses_header(turn.losses)], body)


async def _deliver_stream(
    services: Services, exchange: Exchange, prepared_turn: PreparedTurn, stream_format: StreamFormat
) -> None:
    has_loss_comments = stream_format.accepts_comments and not stream_format.reports_losses

    def make_pipe(turn: UpstreamTurn) -> Pipe:
        return turn.make_pipe(
            stream_format.events_from_hub(turn.prepared.request),
            reports_losses=stream_format.reports_losses,
            loss_comment=losses_comment if has_loss_comments else None,
            on_violation=violation_reporter(services, exchange.id),
            client_dialect=stream_format.client_dialect,
        )

    def make_headers() -> Headers:
        pipe = prepared_turn.pipe
        assert pipe is not None  # the turn runs
        if prepared_turn.is_held_back:  # nobody knows yet which target will answer
            pipe.report_no_losses_in_head()
            return stream_format.headers
        return [*stream_format.headers, *losses_header(pipe.losses_for_head())]

    exchange.answer_headers = partial(route_headers, prepared_turn)
    stream = EventStream(
        exchange.send,
        make_headers,
        first_byte_timeout=services.first_byte_timeout,
        keepalive_interval=services.keepalive_interval,
        send_now=exchange.send_now,
        write_now=exchange.write_now,
        keepalive=stream_format.keepalive,
    )
    try:
        flow = await run_turn(services, exchange.request_scope, prepared_turn, make_pipe, HttpSink(stream))
    finally:
        stream.close()
    if flow is not None:
        exchange.unwatch_disconnect()
        await drain_upstream(prepared_turn.turn, flow)


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


def stream_format_for(dialect: ClientDialect, scope: Scope) -> StreamFormat:
    """The stream format of a dialect other than the hub's."""
    if dialect.streams_json_array and parse_qs(scope["query_string"].decode("latin-1")).get("alt") != ["sse"]:
        return StreamFormat(
            events_from_hub=partial(dialect.events_from_hub, as_json_array=True),
            headers=[JSON],
            keepalive=dialect.keepalive,
        )
    return StreamFormat(
        events_from_hub=dialect.events_from_hub,
        headers=STREAM_HEADERS[dialect.framing],
        keepalive=dialect.keepalive,
        client_dialect=dialect,
    )


NDJSON: Final[Headers] = [
    (b"content-type", STREAM_TYPES["json_lines"].encode()),
    *(header for header in SSE_HEADERS if header[0] != b"content-type"),
]
STREAM_HEADERS: Final[dict[Framing, Headers]] = {"sse": SSE_HEADERS, "json_lines": NDJSON}
