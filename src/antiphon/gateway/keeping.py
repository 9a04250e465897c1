"""What is kept of a turn: the request's own items, each with an id, and the response as it was before anything was left out of it
for the client. Committed before the client hears of the end, so that what it saw finished is never lost.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from antiphon.protocol import codec
from antiphon.protocol.items import (
    AdditionalTools,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    Item,
    ItemParam,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import Record, Store, Turn


class Keeper:
    """Keeps one response. The items of its request are written down at once, since nobody holds them while the answer comes."""

    def __init__(self, store: Store | None, owner: str, own: list[ItemParam], stamps: Stamps) -> None:
        self.has_begun = False  # a response is kept once
        self._store = store
        self._owner = owner
        named = [_named(item, stamps) for item in own]
        self._input = codec.encode(named)
        self._item_ids = [id for item in named if (id := id_of(item)) is not None]

    async def keep(self, response: Response) -> Turn:
        """Once this returns, the response is safe; `StorageUnavailable` if it is not. Without a store it is only written down."""
        self.has_begun = True
        output = codec.encode(response.output)
        if self._store is not None:
            ids = self._item_ids + [id for item in response.output if (id := id_of(item)) is not None]
            calls = [item.call_id for item in response.output if isinstance(item, CALLS)]
            await self._store.save(self._owner, self._record(response, output), ids, calls)
        return Turn(id=response.id, input=self._input, output=output)

    def _record(self, response: Response, output: bytes) -> Record:
        return Record(
            id=response.id,
            previous=response.previous_response_id,
            created_at=response.created_at,
            status=response.status,
            head=codec.encode(replace(response, output=[])),
            input=self._input,
            output=output,
        )


def response_of(record: Record) -> Response:
    """A kept response, whole."""
    output: list[Item] = codec.decode_as(record.output, list[Item])
    return replace(codec.decode_response(record.head), output=output)


def id_of(item: Item | ItemParam) -> str | None:
    """The id of an item, if it has one."""
    if isinstance(item, UnknownItem):
        return item.text("id")
    id: Any = getattr(item, "id", None)
    return id if isinstance(id, str) and id else None


def _named(item: ItemParam, stamps: Stamps) -> ItemParam:
    """An item of a request with an id, so that it can be listed and referred to."""
    if id_of(item) is not None:
        return item
    if isinstance(item, UnknownItem):
        members = item.fields() | {"id": msgspec.Raw(codec.encode(stamps.new_id("item")))}
        return replace(item, raw=msgspec.Raw(codec.encode(members)))
    if "id" not in item.__struct_fields__:
        return item
    return replace(item, id=stamps.new_id(PREFIXES.get(type(item), "item")))


CALLS: Final = (FunctionCallParam, CustomToolCallParam)
PREFIXES: Final[dict[type, str]] = {
    MessageParam: "msg",
    FunctionCallParam: "fc",
    FunctionCallOutputParam: "fco",
    CustomToolCallParam: "ctc",
    CustomToolCallOutputParam: "ctco",
    ReasoningParam: "rs",
    AdditionalTools: "at",
}
