"""`POST /v1/responses/compact`: replaces a conversation by its user messages and one compaction item (CMP-1)."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from antiphon.api.request_options import requested_strictness
from antiphon.dialects import responses
from antiphon.gateway.compact_body import CompactInput, read_compact_body, read_model
from antiphon.gateway.compactor import CompactionResult, Compactor, compaction_usage, verbatim_user_messages
from antiphon.gateway.history import HistorySource
from antiphon.gateway.routing.attempts import Attempt, TurnAttempts
from antiphon.gateway.routing.wishes import apply_wishes, take_wishes
from antiphon.gateway.run_turn import run_attempts
from antiphon.gateway.turn_data import refuse_losses
from antiphon.gateway.upstreams import Target
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange, attempt_headers, losses_header
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import CompactResource
from antiphon.protocol.stamps import Stamps


async def handle_compact(services: Services, exchange: Exchange) -> None:
    """Compacts a conversation. Nothing is stored: the client gets the whole result."""
    body = await exchange.read_body(services.max_body)
    exchange.watch_disconnect()
    try:
        answer, losses = await ConversationCompaction(services, exchange, body).run()
    finally:
        exchange.unwatch_disconnect()
    exchange.note_losses(losses)
    await exchange.respond(200, [JSON, *losses_header(losses)], answer)


class ConversationCompaction:
    """The compaction of one request. If a target fails, the next one is asked, as for turns."""

    def __init__(self, services: Services, exchange: Exchange, body: bytes) -> None:
        self._services = services
        self._exchange = exchange
        self._body = body
        self._losses = Losses()  # of the current attempt
        self._wish_losses = Losses()  # words about routing that have no effect
        self._resolved: CompactInput
        self._resolved_for: Target

    async def run(self) -> tuple[bytes, Losses]:
        services, log_entry = self._services, self._exchange.log_entry
        attempts = await self._route()
        self._resolved_for = attempts.current.target.target
        self._resolved = await self._resolve(self._resolved_for)
        services.seal.check_keys()
        log_entry.attempts = attempts.records
        self._exchange.answer_headers = partial(attempt_headers, attempts)
        compaction = await run_attempts(services, self._exchange.request_scope, attempts, self._compact)
        usage = compaction_usage(compaction, self._losses)
        log_entry.response_id = services.stamps.new_id("resp")
        log_entry.input_tokens, log_entry.output_tokens = usage.input_tokens, usage.output_tokens
        resource = CompactResource(
            id=log_entry.response_id,
            output=[compaction.item],
            created_at=services.stamps.now(),
            usage=responses.complete_usage(usage),
        )
        size = len(compaction.content)
        answer = await services.workers.call(
            size, encode_answer, resource, compaction.content, services.stamps, owner=self._exchange.owner
        )
        return answer, self._losses

    async def _route(self) -> TurnAttempts:
        """The attempts of the compaction, by what the caller says about routing. The model gets a prompt of the
        gateway, so no words pass to a router behind it."""
        services, owner, losses = self._services, self._exchange.owner, self._wish_losses
        call, router = services.workers.call, services.router
        self._body, wishes = await call(len(self._body), take_wishes, self._body, owner=owner)
        model = await call(len(self._body), read_model, self._body, owner=owner)
        self._exchange.log_entry.model = model
        route = router.find(model)
        if wishes is not None and router.accepts(wishes):
            route, wish_losses = apply_wishes(route, wishes, router.find_served)
            for loss in wish_losses:
                losses.add(loss.path, loss.what, loss.why)
        elif wishes is not None:
            for word in wishes.words:
                losses.add(word, "what it says about routing", "it names nothing that the gateway has")
        attempts = router.begin_turn(route)
        strict = requested_strictness(self._exchange.scope)
        if strict is None:
            strict = attempts.current.target.target.upstream.config.losses == "strict"
        if strict or (wishes is not None and wishes.requires_parameters):
            refuse_losses(list(losses))
        return attempts

    async def _resolve(self, target: Target) -> CompactInput:
        services, owner = self._services, self._exchange.owner
        keeps_foreign = target.upstream.server_dialect.opens_foreign_compaction
        source = HistorySource(owner=owner, store=services.store, limit=services.max_body, max_local_bytes=LARGE_INPUT)
        return await read_compact_body(
            self._body, source, services.seal, services.workers, services.input_limits, keeps_foreign=keeps_foreign
        )

    async def _compact(self, attempt: Attempt) -> CompactionResult:
        services, target = self._services, attempt.target.target
        if target is not self._resolved_for:
            self._resolved, self._resolved_for = await self._resolve(target), target
        self._exchange.log_entry.upstream = target.upstream.name
        self._losses = Losses()
        self._losses.extend(self._wish_losses)
        self._losses.extend(self._resolved.losses)
        compactor = Compactor(
            seal=services.seal,
            owner=self._exchange.owner,
            target=target,
            context_size=await services.models.context_size(target),
            stamps=services.stamps,
            workers=services.workers,
        )
        conversation = self._resolved.conversation
        headers = target.upstream.headers_with_key(attempt.key)
        return await compactor.compact(conversation, services.transport, self._losses, headers=headers)


def encode_answer(resource: CompactResource, content: bytes, stamps: Stamps) -> bytes:
    """The answer with the user messages that the compaction keeps verbatim before the compaction."""
    return codec.encode(replace(resource, output=[*verbatim_user_messages(content, stamps), *resource.output]))
