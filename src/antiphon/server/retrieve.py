"""What is kept, for its owner: a response, its stream once more, the items it was asked with, and its end (API-1)."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from antiphon.dialects import responses
from antiphon.errors import ClientFault
from antiphon.gateway.keeping import response_of
from antiphon.protocol import codec
from antiphon.protocol.content import InputText, OutputText
from antiphon.protocol.fold import replay
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.policy import Policy
from antiphon.protocol.request import Request
from antiphon.protocol.status import ItemStatus
from antiphon.server.asgi import JSON
from antiphon.server.client_style import style_for
from antiphon.server.exchange import Exchange
from antiphon.server.services import Services
from antiphon.server.stream import SSE
from antiphon.store.interface import Record, Store


async def get_response(services: Services, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}`; with `stream=true` as events, those after `starting_after` if it is given."""
    asked = _Query(exchange, {"include", "include[]", "stream", "starting_after", "include_obfuscation"})
    wants_stream = asked.flag("stream")
    after = asked.number("starting_after", 0, 2**53, None)
    if after is not None and not wants_stream:
        raise ClientFault("starting_after: only a stream can start after an event: add stream=true", param="starting_after")
    request = Request(include=asked.includes())
    style = style_for(exchange.scope)
    response = Policy.of(request).whole(response_of(await _find(services, exchange)))
    exchange.line.response_id = response.id
    if not wants_stream:
        await exchange.answer(200, [JSON], codec.encode(response))
        return
    writer = responses.EventsFromHub(request, style=style)
    events = [event for event in replay(response) if after is None or event.sequence_number > after]
    await exchange.answer(200, SSE, b"".join(map(writer.feed, events)) + writer.finish())


async def delete_response(services: Services, exchange: Exchange) -> None:
    """`DELETE /v1/responses/{id}`: nothing of it is left."""
    store, id = _store(services), exchange.parameter
    if not await store.delete(_owner(exchange), id):
        raise _not_found(id)
    exchange.line.response_id = id
    await exchange.answer(200, [JSON], codec.encode({"id": id, "object": "response", "deleted": True}))


async def list_input_items(services: Services, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}/input_items`: what the request itself brought, a page at a time; the newest first unless asked
    otherwise."""
    asked = _Query(exchange, {"limit", "after", "order", "include", "include[]"})
    limit = asked.number("limit", 1, 100, 20)
    order = asked.one_of("order", ("asc", "desc"), "desc")
    after = asked.text("after")
    asked.includes()
    record = await _find(services, exchange)
    exchange.line.response_id = record.id
    items: list[ItemParam] = codec.decode_as(record.input, list[ItemParam])
    listed = [_listed(item) for item in (items if order == "asc" else reversed(items))]
    if after is not None:
        ids = [_id_in(item) for item in listed]
        if after not in ids:
            raise ClientFault(f"after: this response was asked with no item of the id {after[:100]!r}", param="after")
        listed = listed[ids.index(after) + 1 :]
    page = listed[:limit]
    body = {
        "object": "list",
        "data": page,
        "first_id": _id_in(page[0]) if page else None,
        "last_id": _id_in(page[-1]) if page else None,
        "has_more": len(listed) > len(page),
    }
    await exchange.answer(200, [JSON], codec.encode(body))


async def _find(services: Services, exchange: Exchange) -> Record:
    record = await _store(services).get(_owner(exchange), exchange.parameter)
    if record is None:
        raise _not_found(exchange.parameter)
    return record


def _store(services: Services) -> Store:
    if services.store is None:
        raise ClientFault("this gateway keeps no responses: see [store] in its configuration", type="not_found", code="not_found")
    return services.store


def _owner(exchange: Exchange) -> str:
    owner = exchange.line.owner
    assert owner is not None  # no route of this module is public
    return owner


def _not_found(id: str) -> ClientFault:
    return ClientFault(f"no response with the id {id[:100]!r} is kept here", type="not_found", code="not_found", param="id")


def _listed(item: ItemParam) -> Raw:
    """An item as it is listed: a message is done, and its content is parts."""
    if isinstance(item, MessageParam):
        content = item.content
        if isinstance(content, str):
            part = OutputText(text=content, annotations=[], logprobs=[]) if item.role == "assistant" else InputText(text=content)
            content = [part]
        item = replace(item, content=content, status=item.status or ItemStatus.COMPLETED)
    return Raw(codec.encode(item))


def _id_in(raw: Raw) -> Any:
    return msgspec.json.decode(raw, type=dict[str, Any]).get("id")


class _Query:
    """The query of a request: what is known is checked, what is not is refused with its name."""

    def __init__(self, exchange: Exchange, known: set[str]) -> None:
        query = exchange.scope["query_string"].decode("latin-1")
        try:
            self._given: dict[str, list[str]] = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError:
            raise ClientFault("the query of this request cannot be read") from None
        for name in self._given.keys() - known:
            listed = ", ".join(sorted(known - {"include[]"}))
            raise ClientFault(f"{name[:50]}: this path has no such parameter; it has {listed}", param=name[:50])

    def text(self, name: str) -> str | None:
        values = self._given.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise ClientFault(f"{name}: got it {len(values)} times, wanted it once", param=name)
        return values[0]

    def flag(self, name: str) -> bool:
        return self.one_of(name, ("true", "false"), "false") == "true"

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = self.text(name)
        if value is not None and value not in words:
            wanted = " or ".join(map(repr, words))
            raise ClientFault(f"{name}: got {value[:50]!r}, wanted {wanted}", param=name)
        return value or default

    def number(self, name: str, least: int, most: int, default: int | None) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 16 or not least <= int(value) <= most:
            raise ClientFault(f"{name}: got {value[:50]!r}, wanted a whole number from {least} to {most}", param=name)
        return int(value)

    def includes(self) -> list[str]:
        return self._given.get("include", []) + self._given.get("include[]", [])


MAX_FIELDS: Final = 50
