"""`POST /v1/responses/compact`: a conversation in, one compaction out that stands for it (CMP-1)."""

from __future__ import annotations

import asyncio

from antiphon.errors import MissingField
from antiphon.gateway.compaction import CompactionOpener
from antiphon.gateway.compactor import Compactor, compaction_usage
from antiphon.gateway.history import HistorySource, resolve_history
from antiphon.gateway.turn_lifecycle import shutdown_error
from antiphon.http.asgi import JSON
from antiphon.http.body import ClientDisconnected, check_body_headers, read_body
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import CompactRequest, Request, input_items
from antiphon.protocol.response import CompactResource


async def compact_response(services: Services, exchange: Exchange) -> None:
    """Nothing of it is kept: the client has all of it in its hands."""
    check_body_headers(exchange.scope, services.max_body)
    body = await read_body(exchange.receive, services.max_body)
    if exchange.trace is not None:
        exchange.trace.client_request("POST", exchange.scope["path"], exchange.scope["headers"], body)
    asked = codec.decode_compact_request(body)
    exchange.watch_disconnect()
    try:
        resource, losses = await _compacted(services, exchange, asked)
    except asyncio.CancelledError:
        exchange.uncancel_current_task()
        if exchange.is_disconnected:
            raise ClientDisconnected from None
        raise shutdown_error() from None
    finally:
        exchange.unwatch_disconnect()
    exchange.note_losses(losses)
    await exchange.respond(200, [JSON, *losses_header(losses)], codec.encode(resource))


async def _compacted(services: Services, exchange: Exchange, asked: CompactRequest) -> tuple[CompactResource, Losses]:
    log_entry, losses = exchange.log_entry, Losses()
    owner = log_entry.owner
    assert owner is not None  # the route is not public
    log_entry.model = asked.model
    target = services.routes.find(asked.model)
    log_entry.upstream = target.upstream.name
    request = Request(
        model=asked.model,
        input=asked.input,
        previous_response_id=asked.previous_response_id,
        instructions=asked.instructions,
        prompt_cache_key=asked.prompt_cache_key,
    )
    opener = CompactionOpener(seal=services.seal, owner=owner, keeps_foreign=target.upstream.config.dialect == "responses")
    # An output whose call nobody knows is words like any other: a transcript has no rules for it.
    archive = HistorySource(owner=owner, store=services.store, limit=services.max_body)
    found = await resolve_history(request, archive, allow_orphans=True, opener=opener)
    losses.extend(found.losses)
    if not input_items(found.request):
        raise MissingField("input: there is nothing to compact: wanted a conversation, or previous_response_id", param="input")
    services.seal.check_keys()
    context = await services.models.context_size(target)
    compactor = Compactor(seal=services.seal, owner=owner, target=target, context=context, stamps=services.stamps)
    made = await compactor.compact(found.request, found.sealed_items, services.transport, losses)
    usage = compaction_usage(made, losses)
    log_entry.response_id = services.stamps.new_id("resp")
    log_entry.input_tokens, log_entry.output_tokens = usage.input_tokens, usage.output_tokens
    resource = CompactResource(id=log_entry.response_id, output=[made.item], created_at=services.stamps.now(), usage=usage)
    return resource, losses
