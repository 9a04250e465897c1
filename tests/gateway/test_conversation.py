"""Which conversation a turn is in, and what it adds to it (API-4)."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from antiphon.errors import ClientFault
from antiphon.gateway.conversation import conversation_id_of, entries_to_array, make_addition, make_entries
from antiphon.protocol.codec import decode_as
from antiphon.protocol.items import ItemParam
from antiphon.protocol.request import Request
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


@pytest.mark.parametrize("named", ["conv_1", {"id": "conv_1"}, {"id": "conv_1", "more": 1}])
def test_a_conversation_is_named_by_its_id_or_by_an_object_that_has_it(named: Any) -> None:
    assert conversation_id_of(Request(conversation=named)) == "conv_1"


@pytest.mark.parametrize("named", [None, UNSET])
def test_most_requests_name_none(named: Any) -> None:
    assert conversation_id_of(Request(conversation=named, previous_response_id="resp_1")) is None


@pytest.mark.parametrize(
    ("named", "param"), [("", "conversation"), ({}, "conversation.id"), ({"id": ""}, "conversation.id")]
)
def test_conversation_without_a_valid_id_is_refused(named: Any, param: str) -> None:
    with pytest.raises(ClientFault) as caught:
        conversation_id_of(Request(conversation=named))
    assert caught.value.param == param


def test_a_turn_goes_on_in_one_way_only() -> None:
    with pytest.raises(ClientFault) as caught:
        conversation_id_of(Request(conversation="conv_1", previous_response_id="resp_1"))
    assert (caught.value.status, caught.value.param) == (400, "conversation")


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_turn_adds_what_it_was_asked_and_then_what_it_said(status: str) -> None:
    said = [message("assistant", "Hello.", id="msg_b", status="completed"), {"type": "acme:thing", "size": 5}]
    added = make_addition("conv_1", record(status, [message("user", "Hi", id="msg_a")], said), stamps())
    assert added is not None
    assert added.conversation_id == "conv_1"
    assert [entry.id for entry in added.entries] == ["msg_a", "msg_b", "item_1"]
    assert msgspec.json.decode(added.entries[2].item) == {"type": "acme:thing", "size": 5, "id": "item_1"}


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress", "queued"])
def test_a_turn_that_did_not_end_well_adds_nothing(status: str) -> None:
    assert make_addition("conv_1", record(status, [message("user", "Hi", id="msg_a")], []), stamps()) is None


def test_entries_have_ids_and_what_asks_for_something_is_none() -> None:
    sent = [
        message("user", "Hi"),
        {"type": "compaction_trigger"},
        {"type": "acme:thing", "id": ""},
        message("user", "x", id="mine"),
    ]
    items: list[ItemParam] = decode_as(msgspec.json.encode(sent), list[ItemParam])
    entries = make_entries(items, stamps())
    assert [entry.id for entry in entries] == ["msg_1", "item_2", "mine"]
    assert [item["id"] for item in msgspec.json.decode(entries_to_array(entries))] == ["msg_1", "item_2", "mine"]


def test_no_entries_are_an_empty_array() -> None:
    assert entries_to_array([]) == b"[]"
