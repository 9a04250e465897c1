"""Turns of clients that speak another dialect than the hub's, as a stream or in one piece: `POST /v1/chat/completions`,
`/v1/messages`, `/v1beta/models/{model}:generateContent` and `:streamGenerateContent`."""

from __future__ import annotations

from antiphon.gateway.client_speech import request_at
from antiphon.gateway.history import Archive
from antiphon.server.client_dialects import passed_headers, stream_form
from antiphon.server.client_style import refuses_losses
from antiphon.server.exchange import Exchange
from antiphon.server.services import Services
from antiphon.server.telling import tell
from antiphon.server.turns import begin


async def create_turn(services: Services, exchange: Exchange) -> None:
    """One turn from body to answer."""
    speech = exchange.speech
    strict = refuses_losses(exchange.scope)
    request, losses = request_at(exchange.scope["path"], speech, await exchange.body(services.max_body))
    archive = Archive(owner=exchange.owner, store=services.store, limit=services.max_body)
    begun = await begin(services, request, losses, archive, exchange.line, exchange.trace, strict=strict)
    del request  # large, and a stream may last
    turn = begun.turn
    turn.headers = {**turn.headers, **passed_headers(speech, exchange.scope, turn.prepared.target.upstream)}
    await tell(services, exchange, turn, lambda: stream_form(speech, exchange.scope))
