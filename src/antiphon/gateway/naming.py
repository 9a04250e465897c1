"""The ids of items. Those of a request may come without; they are given one, so that they can be listed and referred to. Pure."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw
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
from antiphon.protocol.stamps import Stamps


def id_of(item: Item | ItemParam) -> str | None:
    """The id of an item, if it has one."""
    id: Any = getattr(item, "id", None)
    if type(id) is str and id:
        return id
    return item.text("id") or None if isinstance(item, UnknownItem) else None


def named(item: ItemParam, stamps: Stamps) -> tuple[ItemParam, str]:
    """An item that has no id, with one."""
    if isinstance(item, UnknownItem):
        id = stamps.new_id("item")
        return replace(item, raw=Raw(codec.encode(item.fields() | {"id": Raw(codec.encode(id))}))), id
    id = stamps.new_id(PREFIXES.get(type(item), "item"))
    return replace(item, id=id), id


PREFIXES: Final[dict[type, str]] = {
    MessageParam: "msg",
    FunctionCallParam: "fc",
    FunctionCallOutputParam: "fco",
    CustomToolCallParam: "ctc",
    CustomToolCallOutputParam: "ctco",
    ReasoningParam: "rs",
    AdditionalTools: "at",
}
