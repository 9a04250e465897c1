"""`POST /v1/responses/compact`: replaces a conversation by its user messages and one compaction item (CMP-1)."""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.dialects import responses
from antiphon.errors import MissingField
from antiphon.gateway.compaction import CompactionOpener
from antiphon.gateway.compactor import Compactor, compaction_usage
from antiphon.gateway.history import HistorySource, resolve_history
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import CompactRequest, Request, input_items
from antiphon.protocol.response import CompactResource


async def handle_compact(services: Services, exchange: Exchange) -> None:
    """Compacts a conversation. Nothing is stored: the client gets the whole result."""
    compact_request = codec.decode_compact_request(await exchange.read_body(services.max_body))
    exchange.watch_disconnect()
    try:
        resource, losses = await _compact_conversation(services, exchange, compact_request)
    finally:
        exchange.unwatch_disconnect()
    exchange.note_losses(losses)
    completed = replace(resource, usage=responses.complete_usage(resource.usage))
    await exchange.respond(200, [JSON, *losses_header(losses)], codec.encode(completed))


async def _compact_conversation(
    services: Services, exchange: Exchange, compact_request: CompactRequest
) -> tuple[CompactResource, Losses]:
    log_entry, losses = exchange.log_entry, Losses()
    owner = exchange.owner
    log_entry.model = compact_request.model
    target = services.routes.find(compact_request.model)
    log_entry.upstream = target.upstream.name
    request = Request(
        model=compact_request.model,
        input=compact_request.input,
        previous_response_id=compact_request.previous_response_id,
        instructions=compact_request.instructions,
        prompt_cache_key=compact_request.prompt_cache_key,
    )
    opener = CompactionOpener(
        seal=services.seal, owner=owner, keeps_foreign=target.upstream.server_dialect.opens_foreign_compaction
    )
    # Orphan tool outputs are allowed: for a transcript they are text like any other.
    history_source = HistorySource(owner=owner, store=services.store, limit=services.max_body)
    resolved = await resolve_history(request, history_source, allow_orphans=True, opener=opener)
    losses.extend(resolved.losses)
    if not input_items(resolved.request):
        raise MissingField(
            "input: there is nothing to compact: expected a conversation, or previous_response_id", param="input"
        )
    services.seal.check_keys()
    context_size = await services.models.context_size(target)
    compactor = Compactor(
        seal=services.seal, owner=owner, target=target, context_size=context_size, stamps=services.stamps
    )
    compaction = await compactor.compact(resolved.request, resolved.sealed_items, services.transport, losses)
    usage = compaction_usage(compaction, losses)
    log_entry.response_id = services.stamps.new_id("resp")
    log_entry.input_tokens, log_entry.output_tokens = usage.input_tokens, usage.output_tokens
    resource = CompactResource(
        id=log_entry.response_id,
        output=[*compaction.user_messages(services.stamps), compaction.item],
        created_at=services.stamps.now(),
        usage=usage,
    )
    return resource, losses
