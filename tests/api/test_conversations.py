"""Conversations on the wire (API-4): as the openai SDK calls them, and in turns over HTTP and WebSocket, on both
stores."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from tests.api.stateful import (
    ALICE,
    BOB,
    TOOLS,
    Full,
    Hesitant,
    Lab,
    error_in,
    events_in,
    lab,
    message,
    output,
    text_of,
)
from tests.running import BOUND, one_upstream, running, until

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.io
NEVER = "conv_00000000ffffffffffffffffffffffffffffffff"
SEALED = "reasoning.encrypted_content"


@pytest.fixture
def client(here: Lab) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key=ALICE, max_retries=0, timeout=BOUND) as made:
        yield made


def made(here: Lab, *items: dict[str, Any], key: str = ALICE, **fields: Any) -> str:
    """Create a conversation and return its id."""
    answer = here.call("POST", "/v1/conversations", key=key, json={"items": list(items), **fields})
    assert answer.status_code == 200, answer.text
    id: str = answer.json()["id"]
    return id


def items_in(here: Lab, id: str, query: str = "order=asc&limit=100", key: str = ALICE) -> list[dict[str, Any]]:
    answer = here.call("GET", f"/v1/conversations/{id}/items?{query}", key=key)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["data"]
    return items


def texts_in(here: Lab, id: str) -> list[str]:
    """The texts of its messages, and the types of all other items."""
    return [
        "".join(part["text"] for part in item["content"]) if item["type"] == "message" else item["type"]
        for item in items_in(here, id)
    ]


def refused(here: Lab, method: str, path: str, key: str = ALICE, **settings: Any) -> tuple[int, str, str | None]:
    error = error_in(here.call(method, f"/v1/conversations{path}", key=key, **settings))
    return error["status"], error["code"], error["param"]


# Calls of the SDK


def test_sdk_creates_retrieves_updates_and_deletes_a_conversation(client: openai.OpenAI) -> None:
    """API-4."""
    conversation = client.conversations.create(metadata={"topic": "tea"})
    assert conversation.id.startswith("conv_")
    assert (conversation.object, conversation.metadata) == ("conversation", {"topic": "tea"})
    assert client.conversations.retrieve(conversation.id) == conversation
    changed = client.conversations.update(conversation.id, metadata={"topic": "coffee", "cups": "2"})
    assert (changed.metadata, changed.created_at) == ({"topic": "coffee", "cups": "2"}, conversation.created_at)
    assert client.conversations.retrieve(conversation.id) == changed
    assert client.conversations.update(conversation.id, metadata=None).metadata == {}
    gone = client.conversations.delete(conversation.id)
    assert (gone.id, gone.deleted, gone.object) == (conversation.id, True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_sdk_creates_lists_retrieves_and_deletes_items(client: openai.OpenAI) -> None:
    """API-4: each item has an id; a message has parts and the status `completed`."""
    conversation = client.conversations.create(items=[{"role": "user", "content": "One"}])
    added = client.conversations.items.create(
        conversation.id, items=[{"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"}]
    )
    assert (added.object, added.has_more, len(added.data)) == ("list", False, 2)
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[1].id)
    listed: list[Any] = list(client.conversations.items.list(conversation.id, limit=1))  # page by page
    assert [item.content[0].text for item in listed] == ["Three", "Two", "One"]
    assert [item.content[0].type for item in listed] == ["input_text", "output_text", "input_text"]
    assert {item.status for item in listed} == {"completed"}
    assert len({item.id for item in listed}) == 3
    rising: list[Any] = list(client.conversations.items.list(conversation.id, order="asc", after=listed[2].id))
    assert [item.content[0].text for item in rising] == ["Two", "Three"]
    assert client.conversations.items.retrieve(listed[1].id, conversation_id=conversation.id) == listed[1]
    assert client.conversations.items.delete(listed[1].id, conversation_id=conversation.id) == conversation
    left: list[Any] = list(client.conversations.items.list(conversation.id))
    assert [item.content[0].text for item in left] == ["Three", "One"]
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(listed[1].id, conversation_id=conversation.id)


def test_sdk_creates_responses_in_a_conversation(client: openai.OpenAI, here: Lab) -> None:
    """API-4: plain, streamed, by id and as an object; the response names its conversation."""
    conversation = client.conversations.create(items=[{"role": "developer", "content": "Be brief."}])
    first = client.responses.create(model="mock-1", input="One", conversation=conversation.id)
    assert first.conversation is not None
    assert first.conversation.id == conversation.id
    with client.responses.stream(model="mock-1", input="Two", conversation={"id": conversation.id}) as stream:
        second = stream.get_final_response()
    assert second.conversation == first.conversation
    assert here.messages == [("system", "Be brief."), ("user", "One"), ("assistant", "Hello."), ("user", "Two")]
    assert texts_in(here, conversation.id) == ["Be brief.", "One", "Hello.", "Two", "Hello."]
    assert client.responses.retrieve(second.id).conversation == second.conversation


# Turns


@pytest.mark.parametrize("how", ["told", "streamed"])
@pytest.mark.parametrize("store", [True, False])
def test_turn_reads_the_conversation_and_appends_to_it(here: Lab, how: str, store: bool) -> None:
    """API-4: with `store: true` and `store: false`."""
    id = made(here)
    for number in range(3):
        here.says.append(turn(testing.text(f"answer {number}")))
        response = getattr(here, how)(f"question {number}", conversation=id, store=store)
        assert response["conversation"] == {"id": id}
        assert here.get(response["id"]).status_code == (200 if store else 404)
    texts = ["question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2"]
    assert texts_in(here, id) == texts
    assert [text for _, text in here.messages] == texts[:-1]
    assert "conversation" not in here.chat.received[-1].json


def test_websocket_turn_reads_the_conversation_and_appends_to_it(here: Lab) -> None:
    """API-4, WS-8."""
    id = made(here, message("user", "One"))
    with here.socket() as talk:
        assert talk.told("Two", conversation=id, store=False)["conversation"] == {"id": id}
        assert talk.told("Three", conversation={"id": id})["conversation"] == {"id": id}
        assert talk.refused("Four", conversation=NEVER)["param"] == "conversation"
        talk.settle()
    here.told("Four", conversation=id)
    assert [text for _, text in here.messages] == ["One", "Two", "Hello.", "Three", "Hello.", "Four"]
    assert texts_in(here, id) == ["One", "Two", "Hello.", "Three", "Hello.", "Four", "Hello."]


def test_conversation_field_is_not_forwarded_upstream(here: Lab) -> None:
    """API-4: not even an upstream that has conversations itself."""
    id = made(here, message("user", "One"))
    assert here.told("Two", model="other-1", conversation=id)["conversation"] == {"id": id}
    assert here.streamed("Three", model="other-1", conversation=id)["conversation"] == {"id": id}
    assert "conversation" not in here.other.received[-1].json
    assert [item["role"] for item in here.items] == ["user", "user", "assistant", "user"]


def test_background_turn_is_appended_when_it_ends(here: Lab) -> None:
    """API-4, API-2."""
    id = made(here)
    response = here.told("One", conversation=id, background=True)
    assert (response["status"], response["conversation"]) == ("queued", {"id": id})
    until(lambda: here.kept(response["id"])["status"] == "completed")
    assert texts_in(here, id) == ["One", "Hello."]
    listed = here.get(f"{response['id']}/input_items").json()["data"]
    assert [item["id"] for item in items_in(here, id)] == [
        listed[0]["id"],
        here.kept(response["id"])["output"][0]["id"],
    ]


def test_tool_outputs_match_calls_of_the_conversation(here: Lab) -> None:
    """API-4: the call of an output must be in the conversation."""
    id = made(here)
    here.says.append(turn(testing.tool_call("c1", "f", "{}")))
    here.told("Go.", conversation=id, tools=TOOLS)
    here.told([output("c1")], conversation=id, tools=TOOLS)
    assert [role for role, _ in here.messages] == ["user", "assistant", "tool"]
    assert texts_in(here, id) == ["Go.", "function_call", "function_call_output", "Hello."]
    other = made(here)
    error = here.refused([output("c1")], conversation=other, tools=TOOLS)
    assert (error["status"], error["code"]) == (400, "orphan_tool_output")
    assert items_in(here, other) == []


def test_incomplete_call_is_left_out_of_history_and_reported(here: Lab) -> None:
    """API-4: an incomplete response is part of the conversation, an incomplete call is not."""
    id = made(here)
    here.says.append(turn(testing.text("Let me"), testing.tool_call("c1", "f", '{"a'), testing.finish("length")))
    assert here.told("Go.", conversation=id, tools=TOOLS)["status"] == "incomplete"
    assert texts_in(here, id) == ["Go.", "Let me", "function_call"]
    answer = here.ask("Once more.", conversation=id, tools=TOOLS)
    assert answer.headers["antiphon-losses"] == "1; conversation"
    assert here.messages == [("user", "Go."), ("assistant", "Let me"), ("user", "Once more.")]


def test_failed_turn_is_not_appended(here: Lab) -> None:
    """API-4: the client will retry."""
    id = made(here, message("user", "One"))
    here.says.append(turn(testing.text("Hel"), testing.end("rst")))
    assert events_in(here.ask("Two", conversation=id, stream=True))[-1]["type"] == "response.failed"
    assert here.refused("Two", conversation=id, model="away-1")["code"] == "upstream_unavailable"
    assert texts_in(here, id) == ["One"]


@pytest.mark.parametrize("store", [True, False])
def test_turn_of_disconnected_client_is_not_appended(here: Lab, store: bool) -> None:
    """API-4: over HTTP and WebSocket, stored or not."""
    id = made(here)
    gates = [testing.Gate(), testing.Gate()]
    here.says.extend(turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")) for gate in gates)
    before = len(here.gateway.requests(0))
    body = {"model": "mock-1", "input": "One", "stream": True, "conversation": id, "store": store}
    with httpx2.Client(timeout=BOUND, headers={"authorization": f"Bearer {ALICE}"}) as client:
        with client.stream("POST", f"{here.url}/v1/responses", json=body):
            gates[0].wait_reached()
    with here.socket() as talk:
        talk.send("One", conversation=id, store=store)
        gates[1].wait_reached()
    lines = here.gateway.requests(before + 2)[before:]
    assert [line.get("client_left") for line in lines] == [True, True]
    for gate in gates:
        gate.open()
    assert items_in(here, id) == []


def test_cancelled_background_turn_is_not_appended(here: Lab) -> None:
    """API-4, API-2."""
    id = made(here)
    gate = testing.Gate()
    here.says.append(turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")))
    response = here.told("One", conversation=id, background=True)
    gate.wait_reached()
    assert here.call("POST", f"/v1/responses/{response['id']}/cancel").json()["status"] == "cancelled"
    gate.open()
    assert items_in(here, id) == []


def test_compaction_replaces_earlier_items_for_the_model() -> None:
    """API-4, CMP-3: the items remain, the model receives the summary."""
    with lab() as here:
        id = made(here, message("user", "We launch on Tuesday."), message("assistant", "Understood."))
        here.says.append(turn(testing.text("The launch is on Tuesday.")))
        compacted = here.told([{"type": "compaction_trigger"}], conversation=id)
        assert [item["type"] for item in compacted["output"]] == ["compaction"]
        assert [item["type"] for item in items_in(here, id)] == ["message", "message", "compaction"]
        here.told("When?", conversation=id)
        assert here.messages[-1] == ("user", "When?")
        assert any("The launch is on Tuesday." in str(text) for _, text in here.messages)


def test_websocket_continues_an_unstored_turn_of_a_conversation(here: Lab) -> None:
    """API-4, WS-5."""
    id = made(here, message("user", "One"))
    with here.socket() as talk:
        response = talk.told("Two", conversation=id, store=False)
        talk.told("Three", previous_response_id=response["id"], store=False)
    assert [text for _, text in here.messages] == ["One", "Two", "Hello.", "Three"]
    assert texts_in(here, id) == ["One", "Two", "Hello."]


def test_items_already_in_the_conversation_are_not_appended_again(here: Lab) -> None:
    """API-4: items that the client sends again or references are not added twice."""
    id = made(here)
    first = here.told("One", conversation=id)
    existing = items_in(here, id)
    here.told(
        [*existing, {"type": "item_reference", "id": first["output"][0]["id"]}, message("user", "Two")], conversation=id
    )
    assert [text for _, text in here.messages] == ["One", "Hello.", "Two"]
    assert texts_in(here, id) == ["One", "Hello.", "Two", "Hello."]


def test_concurrent_turns_are_each_appended_as_a_unit(here: Lab) -> None:
    """API-4: in the order in which they end."""
    id = made(here)
    count = 8
    here.says.extend(turn(testing.text(f"answer {number}")) for number in range(count))
    with ThreadPoolExecutor(count) as pool:
        responses = list(pool.map(lambda number: here.told(f"question {number}", conversation=id), range(count)))
    texts = texts_in(here, id)
    assert len(texts) == 2 * count
    assert {(texts[at], texts[at + 1]) for at in range(0, len(texts), 2)} == {
        (f"question {number}", text_of(response)) for number, response in enumerate(responses)
    }


def test_conversation_deleted_during_a_turn_stays_deleted(here: Lab) -> None:
    """API-4: the turn in flight still ends normally."""
    for store in (True, False):
        id = made(here)
        gate = testing.Gate()
        here.says.append(turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")))
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(here.told, "One", conversation=id, store=store)
            until(lambda: len(here.chat.received) > 0)
            assert here.call("DELETE", f"/v1/conversations/{id}").status_code == 200
            gate.open()
            assert text_of(asked.result(BOUND)) == "Hello."
        assert refused(here, "GET", f"/{id}") == (404, "not_found", "id")
        here.begin()


def test_conversation_and_responses_are_deleted_independently(here: Lab) -> None:
    """API-4."""
    id = made(here)
    response = here.told("One", conversation=id)
    assert here.delete(response["id"]).status_code == 200
    assert texts_in(here, id) == ["One", "Hello."]
    other = here.told("Two", conversation=id)
    assert here.call("DELETE", f"/v1/conversations/{id}").status_code == 200
    assert here.kept(other["id"]) == other


def test_token_count_includes_the_conversation_and_appends_nothing(here: Lab) -> None:
    """API-3, API-4."""
    id = made(here, message("user", "alpha " * 200))
    body = {"model": "mock-1", "input": "Two"}
    short = here.call("POST", "/v1/responses/input_tokens", json=body).json()["input_tokens"]
    long = here.call("POST", "/v1/responses/input_tokens", json={**body, "conversation": id}).json()["input_tokens"]
    assert long > short + 100
    assert len(items_in(here, id)) == 1


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"conversation": NEVER}, 404, "not_found", "conversation"),
        ({"conversation": {"id": NEVER}}, 404, "not_found", "conversation"),
        ({"conversation": ""}, 400, "invalid_value", "conversation"),
        ({"conversation": {}}, 400, "invalid_value", "conversation.id"),
        ({"conversation": {"id": 5}}, 400, "invalid_value", "conversation.id"),
        ({"conversation": 5}, 400, "invalid_value", "conversation"),
        ({"conversation": NEVER, "previous_response_id": "resp_1"}, 400, "invalid_value", "conversation"),
    ],
)
def test_unusable_conversation_is_refused_before_the_upstream_call(
    here: Lab, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    """API-4: before the upstream receives anything."""
    for stream in (False, True):
        error = here.refused("Hi", stream=stream, **fields)
        assert (error["status"], error["code"], error["param"]) == (status, code, param)
    with here.socket() as talk:
        error = talk.refused("Hi", **fields)
        assert (error["status"], error["code"], error["param"]) == (status, code, param)
    assert here.chat.received == []


def test_conversation_null_means_no_conversation(here: Lab) -> None:
    assert "conversation" not in here.told("Hi", conversation=None)


# Items


def test_items_of_every_type_are_stored_unchanged(here: Lab) -> None:
    """API-4, ITEM-5: unknown item types are stored unchanged, with an id."""
    items: list[dict[str, Any]] = [
        message("user", "One", id="msg_mine"),
        {"type": "acme:thing", "size": 5},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        output("c"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "c2VhbGVk"},
        {
            "type": "file_search_call",
            "id": "fs_1",
            "queries": ["tea"],
            "status": "completed",
            "results": [{"text": "x"}],
        },
        message("assistant", "x")
        | {"content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": [LOGPROB]}]},
    ]
    id = made(here, *items)
    listed = items_in(here, id)
    assert [item["type"] for item in listed] == [item["type"] for item in items]
    assert listed[0]["id"] == "msg_mine"
    assert listed[1]["size"] == 5
    assert [item["id"].partition("_")[0] for item in listed[1:5]] == ["item", "fc", "fco", "rs"]
    # Shown only on request (`include`):
    assert "encrypted_content" not in listed[4]
    assert listed[5]["results"] is None
    assert listed[6]["content"][0]["logprobs"] == []
    asked = f"include={SEALED}&include[]=file_search_call.results&include=message.output_text.logprobs"
    shown = items_in(here, id, f"order=asc&{asked}")
    assert shown[4]["encrypted_content"] == "c2VhbGVk"
    assert shown[5]["results"] == [{"text": "x"}]
    assert shown[6]["content"][0]["logprobs"] == [LOGPROB]
    for item, full in zip(listed, shown, strict=True):
        assert here.call("GET", f"/v1/conversations/{id}/items/{item['id']}").json() == item
        assert here.call("GET", f"/v1/conversations/{id}/items/{item['id']}?{asked}").json() == full


def test_item_reference_is_resolved_when_items_are_added(here: Lab) -> None:
    """API-4, ITEM-6."""
    response = here.told("One")
    id = made(here, {"type": "item_reference", "id": response["output"][0]["id"]})
    [item] = items_in(here, id)
    assert (item["type"], item["id"]) == ("message", response["output"][0]["id"])
    unknown = {"items": [message("user", "x"), {"type": "item_reference", "id": "msg_never"}]}
    assert refused(here, "POST", f"/{id}/items", json=unknown) == (400, "invalid_value", "items[1].id")
    assert len(items_in(here, id)) == 1


def test_item_list_is_paged(here: Lab) -> None:
    """API-4: `limit`, `after`, `order`, `has_more`."""
    id = made(here, *(message("user", str(number), id=f"msg_{number}") for number in range(5)))
    path = f"/v1/conversations/{id}/items"
    first = here.call("GET", f"{path}?limit=2&order=asc").json()
    assert (first["first_id"], first["last_id"], first["has_more"]) == ("msg_0", "msg_1", True)
    last = here.call("GET", f"{path}?limit=3&order=asc&after=msg_1").json()
    assert (last["first_id"], last["last_id"], last["has_more"]) == ("msg_2", "msg_4", False)
    empty = here.call("GET", f"{path}?after=msg_0").json()
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert refused(here, "GET", f"/{id}/items?after=msg_9") == (400, "invalid_value", "after")
    assert refused(here, "GET", f"/{id}/items?limit=101") == (400, "invalid_value", "limit")
    assert refused(here, "GET", f"/{id}/items?order=up") == (400, "invalid_value", "order")
    assert refused(here, "GET", f"/{id}/items?colour=red") == (400, "invalid_value", "colour")
    assert refused(here, "GET", f"/{id}?colour=red") == (400, "invalid_value", "colour")


LONG: list[tuple[dict[str, Any], str, str]] = [
    ({"items": [message("user", "x")] * 21}, "invalid_value", "items"),
    ({"items": [{"type": "message", "role": "king", "content": "x"}]}, "invalid_value", "items[0].role"),
    ({"items": [{"type": "compaction_trigger"}]}, "invalid_value", "items[0]"),
    ({"metadata": {str(number): "x" for number in range(17)}}, "invalid_value", "metadata"),
    ({"metadata": {"a": "x" * 513}}, "invalid_value", "metadata.a"),
    ({"metadata": {"a": 1}}, "invalid_value", "metadata.a"),
]


@pytest.mark.parametrize(("body", "code", "param"), LONG)
def test_invalid_items_and_metadata_are_refused(here: Lab, body: dict[str, Any], code: str, param: str) -> None:
    """API-4: at most 20 items a call, metadata as for responses."""
    id = made(here)
    path = f"/{id}/items" if "items" in body else f"/{id}"
    assert refused(here, "POST", "", json=body) == (400, code, param)
    assert refused(here, "POST", path, json=body) == (400, code, param)
    assert items_in(here, id) == []


def test_invalid_bodies_are_refused(here: Lab) -> None:
    """API-4: the body rules of every other endpoint."""
    id = made(here)
    for path in ("", f"/{id}", f"/{id}/items"):
        assert refused(here, "POST", path, content=b"{")[0] == 415
        assert refused(here, "POST", path, json=[]) == (400, "invalid_json", None)
    assert refused(here, "POST", f"/{id}", json={}) == (400, "missing_field", "metadata")
    assert refused(here, "POST", f"/{id}/items", json={}) == (400, "missing_field", "items")
    assert here.call("POST", "/v1/conversations", json={}).status_code == 200


def test_unknown_conversations_items_and_paths_are_404(here: Lab) -> None:
    """API-4: an unknown conversation and an unknown item have different errors."""
    id = made(here, message("user", "x", id="msg_1"))
    for method, tail in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/items"),
        ("GET", "/items/msg_1"),
        ("DELETE", "/items/msg_1"),
    ):
        assert refused(here, method, f"/{NEVER}{tail}") == (404, "not_found", "id")
    assert refused(here, "POST", f"/{NEVER}", json={"metadata": {}}) == (404, "not_found", "id")
    assert refused(here, "POST", f"/{NEVER}/items", json={"items": [message("user", "x")]}) == (404, "not_found", "id")
    for method in ("GET", "DELETE"):
        assert refused(here, method, f"/{id}/items/msg_2") == (404, "not_found", "item_id")
        assert refused(here, method, f"/{id}/items/") == (404, "not_found", None)
        assert refused(here, method, f"/{id}/items/msg_1/more") == (404, "not_found", None)
    assert refused(here, "GET", "")[0] == 405
    assert refused(here, "PUT", f"/{id}/items/msg_1")[0] == 405


# Owners


def test_conversation_of_another_owner_is_answered_as_unknown(here: Lab) -> None:
    """API-4; docs/errors.md, "tenant B with tenant A's response id": in every operation, byte by byte."""
    hers = made(here, message("user", "A secret.", id="msg_of_alice"), metadata={"a": "secret"})
    asked: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("POST", "", {"metadata": {"a": "b"}}),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("GET", "/items?after=msg_of_alice", None),
        ("POST", "/items", {"items": [message("user", "x")]}),
        ("GET", "/items/msg_of_alice", None),
        ("DELETE", "/items/msg_of_alice", None),
    ]
    for method, tail, body in asked:
        answers = [
            comparable(here.call(method, f"/v1/conversations/{id}{tail}", key=BOB, json=body), id)
            for id in (hers, NEVER)
        ]
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    for settings in ({}, {"stream": True}, {"store": False}, {"background": True}):
        answers = [comparable(here.ask("Go on.", key=BOB, conversation=id, **settings), id) for id in (hers, NEVER)]
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    with here.socket(key=BOB) as talk:
        errors = [talk.refused("Go on.", conversation=id) for id in (hers, NEVER)]
        assert errors[0]["message"].replace(hers, NEVER) == errors[1]["message"]
        talk.settle()
    mine = made(here, key=BOB)
    reference = {"items": [{"type": "item_reference", "id": "msg_of_alice"}]}
    assert refused(here, "POST", f"/{mine}/items", key=BOB, json=reference)[2] == "items[0].id"
    assert refused(here, "GET", f"/{mine}/items/msg_of_alice", key=BOB)[2] == "item_id"
    assert texts_in(here, hers) == ["A secret."]
    assert here.call("GET", f"/v1/conversations/{hers}").json()["metadata"] == {"a": "secret"}


def comparable(answer: httpx2.Response, id: str) -> Any:
    """Every part of an answer that could reveal something."""
    headers = sorted((name, value) for name, value in answer.headers.items() if name != "x-request-id")
    return answer.status_code, headers, answer.text.replace(id, "ID")


# The storage


def test_turn_completes_only_after_it_is_appended() -> None:
    """API-4: both wait for the same commit."""
    with lab(wrap=Hesitant) as here:
        id = made(here)
        store: Any = here.gateway.services.store
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(here.streamed, "One", conversation=id)
            assert store.asked.wait(BOUND)
            assert texts_in(here, id) == []
            assert not asked.done()
            store.let()
            assert asked.result(BOUND)["status"] == "completed"
        assert texts_in(here, id) == ["One", "Hello."]


def test_turn_that_cannot_be_stored_is_not_appended() -> None:
    """API-4: the client is informed."""
    with lab(wrap=Full, has_a_fault=True) as here:
        id = made(here)
        events = events_in(here.ask("One", conversation=id, stream=True))
        assert events[-1]["response"]["error"]["code"] == "storage_unavailable"
        assert texts_in(here, id) == []


def test_gateway_without_store_refuses_conversations() -> None:
    """API-4."""
    with testing.ChatServer() as chat, running(one_upstream(chat.base_url)) as gateway:
        refusal = gateway.post({"model": "m", "input": "Hi", "conversation": NEVER})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "unsupported_parameter")
        for answer in (gateway.post({}, "/v1/conversations"), gateway.get(f"/v1/conversations/{NEVER}")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert chat.received == []


def test_log_has_owner_and_path_but_no_content(here: Lab) -> None:
    """API-4: one line for each."""
    before = len(here.gateway.requests(0))
    id = made(here, message("user", "A secret."))
    here.call("GET", f"/v1/conversations/{id}/items")
    lines = here.gateway.requests(before + 2)[before:]
    assert [(line["method"], line["path"], line["owner"], line["status"]) for line in lines] == [
        ("POST", "/v1/conversations", "alice", 200),
        ("GET", f"/v1/conversations/{id}/items", "alice", 200),
    ]
    assert "A secret." not in here.gateway.written


LOGPROB = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}
