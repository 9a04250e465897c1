"""`POST /v1/responses`: a turn, streamed, whole or in the background."""

from __future__ import annotations

from functools import partial

from antiphon.api.background_endpoints import enqueue_response
from antiphon.api.delivery import StreamFormat, deliver
from antiphon.api.request_options import requested_strictness, requested_style, wants_loss_events
from antiphon.dialects import responses
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import prepare_turn
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services


async def create_response(services: Services, exchange: Exchange) -> None:
    """Handles one turn, from request body to answer."""
    strict = requested_strictness(exchange.scope)
    body = await exchange.read_body(services.max_body)
    request, losses = responses.request_to_hub(body)
    del body
    archive = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    prepared_turn = await prepare_turn(
        services, request, losses, archive, exchange.log_entry, exchange.trace, strict=strict
    )
    if request.background:
        await enqueue_response(services, exchange, request, prepared_turn)
        return
    turn = prepared_turn.turn
    del request, prepared_turn  # frees memory during a long stream
    await deliver(services, exchange, turn, lambda: _stream_format(services, exchange))


def _stream_format(services: Services, exchange: Exchange) -> StreamFormat:
    style = requested_style(exchange.scope, exchange.key_style, services.config.server.style)
    if exchange.trace is not None:
        exchange.trace.record_note("style", style)
    return StreamFormat(
        events_from_hub=partial(responses.EventsFromHub, style=style),
        reports_losses=wants_loss_events(exchange.scope),
    )
