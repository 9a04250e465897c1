"""Endpoints for stored responses: get (whole or as a stream), delete, and list the input items (API-1)."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.api.background_stream import response_not_found, stream_background_events
from antiphon.api.item_pages import encoded_item_id, render_item, render_page
from antiphon.api.request_options import requested_style
from antiphon.dialects import responses
from antiphon.dialects.responses.stream_out import EventStyle
from antiphon.errors import ClientFault
from antiphon.gateway.recording import response_from_record
from antiphon.http.asgi import JSON
from antiphon.http.exchange import SSE_HEADERS, Exchange
from antiphon.http.query_parameters import QueryParameters
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.fold import replay_response
from antiphon.protocol.items import ItemParam
from antiphon.protocol.policy import PaddingSource, Policy
from antiphon.protocol.request import Request, StreamOptions
from antiphon.store.interface import ResponseRecord, Store


async def get_response(services: Services, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}`; with `stream=true` as events, only those after `starting_after` if that is given."""
    query = QueryParameters(exchange, {"include", "include[]", "stream", "starting_after", "include_obfuscation"})
    wants_stream = query.flag("stream")
    after = query.integer("starting_after", 0, 2**53, None)
    if after is not None and not wants_stream:
        raise ClientFault("starting_after: allowed only for a stream: add stream=true", param="starting_after")
    wants_padding = query.flag("include_obfuscation")
    options = StreamOptions(include_obfuscation=True) if wants_padding and wants_stream else UNSET
    request = Request(include=query.includes(), stream_options=options)
    style = requested_style(exchange.scope, exchange.key_style, services.config.server.style)
    record = await find_response(services, exchange)
    exchange.log_entry.response_id = record.id
    if wants_stream and await services.workers.call(len(record.head), _is_background, record.head):
        # its events are stored, and more may follow
        await stream_background_events(
            services,
            require_store(services),
            exchange,
            exchange.owner,
            record.id,
            -1 if after is None else after,
        )
        return
    if not wants_stream:
        await exchange.respond(200, [JSON], await render_response(services, exchange, record, request))
        return
    size, shown_record = len(record.head) + len(record.output), replace(record, input=b"")
    frames = await services.workers.call(
        size, _render_stream, shown_record, request, style, after, services.pad, owner=exchange.owner
    )
    await exchange.respond(200, SSE_HEADERS, frames)


def _is_background(head: bytes) -> bool:
    return codec.decode_response(head).background


async def render_response(services: Services, exchange: Exchange, record: ResponseRecord, request: Request) -> bytes:
    """The response of a record as JSON, with what the request includes."""
    size, shown_record = len(record.head) + len(record.output), replace(record, input=b"")
    return await services.workers.call(size, _render_response, shown_record, request, owner=exchange.owner)


def _render_response(record: ResponseRecord, request: Request) -> bytes:
    response = Policy.for_request(request).apply_to_response(response_from_record(record))
    return responses.response_from_hub(response, request)[0]


def _render_stream(
    record: ResponseRecord, request: Request, style: EventStyle, after: int | None, pad: PaddingSource
) -> bytes:
    shown_response = Policy.for_request(Request(include=request.include)).apply_to_response(
        response_from_record(record)
    )
    policy, writer = Policy.for_request(request, pad=pad), responses.EventsFromHub(request, style=style)
    events = [output_event for event in replay_response(shown_response) for output_event in policy.feed(event)]
    frames = [writer.feed(event) for event in events if after is None or event.sequence_number > after]
    return b"".join(frames) + writer.finish()


async def delete_response(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/responses/{id}`: deletes it completely."""
    store, id = require_store(services), exchange.path_parameter
    if not await store.delete(exchange.owner, id):
        raise response_not_found(id)
    exchange.log_entry.response_id = id
    await exchange.respond(200, [JSON], codec.encode({"id": id, "object": "response", "deleted": True}))


async def list_input_items(services: Services, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}/input_items`: a page of the items of its own request, newest first by default."""
    query = QueryParameters(exchange, {"limit", "after", "order", "include", "include[]"})
    limit = query.integer("limit", 1, 100, 20)
    order = query.one_of("order", ("asc", "desc"), "desc")
    after = query.text("after")
    include = query.includes()
    record = await find_response(services, exchange)
    exchange.log_entry.response_id = record.id
    page = await services.workers.call(
        len(record.input), _render_input_page, record.input, include, order, after, limit, owner=exchange.owner
    )
    await exchange.respond(200, [JSON], page)


def _render_input_page(
    input: bytes, include: list[str], order: str | None, after: str | None, limit: int | None
) -> bytes:
    items: list[ItemParam] = codec.decode_stored(input, list[ItemParam])
    encoded_items = [render_item(item, include) for item in (items if order == "asc" else reversed(items))]
    if after is not None:
        ids = [encoded_item_id(item) for item in encoded_items]
        if after not in ids:
            raise ClientFault(
                f"after: the input of this response has no item with the id {after[:100]!r}", param="after"
            )
        encoded_items = encoded_items[ids.index(after) + 1 :]
    return render_page(encoded_items[:limit], has_more=len(encoded_items) > (limit or 0))


async def find_response(services: Services, exchange: Exchange) -> ResponseRecord:
    """Returns the response that the path names."""
    record = await require_store(services).get(exchange.owner, exchange.path_parameter)
    if record is None:
        raise response_not_found(exchange.path_parameter)
    return record


def require_store(services: Services) -> Store:
    if services.store is None:
        raise ClientFault(
            "this gateway stores nothing: see [store] in its configuration", type="not_found", code="not_found"
        )
    return services.store
