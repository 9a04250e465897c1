"""Turns in client dialects other than the hub's, streamed or whole: `POST /v1/chat/completions`, `/v1/messages`,
`/v1beta/models/{model}:generateContent` and `:streamGenerateContent`."""

from __future__ import annotations

from antiphon.api.delivery import deliver
from antiphon.api.request_dialect import forwarded_headers, stream_format_for
from antiphon.api.request_options import requested_strictness
from antiphon.gateway.client_dialect import request_at_path
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import prepare_turn
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services


async def create_turn(services: Services, exchange: Exchange) -> None:
    """Handles one turn, from request body to answer."""
    dialect = exchange.dialect
    strict = requested_strictness(exchange.scope)
    request, losses = request_at_path(exchange.scope["path"], dialect, await exchange.read_body(services.max_body))
    archive = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    prepared_turn = await prepare_turn(
        services, request, losses, archive, exchange.log_entry, exchange.trace, strict=strict
    )
    del request  # frees memory during a long stream
    turn = prepared_turn.turn
    turn.extra_headers = {
        **turn.extra_headers,
        **forwarded_headers(dialect, exchange.scope, turn.target.upstream),
    }
    await deliver(services, exchange, turn, lambda: stream_format_for(dialect, exchange.scope))
