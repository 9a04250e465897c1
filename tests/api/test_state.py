"""Stored responses over sockets: continuation, references, lone outputs, retrieval, and storage before delivery.

PREV-1 to PREV-5, API-1, D-3, ITEM-6, on both stores. Ownership is tested in `test_tenants.py`, WebSockets in
`test_responses_websocket.py`."""

from __future__ import annotations

import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import apsw
import httpx2
import msgspec
import pytest
from tests.api.stateful import (
    ALICE,
    BOB,
    TOOLS,
    Full,
    Hesitant,
    Lab,
    check,
    database_of,
    error_in,
    events_in,
    lab,
    message,
    output,
    text_of,
)
from tests.faults.invariants import Told
from tests.running import BOUND, read_all, until

from antiphon import sse, testing
from antiphon.http.connection import HttpProtocol
from antiphon.protocol.codec import decode_event
from antiphon.protocol.fold import fold_events
from antiphon.testing import Gate, turn

pytestmark = pytest.mark.io
NEVER = "resp_00000000ffffffffffffffffffffffffffffffff"


# Continuation


@pytest.mark.parametrize("how", ["told", "streamed"])
def test_chain_is_sent_upstream_whole_and_in_order(here: Lab, how: str) -> None:
    """PREV-1: previous input, previous output, new input, however long the chain."""
    ask = getattr(here, how)
    wanted: list[tuple[str, str]] = []
    previous: dict[str, Any] = {}
    for number in range(12):
        here.says.append(turn(testing.text(f"answer {number}")))
        previous = ask(f"question {number}", **({"previous_response_id": previous["id"]} if previous else {}))
        wanted.append(("user", f"question {number}"))
        assert here.messages == wanted
        wanted.append(("assistant", f"answer {number}"))
    assert text_of(previous) == "answer 11"
    assert here.kept(previous["id"]) == previous


def test_deleted_response_breaks_every_chain_through_it(here: Lab) -> None:
    """PREV-3: also where a chain was continued a moment ago."""
    first = here.told("Hello. " * 100)
    for _ in range(4):
        second = here.told("Go on.", previous_response_id=first["id"])
        assert second["previous_response_id"] == first["id"]
    third = here.told("And on.", previous_response_id=second["id"])
    assert here.messages[0] == ("user", "Hello. " * 100)
    assert here.delete(first["id"]).status_code == 200
    for gone in (first, second, third):
        assert here.refused("Go on.", previous_response_id=gone["id"])["code"] == "previous_response_not_found"


def test_chain_can_branch(here: Lab) -> None:
    """PREV-1: two continuations of one response are independent."""
    root = here.told("root")
    here.told("left", previous_response_id=root["id"])
    here.told("right", previous_response_id=root["id"])
    assert here.messages == [("user", "root"), ("assistant", "Hello."), ("user", "right")]


