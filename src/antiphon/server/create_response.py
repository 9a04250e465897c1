"""`POST /v1/responses`: a turn, as a stream or in one piece."""

from __future__ import annotations

from functools import partial

from antiphon.dialects import responses
from antiphon.gateway.history import Archive
from antiphon.server.background_endpoints import begin_in_background
from antiphon.server.client_style import refuses_losses, style_for, wants_losses
from antiphon.server.exchange import Exchange
from antiphon.server.services import Services
from antiphon.server.telling import StreamForm, tell
from antiphon.server.turns import begin


async def create_response(services: Services, exchange: Exchange) -> None:
    """One turn from body to answer."""
    strict = refuses_losses(exchange.scope)
    body = await exchange.body(services.max_body)
    request, losses = responses.request_to_hub(body)
    del body
    archive = Archive(owner=exchange.owner, store=services.store, limit=services.max_body)
    begun = await begin(services, request, losses, archive, exchange.line, exchange.trace, strict=strict)
    turn = begun.turn
    if request.background:
        await begin_in_background(services, exchange, request, turn)
        return
    del request  # large, and a stream may last
    await tell(services, exchange, turn, lambda: _form(services, exchange))


def _form(services: Services, exchange: Exchange) -> StreamForm:
    style = style_for(exchange.scope, exchange.key_style, services.config.server.style)
    if exchange.trace is not None:
        exchange.trace.note("style", style)
    return StreamForm(
        events_from_hub=partial(responses.EventsFromHub, style=style),
        tells_losses=wants_losses(exchange.scope),
    )
