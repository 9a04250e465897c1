"""`/v1/responses` over a WebSocket, from socket to socket: WS-1 to WS-10, WS-12, WS-13, and the cases of
docs/errors.md."""

from __future__ import annotations

import gc
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.stateful import (
    CODEX,
    ENDS,
    TOOLS,
    Full,
    Hesitant,
    Lab,
    Talk,
    database_of,
    lab,
    message,
    output,
    text_of,
)
from tests.api.test_responses_http import UNKNOWN_ITEM, event_stream
from tests.api.test_state import has_swept, storage_snapshot
from tests.collecting import nothing_to_collect
from tests.faults.invariants import CHUNKED_HEAD
from tests.running import BOUND, until
from tests.websocket_client import Closed, frame

from antiphon import testing
from antiphon.api.responses_websocket import MAX_QUEUED_BYTES, MAX_QUEUED_MESSAGES, ResponsesConnection
from antiphon.config import Config, TraceConfig
from antiphon.gateway import pipe, run_turn
from antiphon.http.websocket import WebSocket
from antiphon.protocol.grammar import Grammar
from antiphon.testing import Gate, turn
from antiphon.upstream.http import HttpTransport

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
CREATE = {"type": "response.create", "model": "mock-1", "input": "Go."}


@pytest.fixture
def here(shared: Lab) -> Iterator[Lab]:
    """A gateway with a store; the upstream servers must have refused no request, and turns must have left no state
    behind."""
    shared.begin()
    with nothing_to_collect():
        yield shared
    assert shared.chat.refusals == shared.other.refusals == []


# Turns


def test_websocket_turn_has_the_same_events_as_sse(here: Lab) -> None:
    """WS-1, WS-3: the same objects in the same order with the same numbers, one message each; `Talk` checks them."""
    calls = testing.interleaved(testing.tool_call("c1", "f", '{"a":', "1}"), testing.tool_call("c2", "g", "{}"))
    reply = turn(testing.reasoning("Hm", "."), testing.text("A\nb", "\u2028c"), calls, testing.usage(7, 9))
    here.says += [reply, reply]
    with here.socket() as talk:
        events = talk.ask("Go.", tools=TOOLS)
    answer = here.ask("Go.", tools=TOOLS, stream=True)
    frames = [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n") if line.startswith("data: {")]
    assert [bare(event) for event in events] == [bare(event) for event in frames]
    assert here.kept(events[-1]["response"]["id"]) == events[-1]["response"]


def bare(value: Any) -> Any:
    """Without ids and times, which differ between answers."""
    match value:
        case dict():
            passing = {"id", "item_id", "created_at", "completed_at"}
            return {name: bare(member) for name, member in value.items() if name not in passing}
        case list():
            return [bare(member) for member in value]
        case _:
            return value


def test_plain_upstream_answer_is_sent_as_events(here: Lab) -> None:
    """WS-3."""
    here.says.append(turn(testing.text("Whole."), stream=False))
    with here.socket() as talk:
        events = talk.ask("Go.")
    assert text_of(events[-1]["response"]) == "Whole."
    assert "response.output_text.delta" in {event["type"] for event in events}


ODD_MESSAGES = {
    "": "invalid_json",
    "nonsense": "invalid_json",
    "[]": "invalid_json",
    "null": "invalid_json",
    '"response.create"': "invalid_json",
    '{"type":"response.create"': "invalid_json",
    '{"type":"response.create"} x': "invalid_json",
    "\ufeff{}": "invalid_json",
    "{}": "missing_field",
    '{"model":"mock-1","input":"Hi"}': "missing_field",
    '{"type":"response.cancel"}': "invalid_value",
    '{"type":"session.update"}': "invalid_value",
    '{"type":null}': "invalid_value",
    '{"type":7}': "invalid_value",
    '{"type":1e400}': "invalid_value",
    '{"type":["response.create"]}': "invalid_value",
    '{"type":"\\ud800"}': "invalid_unicode",
    '{"type":"response.create","model":"mock-1","input":"\\ud800"}': "invalid_unicode",
    '{"type":"response.create","model":"mock-1","input":7}': "invalid_value",
    '{"type":"response.create","model":"mock-1","input":"Hi","temperature":1e400}': "invalid_value",
    '{"type":"response.create","model":"mock-1","input":[{"type":"message"}]}': "missing_field",
    '{"type":"response.create","model":"mock-1","input":"Hi","tool_choice":"required"}': "invalid_value",
    '{"type":"response.create","model":"nobody-1","input":"Hi"}': "model_not_found",
    '{"type":"response.create","model":"away-1","input":"Hi"}': "upstream_unavailable",
    '{"type":' + "[" * 100_000 + "]" * 100_000 + "}": "json_too_deep",
    '{"type":"response.create","input":' + "[" * 100_000 + "]" * 100_000 + "}": "json_too_deep",
}


@pytest.mark.parametrize(("sent", "code"), ODD_MESSAGES.items(), ids=lambda value: value[:60])
def test_invalid_message_gets_an_error_and_the_socket_stays_usable(here: Lab, sent: str, code: str) -> None:
    """WS-1, WS-10. Input: no JSON, unknown type: an error event, and the socket stays usable."""
    before = len(here.chat.received)
    with here.socket() as talk:
        talk.client.send(sent)
        [event] = talk.events()
        assert (event["type"], event["error"]["code"]) == ("error", code)
        assert event["status"] == {"model_not_found": 404, "upstream_unavailable": 502}.get(code, 400)
        assert len(here.chat.received) == before
        talk.settle()


def test_binary_message_gets_an_error_and_the_socket_stays_usable(here: Lab) -> None:
    """WS-10. Input: binary frame."""
    with here.socket() as talk:
        talk.client.write(frame(2, msgspec.json.encode(CREATE)))
        [event] = talk.events()
        assert (event["status"], event["error"]["code"]) == (400, "invalid_json")
        talk.settle()


@pytest.mark.parametrize(
    "fields",
    [{"stream_options": value} for value in ({}, None, {"include_obfuscation": True})] + [{"background": True}],
)
def test_frame_with_stream_options_or_background_is_refused(here: Lab, fields: dict[str, Any]) -> None:
    """WS-2."""
    with here.socket() as talk:
        error = talk.refused("Go.", **fields)
        assert (error["status"], error["code"], error["param"]) == (400, "invalid_value", *fields)
        talk.settle()


@pytest.mark.parametrize("style", [None, "standard", "older"])
@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"stream": False},
        {"background": False},
        {"stream": True, "background": False},
        {"stream": None},
    ],
)
def test_frame_with_fields_that_change_nothing_is_answered(
    here: Lab, fields: dict[str, Any], style: str | None
) -> None:
    """WS-2: every turn on a WebSocket is sent as events, whatever `stream` says."""
    with here.socket(*([("antiphon-style", style)] if style else [])) as talk:
        talk.send("Go.", **fields)
        events = [talk.client.receive_json()]
        while events[-1]["type"] not in ENDS:
            events.append(talk.client.receive_json())
        assert events[-1]["type"] == "response.completed"
        assert events[-1]["response"]["background"] is False
        assert "response.output_text.delta" in {event["type"] for event in events}


