"""`gateway/recording`: the items of a request as they are stored, and the target that answered."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.gateway.test_compactor import PicklingPool

from antiphon.gateway.conversation import JoinedConversation
from antiphon.gateway.ids import group_id_of
from antiphon.gateway.recording import (
    INPUT_PREFIX,
    MAX_RESTORED_INPUT,
    ResponseRecorder,
    add_target,
    input_with_ids,
    restore_input,
    stored_target,
    without_recorded_input,
    without_target,
)
from antiphon.protocol.codec import decode_response, encode
from antiphon.protocol.items import FunctionCallOutputParam, ItemParam, MessageParam, UnknownItem
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus
from antiphon.store.conversations import ConversationEntry

STAMPS = Stamps(lambda prefix: f"{prefix}_1f", lambda: 0)


def message(id: str | None = None) -> MessageParam:
    return MessageParam(role="user", content="Hi") if id is None else MessageParam(role="user", content="Hi", id=id)


def test_items_without_an_id_get_ids_of_one_group() -> None:
    items: list[ItemParam] = [message(), message("msg_own"), FunctionCallOutputParam(call_id="c", output="42")]
    encoded, ids = input_with_ids(items, STAMPS)
    stored = [item["id"] for item in msgspec.json.decode(encoded)]
    assert stored == ["msg_1fx0", "msg_own", "fco_1fx2"]
    assert ids == ["items_1f", "msg_own"]
    assert {group_id_of(stored[0]), group_id_of(stored[2])} == {"items_1f"}


def test_items_that_all_have_an_id_need_no_group() -> None:
    encoded, ids = input_with_ids([message("msg_a"), message("msg_b")], STAMPS)
    assert [item["id"] for item in msgspec.json.decode(encoded)] == ids == ["msg_a", "msg_b"]


def test_input_with_ids_of_no_items_is_empty() -> None:
    assert input_with_ids([], STAMPS) == (b"[]", [])


def queue_and_restore(request: Request) -> tuple[bytes, bytes]:
    """The request as it is queued, and as the runner reads it."""
    items = request.input if isinstance(request.input, list) else []
    recorded_input = input_with_ids(items, STAMPS)
    queued = without_recorded_input(request, recorded_input)
    return queued, restore_input(queued, recorded_input[0])


@pytest.mark.parametrize(
    "items",
    [
        [],
        [message()],
        [message(), message("msg_own"), FunctionCallOutputParam(call_id="c", output="42")],
        [message("msg_\n"), message("msg_1fx1")],
        [message("items_1f"), message("msg_1fx0")],
    ],
    ids=len,
)
def test_input_of_a_queued_request_is_stored_in_the_record_only(items: list[ItemParam]) -> None:
    request = Request(model="m", input=items, metadata={"a": "b"})
    queued, restored = queue_and_restore(request)
    assert queued.startswith(INPUT_PREFIX)
    assert b'"content"' not in queued
    assert msgspec.json.decode(restored) == msgspec.json.decode(encode(request))


@pytest.mark.parametrize(
    "input",
    [
        "Hi",
        [MessageParam(role="user", content="Hi", id=None)],
        [MessageParam(role="user", content="Hi", id="")],
        [UnknownItem(kind="new", raw=msgspec.Raw(b'{"type":"new"}'))],
        [MessageParam(role="user", content="x" * MAX_RESTORED_INPUT)],
    ],
    ids=lambda input: str(input)[:20],
)
def test_input_that_cannot_be_restored_is_queued_with_its_request(input: Any) -> None:
    request = Request(model="m", input=input)
    assert queue_and_restore(request) == (encode(request), encode(request))


def test_stored_head_has_the_target_and_clients_do_not_see_it() -> None:
    response = make_initial_response(Request(model="m"), id="resp_1", created_at=1)
    head = encode(response)
    assert stored_target(head) is None
    marked = add_target(head, 'up"stream/x')
    assert stored_target(marked) == 'up"stream/x'
    assert encode(without_target(decode_response(marked))) == head
    assert without_target(response) is response
    other = decode_response(msgspec.json.encode({**msgspec.json.decode(marked), "billing": 1}))
    assert b'"billing":1' in encode(without_target(other))


class LostWrites:
    """A store whose first write is committed, but whose client disconnects before it returns."""

    def __init__(self) -> None:
        self.writes: list[list[ConversationEntry]] = []

    async def add_entries(self, _owner: str, _conversation_id: str, entries: list[ConversationEntry]) -> None:
        self.writes.append(entries)
        if len(self.writes) == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)


def test_second_write_of_a_cancelled_turn_has_the_same_entries() -> None:
    numbers = iter(range(100))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 0)
    store: Any = LostWrites()
    conversation = JoinedConversation(id="conv_1", store=store, workers=PicklingPool())
    recorder = ResponseRecorder(None, "anna", (encode([message()]), []), stamps, conversation)
    response = make_initial_response(Request(model="m"), id="resp_1", created_at=1)
    asyncio.run(recorder.save(msgspec.structs.replace(response, status=ResponseStatus.COMPLETED)))
    first, second = store.writes
    assert first == second
    assert len(first) == 1
