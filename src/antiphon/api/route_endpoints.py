"""`POST /v1/route`: how a turn would be routed. `GET /v1/upstreams`: the state of all targets."""

from __future__ import annotations

from functools import partial

import msgspec

from antiphon.api.request_options import agent_session, requested_strictness
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import TurnPreparer
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.route_plan import UpstreamList, explain_route, list_targets
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.http.query_parameters import QueryParameters
from antiphon.ops.services import Services

DIALECT_NAMES = tuple(CLIENT_DIALECTS)


async def show_route(services: Services, exchange: Exchange) -> None:
    """Explains the route of a turn. The body is that of a turn in any dialect; nothing is sent to an upstream."""
    parameters = QueryParameters(exchange, {"dialect", "model"})
    name = parameters.one_of("dialect", DIALECT_NAMES, "responses")
    dialect = next(dialect for dialect in CLIENT_DIALECTS.values() if dialect.name == name)
    content = await exchange.read_body(services.max_body)
    model = parameters.text("model") or ""
    path = f"/v1beta/models/{model}:generateContent" if dialect.request_at_path is not None else ""
    body = ClientBody(content=content, dialect=dialect.name, path=path)
    history_source = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    # The log entry of a turn, which this is not: it would be counted as one.
    log_entry = RequestLog(request_id=exchange.id, method="POST", path="/v1/route", owner=exchange.owner)
    preparer = TurnPreparer(
        services,
        body,
        lambda _: history_source,
        log_entry,
        None,
        strict=requested_strictness(exchange.scope),
        find_session=partial(agent_session, exchange.scope),
    )
    plan = await explain_route(services, preparer)
    await exchange.respond(200, [JSON], msgspec.json.encode(plan))


async def list_upstreams(services: Services, exchange: Exchange) -> None:
    """Shows the state of the targets of this process."""
    await exchange.respond(200, [JSON], msgspec.json.encode(UpstreamList(data=list_targets(services))))