@pytest.mark.parametrize("fields", [{"stream": "yes"}, {"stream": {}}, {"background": 1}])
def test_frame_with_ignored_field_of_wrong_type_is_refused(here: Lab, fields: dict[str, Any]) -> None:
    """WS-2."""
    with here.socket() as talk:
        error = talk.refused("Go.", **fields)
        assert (error["status"], error["param"]) == (400, *fields)
        talk.settle()


@pytest.mark.parametrize(
    ("style", "name"), [(None, "reasoning_text"), ("standard", "reasoning"), ("older", "reasoning_text")]
)
def test_socket_names_reasoning_events_by_style(here: Lab, style: str | None, name: str) -> None:
    """API-6, STR-10."""
    here.says.append(turn(testing.reasoning("Hm."), testing.text("Hi")))
    with here.socket(*([("antiphon-style", style)] if style else [])) as talk:
        kinds = [event["type"] for event in talk.ask("Go.")]
    assert [kind for kind in kinds if kind.startswith("response.reasoning")] == [
        f"response.{name}.delta",
        f"response.{name}.done",
    ]


def test_socket_refuses_style_that_does_not_exist_with_every_turn(here: Lab) -> None:
    """API-6, WS-10."""
    with here.socket(("antiphon-style", "newest")) as talk:
        for _ in range(2):
            assert talk.refused("Go.")["param"] == "antiphon-style"


def test_losses_event_is_sent_on_request(here: Lab) -> None:
    """F-4."""
    with here.socket(("antiphon-extensions", "losses")) as talk:
        events = talk.ask("Go.", tools=[{"type": "web_search"}])
    assert events[-2]["type"] == "antiphon:losses"
    assert [loss["path"] for loss in events[-2]["losses"]] == ["tools[0]"]


# Ends


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (testing.error(429, headers={"retry-after": "7"}), 429, "rate_limit_exceeded"),
        (testing.error(500), 502, "upstream_error"),
        (testing.error(401, "bad key"), 502, "upstream_auth_failed"),
        (testing.exactly(testing.SSE_HEAD, b"data: not json\n\n"), 502, "upstream_invalid_response"),
        (testing.exactly(testing.end("rst")), 502, "upstream_disconnected"),
    ],
)
def test_failure_before_the_first_event_is_one_error_event(here: Lab, reply: Any, status: int, code: str) -> None:
    """WS-3, WS-10."""
    here.says += [reply, reply]  # a pooled connection that the server has closed is replaced once
    with here.socket() as talk:
        error = talk.refused("Go.")
        assert (error["status"], error["code"]) == (status, code)
        here.says.clear()
        talk.settle()


