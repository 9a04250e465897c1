"""Ids of responses and items, the clock and padding, outside tests.

Items of a request may have no id; they are given one, so that they can be listed and referenced.
"""

from __future__ import annotations

import os
import secrets
import time
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


def new_id(prefix: str) -> str:
    """An unguessable id: 128 random bits, after the time. The time keeps related rows together in indexes: with random
    ids, storing a response costs two and a half times as much. Its unit is 2^20 nanoseconds, about a millisecond, and
    it starts again at 0 after 52 days: with seconds, a busy store writes more pages."""
    if not _random_bits:
        _read_random_bits()
    # A request makes three ids, and an f-string takes twice as long.
    return "%s_%08x%s" % (prefix, time.time_ns() >> 20 & 0xFFFF_FFFF, _random_bits.pop())  # noqa: UP031


def _read_random_bits() -> None:
    """Fills the pool of random bits from the system, since one large read is cheaper than many small ones. No bits are
    used twice."""
    bits = secrets.token_hex(16 * POOL_SIZE)
    _random_bits.extend(bits[position : position + 32] for position in range(0, len(bits), 32))


def now() -> int:
    return int(time.time())


def random_padding(length: int) -> str:
    """STR-13: random padding that hides the length of a delta."""
    return secrets.token_urlsafe(64)[: 16 - length % 16 + secrets.randbelow(16)]


def id_of(item: Item | ItemParam) -> str | None:
    """The id of an item, if it has one."""
    id: Any = getattr(item, "id", None)
    if type(id) is str and id:
        return id
    # `isinstance` takes four times as long if the answer is no, and this runs for every item of a stored response.
    return item.string_member("id") or None if type(item) is UnknownItem else None


def id_prefix(item: ItemParam) -> str:
    """The prefix of the id for an item that has none."""
    return PREFIXES.get(type(item), "item")


def with_id(item: ItemParam, id: str) -> ItemParam:
    """An item that had no id, with this one."""
    if type(item) is UnknownItem:
        return replace(item, raw=Raw(codec.encode(item.raw_members() | {"id": Raw(codec.encode(id))})))
    return replace(item, id=id)


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
POOL_SIZE: Final = 128
_random_bits: Final[list[str]] = []  # each has 128 bits, as hexadecimal digits
os.register_at_fork(after_in_child=_random_bits.clear)
