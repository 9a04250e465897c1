"""The endpoints that run a turn, from the body of the request to the end of the answer, in every client dialect."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from antiphon.api.background_endpoints import enqueue_response
from antiphon.api.request_dialect import forwarded_headers, stream_format_for
from antiphon.api.request_options import requested_strictness, requested_style, wants_loss_events
from antiphon.api.turn_delivery import StreamFormat, deliver_turn
from antiphon.dialects import responses
from antiphon.gateway.client_dialect import request_at_path
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import PreparedTurn, prepare_turn
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


async def create_response(services: Services, exchange: Exchange) -> None:
    """`POST /v1/responses`: a turn in the dialect of the hub, streamed, whole or in the background."""
    strict = requested_strictness(exchange.scope)
    request, losses = responses.request_to_hub(await exchange.read_body(services.max_body))
    prepared_turn = await _prepare_turn(services, exchange, request, losses, strict)
    if request.background:
        await enqueue_response(services, exchange, request, prepared_turn)
        return
    turn = prepared_turn.turn
    del request, prepared_turn  # frees memory during a long stream
    await deliver_turn(services, exchange, turn, lambda: _responses_stream_format(services, exchange))


async def create_dialect_turn(services: Services, exchange: Exchange) -> None:
    """A turn in another client dialect, streamed or whole: `POST /v1/chat/completions`, `/v1/messages`,
    `/v1beta/models/{model}:generateContent` and `:streamGenerateContent`, `/v1/vscode/chat`."""
    dialect = exchange.dialect
    strict = requested_strictness(exchange.scope)
    request, losses = request_at_path(exchange.scope["path"], dialect, await exchange.read_body(services.max_body))
    turn = (await _prepare_turn(services, exchange, request, losses, strict)).turn
    del request  # frees memory during a long stream
    turn.extra_headers = {
        **turn.extra_headers,
        **forwarded_headers(dialect, exchange.scope, turn.target.upstream),
    }
    await deliver_turn(services, exchange, turn, lambda: stream_format_for(dialect, exchange.scope))


def _prepare_turn(
    services: Services, exchange: Exchange, request: Request, losses: Losses, strict: bool | None
) -> Awaitable[PreparedTurn]:
    history_source = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    return prepare_turn(services, request, losses, history_source, exchange.log_entry, exchange.trace, strict=strict)


def _responses_stream_format(services: Services, exchange: Exchange) -> StreamFormat:
    style = requested_style(exchange.scope, exchange.key_style, services.config.server.style)
    if exchange.trace is not None:
        exchange.trace.record_note("style", style)
    return StreamFormat(
        events_from_hub=partial(responses.EventsFromHub, style=style),
        reports_losses=wants_loss_events(exchange.scope),
    )