@pytest.mark.parametrize(
    "ending", [testing.end("rst"), testing.end("mid-chunk"), testing.raw(b'data: {"error":{"message":"oh"}}\n\n')]
)
def test_failure_after_the_first_event_is_response_failed_alone(here: Lab, ending: Any) -> None:
    """WS-3: no `error` before it and no gap in the numbers; the stored response equals the sent one."""
    gate = Gate()
    here.says.append(turn(testing.text("Hel"), testing.wait(gate), ending, omit=["finish", "usage", "done"]))
    with here.socket() as talk:
        talk.send("Go.")
        first_delta = talk.until("response.output_text.delta")
        gate.open()
        events = talk.events_to_end()
        assert [event["sequence_number"] for event in events] == [
            first_delta["sequence_number"] + 1 + at for at in range(len(events))
        ]
        assert events[-1]["type"] == "response.failed"
        assert "error" not in {event["type"] for event in events}
        failed = events[-1]["response"]
        assert here.kept(failed["id"]) == failed
        talk.settle()


class Broken(HttpTransport):
    """A transport with a bug for one model."""

    async def send(self, *args: Any, **settings: Any) -> Any:
        answer = await super().send(*args, **settings)
        return _BreaksOff() if b"broken" in args[3] else answer


class _BreaksOff:
    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    async def pieces(self) -> Any:
        yield b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
        raise ZeroDivisionError

    def abort(self) -> None:
        pass


def test_internal_error_ends_the_turn_with_response_failed() -> None:
    """WS-3, ERR-5: after `response.created` the response fails, and it is stored as failed."""
    with lab(transport=Broken({}), has_a_fault=True) as here, here.socket() as talk:
        end = talk.ask("Go.", model="mock-broken")[-1]
        assert (end["type"], end["response"]["error"]["code"]) == ("response.failed", "internal_error")
        assert "Zero" not in str(end)
        assert here.kept(end["response"]["id"]) == end["response"]
        talk.settle()


# Order of turns


def test_queued_turns_run_in_order(here: Lab) -> None:
    """WS-4: one at a time, more of them than may wait; none is lost and none starts before the previous one has
    ended."""
    count = 3 * MAX_QUEUED_MESSAGES
    here.says += [turn(testing.text(f"answer {number}")) for number in range(count)]
    with here.socket() as talk:
        for number in range(count):
            talk.send(f"question {number}")
        ends = [talk.events()[-1]["response"] for _ in range(count)]
    assert [text_of(end) for end in ends] == [f"answer {number}" for number in range(count)]
    asked = [received.json["messages"][0]["content"] for received in here.chat.received]
    assert asked == [f"question {number}" for number in range(count)]


