"""Looks up items and calls of earlier responses by id.

Each id is looked up once. A response is read once for the sizes of all wanted items in it, and at most once more for
the items that are used. Only these items are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from antiphon.gateway.item_ids import group_id_of
from antiphon.protocol import codec
from antiphon.protocol.items import ItemParam
from antiphon.store.interface import Store, StoredTurn

Kind = Literal["item", "call"]


class StoredItems:
    """The items (`item`, by id) or calls (`call`, by call id) that one request refers to. `ids` lists every id that may
    be requested, in that order. Items of up to `limit` bytes in total are cached until they are used."""

    def __init__(self, store: Store | None, owner: str, kind: Kind, ids: Sequence[str], limit: int) -> None:
        self._store = store
        self._owner = owner
        self._kind = kind
        self._ids = list(dict.fromkeys(ids)) if store is not None else []
        self._located = 0  # number of ids that were looked up
        self._numbers: dict[str, int] = {}  # id → number of the response that has the item
        self._in_response: dict[int, set[str]] = {}  # number of a response → ids
        self._sizes: dict[str, int] = {}
        self._raw_items: dict[str, bytes] = {}
        self._room = limit

    async def size_of(self, id: str) -> int | None:
        """The size of an item in bytes; None if no item has this id."""
        while id not in self._numbers and self._located < len(self._ids):
            await self._locate()
        if id in self._numbers and id not in self._sizes:
            await self._read(self._numbers[id], self._hold)
        return self._sizes.get(id)

    async def items(self, ids: Collection[str]) -> dict[str, ItemParam]:
        """The items of ids whose sizes were requested before."""
        raw_items = {id: self._raw_items[id] for id in ids if id in self._raw_items}
        for number in {self._numbers[id] for id in ids if id not in raw_items}:
            await self._read(number, lambda id, raw: raw_items.update({id: raw}) if id in ids else None)
        return {id: codec.decode_stored(raw, ItemParam) for id, raw in raw_items.items()}

    def _hold(self, id: str, raw: bytes) -> None:
        self._sizes[id] = len(raw)
        if len(raw) <= self._room:
            self._room -= len(raw)
            self._raw_items[id] = raw

    async def _locate(self) -> None:
        """Looks up the next batch of ids, without reading the responses."""
        assert self._store is not None  # without one there are no ids
        ids = self._ids[self._located : self._located + AT_ONCE]
        self._located += len(ids)
        if self._kind == "call":
            numbers = await self._store.find_calls(self._owner, ids)
        else:
            groups = {id: group_id_of(id) for id in ids}
            numbers_by_name = await self._store.find_items(self._owner, [*ids, *groups.values()])
            numbers = {
                id: numbers_by_name[name]
                for id, group in groups.items()
                for name in (group, id)
                if name in numbers_by_name
            }
        self._numbers |= numbers
        for id, number in numbers.items():
            self._in_response.setdefault(number, set()).add(id)

    async def _read(self, number: int, use: Callable[[str, bytes], Any]) -> None:
        """Reads one response and passes each wanted item to `use`."""
        assert self._store is not None
        turn = await self._store.get_turn(self._owner, number)
        wanted = self._in_response[number]
        raws_by_id: dict[str, list[Raw]] = {}
        for id, raw in self._members(turn) if turn is not None else ():
            if id in wanted:
                raws_by_id.setdefault(id, []).append(raw)
        for id, raws in raws_by_id.items():
            if len(raws) == 1 or self._kind == "item":  # D-3: a call id that occurs twice is ambiguous
                use(id, bytes(raws[0]))

    def _members(self, turn: StoredTurn) -> Iterator[tuple[str, Raw]]:
        """The stored items of a response, each with its lookup id."""
        for array in (turn.input, turn.output):
            for raw in msgspec.json.decode(array, type=list[Raw]):
                names = msgspec.json.decode(raw, type=_Names)
                name = names.id if self._kind == "item" else names.call_id
                if isinstance(name, str) and (self._kind == "item" or names.type in CALL_TYPES):
                    yield name, raw


class _Names(Struct):
    """The members of an item that it is looked up by."""

    type: Any = None
    id: Any = None
    call_id: Any = None


AT_ONCE: Final = 10_000  # ids per query
CALL_TYPES: Final = ("function_call", "custom_tool_call")
