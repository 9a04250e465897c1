"""Incomplete servers one by one: each test shows one behaviour and its normalized result."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dialects.responses.upstreams import (
    REQUEST,
    ReadResult,
    frame_of,
    read_events,
    read_frames,
    reader,
    stable_fields,
)
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.responses import ResponsesWire, response_to_hub
from antiphon.errors import UpstreamFault
from antiphon.protocol.content import UnknownAnnotation
from antiphon.protocol.events import AnnotationAdded, ItemDone, ResponseCompleted
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Reasoning
from antiphon.protocol.response import make_initial_response

CREATED = {"type": "response.created", "response": {}}
COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}
TEXT: dict[str, Any] = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}


def added(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def read(*events: dict[str, Any], wire: ResponsesWire = ResponsesWire()) -> ReadResult:  # noqa: B008
    result = read_events(events, wire)
    assert find_violations(result.events) == []
    return result


def output(result: ReadResult) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = stable_fields(result.response)["output"]
    return items


def losses(result: ReadResult) -> str:
    return "\n".join(str(loss) for loss in result.losses)


def test_item_that_ends_as_another_type_is_another_item() -> None:
    """STR-4: a whole item cannot change its type between its events."""
    thing = {"type": "acme:thing", "id": "a", "status": "in_progress"}
    search = {"type": "web_search_call", "id": "b", "status": "completed"}
    result = read(CREATED, added(thing), done(search), COMPLETED)
    assert [item["type"] for item in output(result)] == ["acme:thing", "web_search_call"]


def test_whole_items_with_one_index_and_no_id_are_all_kept() -> None:
    """A server that numbers every item as the first and sends no ids; only an equal item is a repetition."""
    other = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
    calls = [{"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} for id in ("c1", "c2")]
    done_events = [
        done(thought),
        done(thought),
        done(TEXT),
        done(TEXT),
        done(other),
        *(done(call) for call in (*calls, calls[1])),
    ]
    result = read(CREATED, *done_events, COMPLETED)
    assert [item["type"] for item in output(result)] == [
        "reasoning",
        "message",
        "message",
        "function_call",
        "function_call",
    ]


@pytest.mark.parametrize("event", [added({"id": "x"}), done({"id": "x"})])
def test_item_event_without_a_type_is_a_loss(event: dict[str, Any]) -> None:
    result = read(CREATED, event, done(TEXT), COMPLETED)
    assert "an item without a type" in losses(result)
    assert [item["type"] for item in output(result)] == ["message"]


def test_item_without_a_type_in_the_terminal_event_is_a_loss() -> None:
    result = read(
        CREATED, {"type": "response.completed", "response": {"status": "completed", "output": [{"id": "x"}, TEXT]}}
    )
    assert "an item without a type" in losses(result)
    assert len(output(result)) == 1


def test_item_without_a_type_is_recognised_by_its_members() -> None:
    message = {"role": "assistant", "content": "Hi"}
    call = {"name": "f", "call_id": "c", "arguments": "{}"}
    result = read(CREATED, done(message), done(call, 1), COMPLETED)
    assert [item["type"] for item in output(result)] == ["message", "function_call"]


def test_changed_call_name_is_a_loss() -> None:
    """STR-2: a call keeps the name of its `added` event."""
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "one", "arguments": ""}
    result = read(CREATED, added(call), done({**call, "name": "two", "arguments": "{}"}), COMPLETED)
    assert output(result)[0]["name"] == "one"
    assert "'two'" in losses(result)


def test_arguments_after_the_end_of_a_call_are_a_loss() -> None:
    """ITEM-4"""
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "one", "arguments": "{}"}
    late = {"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 0, "delta": "late"}
    result = read(CREATED, added(call), done(call), late, COMPLETED)
    assert output(result)[0]["arguments"] == "{}"
    assert "output after the end of the item" in losses(result)


def test_unknown_phase_is_a_loss() -> None:
    """ITEM-7"""
    result = read(CREATED, done({**TEXT, "phase": "prelude"}), COMPLETED)
    assert "'prelude'" in losses(result)
    assert "phase" not in output(result)[0]


def test_unsupported_part_is_a_loss() -> None:
    item = {"type": "message", "id": "m", "role": "assistant", "content": []}
    part = {"type": "response.content_part.added", "item_id": "m", "output_index": 0, "part": {"type": "hologram"}}
    ended = {**part, "type": "response.content_part.done"}
    result = read(CREATED, added(item), part, ended, done({**TEXT, "id": "m"}), COMPLETED)
    assert "'hologram'" in losses(result)
    assert output(result)[0]["content"][0]["text"] == "Hi"


def test_unsupported_part_in_a_final_message_is_a_loss() -> None:
    item = {"type": "message", "id": "m", "role": "assistant", "content": []}
    final = {**TEXT, "id": "m", "content": [*TEXT["content"], {"type": "hologram"}]}
    result = read(CREATED, added(item), done(final), COMPLETED)
    assert "'hologram'" in losses(result)


def test_unknown_fields_of_a_streamed_part_are_kept() -> None:
    """ITEM-5"""
    final = {**TEXT, "content": [{**TEXT["content"][0], "parsed": {"a": 1}}]}
    result = read(
        CREATED, done(final), done({"type": "message", "role": "assistant", "content": "plain"}, 1), COMPLETED
    )
    assert result.losses == []
    assert output(result)[0]["content"][0]["parsed"] == {"a": 1}


def test_part_without_a_type_gets_the_type_of_its_item() -> None:
    item = {"type": "reasoning", "id": "r", "summary": []}
    part = {
        "type": "response.content_part.added",
        "item_id": "r",
        "output_index": 0,
        "content_index": 0,
        "part": {"text": ""},
    }
    delta = {"type": "response.reasoning.delta", "item_id": "r", "output_index": 0, "content_index": 0, "delta": "Hm"}
    result = read(CREATED, added(item), part, delta, done({**item}), COMPLETED)
    assert output(result)[0]["content"] == [{"type": "reasoning_text", "text": "Hm"}]


def test_reasoning_that_is_sealed_anew_in_the_last_event_passes() -> None:
    """RSN-1"""
    item = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "one"}
    late = {
        "type": "response.completed",
        "response": {"status": "completed", "output": [{**item, "encrypted_content": "two"}]},
    }
    result = read(CREATED, done(item), late)
    done_item = next(event.item for event in result.events if isinstance(event, ItemDone))
    end = result.events[-1]
    assert isinstance(end, ResponseCompleted)
    sealed = [item.encrypted_content for item in (done_item, *end.response.output) if isinstance(item, Reasoning)]
    envelopes = [unseal_reasoning(content) for content in sealed]
    assert [envelope.content["encrypted_content"] for envelope in envelopes if envelope] == ["one", "two"]
    assert result.losses == []


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_invalid_status_of_a_whole_item_is_replaced(status: str) -> None:
    """ITEM-2, ITEM-3: the following events show that the response continued."""
    foreign = {
        "type": "message",
        "id": "m",
        "role": "user",
        "status": status,
        "content": [{"type": "input_text", "text": "x"}],
    }
    result = read(CREATED, done(foreign), done(TEXT, 1), COMPLETED)
    assert output(result)[0]["status"] == "completed"
    assert repr(status) in losses(result)


@pytest.mark.parametrize(("name", "other"), [("name", "write"), ("name", None), ("role", "system")])
def test_whole_item_keeps_the_names_of_its_added_event(name: str, other: str | None) -> None:
    """STR-4"""
    forms: dict[str, dict[str, Any]] = {
        "name": {
            "type": "mcp_call",
            "id": "m",
            "status": "in_progress",
            "server_label": "files",
            "name": "read",
            "arguments": "",
        },
        "role": {"type": "message", "id": "m", "status": "in_progress", "role": "user", "content": []},
    }
    announced = forms[name]
    result = read(CREATED, added(announced), done({**announced, "status": "completed", name: other}), COMPLETED)
    assert output(result)[0][name] == announced[name]
    assert repr(other) in losses(result)


def test_invalid_citation_is_passed_through() -> None:
    """ITEM-5, STR-11"""
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "Hi"}
    cited = {"type": "response.output_text.annotation.added", "item_id": "m", "output_index": 0, "content_index": 0}
    odd = {"type": "url_citation", "url": 3}
    result = read(CREATED, delta, {**cited, "annotation": None}, {**cited, "annotation": odd}, COMPLETED)
    citations = [event.annotation for event in result.events if isinstance(event, AnnotationAdded)]
    assert [type(citation) for citation in citations] == [UnknownAnnotation]


def test_item_that_cannot_be_normalized_is_passed_through() -> None:
    """ITEM-5: even where the grammar would report it."""
    odd = {"type": "code_interpreter_call", "id": "c", "status": "completed", "code": 3}
    result = read_events([CREATED, done(odd), COMPLETED])
    assert [violation.row for violation in find_violations(result.events)] == ["ITEM-5"]
    assert output(result) == [{"type": "code_interpreter_call", "status": "completed", "code": 3}]


def test_event_without_a_type_is_a_loss_but_an_error_fails_the_response() -> None:
    assert "an event without a type" in losses(read(CREATED, {"hello": 1}, done(TEXT), COMPLETED))
    failed = read(CREATED, {"error": {"message": "no", "code": "server_error"}})
    assert failed.response.status == "failed"


def test_event_with_data_that_is_no_object_is_a_loss() -> None:
    frames = [frame_of(CREATED), sse.Frame("acme:ping", b"[1]"), frame_of(done(TEXT)), frame_of(COMPLETED)]
    result = read_frames(frames)
    assert find_violations(result.events) == []
    assert "'acme:ping'" in losses(result) or result.response.status == "failed"


def test_any_event_after_an_error_event_ends_the_response() -> None:
    """STR-8"""
    error = {"type": "error", "error": {"message": "no", "code": "server_error", "type": "server_error", "param": None}}
    result = read(CREATED, error, done(TEXT), COMPLETED)
    assert result.response.status == "failed"


@pytest.mark.parametrize("half", [0xD83D, 0xDE00])
def test_lone_surrogate_is_replaced_and_a_loss(half: int) -> None:
    data = (
        b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"a\\u%04x"}'
        % half
    )
    result = read_frames([frame_of(CREATED), sse.Frame("", data), frame_of(COMPLETED)])
    assert find_violations(result.events) == []
    assert output(result)[0]["content"][0]["text"] == "a\ufffd"
    assert "unpaired surrogates" in losses(result)


def test_surrogate_halves_are_joined() -> None:
    head = b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"'
    frames = [sse.Frame("", head + b'\\ud83d"}'), sse.Frame("", head + b'\\ude00"}')]
    result = read_frames([frame_of(CREATED), *frames, frame_of(COMPLETED)])
    assert output(result)[0]["content"][0]["text"] == "😀"
    assert result.losses == []


def test_unusual_frame_outside_a_delta_is_decoded_leniently() -> None:
    """A number out of range in an unused field does not end the stream, but it is not forwarded."""
    data = b'{"type":"response.output_item.done","output_index":0,"item":{"type":"acme:x","id":"a","n":1e999}}'
    to_hub = reader(REQUEST)
    events = to_hub.feed(frame_of(CREATED)) + to_hub.feed(sse.Frame("", data)) + to_hub.finish()
    assert find_violations(events) == []


def test_body_that_is_no_response_is_an_upstream_fault() -> None:
    initial_response = make_initial_response(REQUEST, id="resp_1", created_at=1)
    for body in (b"", b"<html>", b"[]", b"null"):
        with pytest.raises(UpstreamFault) as caught:
            response_to_hub(body, REQUEST, initial_response, counting_stamps())
        assert caught.value.code == "upstream_invalid_response"


def test_text_after_a_part_that_a_message_cannot_hold_is_kept() -> None:
    """STR-6."""
    item = {"type": "message", "id": "m", "role": "assistant", "content": []}
    final = {**TEXT, "id": "m", "content": [{"type": "hologram"}, *TEXT["content"]]}
    result = read(CREATED, added(item), done(final), COMPLETED)
    assert [part["text"] for part in output(result)[0]["content"]] == ["Hi"]
    assert "'hologram'" in losses(result)