def test_only_one_turn_runs_at_a_time(here: Lab) -> None:
    """WS-4: while one turn runs, the next has not been sent upstream."""
    gate = Gate()
    here.says.append(turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")))
    with here.socket() as talk:
        talk.send("One")
        talk.send("Two")
        gate.wait_reached(BOUND)
        talk.client.ping(b"read?")
        talk.client.wait_for_pong(b"read?")
        assert len(here.chat.received) == 1
        gate.open()
        assert [len(talk.events()) > 5 for _ in range(2)] == [True, True]


def test_queued_turns_are_limited_in_bytes() -> None:
    """A bounded queue: eight messages of the largest size would be half a gigabyte."""
    gate = Gate()
    large = "x" * (MAX_QUEUED_BYTES // 2)
    with lab() as here, here.socket() as talk:
        here.says.append(turn(testing.wait(gate), testing.text("At last.")))
        talk.send("One")
        gate.wait_reached(BOUND)
        for _ in range(4):
            talk.send(large)
        until(lambda: len(conversations()) == 1)
        [conversation] = conversations()
        until(lambda: len(conversation._queued_messages) == 2)
        here.gateway.get("/health")
        assert len(conversation._queued_messages) == 2
        gate.open()
        assert text_of(talk.events()[-1]["response"]) == "At last."
        assert [text_of(talk.events()[-1]["response"]) for _ in range(4)] == ["Hello."] * 4


def conversations() -> list[ResponsesConnection]:
    """The connections that are open in this process."""
    return [
        candidate
        for candidate in gc.get_objects()
        if isinstance(candidate, ResponsesConnection) and not candidate.is_closed
    ]


# Connection memory


def test_unstored_chain_continues_in_the_memory_of_the_connection() -> None:
    """WS-5, PREV-4: storage is not written: file, log and every row are unchanged."""
    with lab() as here:
        here.told("Something that is stored.")
        until(lambda: has_swept(here))
        before = storage_snapshot(here)
        with here.socket() as talk:
            here.says += [turn(testing.text("Yes."), testing.tool_call("c1", "f", "{}")), turn(testing.text("42."))]
            first = talk.told("One", store=False, tools=TOOLS)
            second = talk.told([output("c1")], store=False, previous_response_id=first["id"], tools=TOOLS)
            assert [role for role, _ in here.messages] == ["user", "assistant", "tool"]
            third = talk.told("Three", store=False, previous_response_id=second["id"])
            assert [role for role, _ in here.messages] == ["user", "assistant", "tool", "assistant", "user"]
            assert (third["store"], third["previous_response_id"]) == (False, second["id"])
        until(lambda: conversations() == [])
        assert storage_snapshot(here) == before
        for id in (first["id"], second["id"], third["id"]):
            assert here.get(id).status_code == 404
        assert here.chat.refusals == []
        assert database_of(here.gateway).exists()


def test_connection_memory_contains_only_the_newest_response(here: Lab) -> None:
    """WS-5, WS-6."""
    with here.socket() as talk:
        first = talk.told("One", store=False)
        second = talk.told("Two", store=False)
        refused = talk.refused("Three", store=False, previous_response_id=first["id"])
        assert (refused["status"], refused["code"]) == (400, "previous_response_not_found")
        talk.told("Three", store=False, previous_response_id=second["id"])


def test_unstored_turn_continues_only_the_memory_of_its_connection(here: Lab) -> None:
    """WS-6: an id that is not in the memory of this connection, stored or not, here or on another connection."""
    stored = here.told("One")
    with here.socket() as talk, here.socket() as other:
        elsewhere = other.told("Two", store=False)
        for id in (stored["id"], elsewhere["id"], "resp_never"):
            error = talk.refused("Three", store=False, previous_response_id=id)
            assert (error["status"], error["code"]) == (400, "previous_response_not_found")
            assert error["param"] == "previous_response_id"
        other.told("Three", store=False, previous_response_id=elsewhere["id"])


def test_failed_continuation_evicts_its_previous_response(here: Lab) -> None:
    """WS-7: 4xx and 5xx, before the first event and after it; a retry fails with `previous_response_not_found`."""
    failures: list[tuple[Any, dict[str, Any]]] = [
        (testing.error(500), {}),
        (testing.error(429), {}),
        (turn(testing.text("Hel"), testing.end("rst")), {}),
        (None, {"temperature": "hot"}),
        (None, {"model": "nobody-1"}),
        (None, {"input": [output("c_never")]}),
    ]
    for reply, settings in failures:
        with here.socket() as talk:
            first = talk.told("One", store=False)
            here.says += [reply] if reply else []
            given = {"input": "Two", "store": False, "previous_response_id": first["id"], **settings}
            assert talk.ask(given.pop("input"), **given)[-1]["type"] in ("error", "response.failed")
            refused = talk.refused("Two", store=False, previous_response_id=first["id"])
            assert refused["code"] == "previous_response_not_found", settings
            talk.settle()


def test_failure_without_reference_evicts_no_response(here: Lab) -> None:
    """WS-7."""
    with here.socket() as talk:
        first = talk.told("One", store=False)
        here.says.append(testing.error(500))
        talk.refused("Another conversation.", store=False)
        talk.refused("And another.", store=False, previous_response_id="resp_never")
        talk.told("Two", store=False, previous_response_id=first["id"])


def test_stored_response_can_be_continued_on_any_connection(here: Lab) -> None:
    """WS-8: from HTTP to WebSocket, to another, and back; also after a failure (WS-7 concerns the memory of the
    connection)."""
    first = here.told("One")
    with here.socket() as talk:
        second = talk.told("Two", previous_response_id=first["id"])
    with here.socket() as talk:
        third = talk.told("Three", previous_response_id=second["id"])
        here.says.append(testing.error(500))
        talk.refused("Four", previous_response_id=third["id"])
        talk.told("Four", previous_response_id=third["id"])
    here.told("Four", previous_response_id=third["id"])
    assert [text for role, text in here.messages if role == "user"] == ["One", "Two", "Three", "Four"]
    assert here.kept(third["id"]) == third


def test_chain_continues_after_store_is_turned_off(here: Lab) -> None:
    """WS-5: the newest response is in the memory of the connection, stored or not."""
    with here.socket() as talk:
        first = talk.told("One")
        second = talk.told("Two", store=False, previous_response_id=first["id"])
        talk.told("Three", store=False, previous_response_id=second["id"])
        assert [text for role, text in here.messages if role == "user"] == ["One", "Two", "Three"]


def test_chain_with_unstored_start_is_complete_only_on_its_connection(here: Lab) -> None:
    """WS-5, PREV-3: an unstored response is not in storage, so on another connection the chain is incomplete and
    refused."""
    with here.socket() as talk:
        first = talk.told("One", store=False)
        second = talk.told("Two", previous_response_id=first["id"])
        assert here.kept(second["id"]) == second
        assert here.refused("Three", previous_response_id=second["id"])["code"] == "previous_response_not_found"
        third = talk.told("Three", previous_response_id=second["id"])
        talk.told("Four", store=False, previous_response_id=third["id"])
        assert [text for role, text in here.messages if role == "user"] == ["One", "Two", "Three", "Four"]


def test_deleted_response_is_evicted_from_the_connection(here: Lab) -> None:
    """PREV-3: with either value of `store` for the next turn."""
    for store in (True, False):
        with here.socket() as talk:
            first = talk.told("One")
            assert here.delete(first["id"]).status_code == 200
            error = talk.refused("Two", previous_response_id=first["id"], store=store)
            assert error["code"] == "previous_response_not_found"


def test_warm_up_stores_the_input_without_an_upstream_call(here: Lab) -> None:
    """`generate: false`: later turns send only new input. Stored or not, also as Codex does it."""
    for settings in ({"store": False}, {}):
        with here.socket(CODEX) as talk:
            here.chat.received.clear()
            events = talk.ask("A long prompt.", generate=False, instructions="Be brief.", tools=TOOLS, **settings)
            assert [event["type"] for event in events] == [
                "response.created",
                "response.in_progress",
                "response.completed",
            ]
            warm = events[-1]["response"]
            assert (warm["status"], warm["output"]) == ("completed", [])
            assert here.chat.received == []
            response = talk.told(
                "Now.", previous_response_id=warm["id"], instructions="Be brief.", tools=TOOLS, **settings
            )
            assert here.messages == [("system", "Be brief."), ("user", "A long prompt."), ("user", "Now.")]
            talk.told("On.", previous_response_id=response["id"], **settings)
            assert [text for role, text in here.messages if role == "user"] == ["A long prompt.", "Now.", "On."]


def test_invalid_warm_up_is_refused(here: Lab) -> None:
    with here.socket() as talk:
        assert talk.refused("x", generate=False, model="nobody-1")["code"] == "model_not_found"
        assert (
            talk.refused("x", generate=False, previous_response_id="resp_never")["code"]
            == "previous_response_not_found"
        )
        talk.settle()


@pytest.mark.parametrize("store", [True, False])
def test_orphan_tool_output_fails_the_turn(here: Lab, store: bool) -> None:
    """WS-13: `orphan_tool_output` without an upstream call; D-3: without a chain the call is looked up among stored
    responses."""
    here.says.append(turn(testing.tool_call("call_elsewhere", "f", "{}")))
    here.told("Elsewhere.", tools=TOOLS)
    with here.socket() as talk:
        here.says.append(turn(testing.tool_call("call_here", "f", "{}")))
        first = talk.told("One", tools=TOOLS, store=store)
        asked = len(here.chat.received)
        error = talk.refused([output("call_elsewhere")], previous_response_id=first["id"], tools=TOOLS, store=store)
        assert (error["status"], error["code"], error["param"]) == (400, "orphan_tool_output", "input[0].call_id")
        assert len(here.chat.received) == asked
        if store:
            talk.told([message("user", "Here:"), output("call_here")], tools=TOOLS)


# Stored before sent


def test_completion_is_sent_only_after_the_response_is_stored() -> None:
    """A response that a client saw completed is never lost; a failure is also stored before it is sent."""
    with lab(wrap=Hesitant) as here, here.socket() as talk:
        store: Any = here.store
        talk.send("Go.")
        assert talk.until("response.output_item.done")
        assert store.asked.wait(BOUND)
        talk.client.ping(b"1")
        talk.client.wait_for_pong(b"1")
        assert talk.client._messages == []
        store.let()
        assert talk.events_to_end()[-1]["type"] == "response.completed"
        [record] = store.saved
        assert here.kept(record.id)["status"] == "completed"


def test_failure_is_sent_only_after_it_is_stored() -> None:
    with lab(wrap=Hesitant) as here, here.socket() as talk:
        store: Any = here.store
        here.says.append(turn(testing.text("Hel"), testing.end("rst")))
        talk.send("Go.")
        assert talk.until("response.output_text.delta")
        assert store.asked.wait(BOUND)
        talk.client.ping(b"1")
        talk.client.wait_for_pong(b"1")
        assert talk.client._messages == []
        store.let()
        failed = talk.events_to_end()[-1]
        assert here.kept(failed["response"]["id"]) == failed["response"]


def test_storage_failure_fails_the_turn_and_evicts_the_previous_response() -> None:
    """Storage; WS-3: `response.failed` alone; WS-7; and `store: false` still works."""
    with lab(wrap=Full, has_a_fault=True) as here, here.socket() as talk:
        first = talk.told("One", store=False)
        end = talk.ask("Two", previous_response_id=first["id"])[-1]
        assert (end["type"], end["response"]["error"]["code"]) == ("response.failed", "storage_unavailable")
        assert (
            talk.refused("Three", store=False, previous_response_id=first["id"])["code"]
            == "previous_response_not_found"
        )
        assert talk.ask("x", generate=False)[-1]["type"] == "response.failed"
        assert text_of(talk.told("Four", store=False)) == "Hello."
        assert here.count() == 0


# Ends of connections


def test_connection_lifetime_ends_with_an_error_and_a_close() -> None:
    """WS-9: with a lifetime of less than a second."""
    with lab(websocket_lifetime=0.2) as here, here.socket() as talk:
        [event] = talk.events()
        assert (event["status"], event["error"]["code"]) == (400, "websocket_connection_limit_reached")
        assert talk.client.end() == Closed(1000, "websocket_connection_limit_reached")


def test_connection_lifetime_lets_the_running_turn_end_and_refuses_queued_turns() -> None:
    """WS-9, WS-3: an end for each turn."""
    gate = Gate()
    with lab(websocket_lifetime=0.2) as here, here.socket() as talk:
        here.says.append(turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")))
        talk.send("One")
        talk.until("response.output_text.delta")
        talk.send("Two")
        talk.send("Three")
        until(lambda: len(conversations()) == 1)
        [conversation] = conversations()
        until(lambda: conversation._stop_error is not None)
        talk.send("Four")
        talk.client.ping(b"1")
        talk.client.wait_for_pong(b"1")
        gate.open()
        assert talk.events_to_end()[-1]["type"] == "response.completed"
        assert [talk.events()[0]["error"]["code"] for _ in range(3)] == ["websocket_connection_limit_reached"] * 3
        assert talk.client.end().code == 1000
        assert len(here.chat.received) == 1


@pytest.mark.parametrize("store", [True, False])
def test_shutdown_fails_running_turns_and_closes_connections(store: bool) -> None:
    """Invariant 1; 1001 for an idle connection, `response.failed` for a running turn."""

    def hasty(config: Config) -> Config:
        return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, grace=0.3))

    gate = Gate()
    with lab(config=hasty) as here, here.socket() as talk, here.socket() as idle, here.socket() as early:
        here.says += [turn(testing.text("Hel"), testing.wait(gate)), turn(testing.wait(gate))]
        talk.send("Go.", store=store)
        talk.until("response.output_text.delta")
        early.send("Go.", store=store)
        here.chat.wait_received(2, BOUND)
        sockets = [here.gateway.services.process.requests_in_flight]
        assert sockets == [2]
        lab_ends = [talk, idle, early]
        stop(here)
        failed = talk.events_to_end()[-1]
        assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "server_shutdown")
        assert early.events()[0]["error"]["code"] == "server_shutdown"
        assert [talk.client.end().code for talk in lab_ends] == [1001] * 3


