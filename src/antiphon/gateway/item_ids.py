"""The ids of items. Items of a request may have none; they are given one, so that they can be listed and referenced.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
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


def id_of(item: Item | ItemParam) -> str | None:
    """The id of an item, if it has one."""
    id: Any = getattr(item, "id", None)
    if type(id) is str and id:
        return id
    return item.string_member("id") or None if isinstance(item, UnknownItem) else None


def with_id(item: ItemParam, new_id: Callable[[str], str]) -> tuple[ItemParam, str]:
    """Gives an id to an item that has none; `new_id` makes it from a prefix."""
    id = new_id(PREFIXES.get(type(item), "item"))
    if isinstance(item, UnknownItem):
        return replace(item, raw=Raw(codec.encode(item.raw_members() | {"id": Raw(codec.encode(id))}))), id
    return replace(item, id=id), id


def group_item_id(group: str, number: int, prefix: str) -> str:
    """The id of an item that is looked up by the id of its group. Indexing every item would double the cost of storing
    a response."""
    return f"{prefix}_{group.partition('_')[2]}x{number:x}"


def group_id_of(id: str) -> str:
    """The group id in an item's id, if it has one."""
    group, _, _ = id.rpartition("x")
    return f"{GROUP_PREFIX}_{group.partition('_')[2]}"


GROUP_PREFIX: Final = "items"
PREFIXES: Final[dict[type, str]] = {
    MessageParam: "msg",
    FunctionCallParam: "fc",
    FunctionCallOutputParam: "fco",
    CustomToolCallParam: "ctc",
    CustomToolCallOutputParam: "ctco",
    ReasoningParam: "rs",
    AdditionalTools: "at",
}
