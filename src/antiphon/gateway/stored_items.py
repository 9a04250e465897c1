"""Looks up items and calls of earlier responses by id.

Each id is looked up once. A response is read once for the sizes of all wanted items in it, and at most once more for
the items that are used. Only these items are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from antiphon.gateway.ids import group_id_of
from antiphon.protocol import codec
from antiphon.protocol.items import ItemParam
from antiphon.store.interface import HistoryStore, StoredTurn

Kind = Literal["item", "call"]


class StoredItems:
    """The items (`item`, by id) or calls (`call`, by call id) that one request refers to. `ids` lists every id that may
    be requested, in that order. Items of up to `limit` bytes in total are cached until they are used."""

    def __init__(
        self,
        store: HistoryStore | None,
        owner: str,
        kind: Kind,
        ids: Sequence[str],
        limit: int,
        max_local_bytes: int | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._kind = kind
        self._ids = list(dict.fromkeys(ids)) if store is not None else []
        self._located_count = 0  # number of ids that were looked up
        self._numbers: dict[str, int] = {}  # id → number of the response that has the item
        self._in_response: dict[int, set[str]] = {}  # number of a response → ids
        self._sizes: dict[str, int] = {}
        self._raw_items: dict[str, bytes] = {}
        self._free_bytes = limit
        self._max_local_bytes = max_local_bytes

    async def size_of(self, id: str) -> int | None:
        """The size of an item in bytes; None if no item has this id."""
        while id not in self._numbers and self._located_count < len(self._ids):
            await self._locate_batch()
        if id in self._numbers and id not in self._sizes:
            await self._read_response(self._numbers[id], self._cache_item)
        return self._sizes.get(id)

    async def items(self, ids: Collection[str]) -> dict[str, ItemParam]:
        """The items of ids whose sizes were requested before."""
        raw_items = {id: self._raw_items[id] for id in ids if id in self._raw_items}
        for number in {self._numbers[id] for id in ids if id not in raw_items}:
            await self._read_response(
                number, lambda id, raw_item: raw_items.update({id: raw_item}) if id in ids else None
            )
        return {id: codec.decode_stored(raw_item, ItemParam) for id, raw_item in raw_items.items()}

    def _cache_item(self, id: str, raw_item: bytes) -> None:
        self._sizes[id] = len(raw_item)
        if len(raw_item) <= self._free_bytes:
            self._free_bytes -= len(raw_item)
            self._raw_items[id] = raw_item

    async def _locate_batch(self) -> None:
        """Looks up the next batch of ids, without reading the responses."""
        assert self._store is not None  # without one there are no ids
        ids = self._ids[self._located_count : self._located_count + IDS_PER_QUERY]
        self._located_count += len(ids)
        if self._kind == "call":
            numbers_by_id = await self._store.find_calls(self._owner, ids)
        else:
            groups = {id: group_id_of(id) for id in ids}
            numbers_by_key = await self._store.find_items(self._owner, [*ids, *groups.values()])
            numbers_by_id = {
                id: numbers_by_key[key] for id, group in groups.items() for key in (group, id) if key in numbers_by_key
            }
        self._numbers |= numbers_by_id
        for id, number in numbers_by_id.items():
            self._in_response.setdefault(number, set()).add(id)

    async def _read_response(self, number: int, visit_item: Callable[[str, bytes], Any]) -> None:
        """Reads one response and passes each wanted item to `visit_item`."""
        assert self._store is not None
        turn = await self._store.get_turn(self._owner, number)
        if turn is not None:
            check_local_size(len(turn.input) + len(turn.output), self._max_local_bytes)
        wanted_ids = self._in_response[number]
        raw_items_by_id: dict[str, list[Raw]] = {}
        for id, raw_item in self._iterate_items(turn) if turn is not None else ():
            if id in wanted_ids:
                raw_items_by_id.setdefault(id, []).append(raw_item)
        for id, raw_items in raw_items_by_id.items():
            if len(raw_items) == 1 or self._kind == "item":  # D-3: a call id that occurs twice is ambiguous
                visit_item(id, bytes(raw_items[0]))

    def _iterate_items(self, turn: StoredTurn) -> Iterator[tuple[str, Raw]]:
        """The stored items of a response, each with its lookup id."""
        for array in (turn.input, turn.output):
            for raw_item in msgspec.json.decode(array, type=list[Raw]):
                keys = msgspec.json.decode(raw_item, type=_ItemKeys)
                key = keys.id if self._kind == "item" else keys.call_id
                if isinstance(key, str) and (self._kind == "item" or keys.type in CALL_TYPES):
                    yield key, raw_item


class LargeHistory(Exception):
    """A history that is too large to be resolved in the process of the gateway."""


def check_local_size(size: int, max_local_bytes: int | None) -> None:
    """Raises `LargeHistory` for bytes that would block this process."""
    if max_local_bytes is not None and size > max_local_bytes:
        raise LargeHistory


class _ItemKeys(Struct):
    """The members of an item that it is looked up by."""

    type: Any = None
    id: Any = None
    call_id: Any = None


IDS_PER_QUERY: Final = 10_000  # ids per query
CALL_TYPES: Final = ("function_call", "custom_tool_call")