def stop(here: Lab) -> None:
    """Stop the server as a signal would."""
    sockets = [
        server_socket
        for server_socket in gc.get_objects()
        if isinstance(server_socket, WebSocket) and server_socket._state == "open"
    ]
    for server_socket in sockets:
        here.opened.loop.call_soon_threadsafe(server_socket.shutdown)


def leave_politely(talk: Talk) -> None:
    talk.client.close()


def leave(talk: Talk) -> None:
    talk.client.connection.close()


def reset(talk: Talk) -> None:
    talk.client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    talk.client.connection.close()


def break_the_protocol(talk: Talk) -> None:
    talk.client.write(b"\xff" * 100)
    while talk.client.closed is None:
        talk.client._read()


@pytest.mark.parametrize("go", [leave_politely, leave, reset, break_the_protocol])
@pytest.mark.parametrize(
    ("element", "seen"),
    [
        (None, None),
        (testing.text("Hel"), "response.output_text.delta"),
        (testing.tool_call("c1", "f", '{"a":'), "response.function_call_arguments.delta"),
    ],
    ids=["before the first byte", "in the middle", "during arguments"],
)
def test_disconnect_cancels_the_upstream_and_stores_one_record(
    here: Lab, go: Callable[[Talk], None], element: Any, seen: str | None
) -> None:
    """WS-12; one record with a terminal status, and no waiting turn is started."""
    gate = Gate()
    here.says.append(turn(*([element] if element else []), testing.wait(gate), testing.text("never")))
    before, abandoned, lines = here.count(), here.chat.abandoned, len(here.gateway.requests(0))
    with here.socket() as talk:
        talk.send("Go.", tools=TOOLS)
        talk.send("Never begun.")
        gate.wait_reached(BOUND)
        if seen:
            talk.until(seen)
        talk.client._messages.clear()
        go(talk)
    here.chat.wait_disconnected(abandoned + 1, BOUND)
    line = here.gateway.requests(lines + 1)[-1]
    assert line["client_left"]
    stored = here.kept(line["response_id"])
    assert (stored["status"], stored["error"]["code"]) == ("failed", "client_disconnected")
    assert here.count() == before + 1
    if element is not None:
        assert stored["output"][0]["status"] == "incomplete"
    until(lambda: here.gateway.services.process.requests_in_flight == 0)
    assert len(here.chat.received) == 1