def test_chain_keeps_calls_and_outputs_in_order(here: Lab) -> None:
    """PREV-1: the upstream accepts outputs only right after the turn with their calls."""
    calls = testing.interleaved(testing.tool_call("c1", "f", '{"a":', "1}"), testing.tool_call("c2", "g", "{}"))
    here.says += [turn(testing.reasoning("Hm."), testing.text("Let me see."), calls), turn(testing.text("Both."))]
    first = here.streamed("Go.", tools=TOOLS)
    assert [item["type"] for item in first["output"]] == ["reasoning", "message", "function_call", "function_call"]
    second = here.told([output("c2", "two"), output("c1", "one")], previous_response_id=first["id"], tools=TOOLS)
    sent = here.chat.received[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["c1", "c2"]
    assert {message["tool_call_id"]: message["content"] for message in sent[2:]} == {"c1": "one", "c2": "two"}
    here.told("And?", previous_response_id=second["id"])
    assert [role for role, _ in here.messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]


def test_continuation_does_not_inherit_settings(here: Lab) -> None:
    """PREV-2: those of the new request count, and none if it has none."""
    first = here.told("One", instructions="Speak French.", temperature=0.5, max_output_tokens=50, tools=TOOLS)
    second = here.told("Two", previous_response_id=first["id"], instructions="Speak Dutch.")
    assert [text for role, text in here.messages if role in ("system", "developer")] == ["Speak Dutch."]
    third = here.told("Three", previous_response_id=second["id"])
    assert [role for role, _ in here.messages] == ["user", "assistant", "user", "assistant", "user"]
    sent = here.chat.received[-1].json
    assert not {"tools", "temperature", "max_tokens", "max_completion_tokens"} & set(sent)
    assert (third["instructions"], third["tools"]) == (None, [])


def test_chain_includes_system_messages_of_the_input(here: Lab) -> None:
    """PREV-2 is about `instructions`; system messages of the input are input (PREV-1)."""
    first = here.told([message("system", "Be brief."), message("user", "One")])
    here.told("Two", previous_response_id=first["id"])
    assert here.messages[0] == ("system", "Be brief.")
    assert len(here.messages) == 4


def test_unknown_deleted_expired_and_foreign_ids_get_the_same_answer(here: Lab) -> None:
    """PREV-3: the same answer for all four, except for the id itself."""
    deleted, expired = here.told("One"), here.told("One")
    assert here.delete(deleted["id"]).status_code == 200
    here.run(here.store.prune(before=int(time.time()) + 100, keep=None, batch_size=10_000))
    until(lambda: here.count() == 0)
    foreign = here.told("One", key=BOB)
    before = len(here.chat.received)
    answers = [
        here.ask("Go on.", previous_response_id=id) for id in (NEVER, deleted["id"], expired["id"], foreign["id"])
    ]
    bodies = {
        answer.text.replace(json.loads(answer.text)["error"]["message"].split("'")[1], "ID") for answer in answers
    }
    heads = {
        tuple(sorted((name, value) for name, value in answer.headers.items() if name != "x-request-id"))
        for answer in answers
    }
    assert len(bodies) == len(heads) == 1
    error = error_in(answers[0])
    assert (error["status"], error["code"], error["param"]) == (
        400,
        "previous_response_not_found",
        "previous_response_id",
    )
    assert error["type"] == "invalid_request"
    assert len(here.chat.received) == before  # no upstream call was made


def test_chain_with_a_deleted_response_is_refused(here: Lab) -> None:
    """PREV-3: a response that was deleted in the middle is not replaced."""
    first = here.told("One")
    second = here.told("Two", previous_response_id=first["id"])
    here.delete(first["id"])
    assert here.refused("Three", previous_response_id=second["id"])["code"] == "previous_response_not_found"
    assert here.kept(second["id"]) == second


@pytest.mark.parametrize("none", [None, ""])
def test_null_or_empty_previous_response_starts_a_chain(here: Lab, none: str | None) -> None:
    first = here.told("One", previous_response_id=none)
    here.told("Two", previous_response_id=first["id"])
    assert len(here.messages) == 3


def test_store_false_writes_nothing_to_storage() -> None:
    """PREV-4: the file, its log, and every row of every table are unchanged; plain and streamed, successful and
    failed."""
    with lab() as here:
        first = here.told("One")
        until(lambda: has_swept(here))
        before = storage_snapshot(here)
        gate = Gate()
        here.told("Two", store=False)
        here.streamed("Two", store=False)
        here.streamed("Three", store=False, previous_response_id=first["id"])
        here.says.append(testing.error(500))
        here.refused("Four", store=False)
        here.says.append(turn(testing.text("Hel"), testing.wait(gate)))
        with httpx2.Client(timeout=BOUND) as client:
            asked = {"model": "mock-1", "input": "Five", "stream": True, "store": False}
            headers = {"authorization": f"Bearer {ALICE}"}
            with client.stream("POST", here.url + "/v1/responses", json=asked, headers=headers) as answer:
                next(answer.iter_raw())
        here.chat.wait_disconnected(1)
        here.gateway.requests(6)
        assert storage_snapshot(here) == before
        unknown = here.told("Six", store=False)
        assert here.refused("Seven", previous_response_id=unknown["id"])["code"] == "previous_response_not_found"
        assert here.get(unknown["id"]).status_code == 404
        assert unknown["store"] is False


def has_swept(here: Lab) -> bool:
    """True after retention has saved when it looked: once at the start, then every minute."""
    with apsw.Connection(str(database_of(here.gateway)), flags=apsw.SQLITE_OPEN_READONLY) as db:
        rows = list(db.execute("SELECT looked_at FROM retention"))
    db.close()
    return bool(rows)


def storage_snapshot(here: Lab) -> tuple[list[Any], list[bytes]]:
    file = database_of(here.gateway)
    with apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        rows = [(name, list(db.execute(f'SELECT * FROM "{name}"'))) for name in tables]
    db.close()
    assert len(rows) >= 2
    log = file.with_name(file.name + "-wal")
    return rows, [file.read_bytes(), log.read_bytes() if log.exists() else b""]


def test_chain_moves_between_servers_of_two_dialects(here: Lab) -> None:
    """PREV-5: with calls and reasoning, each turn valid for a strict server of the other dialect."""
    here.says += [
        turn(testing.reasoning("A chat thought."), testing.text("One."), testing.tool_call("c1", "f", '{"a":1}')),
        turn(testing.reasoning("Another thought."), testing.tool_call("c2", "g", "{}")),
        turn(testing.text("Three.")),
        turn(testing.text("Four.")),
    ]
    one = here.streamed("Go.", tools=TOOLS)
    two = here.told([output("c1", "11")], previous_response_id=one["id"], model="other-1", tools=TOOLS)
    assert [item["type"] for item in here.items if item["type"] != "reasoning"] == [
        "message", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    three = here.streamed([output("c2", "22")], previous_response_id=two["id"], model="mock-2", tools=TOOLS)
    sent = here.chat.received[-1].json
    assert sent["model"] == "mock-2"
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    four = here.told("And?", previous_response_id=three["id"], model="other-2", tools=TOOLS)
    sent_items = [item for item in here.items if item["type"] != "reasoning"]
    assert [item.get("call_id") for item in sent_items if item["type"].startswith("function_call")] == [
        "c1",
        "c1",
        "c2",
        "c2",
    ]
    assert sent_items[-1]["content"] in ("And?", [{"type": "input_text", "text": "And?"}])
    assert here.kept(four["id"]) == four
    assert [here.kept(turn["id"])["model"] for turn in (one, two, three)] == ["mock-1", "other-1", "mock-2"]


def test_incomplete_response_can_be_continued(here: Lab) -> None:
    """PREV-1: an incomplete call was never made; the upstream would refuse it and an output for it."""
    here.says.append(turn(testing.text("Well"), testing.tool_call("c1", "f", '{"a":'), testing.finish("length")))
    first = here.streamed("Go.", tools=TOOLS)
    assert first["status"] == "incomplete"
    assert here.kept(first["id"]) == first
    answer = here.ask("Go on.", previous_response_id=first["id"], tools=TOOLS)
    assert answer.status_code == 200
    assert "previous_response_id" in answer.headers["antiphon-losses"]
    assert here.messages == [("user", "Go."), ("assistant", "Well"), ("user", "Go on.")]


def test_failed_stream_is_stored_as_sent(here: Lab) -> None:
    """Invariant 2."""
    here.says.append(turn(testing.text("Hel"), testing.end("rst")))
    failed = here.streamed("Go.")
    assert (failed["status"], failed["error"]["code"]) == ("failed", "upstream_disconnected")
    assert here.kept(failed["id"]) == failed


# References and lone outputs


def test_input_and_output_items_can_be_referenced(here: Lab) -> None:
    """ITEM-6: `item_reference` finds items of a response's input and of its output, without a chain."""
    here.says.append(turn(testing.text("Blue."), testing.tool_call("c1", "f", "{}")))
    first = here.told([message("user", "Which colour?", id="msg_mine"), message("user", "Quickly.")], tools=TOOLS)
    named = [item["id"] for item in here.get(f"{first['id']}/input_items?order=asc").json()["data"]]
    assert named[0] == "msg_mine"
    answer, call = (item["id"] for item in first["output"])
    references = [{"type": "item_reference", "id": id} for id in (*named, answer, call)]
    here.told([*references, output("c1", "!")], tools=TOOLS)
    assert [role for role, _ in here.messages] == ["user", "user", "assistant", "tool"]
    assert here.messages[0] == ("user", "Which colour?")
    assert here.messages[2] == ("assistant", "Blue.")


def test_output_items_are_accepted_as_input_unchanged(here: Lab) -> None:
    """ITEM-6: every output shape is accepted as input, stored, and found again."""
    here.says.append(turn(testing.reasoning("Hm."), testing.text("Yes."), testing.tool_call("c1", "f", "{}")))
    first = here.told("Go.", model="other-1", tools=TOOLS)
    back = [message("user", "Go."), *first["output"], output("c1")]
    second = here.told(back, tools=TOOLS)
    listed = here.get(f"{second['id']}/input_items?order=asc").json()["data"]
    assert [item["id"] for item in listed[1:-1]] == [item["id"] for item in first["output"]]
    here.told("And?", previous_response_id=second["id"], model="other-1", tools=TOOLS)
    assert [item["type"] for item in here.items if item["type"] == "function_call"] == ["function_call"]


def test_unknown_item_reference_is_refused_with_its_path(here: Lab) -> None:
    """ITEM-6."""
    error = here.refused([message("user", "Hi"), {"type": "item_reference", "id": "msg_never"}])
    assert (error["status"], error["param"]) == (400, "input[1].id")
    assert "msg_never" in error["message"]
    assert here.chat.received == []


def test_lone_tool_output_is_matched_with_its_stored_call(here: Lab) -> None:
    """D-3: without a chain, from the owner's store, where exactly one call has this id."""
    calls = testing.interleaved(testing.tool_call("call_a", "f", "{}"), testing.tool_call("call_b", "g", "{}"))
    here.says.append(turn(testing.text("Wait."), calls))
    here.told("Go.", tools=TOOLS)
    answered = here.told([message("user", "Here:"), output("call_b", "b"), output("call_a", "a")], tools=TOOLS)
    sent = here.chat.received[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert {call["function"]["name"] for call in sent[1]["tool_calls"]} == {"f", "g"}
    # The restored call is part of the new response, which can be continued by itself.
    here.told("And?", previous_response_id=answered["id"])
    assert [role for role, _ in here.messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    # The call still counts once: the copy is not a second call.
    here.told([message("user", "Once more:"), output("call_a", "a")], tools=TOOLS)


def test_lone_tool_output_with_unknown_or_ambiguous_call_is_refused(here: Lab) -> None:
    """D-3: an unknown call and an ambiguous call: `orphan_tool_output` without an upstream call."""
    here.says += [turn(testing.tool_call("call_0", "f", "{}")), turn(testing.tool_call("call_0", "f", "{}"))]
    here.told("One", tools=TOOLS)
    here.told("Two", tools=TOOLS)
    here.chat.received.clear()
    for call_id in ("call_0", "call_never"):
        for settings in ({}, {"stream": True}, {"store": False}):
            error = here.refused([message("user", "Here:"), output(call_id)], tools=TOOLS, **settings)
            assert (error["status"], error["code"], error["param"]) == (400, "orphan_tool_output", "input[1].call_id")
            assert call_id in error["message"]
    assert here.chat.received == []


def test_tool_output_in_a_chain_needs_a_call_of_the_chain(here: Lab) -> None:
    """D-3, WS-13: inside a chain, calls of other responses do not count."""
    here.says.append(turn(testing.tool_call("call_elsewhere", "f", "{}")))
    here.told("One", tools=TOOLS)
    other = here.told("Two", tools=TOOLS)
    error = here.refused([output("call_elsewhere")], previous_response_id=other["id"], tools=TOOLS)
    assert error["code"] == "orphan_tool_output"


# Stored before sent


@pytest.mark.parametrize("stream", [False, True])
def test_completion_is_sent_only_after_the_response_is_stored(stream: bool) -> None:
    """A response that a client saw completed is never lost: no terminal event and no JSON before the store confirmed
    the write."""
    with lab(wrap=Hesitant) as here, here.gateway.connect() as connection:
        store: Any = here.store
        connection.sendall(request(stream=stream))
        assert store.asked.wait(BOUND)
        here.gateway.get("/health")  # the gateway has had time to send an end
        connection.setblocking(False)
        data = b""
        try:
            while piece := connection.recv(65536):
                data += piece
        except BlockingIOError:
            pass
        assert data == b"" or stream
        assert b"response.completed" not in data
        connection.settimeout(BOUND)
        store.let()
        while piece := connection.recv(65536):
            data += piece
        assert b'"status":"completed"' in data
        [record] = store.saved
        assert here.kept(record.id)["status"] == "completed"


def request(**settings: Any) -> bytes:
    body = msgspec.json.encode({"model": "mock-1", "input": "Go.", **settings})
    head = (
        f"host: localhost\r\nauthorization: Bearer {ALICE}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    )
    return b"POST /v1/responses HTTP/1.1\r\n" + head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def test_storage_failure_fails_the_response() -> None:
    """Storage: the client is informed, in the stream or by the status; `store: false` still works."""
    with lab(wrap=Full, has_a_fault=True) as here:
        error = here.refused("Go.")
        assert (error["status"], error["code"], error["type"]) == (503, "storage_unavailable", "server_error")
        events = events_in(here.ask("Go.", stream=True))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["error"]["code"] == events[-2]["error"]["code"] == "storage_unavailable"
        assert "response.completed" not in {event["type"] for event in events}
        assert text_of(here.told("Go.", store=False)) == "Hello."
        lines = here.gateway.requests(3)
        assert [line.get("error") for line in lines] == ["storage_unavailable", "storage_unavailable", None]
        assert here.count() == 0


def test_upstream_failure_is_reported_while_storage_fails() -> None:
    """Invariant 1: one end, and it is the upstream's."""
    with lab(wrap=Full, has_a_fault=True) as here:
        here.says.append(turn(testing.text("Hel"), testing.end("rst")))
        events = events_in(here.ask("Go.", stream=True))
        assert events[-1]["response"]["error"]["code"] == "upstream_disconnected"


def test_shutdown_delivers_all_buffered_events_to_a_slow_client() -> None:
    """STR-5: no gap, although the end comes while a piece waits for the client."""
    gate = Gate()
    with lab() as here, here.gateway.connect() as connection:
        here.says.append(turn(*[testing.text("x" * 65536)] * 250, testing.wait(gate)))
        connection.sendall(request(stream=True))
        paused: list[list[Any]] = []  # a protocol may be paused for a moment only

        def find_paused() -> bool:
            paused.extend([*protocol.tasks] for protocol in protocols() if protocol.flow.write_paused)
            return bool(paused)

        until(find_paused)
        [task] = paused[0]
        here.opened.loop.call_soon_threadsafe(task.cancel)
        answer = Told(read_all(connection))
        assert answer.outcome == ("failed", "server_shutdown")
        assert here.kept(answer.response.id)["error"]["code"] == "server_shutdown"


def protocols() -> list[HttpProtocol]:
    """The connections of this process that have a request."""
    return [
        candidate
        for candidate in gc.get_objects()
        if isinstance(candidate, HttpProtocol) and hasattr(candidate, "flow")
    ]


# Client disconnects


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("element", "seen"),
    [
        (None, b""),
        (testing.text("Hel"), b"response.output_text.delta"),
        (testing.tool_call("c1", "f", '{"a":'), b"response.function_call_arguments.delta"),
    ],
    ids=["before the first byte", "in the middle", "during arguments"],
)
def test_disconnect_cancels_the_upstream_and_stores_one_record(
    here: Lab, stream: bool, element: Any, seen: bytes
) -> None:
    """Client: the upstream is cancelled; afterwards there is one record with a terminal status and the output so
    far."""
    gate = Gate()
    here.says.append(turn(*([element] if element else []), testing.wait(gate), testing.text("never"), stream=True))
    before, abandoned, lines = here.count(), here.chat.abandoned, len(here.gateway.requests(0))
    with here.gateway.connect() as connection:
        connection.sendall(request(stream=stream, tools=TOOLS))
        gate.wait_reached(BOUND)
        data = b""
        while stream and seen not in data:
            data += connection.recv(65536)
    here.chat.wait_disconnected(abandoned + 1, BOUND)
    line = here.gateway.requests(lines + 1)[-1]
    assert line["client_left"]
    stored = here.kept(line["response_id"])
    assert (stored["status"], stored["error"]["code"]) == ("failed", "client_disconnected")
    assert stored["completed_at"] is None
    assert here.count() == before + 1
    if stream and element is not None:
        [item] = stored["output"]
        assert item["status"] == "incomplete"
        assert ("Hel" in text_of(stored)) or item["arguments"] == '{"a":'
    here.told("Go on.", previous_response_id=stored["id"])  # it has a terminal status, so it can be continued


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_during_storage_leaves_one_record(stream: bool) -> None:
    """The upstream had completed, so the response is stored as it ended, and once."""
    with lab(wrap=Hesitant) as here:
        store: Any = here.store
        with here.gateway.connect() as connection:
            connection.sendall(request(stream=stream))
            assert store.asked.wait(BOUND)
        store.let()
        [line] = here.gateway.requests(1)
        until(lambda: here.count() == 1)
        assert here.kept(line["response_id"])["status"] == "completed"


def test_disconnect_cancels_the_upstream_before_a_slow_store_finishes() -> None:
    """Client: cancelled within a second, also where storing is slow."""
    gate = Gate()
    with lab(wrap=Hesitant) as here:
        store: Any = here.store
        here.says.append(turn(testing.text("Hel"), testing.wait(gate)))
        with here.gateway.connect() as connection:
            connection.sendall(request(stream=True))
            gate.wait_reached(BOUND)
        here.chat.wait_disconnected(1, BOUND)
        assert store.asked.wait(BOUND)
        assert store.saved == []
        store.let()
        here.gateway.requests(1)
        assert here.count() == 1


# Retrieval


def test_stored_response_equals_the_sent_response(here: Lab) -> None:
    """API-1, invariant 2: plain and streamed, with everything a response can have."""
    reply = turn(
        testing.reasoning("H", "m"),
        testing.text("A", "\u0000 \u2028 é 🎻"),
        testing.tool_call("c", "f", '{"n":', "9007199254740993}"),
    )
    settings: dict[str, Any] = {
        "tools": TOOLS, "metadata": {"k": "v"}, "temperature": 0.5, "instructions": "Be kind.", "max_output_tokens": 500,
        "parallel_tool_calls": False, "reasoning": {"effort": "low"},
    }  # fmt: skip
    for how in ("told", "streamed"):
        here.says.append(reply)
        response = getattr(here, how)("Go.", **settings)
        assert here.kept(response["id"]) == response


def test_stored_stream_can_be_replayed_from_any_event(here: Lab) -> None:
    """API-1: `?stream=true` replays the stored response; `starting_after=N` the events after event N, for every N."""
    calls = testing.interleaved(testing.tool_call("c1", "f", '{"a":', "1}"), testing.tool_call("c2", "g", "{}"))
    here.says.append(turn(testing.reasoning("Hm."), testing.text("Hi"), calls))
    response = here.streamed("Go.", tools=TOOLS)
    events = events_in(here.get(f"{response['id']}?stream=true"))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"] == response
    assert msgspec.to_builtins(fold_events(check(events))) == response
    for number in range(len(events) + 2):
        answer = here.get(f"{response['id']}?stream=true&starting_after={number}")
        frames = sse.Decoder().feed(answer.content)
        assert [json.loads(frame.data) for frame in frames[:-1]] == events[number + 1 :]
        assert frames[-1].data == sse.DONE


@pytest.mark.parametrize("ending", [testing.finish("length"), testing.end("rst"), testing.finish("content_filter")])
def test_replay_of_an_incomplete_or_failed_stream_ends_the_same(here: Lab, ending: Any) -> None:
    """API-1."""
    here.says.append(turn(testing.text("Hel"), ending))
    response = here.streamed("Go.")
    assert response["status"] in ("incomplete", "failed")
    assert events_in(here.get(f"{response['id']}?stream=true"))[-1]["response"] == response


def test_replayed_stream_has_the_requested_style(here: Lab) -> None:
    """API-1, API-6; and padded on request (STR-13)."""
    here.says.append(turn(testing.reasoning("Hm."), testing.text("Hi")))
    response = here.streamed("Go.")
    path = f"{here.url}/v1/responses/{response['id']}?stream=true"
    with httpx2.Client(timeout=BOUND) as client:
        older = client.get(path, headers={"authorization": f"Bearer {ALICE}", "antiphon-style": "older"}).text
        standard = client.get(path, headers={"authorization": f"Bearer {ALICE}", "antiphon-style": "standard"}).text
    assert "response.reasoning_text.delta" in older
    assert "[DONE]" not in older
    assert "response.reasoning.delta" in standard
    padded = events_in(here.get(f"{response['id']}?stream=true&include_obfuscation=true"))
    assert all(event["obfuscation"] for event in padded if event["type"].endswith(".delta"))
    assert not any("obfuscation" in event for event in events_in(here.get(f"{response['id']}?stream=true")))


SEALED = "reasoning.encrypted_content"


def sealed(here: Lab) -> tuple[str, str]:
    """A response whose server sealed its reasoning, which the client requested: its id, and the sealed content."""
    here.says.append(turn(testing.reasoning("Hm."), testing.text("Hi")))
    response = here.told("Go.", model="other-1", include=[SEALED])
    encrypted = response["output"][0]["encrypted_content"]
    return str(response["id"]), str(encrypted)


def test_sealed_reasoning_is_returned_only_on_request(here: Lab) -> None:
    """RSN-2, API-1: `include` on GET, plain and streamed; independent of the original request."""
    id, encrypted = sealed(here)
    assert "encrypted_content" not in here.get(id).text
    assert "encrypted_content" not in here.get(f"{id}?stream=true").text
    for spelled in ("include", "include[]", "include%5B%5D"):
        assert here.kept(f"{id}?{spelled}={SEALED}")["output"][0]["encrypted_content"] == encrypted
    events = events_in(here.get(f"{id}?stream=true&include={SEALED}&include=x"))
    assert events[-1]["response"]["output"][0]["encrypted_content"] == encrypted
    # It returns to the server that made it, requested or not, and that server accepts it.
    here.told("And?", previous_response_id=id, model="other-1")
    assert [item["encrypted_content"] for item in here.items if item["type"] == "reasoning"] == [encrypted]


def test_sealed_reasoning_in_input_items_is_returned_only_on_request(here: Lab) -> None:
    """RSN-2, API-1."""
    id, encrypted = sealed(here)
    first = here.kept(f"{id}?include={SEALED}")
    second = here.told([*first["output"], message("user", "And?")], model="other-1")
    assert "encrypted_content" not in here.get(f"{second['id']}/input_items").text
    assert encrypted in here.get(f"{second['id']}/input_items?include={SEALED}").text


def test_deleted_response_is_unusable_everywhere(here: Lab) -> None:
    """API-1: it cannot be fetched, listed, continued, referenced or deleted again."""
    here.says.append(turn(testing.text("Hi"), testing.tool_call("call_gone", "f", "{}")))
    response = here.told("Go.", tools=TOOLS)
    answer = here.delete(response["id"])
    assert (answer.status_code, answer.json()) == (200, {"id": response["id"], "object": "response", "deleted": True})
    for gone in (
        here.get(response["id"]),
        here.get(f"{response['id']}?stream=true"),
        here.get(f"{response['id']}/input_items"),
    ):
        error = error_in(gone)
        assert (error["status"], error["code"], error["type"], error["param"]) == (404, "not_found", "not_found", "id")
    assert here.delete(response["id"]).status_code == 404
    assert here.refused("?", previous_response_id=response["id"])["code"] == "previous_response_not_found"
    assert here.refused([{"type": "item_reference", "id": response["output"][0]["id"]}])["param"] == "input[0].id"
    assert here.refused([output("call_gone")], tools=TOOLS)["code"] == "orphan_tool_output"


def test_input_items_are_paged_in_both_orders_from_any_item(here: Lab) -> None:
    """API-1: the input of the request itself, without the chain that it continued."""
    first = here.told("Not listed.")
    items = [message("user", f"{number}", id=f"msg_{number}") for number in range(7)]
    response = here.told(items, previous_response_id=first["id"])
    path = f"{response['id']}/input_items"
    for order in ("asc", "desc"):
        ids = [f"msg_{number}" for number in (range(7) if order == "asc" else range(6, -1, -1))]
        for limit in (1, 3, 100):
            for after in (None, *ids):
                query = f"limit={limit}&order={order}" + (f"&after={after}" if after else "")
                page = here.get(f"{path}?{query}").json()
                rest = ids[ids.index(after) + 1 :] if after else ids
                assert [item["id"] for item in page["data"]] == rest[:limit]
                assert page["object"] == "list"
                assert page["has_more"] == (len(rest) > limit)
                assert (page["first_id"], page["last_id"]) == ((rest[0], rest[:limit][-1]) if rest else (None, None))
    usual = here.get(path).json()
    assert [item["id"] for item in usual["data"]] == [
        f"msg_{number}" for number in range(6, -1, -1)
    ]  # the newest first


def test_input_items_page_has_20_items_by_default(here: Lab) -> None:
    """API-1."""
    response = here.told([message("user", str(number)) for number in range(25)])
    page = here.get(f"{response['id']}/input_items").json()
    assert (len(page["data"]), page["has_more"]) == (20, True)
    rest = here.get(f"{response['id']}/input_items?after={page['last_id']}").json()
    assert (len(rest["data"]), rest["has_more"]) == (5, False)
    assert len({item["id"] for item in page["data"] + rest["data"]}) == 25


def test_listed_input_items_have_the_form_of_the_specification(here: Lab) -> None:
    """API-1: a message that was sent as text has parts, each item an id."""
    response = here.told("Hi")
    [item] = here.get(f"{response['id']}/input_items").json()["data"]
    assert item.pop("id").startswith("msg_")
    assert item == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Hi"}],
    }
    response = here.told(
        [message("user", "a"), message("assistant", "b"), {"type": "acme:note", "text": "c"}, message("user", "d")]
    )
    listed = here.get(f"{response['id']}/input_items?order=asc").json()["data"]
    assert [part["type"] for item in listed if "content" in item for part in item["content"]] == [
        "input_text", "output_text", "input_text",
    ]  # fmt: skip
    assert listed[2]["type"] == "acme:note"
    assert all(item["id"] for item in listed)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=yes", "stream"),
        ("stream=", "stream"),
        ("stream=true&stream=true", "stream"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=x", "starting_after"),
        ("stream=true&starting_after=", "starting_after"),
        ("stream=true&starting_after=99999999999999999999", "starting_after"),
        ("stream=true&starting_after=%D9%A1", "starting_after"),
        ("stream=true&starting_after=1.0", "starting_after"),
        ("starting_after=1", "starting_after"),
        ("stream=false&starting_after=1", "starting_after"),
        ("include_obfuscation=1", "include_obfuscation"),
        ("colour=blue", "colour"),
        ("%00=1", "\0"),
        ("stream=%FF", None),
        ("&".join(["include=x"] * 60), None),
    ],
)
def test_invalid_retrieve_query_is_refused(here: Lab, query: str, param: str | None) -> None:
    """API-1, ERR-3."""
    error = error_in(here.get(f"{NEVER}?{query}"))
    assert (error["status"], error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("order=up", "order"),
        ("order=ASC", "order"),
        ("after=msg_never", "after"),
        ("after=", "after"),
        ("before=x", "before"),
        ("stream=true", "stream"),
    ],
)
def test_invalid_input_items_query_is_refused(here: Lab, query: str, param: str) -> None:
    """API-1, ERR-3."""
    response = here.told("Hi")
    error = error_in(here.get(f"{response['id']}/input_items?{query}"))
    assert (error["status"], error["param"]) == (400, param)


ODD_IDS = [
    *(
        "%00",
        "resp%00",
        "%2F",
        "a%2Fb",
        "..",
        "%2E%2E",
        ".",
        "%20",
        "+",
        "%25",
        "%FF%FE",
        "%ED%A0%80",
        "é",
        "日本語",
        "🎻",
    ),
    *("'", '"', "%22%27--", "{id}", "*", "a" * 1000, "%F0%9F%8E%BB" * 2000, "resp_", "null", "-1", "a;b", "a\\b"),
    *("%0D%0Ax-evil:%201", "input_items", "cancel"),
]


@pytest.mark.parametrize("id", ODD_IDS, ids=lambda id: id[:20])
def test_odd_response_ids_are_answered_as_unknown(here: Lab, id: str) -> None:
    """API-1: NUL, slashes, very long, beyond ASCII: never a 500, never another route."""
    path = id if id.isascii() else quote(id)
    for method, tail in (("GET", ""), ("GET", "?stream=true"), ("DELETE", ""), ("GET", "/input_items")):
        answer = raw(here, method, f"/v1/responses/{path}{tail}")
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.1 405")), answer[:300]
        assert b"x-evil: 1" not in answer.partition(b"\r\n\r\n")[0]
    assert here.refused("Hi", previous_response_id=id)["code"] == "previous_response_not_found"
    assert here.refused([{"type": "item_reference", "id": id}])["param"] == "input[0].id"


def raw(here: Lab, method: str, target: str) -> bytes:
    head = (
        f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ALICE}\r\nconnection: close\r\n\r\n"
    )
    return here.gateway.raw(head.encode())


