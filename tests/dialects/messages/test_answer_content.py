"""`dialects/messages/answer_content`: events and messages of a Messages server pass to Messages clients as they came."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.dialects.common.relaying import relayed_stream, relayed_whole

from antiphon import sse
from antiphon.dialects.messages.answer_content import _Continuation, _Position

REQUEST = b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}'
USAGE = {"input_tokens": 3, "output_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 2}, "unknown": 1}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": USAGE,
}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**MESSAGE, "container": {"id": "c"}}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}, "unknown": None},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_stop", "index": 2},
    {
        "type": "content_block_start",
        "index": 3,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}, "caller": {"type": "direct"}},
    },
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
    {"type": "content_block_stop", "index": 3},
    {
        "type": "content_block_start",
        "index": 4,
        "content_block": {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {"b": "\u00e9"}},
    },
    {"type": "content_block_stop", "index": 4},
    {"type": "unknown_event", "unknown": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
        "context_management": {"applied_edits": []},
    },
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 1}},
]


def encode(*events: dict[str, Any]) -> bytes:
    return b"".join(sse.encode_frame(event["type"], msgspec.json.encode(event)) for event in events)


def events_in(out: bytes) -> list[Any]:
    frames = sse.Decoder().feed(out)
    events = [msgspec.json.decode(frame.data) for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events]
    return events


def test_stream_passes_as_it_came() -> None:
    out, is_relayed = relayed_stream("messages", REQUEST, encode(*EVENTS))
    assert is_relayed
    assert events_in(out) == EVENTS


def test_mapped_model_name_is_replaced() -> None:
    out, _ = relayed_stream("messages", REQUEST, encode(*EVENTS), model="alias")
    first, *others = events_in(out)
    assert first["message"]["model"] == "alias"
    assert others == EVENTS[1:]


def test_missing_end_is_added() -> None:
    out, is_relayed = relayed_stream("messages", REQUEST, encode(*EVENTS[:-1]))
    assert is_relayed
    assert events_in(out) == [*EVENTS[:-1], {"type": "message_stop"}]


def test_refusal_passes_as_it_came() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    stop = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}
    events = [*EVENTS[:2], stop, EVENTS[-1]]
    out, is_relayed = relayed_stream("messages", REQUEST, encode(*events))
    assert is_relayed
    assert events_in(out) == [*EVENTS[:2], {**stop, "usage": {"output_tokens": 0}}, EVENTS[-1]]


def test_events_without_names_get_them() -> None:
    data = b"".join(sse.encode_data(msgspec.json.encode(event)) for event in EVENTS)
    out, is_relayed = relayed_stream("messages", REQUEST, data)
    assert is_relayed
    assert events_in(out) == EVENTS


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "no index"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": {"no": "string"}}},
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_start", "index": 5, "content_block": {"type": "text", "text": ""}},
        {"type": "message_stop"},
    ],
)
def test_other_answers_are_translated(event: dict[str, Any]) -> None:
    out, is_relayed = relayed_stream("messages", REQUEST, encode(EVENTS[0], event, *EVENTS[-2:]))
    assert not is_relayed
    assert events_in(out)[0] == EVENTS[0]


WHOLE = {
    **MESSAGE,
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
        {"type": "text", "text": "Hello", "citations": None},
        {"type": "unknown_block", "unknown": 1},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
}


def test_whole_message_passes_as_it_came() -> None:
    body = msgspec.json.encode(WHOLE)
    assert relayed_whole("messages", REQUEST, body) == body
    renamed = relayed_whole("messages", REQUEST, body, model="alias")
    assert renamed is not None
    assert msgspec.json.decode(renamed) == {**WHOLE, "model": "alias"}


def test_message_at_the_start_of_a_stream_passes() -> None:
    events = [{"type": "message_start", "message": WHOLE}, EVENTS[-1]]
    out, is_relayed = relayed_stream("messages", REQUEST, encode(*events))
    assert is_relayed
    assert events_in(out) == events


@pytest.mark.parametrize("delta", [{"type": "text_delta", "text": "a"}, {"type": "thinking_delta", "thinking": "a"}])
def test_delta_of_another_kind_is_translated(delta: dict[str, Any]) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    block = {"type": "content_block_start", "index": 0, "content_block": call}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    stop = {"type": "content_block_stop", "index": 0}
    _, is_relayed = relayed_stream("messages", REQUEST, encode(EVENTS[0], block, event, stop, *EVENTS[-2:]))
    assert not is_relayed


def test_message_without_a_type_is_translated() -> None:
    body = msgspec.json.encode({"content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"})
    assert relayed_whole("messages", REQUEST, body) is None


def test_members_that_clients_need_are_added() -> None:
    whole = {"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"}
    body = relayed_whole("messages", REQUEST, msgspec.json.encode(whole))
    assert body is not None
    added = {"id": "resp_1", "role": "assistant", "model": "m", "stop_sequence": None}
    assert msgspec.json.decode(body) == {**whole, **added, "usage": {"input_tokens": 0, "output_tokens": 0}}


def test_translation_continues_the_blocks_that_were_sent() -> None:
    """The translation leaves out the empty text block, so its own numbers are lower. The open block is ended."""
    empty = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_stop", "index": 0},
    ]
    opened = {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}
    skipped = {"type": "content_block_start", "index": 7, "content_block": {"type": "text", "text": "Hello"}}
    stream: list[dict[str, Any]] = [
        EVENTS[0],
        *empty,
        opened,
        skipped,
        {"type": "content_block_stop", "index": 7},
        *EVENTS[-2:],
    ]
    out, is_relayed = relayed_stream("messages", REQUEST, encode(*stream))
    assert not is_relayed
    events = events_in(out)
    assert events[:4] == stream[:4]
    assert [(event["type"], event.get("index")) for event in events[4:]] == [
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("message_delta", None),
        ("message_stop", None),
    ]


def test_block_that_was_ended_is_not_continued() -> None:
    continuation = _Continuation(_Position(1, has_open_block=False))
    events: list[dict[str, Any]] = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "error", "error": {"type": "api_error", "message": "it is gone"}},
    ]
    assert events_in(continuation.feed(encode(*events))) == events[2:]