def test_disconnect_during_storage_leaves_one_record() -> None:
    """It is stored once, as it ended, although no client receives it."""
    with lab(wrap=Hesitant) as here:
        store: Any = here.store
        with here.socket() as talk:
            talk.send("Go.")
            assert store.asked.wait(BOUND)
        until(lambda: conversations() == [])
        store.let()
        [line] = here.gateway.requests(1)
        assert (line["client_left"], here.count()) == (True, 1)
        assert here.kept(line["response_id"])["status"] == "completed"


def test_disconnect_of_an_unstored_turn_leaves_no_record(here: Lab) -> None:
    """WS-12, PREV-4."""
    gate = Gate()
    here.says.append(turn(testing.text("Hel"), testing.wait(gate)))
    before, lines = here.count(), len(here.gateway.requests(0))
    with here.socket() as talk:
        talk.send("Go.", store=False)
        talk.until("response.output_text.delta")
    here.gateway.requests(lines + 1)
    assert here.count() == before


# Large messages and slow clients


def test_slow_client_pauses_reading_from_the_upstream() -> None:
    """Client: at most 256 KiB are buffered here, so the upstream cannot have sent everything; then all of it
    arrives."""
    big = "x" * 65536
    with lab() as here, here.socket() as talk:
        here.says.append(turn(*[testing.text(big)] * 250))
        until(lambda: len(conversations()) == 1)
        [conversation] = conversations()
        talk.send("Go.", store=False)
        until(lambda: conversation.socket.is_write_paused)
        for _ in range(3):
            assert here.gateway.get("/health").status_code == 200  # other clients are unaffected
        assert here.chat.in_flight == 1
        assert waiting_in(here, conversation) < 256 * 1024
        kinds = (b'"type":"response.output_text.delta"', b'"type":"response.completed"')
        counts, data = [0, 0], b""
        while not counts[1]:
            data = data[-len(kinds[1]) + 1 :] + talk.client.connection.recv(1 << 20)
            counts = [count + data.count(kind) for count, kind in zip(counts, kinds, strict=True)]
    assert counts == [250, 1]


