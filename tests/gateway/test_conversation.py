"""The conversation of a turn, and what the turn adds to it (API-4)."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import msgspec
import pytest
from tests.gateway.test_compactor import PicklingPool

from antiphon.gateway.conversation import JoinedConversation, make_addition, make_entries
from antiphon.gateway.ids import new_id, now
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.protocol.codec import decode_as
from antiphon.protocol.items import ItemParam
from antiphon.protocol.stamps import Stamps
from antiphon.store.record import ResponseRecord


def stamps() -> Stamps:
    numbers = count(1)
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 7)


def record(status: str, input: list[Any], output: list[Any]) -> ResponseRecord:
    return ResponseRecord(
        id="resp_1",
        previous=None,
        created_at=7,
        status=status,
        head=b"{}",
        input=msgspec.json.encode(input),
        output=msgspec.json.encode(output),
    )


def message(role: str, text: str, **members: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text, **members}


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_addition_has_input_then_output(status: str) -> None:
    output = [message("assistant", "Hello.", id="msg_b", status="completed"), {"type": "acme:thing", "size": 5}]
    added = make_addition("conv_1", record(status, [message("user", "Hi", id="msg_a")], output), stamps())
    assert added is not None
    assert added.conversation_id == "conv_1"
    assert [entry.id for entry in added.entries] == ["msg_a", "msg_b", "item_1"]
    assert msgspec.json.decode(added.entries[2].item) == {"type": "acme:thing", "size": 5, "id": "item_1"}


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress", "queued"])
def test_failed_turn_has_no_addition(status: str) -> None:
    assert make_addition("conv_1", record(status, [message("user", "Hi", id="msg_a")], []), stamps()) is None


def test_entries_have_ids_and_exclude_triggers() -> None:
    sent = [
        message("user", "Hi"),
        {"type": "compaction_trigger"},
        {"type": "acme:thing", "id": ""},
        message("user", "x", id="mine"),
    ]
    items: list[ItemParam] = decode_as(msgspec.json.encode(sent), list[ItemParam])
    entries = make_entries(items, stamps())
    assert [entry.id for entry in entries] == ["msg_1", "item_2", "mine"]
    assert [msgspec.json.decode(entry.item)["id"] for entry in entries] == ["msg_1", "item_2", "mine"]


def test_addition_of_a_large_turn_is_made_in_a_worker_process() -> None:
    pool = PicklingPool()
    conversation = JoinedConversation(id="conv_1", store=None, workers=pool)  # type: ignore[arg-type]
    for text, functions in (("Hi", []), ("x" * LARGE_INPUT, ["make_addition"])):
        turn = record("completed", [message("user", text, id="msg_a")], [])
        added = asyncio.run(conversation.make_addition(turn, Stamps(new_id, now)))
        assert added == make_addition("conv_1", turn, stamps())
        assert pool.functions == functions