def test_item_ids_of_clients_may_be_any_text(here: Lab) -> None:
    """ITEM-6: item ids of clients are stored exactly, NUL included, on both stores."""
    for id in ("\0", "msg_\0_\u2028", "日本語", "'; DROP TABLE responses; --", "x" * 3000):
        response = here.told([message("user", "mine", id=id), message("user", "too")])
        listed = here.get(f"{response['id']}/input_items?order=asc").json()["data"]
        assert listed[0]["id"] == id
        assert len(here.get(f"{response['id']}/input_items?order=asc&after={quote(id, safe='')}").json()["data"]) == 1
        here.told([{"type": "item_reference", "id": id}])
        assert here.messages == [("user", "mine")]


def test_response_path_answers_head_and_refuses_other_methods(here: Lab) -> None:
    """API-1: HEAD is GET without its body; OPTIONS and the rest are 405 with the allowed methods."""
    response = here.told("Hi")
    path = f"/v1/responses/{response['id']}"
    got, asked = here.call("GET", path), here.call("HEAD", path)
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["content-length"] == str(len(got.content))
    assert here.call("HEAD", f"/v1/responses/{NEVER}").status_code == 404
    assert here.call("HEAD", f"{path}/input_items").status_code == 200
    for method in ("POST", "PUT", "PATCH", "OPTIONS"):
        for where, allowed in ((path, "DELETE, GET"), (f"{path}/input_items", "GET")):
            answer = here.call(method, where)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert here.call("DELETE", f"{path}/input_items").status_code == 405
    assert here.kept(response["id"]) == response


