"""Records a turn: the new items of the request, each with an id, and the response before items were withheld from the
client. The record is committed before the client receives the end, so a finished response is never lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, field
from msgspec.structs import replace

from antiphon.gateway.conversation import JoinedConversation
from antiphon.gateway.ids import GROUP_PREFIX, group_item_id, id_of, id_prefix, with_id
from antiphon.protocol import codec
from antiphon.protocol.items import CustomToolCallParam, FunctionCallParam, Item, ItemParam
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus
from antiphon.store.conversations import ConversationAddition
from antiphon.store.interface import ResponseRecord, Store, StoredTurn

RecordedInput = tuple[bytes, list[str]]  # the new items of a request as JSON, and their ids for the index


class Recorder(Protocol):
    """Records the response of a turn, once."""

    @property
    def has_started(self) -> bool: ...

    async def save(self, response: Response) -> StoredTurn: ...


class ResponseRecorder:
    """Records one response. The new items of its request are encoded already, so that they need not be held while the
    response is read."""

    def __init__(
        self,
        store: Store | None,
        owner: str,
        recorded_input: RecordedInput,
        stamps: Stamps,
        conversation: JoinedConversation | None = None,
    ) -> None:
        self.has_started = False  # a response is recorded once
        self._store = store  # None: the response is not stored
        self._owner = owner
        self._stamps = stamps
        self._conversation = conversation
        self._addition: ConversationAddition | None = None  # made once, so that a second write has the same ids
        self._input, self._item_ids = recorded_input
        self.answered_by = ""  # the target that answered, if there was a choice

    async def save(self, response: Response) -> StoredTurn:
        """Stores the response, or raises `StorageUnavailable`. Without a store, the turn is only encoded."""
        self.has_started = True
        if self._store is None and self._conversation is None:
            return StoredTurn(id=response.id, input=self._input, output=codec.encode(response.output))
        record, item_ids, call_ids = self.make_record(response)
        try:
            await self._save(record, item_ids, call_ids)
        except asyncio.CancelledError:
            # The client disconnected, or the server stops. Whether the first write was committed is unknown, so write
            # again: saving is idempotent.
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await self._save(record, item_ids, call_ids)
        return StoredTurn(id=record.id, input=record.input, output=record.output)

    def make_record(self, response: Response) -> tuple[ResponseRecord, list[str], list[str]]:
        """The record for the store, the ids of its items and the ids of its calls."""
        head = codec.encode(replace(response, output=[]))
        record = ResponseRecord(
            id=response.id,
            previous=response.previous_response_id,
            created_at=response.created_at,
            status=response.status,
            head=add_target(head, self.answered_by) if self.answered_by else head,
            input=self._input,
            output=codec.encode(response.output),
        )
        item_ids = self._item_ids + [id for item in response.output if (id := id_of(item)) is not None]
        return record, item_ids, [item.call_id for item in response.output if isinstance(item, CALLS)]

    async def make_addition(self, record: ResponseRecord) -> ConversationAddition | None:
        """The entries for the conversation of the turn; None if it has none or the turn failed."""
        return None if self._conversation is None else await self._conversation.make_addition(record, self._stamps)

    async def _save(self, record: ResponseRecord, item_ids: list[str], call_ids: list[str]) -> None:
        """Stores the response and its conversation entries atomically."""
        if self._addition is None:
            self._addition = await self.make_addition(record)
        addition = self._addition
        if self._store is None:
            if self._conversation is not None and addition is not None:
                await self._conversation.store.add_entries(self._owner, addition.conversation_id, addition.entries)
        elif addition is None:
            await self._store.save(self._owner, record, item_ids, call_ids)
        else:
            await self._store.save(self._owner, record, item_ids, call_ids, addition=addition)


def input_with_ids(items: list[ItemParam], stamps: Stamps) -> RecordedInput:
    """The items of a request as JSON, each with an id, and the ids for the index: the items' own ids, and one group id
    for items that had none."""
    with_ids: list[ItemParam] = []
    ids: list[str] = []
    group = ""
    for number, item in enumerate(items):
        id = id_of(item)
        if id is None:
            group = group or stamps.new_id(GROUP_PREFIX)
            item = with_id(item, group_item_id(group, number, id_prefix(item)))
        else:
            ids.append(id)
        with_ids.append(item)
    return codec.encode(with_ids), [group, *ids] if group else ids


def without_recorded_input(request: Request, recorded_input: RecordedInput) -> bytes:
    """A request for the background queue, whose input is stored once, in the record of its response. `restore_input`
    adds it again. It is left in the request if that would change it, or take long."""
    input, ids = recorded_input
    if type(request.input) is not list or len(input) > MAX_RESTORED_INPUT or not all(map(_can_restore, request.input)):
        return codec.encode(request)
    group = msgspec.json.encode(ids[0] if ids else "")
    return b"%b%b\n%b" % (INPUT_PREFIX, group, codec.encode(replace(request, input=UNSET)))


def restore_input(request: bytes, input: bytes) -> bytes:
    """A queued request with its input. Items that had no id have none again."""
    if not request.startswith(INPUT_PREFIX):
        return request
    line, _, rest = request.partition(b"\n")
    group = msgspec.json.decode(line.removeprefix(INPUT_PREFIX), type=str)
    items: list[ItemParam] = codec.decode_stored(input, list[ItemParam])
    restored = [_without_group_id(item, group, number) for number, item in enumerate(items)]
    return b'%b,"input":%b}' % (rest[:-1], codec.encode(restored))


def _can_restore(item: ItemParam) -> bool:
    """Whether an item has an id or none; null, for one, would become none."""
    id = getattr(item, "id", None)
    return id is UNSET or bool(id)


def _without_group_id(item: ItemParam, group: str, number: int) -> ItemParam:
    has_group_id = id_of(item) == group_item_id(group, number, id_prefix(item))
    return replace(item, id=UNSET) if has_group_id else item


def response_from_record(record: ResponseRecord) -> Response:
    """The response of a record."""
    output: list[Item] = codec.decode_stored(record.output, list[Item])
    # A background response has its head written at its start and end, and its status at every change.
    return replace(without_target(codec.decode_response(record.head)), status=record.status, output=output)


def queued_response(head: bytes) -> Response:
    """The response as the client received it when it was queued, from the head of its record."""
    return replace(without_target(codec.decode_response(head)), status=ResponseStatus.QUEUED, output=[])


def add_target(head: bytes, label: str) -> bytes:
    """The head of a response with the target that answered."""
    member = b'"%b":' % TARGET_MEMBER.encode()
    return b"%b,%b%b}" % (head[:-1], member, msgspec.json.encode(label))


def stored_target(head: bytes) -> str | None:
    """The target in the head of a stored response."""
    label = msgspec.json.decode(head, type=_TargetMember).label  # nothing else of the head is decoded
    return label if isinstance(label, str) else None


def without_target(response: Response) -> Response:
    """The response as clients see it."""
    extra: Mapping[str, Raw] = response.extra or {}
    if TARGET_MEMBER not in extra:
        return response
    return replace(response, extra={name: raw for name, raw in extra.items() if name != TARGET_MEMBER})


#: The member of a stored head that names the target; clients do not see it.
TARGET_MEMBER: Final = "antiphon:target"


class _TargetMember(Struct, frozen=True):
    label: Any = field(default=None, name=TARGET_MEMBER)


INPUT_PREFIX: Final = b"input of "  # no request begins so
MAX_RESTORED_INPUT: Final = 64 * 1024  # bytes that the event loop may decode
CALLS: Final = (FunctionCallParam, CustomToolCallParam)
