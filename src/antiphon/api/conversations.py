"""Endpoints to create, read, update and delete conversations and their items (API-4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeVar

import msgspec

from antiphon.api.listing import render_item, render_page
from antiphon.api.stored_responses import require_owner, require_store
from antiphon.errors import ClientFault
from antiphon.gateway.conversation import entries_to_array, make_entries
from antiphon.gateway.history import HistorySource, conversation_not_found, decode_past_turns, resolve_references
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.http.asgi import JSON
from antiphon.http.body import check_body_headers, read_body
from antiphon.http.exchange import Exchange
from antiphon.http.query_parameters import QueryParameters
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.conversation import (
    AddItems,
    ConversationResource,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from antiphon.protocol.items import CompactionTrigger, ItemParam
from antiphon.store.conversations import ConversationEntry, StoredConversation

Body = TypeVar("Body", bound=Shape)


async def create_conversation(services: Services, exchange: Exchange) -> None:
    """`POST /v1/conversations`."""
    store = require_store(services)
    QueryParameters(exchange, set())
    body = await _read_body(services, exchange, CreateConversation)
    entries = await _entries(services, exchange, body.items or [])
    id, now = services.stamps.new_id("conv"), services.stamps.now()
    conversation = StoredConversation(id=id, created_at=now, metadata=msgspec.json.encode(body.metadata or {}))
    await store.create_conversation(require_owner(exchange), conversation, entries)
    await _respond(exchange, conversation)


async def get_conversation(services: Services, exchange: Exchange) -> None:
    """`GET /v1/conversations/{id}`."""
    QueryParameters(exchange, set())
    await _respond(exchange, await _find(services, exchange))


async def update_conversation(services: Services, exchange: Exchange) -> None:
    """`POST /v1/conversations/{id}`: replaces all metadata."""
    store, id = require_store(services), exchange.path_parameter
    QueryParameters(exchange, set())
    body = await _read_body(services, exchange, UpdateConversation)
    updated = await store.update_conversation(require_owner(exchange), id, msgspec.json.encode(body.metadata or {}))
    if updated is None:
        raise conversation_not_found(id, "id")
    await _respond(exchange, updated)


async def delete_conversation(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/conversations/{id}`: deletes it with its items, but not its responses."""
    store, id = require_store(services), exchange.path_parameter
    QueryParameters(exchange, set())
    if not await store.delete_conversation(require_owner(exchange), id):
        raise conversation_not_found(id, "id")
    await exchange.respond(200, [JSON], codec.encode(DeletedConversation(id=id)))


async def add_items(services: Services, exchange: Exchange) -> None:
    """`POST /v1/conversations/{id}/items`: appends items, all or none; answers with them."""
    store, id = require_store(services), exchange.path_parameter
    include = QueryParameters(exchange, INCLUDE).includes()
    body = await _read_body(services, exchange, AddItems)
    entries = await _entries(services, exchange, body.items)
    if not await store.add_entries(require_owner(exchange), id, entries):
        raise conversation_not_found(id, "id")
    await _respond_with_items(exchange, entries, include, has_more=False)


async def list_items(services: Services, exchange: Exchange) -> None:
    """`GET /v1/conversations/{id}/items`: a page of items, newest first by default."""
    query = QueryParameters(exchange, {"limit", "after", "order", *INCLUDE})
    limit = query.integer("limit", 1, 100, None) or 20
    order: Literal["asc", "desc"] = "asc" if query.one_of("order", ("asc", "desc"), "desc") == "asc" else "desc"
    after = query.text("after")
    id = exchange.path_parameter
    page = await require_store(services).list_entries(
        require_owner(exchange), id, after=after, order=order, limit=limit
    )
    if page is None:
        await _find(services, exchange)
        assert after is not None  # an existing conversation has a first page
        raise ClientFault(f"after: no item with the id {after[:100]!r} in this conversation", param="after")
    await _respond_with_items(exchange, page.entries, query.includes(), has_more=page.has_more)


async def get_item(services: Services, exchange: Exchange) -> None:
    """`GET /v1/conversations/{id}/items/{item_id}`."""
    store, (id, item_id) = require_store(services), exchange.path_parameters
    include = QueryParameters(exchange, INCLUDE).includes()
    entry = await store.get_entry(require_owner(exchange), id, item_id)
    if entry is None:
        raise await _item_not_found(services, exchange)
    await exchange.respond(200, [JSON], bytes(render_item(codec.decode_item_param(entry.item), include)))


async def delete_item(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/conversations/{id}/items/{item_id}`: answers with the conversation."""
    store, (id, item_id) = require_store(services), exchange.path_parameters
    QueryParameters(exchange, set())
    if not await store.delete_entry(require_owner(exchange), id, item_id):
        raise await _item_not_found(services, exchange)
    await _respond(exchange, await _find(services, exchange))


async def _read_body(services: Services, exchange: Exchange, kind: type[Body]) -> Body:
    check_body_headers(exchange.scope, services.max_body)
    body = await read_body(exchange.receive, services.max_body)
    if exchange.trace is not None:
        exchange.trace.record_client_request("POST", exchange.scope["path"], exchange.scope["headers"], body)
    decoded: Body = codec.decode_as(body, kind)
    return decoded


async def _entries(services: Services, exchange: Exchange, items: list[ItemParam]) -> list[ConversationEntry]:
    """The items of a body as entries. References are replaced by the items they refer to."""
    for number, item in enumerate(items):
        if isinstance(item, CompactionTrigger):
            path = f"items[{number}]"
            raise ClientFault(f"{path}: a compaction_trigger is only allowed in the input of a turn", param=path)
    archive = HistorySource(owner=require_owner(exchange), store=services.store, limit=services.max_body)
    return make_entries(
        await resolve_references(items, [], archive, HistoryBudget(archive.limit), "items"), services.stamps
    )


async def _find(services: Services, exchange: Exchange) -> StoredConversation:
    """Returns the conversation that the path names."""
    conversation = await require_store(services).get_conversation(require_owner(exchange), exchange.path_parameter)
    if conversation is None:
        raise conversation_not_found(exchange.path_parameter, "id")
    return conversation


async def _item_not_found(services: Services, exchange: Exchange) -> ClientFault:
    """The error for a missing item. Raises another one if the conversation is missing."""
    await _find(services, exchange)
    message = f"no item with the id {exchange.path_parameters[1][:100]!r} in this conversation"
    return ClientFault(message, type="not_found", code="not_found", param="item_id")


async def _respond(exchange: Exchange, conversation: StoredConversation) -> None:
    metadata: dict[str, Any] = msgspec.json.decode(conversation.metadata)
    resource = ConversationResource(id=conversation.id, created_at=conversation.created_at, metadata=metadata)
    await exchange.respond(200, [JSON], codec.encode(resource))


async def _respond_with_items(
    exchange: Exchange, entries: Iterable[ConversationEntry], include: list[str], *, has_more: bool
) -> None:
    items = [render_item(item, include) for item in decode_past_turns([entries_to_array(entries)])]
    await exchange.respond(200, [JSON], render_page(items, has_more=has_more))


INCLUDE: Final = {"include", "include[]"}