def test_concurrent_chains_do_not_mix(here: Lab) -> None:
    """PREV-1 under load: no chain ever contains items of another."""

    def chain(name: int) -> None:
        previous: dict[str, Any] = {}
        for number in range(5):
            previous = here.told(f"{name}/{number}", **({"previous_response_id": previous["id"]} if previous else {}))
        asked = [item["content"][0]["text"] for item in here.get(f"{previous['id']}/input_items").json()["data"]]
        assert asked == [f"{name}/4"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(chain, range(8)))
    for received in here.chat.received:
        names = {entry["content"].split("/")[0] for entry in received.json["messages"] if entry["role"] == "user"}
        assert len(names) == 1


def test_gateway_without_store_reports_store_as_a_loss() -> None:
    """API-1: nothing is stored, nothing can be fetched, and a request to store is reported as a loss (F-4)."""
    with lab("off") as here:
        answer = here.ask("Hi", store=True)
        assert (answer.json()["store"], answer.headers["antiphon-losses"]) == (False, "1; store")
        assert "antiphon-losses" not in here.ask("Hi").headers
        for gone in (here.get(answer.json()["id"]), here.delete("x"), here.get("x/input_items")):
            assert error_in(gone)["code"] == "not_found"
        assert here.refused("Hi", previous_response_id=answer.json()["id"])["code"] == "previous_response_not_found"


def test_replayed_events_are_named_by_their_type(here: Lab) -> None:
    """API-1: a replayed stream has valid frames."""
    response = here.told("Hi")
    frames = sse.Decoder().feed(here.get(f"{response['id']}?stream=true").content)
    assert [frame.event for frame in frames[:-1]] == [json.loads(frame.data)["type"] for frame in frames[:-1]]
    assert all(decode_event(frame.data) for frame in frames[:-1])
