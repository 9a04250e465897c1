"""`POST /v1/responses/compact`: replaces a conversation by its user messages and one compaction item (CMP-1)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from antiphon.dialects import responses
from antiphon.errors import MissingField
from antiphon.gateway.compaction import CompactionOpener
from antiphon.gateway.compactor import CompactionResult, Compactor, compaction_usage
from antiphon.gateway.history import HistorySource, ResolvedRequest, resolve_history
from antiphon.gateway.run_turn import run_attempts
from antiphon.gateway.upstreams import Target
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
        resource, losses = await ConversationCompaction(services, exchange, compact_request).run()
    finally:
        exchange.unwatch_disconnect()
    exchange.note_losses(losses)
    completed = replace(resource, usage=responses.complete_usage(resource.usage))
    await exchange.respond(200, [JSON, *losses_header(losses)], codec.encode(completed))


class ConversationCompaction:
    """The compaction of one request. If a target fails, the next one is asked, as for turns."""

    def __init__(self, services: Services, exchange: Exchange, compact_request: CompactRequest) -> None:
        self._services = services
        self._exchange = exchange
        self._request = Request(
            model=compact_request.model,
            input=compact_request.input,
            previous_response_id=compact_request.previous_response_id,
            instructions=compact_request.instructions,
            prompt_cache_key=compact_request.prompt_cache_key,
        )
        self._losses = Losses()  # of the current attempt
        self._resolved: ResolvedRequest
        exchange.log_entry.model = compact_request.model
        self._attempts = services.router.begin_turn(services.router.find(compact_request.model))
        self._resolved_for = self._attempts.current.target.target

    async def run(self) -> tuple[CompactResource, Losses]:
        services, log_entry = self._services, self._exchange.log_entry
        self._resolved = await self._resolve(self._resolved_for)
        services.seal.check_keys()
        log_entry.attempts = self._attempts.records
        compaction = await run_attempts(services, self._exchange.request_scope, self._attempts, self._compact)
        usage = compaction_usage(compaction, self._losses)
        log_entry.response_id = services.stamps.new_id("resp")
        log_entry.input_tokens, log_entry.output_tokens = usage.input_tokens, usage.output_tokens
        resource = CompactResource(
            id=log_entry.response_id,
            output=[*compaction.user_messages(services.stamps), compaction.item],
            created_at=services.stamps.now(),
            usage=usage,
        )
        return resource, self._losses

    async def _resolve(self, target: Target) -> ResolvedRequest:
        """The conversation for a target. Orphan tool outputs are allowed: for a transcript they are text like any
        other."""
        services, owner = self._services, self._exchange.owner
        keeps_foreign = target.upstream.server_dialect.opens_foreign_compaction
        opener = CompactionOpener(seal=services.seal, owner=owner, keeps_foreign=keeps_foreign)
        history_source = HistorySource(owner=owner, store=services.store, limit=services.max_body)
        resolved = await resolve_history(self._request, history_source, allow_orphans=True, opener=opener)
        if not input_items(resolved.request):
            raise MissingField(
                "input: there is nothing to compact: expected a conversation, or previous_response_id", param="input"
            )
        return resolved

    async def _compact(self, target: Target, headers: Mapping[str, str]) -> CompactionResult:
        services = self._services
        if target is not self._resolved_for:
            self._resolved, self._resolved_for = await self._resolve(target), target
        self._exchange.log_entry.upstream = target.upstream.name
        self._losses = Losses()
        self._losses.extend(self._resolved.losses)
        compactor = Compactor(
            seal=services.seal,
            owner=self._exchange.owner,
            target=target,
            context_size=await services.models.context_size(target),
            stamps=services.stamps,
        )
        request, sealed_items = self._resolved.request, self._resolved.sealed_items
        return await compactor.compact(request, sealed_items, services.transport, self._losses, headers=headers)
