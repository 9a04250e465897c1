"""What is kept of a turn: the request's own items, each with an id, and the response as it was before anything was left out of it
for the client. Committed before the client hears of the end, so that what it saw finished is never lost.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from msgspec.structs import replace

from antiphon.gateway.conversation import JoinedConversation, make_addition
from antiphon.gateway.item_ids import GROUP_PREFIX, group_item_id, id_of, with_id
from antiphon.protocol import codec
from antiphon.protocol.items import CustomToolCallParam, FunctionCallParam, Item, ItemParam
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus
from antiphon.store.conversations import ConversationAddition
from antiphon.store.interface import ResponseRecord, Store, StoredTurn


class ResponseRecorder:
    """Keeps one response. The new items of its request are encoded at once, since nobody holds them while the answer comes."""

    def __init__(
        self, store: Store | None, owner: str, own: list[ItemParam], stamps: Stamps, joined: JoinedConversation | None = None
    ) -> None:
        self.has_started = False  # a response is kept once
        self._store = store  # None: the response is not kept
        self._owner = owner
        self._stamps = stamps
        self._joined = joined
        self._input, self._item_ids = input_with_ids(own, stamps)

    async def save(self, response: Response) -> StoredTurn:
        """Once this returns, the response is safe; `StorageUnavailable` if it is not. Without a store it is only written down."""
        self.has_started = True
        if self._store is None and self._joined is None:
            return StoredTurn(id=response.id, input=self._input, output=codec.encode(response.output))
        record, item_ids, call_ids = self.make_record(response)
        added = self.make_addition(record)
        try:
            await self._save(record, item_ids, call_ids, added)
        except asyncio.CancelledError:
            # The client left, or the server stops. Whoever ends in the middle of this would not know whether the response is kept,
            # so it is kept once more, in its own place: what comes of that is what came of both.
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await self._save(record, item_ids, call_ids, added)
        return StoredTurn(id=record.id, input=record.input, output=record.output)

    def make_record(self, response: Response) -> tuple[ResponseRecord, list[str], list[str]]:
        """What a store is given: the response, and the ids by which its items and its calls can be found."""
        record = ResponseRecord(
            id=response.id,
            previous=response.previous_response_id,
            created_at=response.created_at,
            status=response.status,
            head=codec.encode(replace(response, output=[])),
            input=self._input,
            output=codec.encode(response.output),
        )
        item_ids = self._item_ids + [id for item in response.output if (id := id_of(item)) is not None]
        return record, item_ids, [item.call_id for item in response.output if isinstance(item, CALLS)]

    def make_addition(self, record: ResponseRecord) -> ConversationAddition | None:
        """What the turn adds to the conversation it belongs to, if it belongs to one and ended well."""
        return make_addition(self._joined.id, record, self._stamps) if self._joined is not None else None

    async def _save(
        self, record: ResponseRecord, item_ids: list[str], call_ids: list[str], added: ConversationAddition | None
    ) -> None:
        """The response and what it adds are safe together, or neither is."""
        if self._store is None:
            if self._joined is not None and added is not None:
                await self._joined.store.add_entries(self._owner, added.conversation, added.entries)
        elif added is None:
            await self._store.save(self._owner, record, item_ids, call_ids)
        else:
            await self._store.save(self._owner, record, item_ids, call_ids, addition=added)


def input_with_ids(items: list[ItemParam], stamps: Stamps) -> tuple[bytes, list[str]]:
    """The items of a request as the store has them, each with an id, and the ids by which they can be found: their own, and one
    group for all that came without one."""
    with_ids: list[ItemParam] = []
    ids: list[str] = []
    group = ""
    for number, item in enumerate(items):
        id = id_of(item)
        if id is None:
            group = group or stamps.new_id(GROUP_PREFIX)
            item, _ = with_id(item, partial(group_item_id, group, number))
        else:
            ids.append(id)
        with_ids.append(item)
    return codec.encode(with_ids), [group, *ids] if group else ids


def response_from_record(record: ResponseRecord) -> Response:
    """A kept response, whole."""
    output: list[Item] = codec.decode_stored(record.output, list[Item])
    # What is made in the background has its head written when it begins and when it ends, and its status whenever that changes.
    return replace(codec.decode_response(record.head), status=record.status, output=output)


def queued_response(record: ResponseRecord) -> Response:
    """What its client was told when it asked."""
    return replace(response_from_record(record), status=ResponseStatus.QUEUED)


CALLS: Final = (FunctionCallParam, CustomToolCallParam)
