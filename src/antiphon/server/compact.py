"""`POST /v1/responses/compact`: a conversation in, one compaction out that stands for it (CMP-1)."""

from __future__ import annotations

import asyncio

from antiphon.errors import MissingField
from antiphon.gateway.compacting import Compactor, usage_of
from antiphon.gateway.compaction import Unsealing
from antiphon.gateway.history import Archive, ground
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import CompactRequest, Request, input_items
from antiphon.protocol.response import CompactResource
from antiphon.server.asgi import JSON
from antiphon.server.body import ClientLeft, check_head, read_body
from antiphon.server.exchange import Exchange, losses_header, shutdown
from antiphon.server.services import Services


async def compact_response(services: Services, exchange: Exchange) -> None:
    """Nothing of it is kept: the client has all of it in its hands."""
    check_head(exchange.scope, services.max_body)
    body = await read_body(exchange.receive, services.max_body)
    if exchange.trace is not None:
        exchange.trace.client_request("POST", exchange.scope["path"], exchange.scope["headers"], body)
    asked = codec.decode_compact_request(body)
    exchange.watch()
    try:
        resource, losses = await _compacted(services, exchange, asked)
    except asyncio.CancelledError:
        exchange.come_back()
        if exchange.left:
            raise ClientLeft from None
        raise shutdown() from None
    finally:
        exchange.unwatch()
    exchange.note_losses(losses)
    await exchange.answer(200, [JSON, *losses_header(losses)], codec.encode(resource))


async def _compacted(services: Services, exchange: Exchange, asked: CompactRequest) -> tuple[CompactResource, Losses]:
    line, losses = exchange.line, Losses()
    owner = line.owner
    assert owner is not None  # the route is not public
    line.model = asked.model
    target = services.routes.find(asked.model)
    line.upstream = target.upstream.name
    request = Request(
        model=asked.model,
        input=asked.input,
        previous_response_id=asked.previous_response_id,
        instructions=asked.instructions,
        prompt_cache_key=asked.prompt_cache_key,
    )
    unsealing = Unsealing(seal=services.seal, owner=owner, keeps_foreign=target.upstream.config.dialect == "responses")
    # An output whose call nobody knows is words like any other: a transcript has no rules for it.
    archive = Archive(owner=owner, store=services.store, limit=services.max_body)
    found = await ground(request, archive, allow_orphans=True, unsealing=unsealing)
    losses.extend(found.losses)
    if not input_items(found.request):
        raise MissingField("input: there is nothing to compact: wanted a conversation, or previous_response_id", param="input")
    services.seal.check()
    context = await services.models.context_of(target)
    compactor = Compactor(seal=services.seal, owner=owner, target=target, context=context, stamps=services.stamps)
    made = await compactor.compact(found.request, found.raw, services.transport, losses)
    usage = usage_of(made, losses)
    line.response_id = services.stamps.new_id("resp")
    line.input_tokens, line.output_tokens = usage.input_tokens, usage.output_tokens
    resource = CompactResource(id=line.response_id, output=[made.item], created_at=services.stamps.now(), usage=usage)
    return resource, losses