def test_shutdown_delivers_all_buffered_events_to_a_slow_client() -> None:
    """STR-5: no gap in the numbers, although the end comes while a piece waits for the client."""
    gate = Gate()
    with lab() as here, here.socket() as talk:
        here.says.append(turn(*[testing.text("x" * 65536)] * 250, testing.wait(gate)))
        until(lambda: len(conversations()) == 1)
        [conversation] = conversations()
        talk.send("Go.", store=False)
        until(lambda: conversation.socket.is_write_paused)
        running = conversation._turn_task
        assert running is not None
        here.opened.loop.call_soon_threadsafe(running.cancel)
        end = talk.events()[-1]
        assert end["response"]["error"]["code"] == "server_shutdown"


def waiting_in(here: Lab, conversation: ResponsesConnection) -> int:
    async def size() -> int:
        return conversation.socket._transport.get_write_buffer_size()

    return here.run(size())


def test_client_that_reads_no_errors_gets_a_bounded_number() -> None:
    """Bounded answers to endless invalid messages: a client that does not read gets no further answers."""
    with lab() as here, here.socket(small_buffer=True) as talk:
        until(lambda: len(conversations()) == 1)
        [conversation] = conversations()
        for _ in range(50):
            talk.client.write(frame(1, b"x") * 2000)
        until(lambda: conversation.socket.is_write_paused)
        lines = len(here.gateway.requests(0))
        for _ in range(3):
            here.gateway.get("/health")
        assert len(here.gateway.requests(lines + 3)) == lines + 3
        assert waiting_in(here, conversation) < 256 * 1024


def test_message_may_be_as_large_as_the_largest_request() -> None:
    """Input: 32 MiB of `file_data` are accepted on WebSocket as on HTTP."""
    data = "data:application/pdf;base64,".ljust(32 * 1024 * 1024, "A")
    part = {"type": "input_file", "filename": "x.pdf", "file_data": data}
    with lab() as here, here.socket() as talk:
        here.chat.received.clear()
        first = talk.told([{"role": "user", "content": [part]}], store=False)
        talk.told("And?", store=False, previous_response_id=first["id"])
        assert len(here.chat.received[-1].body) > 32 * 1024 * 1024
        talk.settle()


