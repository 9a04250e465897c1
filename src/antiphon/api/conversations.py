"""Endpoints to create, read, update and delete conversations and their items (API-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from antiphon.api.item_pages import render_item, render_page
from antiphon.api.stored_responses import require_store
from antiphon.errors import ClientFault
from antiphon.gateway.conversation_body import ConversationBody, read_conversation_body
from antiphon.gateway.history import HistorySource, conversation_not_found
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.http.query_parameters import QueryParameters
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.conversation import (
    AddItems,
    ConversationResource,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from antiphon.store.conversations import ConversationEntry, StoredConversation


async def create_conversation(services: Services, exchange: Exchange) -> None:
    """`POST /v1/conversations`."""
    store = require_store(services)
    QueryParameters(exchange, set())
    body = await _read_items(services, exchange, CreateConversation)
    id, now = services.stamps.new_id("conv"), services.stamps.now()
    conversation = StoredConversation(id=id, created_at=now, metadata=body.metadata)
    await store.create_conversation(exchange.owner, conversation, body.entries)
    await _respond_with_conversation(exchange, conversation)


async def get_conversation(services: Services, exchange: Exchange) -> None:
    """`GET /v1/conversations/{id}`."""
    QueryParameters(exchange, set())
    await _respond_with_conversation(exchange, await _find_conversation(services, exchange))


async def update_conversation(services: Services, exchange: Exchange) -> None:
    """`POST /v1/conversations/{id}`: replaces all metadata."""
    store, id = require_store(services), exchange.path_parameter
    QueryParameters(exchange, set())
    content = await exchange.read_body(services.max_body)
    metadata = await services.workers.call(len(content), _read_metadata, content, owner=exchange.owner)
    updated = await store.update_conversation(exchange.owner, id, metadata)
    if updated is None:
        raise conversation_not_found(id, "id")
    await _respond_with_conversation(exchange, updated)


def _read_metadata(content: bytes) -> bytes:
    body: UpdateConversation = codec.decode_as(content, UpdateConversation)
    return msgspec.json.encode(body.metadata or {})


async def delete_conversation(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/conversations/{id}`: deletes it with its items, but not its responses."""
    store, id = require_store(services), exchange.path_parameter
    QueryParameters(exchange, set())
    if not await store.delete_conversation(exchange.owner, id):
        raise conversation_not_found(id, "id")
    await exchange.respond(200, [JSON], codec.encode(DeletedConversation(id=id)))


async def add_items(services: Services, exchange: Exchange) -> None:
    """`POST /v1/conversations/{id}/items`: appends items, all or none; answers with them."""
    store, id = require_store(services), exchange.path_parameter
    include = QueryParameters(exchange, INCLUDE_PARAMETERS).includes()
    entries = (await _read_items(services, exchange, AddItems)).entries
    if not await store.add_entries(exchange.owner, id, entries):
        raise conversation_not_found(id, "id")
    await _respond_with_items(services, exchange, entries, include, has_more=False)


async def list_items(services: Services, exchange: Exchange) -> None:
    """`GET /v1/conversations/{id}/items`: a page of items, newest first by default."""
    query = QueryParameters(exchange, {"limit", "after", "order", *INCLUDE_PARAMETERS})
    limit = query.integer("limit", 1, 100, None) or 20
    order: Literal["asc", "desc"] = "asc" if query.one_of("order", ("asc", "desc"), "desc") == "asc" else "desc"
    after = query.text("after")
    id = exchange.path_parameter
    page = await require_store(services).list_entries(exchange.owner, id, after=after, order=order, limit=limit)
    if page is None:
        await _find_conversation(services, exchange)
        assert after is not None  # an existing conversation has a first page
        raise ClientFault(f"after: no item with the id {after[:100]!r} in this conversation", param="after")
    await _respond_with_items(services, exchange, page.entries, query.includes(), has_more=page.has_more)


async def get_item(services: Services, exchange: Exchange) -> None:
    """`GET /v1/conversations/{id}/items/{item_id}`."""
    store, (id, item_id) = require_store(services), exchange.path_parameters
    include = QueryParameters(exchange, INCLUDE_PARAMETERS).includes()
    entry = await store.get_entry(exchange.owner, id, item_id)
    if entry is None:
        raise await _item_not_found(services, exchange)
    rendered = await services.workers.call(
        len(entry.item), _render_stored_item, entry.item, include, owner=exchange.owner
    )
    await exchange.respond(200, [JSON], rendered)


async def delete_item(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/conversations/{id}/items/{item_id}`: answers with the conversation."""
    store, (id, item_id) = require_store(services), exchange.path_parameters
    QueryParameters(exchange, set())
    if not await store.delete_entry(exchange.owner, id, item_id):
        raise await _item_not_found(services, exchange)
    await _respond_with_conversation(exchange, await _find_conversation(services, exchange))


async def _read_items(
    services: Services, exchange: Exchange, body_type: type[CreateConversation] | type[AddItems]
) -> ConversationBody:
    body = await exchange.read_body(services.max_body)
    source = HistorySource(
        owner=exchange.owner, store=services.store, limit=services.max_body, max_local_bytes=LARGE_INPUT
    )
    return await read_conversation_body(body, body_type, source, services.stamps, services.workers)


async def _find_conversation(services: Services, exchange: Exchange) -> StoredConversation:
    """Returns the conversation that the path names."""
    conversation = await require_store(services).get_conversation(exchange.owner, exchange.path_parameter)
    if conversation is None:
        raise conversation_not_found(exchange.path_parameter, "id")
    return conversation


async def _item_not_found(services: Services, exchange: Exchange) -> ClientFault:
    """The error for a missing item. Raises another one if the conversation is missing."""
    await _find_conversation(services, exchange)
    message = f"no item with the id {exchange.path_parameters[1][:100]!r} in this conversation"
    return ClientFault(message, type="not_found", code="not_found", param="item_id")


async def _respond_with_conversation(exchange: Exchange, conversation: StoredConversation) -> None:
    metadata: dict[str, Any] = msgspec.json.decode(conversation.metadata)
    resource = ConversationResource(id=conversation.id, created_at=conversation.created_at, metadata=metadata)
    await exchange.respond(200, [JSON], codec.encode(resource))


async def _respond_with_items(
    services: Services, exchange: Exchange, entries: Sequence[ConversationEntry], include: list[str], *, has_more: bool
) -> None:
    items = [entry.item for entry in entries]
    size = sum(map(len, items))
    page = await services.workers.call(size, _render_stored_page, items, include, has_more, owner=exchange.owner)
    await exchange.respond(200, [JSON], page)


def _render_stored_page(items: list[bytes], include: list[str], has_more: bool) -> bytes:
    decoded = [codec.decode_item_param(item) for item in items]
    return render_page([render_item(item, include) for item in decoded], has_more=has_more)


def _render_stored_item(item: bytes, include: list[str]) -> bytes:
    return bytes(render_item(codec.decode_item_param(item), include))


INCLUDE_PARAMETERS: Final = {"include", "include[]"}
