"""What is kept, for its owner: a response, its stream once more, the items it was asked with, and its end (API-1)."""

from __future__ import annotations

from msgspec import UNSET

from antiphon.dialects import responses
from antiphon.errors import ClientFault
from antiphon.gateway.keeping import response_of
from antiphon.protocol import codec
from antiphon.protocol.fold import replay
from antiphon.protocol.items import ItemParam
from antiphon.protocol.policy import Policy
from antiphon.protocol.request import Request, StreamOptions
from antiphon.server.asgi import JSON
from antiphon.server.client_style import style_for
from antiphon.server.exchange import Exchange
from antiphon.server.listing import id_in, listed, page
from antiphon.server.query import Query
from antiphon.server.services import Services
from antiphon.server.stream import SSE
from antiphon.server.tailing import not_found, tail
from antiphon.store.interface import Record, Store


async def get_response(services: Services, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}`; with `stream=true` as events, those after `starting_after` if it is given."""
    asked = Query(exchange, {"include", "include[]", "stream", "starting_after", "include_obfuscation"})
    wants_stream = asked.flag("stream")
    after = asked.number("starting_after", 0, 2**53, None)
    if after is not None and not wants_stream:
        raise ClientFault("starting_after: only a stream can start after an event: add stream=true", param="starting_after")
    is_padded = asked.flag("include_obfuscation")
    options = StreamOptions(include_obfuscation=True) if is_padded and wants_stream else UNSET
    request = Request(include=asked.includes(), stream_options=options)
    style = style_for(exchange.scope, exchange.key_style, services.config.server.style)
    response = Policy.of(Request(include=request.include)).whole(response_of(await find(services, exchange)))
    exchange.line.response_id = response.id
    if wants_stream and response.background:  # its own events were kept as they came, and some may still come
        await tail(services, store_of(services), exchange, owner_of(exchange), response.id, -1 if after is None else after)
        return
    if not wants_stream:
        await exchange.answer(200, [JSON], codec.encode(response))
        return
    policy, writer = Policy.of(request, pad=services.pad), responses.EventsFromHub(request, style=style)
    events = [told for event in replay(response) for told in policy.feed(event)]
    written = [writer.feed(event) for event in events if after is None or event.sequence_number > after]
    await exchange.answer(200, SSE, b"".join(written) + writer.finish())


async def delete_response(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/responses/{id}`: nothing of it is left."""
    store, id = store_of(services), exchange.parameter
    if not await store.delete(owner_of(exchange), id):
        raise not_found(id)
    exchange.line.response_id = id
    await exchange.answer(200, [JSON], codec.encode({"id": id, "object": "response", "deleted": True}))


async def list_input_items(services: Services, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}/input_items`: what the request itself brought, a page at a time; the newest first unless asked
    otherwise."""
    asked = Query(exchange, {"limit", "after", "order", "include", "include[]"})
    limit = asked.number("limit", 1, 100, 20)
    order = asked.one_of("order", ("asc", "desc"), "desc")
    after = asked.text("after")
    include = asked.includes()
    record = await find(services, exchange)
    exchange.line.response_id = record.id
    items: list[ItemParam] = codec.decode_stored(record.input, list[ItemParam])
    shown = [listed(item, include) for item in (items if order == "asc" else reversed(items))]
    if after is not None:
        ids = [id_in(item) for item in shown]
        if after not in ids:
            raise ClientFault(f"after: this response was asked with no item of the id {after[:100]!r}", param="after")
        shown = shown[ids.index(after) + 1 :]
    await exchange.answer(200, [JSON], page(shown[:limit], has_more=len(shown) > (limit or 0)))


async def find(services: Services, exchange: Exchange) -> Record:
    """The response that the path names."""
    record = await store_of(services).get(owner_of(exchange), exchange.parameter)
    if record is None:
        raise not_found(exchange.parameter)
    return record


def store_of(services: Services) -> Store:
    if services.store is None:
        raise ClientFault("this gateway keeps nothing: see [store] in its configuration", type="not_found", code="not_found")
    return services.store


def owner_of(exchange: Exchange) -> str:
    owner = exchange.line.owner
    assert owner is not None  # no route of this module is public
    return owner