def test_message_over_the_limit_closes_with_1009(here: Lab) -> None:
    """Input: body over the limit; the close code is 1009."""
    with here.socket() as talk:
        talk.client.write(b"\x81\xff" + (65 * 1024 * 1024).to_bytes(8) + b"\0\0\0\0")
        assert talk.client.end().code == 1009


def test_upstream_connection_is_reused_between_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is reused although the turn ended before its last byte."""
    monkeypatch.setattr(run_turn, "DRAIN_TIMEOUT", BOUND)  # enough time for a slow machine
    gate = Gate()
    data = b'data: {"choices":[{"delta":{"content":"Hello."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    with lab() as here, here.socket() as talk:
        network = here.gateway.services.transport
        assert isinstance(network, HttpTransport)
        here.says.append(
            testing.exactly(CHUNKED_HEAD, b"%x\r\n%b\r\n" % (len(data), data), testing.wait(gate), b"0\r\n\r\n")
        )
        talk.told("One")
        gate.open()
        until(lambda: network.connections_in_use == 0)
        talk.told("Two")
        until(lambda: network.connections_in_use == 0)
        assert (here.chat.open_connections, here.chat.abandoned) == (1, 0)


def test_next_turn_does_not_wait_for_an_upstream_body_without_end() -> None:
    data = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    gate = Gate()
    with lab() as here, here.socket() as talk:
        here.says.append(testing.exactly(testing.SSE_HEAD, data, testing.wait(gate)))
        first = talk.told("One")
        gate.wait_reached(BOUND)
        talk.told("Two", previous_response_id=first["id"])
        here.chat.wait_disconnected(1, BOUND)


# Logs and traces


def test_every_turn_is_logged(here: Lab) -> None:
    """HTTP-8."""
    lines = len(here.gateway.requests(0))
    with here.socket() as talk:
        response = talk.told("Go.")
        talk.client.send("nonsense")
        talk.events()
        first, second = here.gateway.requests(lines + 2)[-2:]
    assert (first["method"], first["path"], first["status"], first["owner"]) == (
        "WEBSOCKET",
        "/v1/responses",
        200,
        "alice",
    )
    assert (first["response_id"], first["input_tokens"], first["upstream"]) == (response["id"], 5, "chat")
    assert (second["status"], second["error"]) == (400, "invalid_json")
    assert first["request_id"] != second["request_id"]


def test_debug_mode_checks_our_output_against_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve --debug`: as on HTTP, a violation of the grammar is logged."""
    monkeypatch.setattr(pipe, "Grammar", lambda **_: Grammar())
    with lab(condoned={"ITEM-5", "STR-2"}) as here, here.socket() as talk:
        here.says.append(testing.exactly(testing.SSE_HEAD, event_stream(UNKNOWN_ITEM), testing.end("fin")))
        talk.send("Go.", model="other-1")
        assert talk.events_to_end()[-1]["response"]["output"][0]["type"] == "thing"
        [line] = here.gateway.requests(1)
        violations = [line for line in here.gateway.log if line["event"] == "grammar_violation"]
    assert {violation["row"] for violation in violations} == {"ITEM-5", "STR-2"}
    assert {violation["request_id"] for violation in violations} == {line["request_id"]}


def test_every_turn_is_traced(tmp_path: Path) -> None:
    def traced(config: Config) -> Config:
        return msgspec.structs.replace(config, trace=TraceConfig(dir=str(tmp_path)))

    with lab(config=traced) as here, here.socket() as talk:
        response = talk.told("Go.")
        talk.client.send("nonsense")
        talk.events()
        talk.refused("Go.", model="away-1")
        here.gateway.requests(3)
    traces = [file.read_text() for file in sorted(tmp_path.glob("**/*.jsonl"))]
    assert len(traces) == 3
    [whole] = [trace for trace in traces if response["id"] in trace]
    assert "response.completed" in whole
    assert "alice-key" not in "".join(traces)


def test_connection_memory_works_without_a_store() -> None:
    """WS-5: with a gateway that has no store."""
    with lab("off") as here, here.socket() as talk:
        first = talk.told("One")
        assert first["store"] is False
        talk.told("Two", previous_response_id=first["id"])
        assert [text for role, text in here.messages if role == "user"] == ["One", "Two"]


def test_closed_connection_leaves_no_objects_and_no_requests(here: Lab) -> None:
    """Invariant 4: no connection object and no task remain, and waiting turns are dropped."""
    with here.socket() as talk:
        talk.told("One", store=False)
        talk.send("Two", store=False)
    until(lambda: conversations() == [] and here.gateway.services.process.requests_in_flight == 0)
    gc.collect()
    assert [candidate for candidate in gc.get_objects() if isinstance(candidate, ResponsesConnection)] == []
