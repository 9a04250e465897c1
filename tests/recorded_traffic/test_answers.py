"""The readers of answers find the same content in a stream and in the whole answer, in every dialect."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.recorded_traffic.answers import Call, Usage, opened_seals, read_answer

from antiphon import sse

CALL = Call("c1", "clock", {"zone": "UTC"})


def stream(events: list[dict[str, Any]]) -> bytes:
    return b"".join(sse.encode_frame(str(event.get("type", "")), json.dumps(event).encode()) for event in events)


def test_chat_stream_is_read() -> None:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    answer = read_answer(
        "chat",
        stream(
            [
                chunk({"role": "assistant", "reasoning_content": "Hm"}),
                chunk({"content": "Hel"}),
                chunk({"content": "lo"}),
                chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "clock", "arguments": ""}}]}),
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"zone": "UTC"}'}}]}, "tool_calls"),
                {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            ]
        ),
    )
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == ("Hello", "Hm", [CALL], "calls")
    assert answer.usage == Usage(3, 0, 2, 0)


def test_chat_content_in_parts_is_read() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "Hello"}]
    whole = {"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}
    answer = read_answer("chat", json.dumps(whole).encode())
    assert (answer.text, answer.reasoning, answer.finish) == ("Hello", "Hm", "end")


def test_chat_calls_that_share_an_index_are_two() -> None:
    def call(id: str) -> dict[str, Any]:
        return {"index": 0, "id": id, "function": {"name": "clock", "arguments": "{}"}}

    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [call(id)]}}]} for id in ("c1", "c2")]
    assert [each.id for each in read_answer("chat", stream(chunks)).calls] == ["c1", "c2"]


def test_responses_stream_is_read() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}
    call = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": '{"zone": "UTC"}'}
    thought = {"type": "reasoning", "summary": [{"text": "Hm"}], "encrypted_content": "first"}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate([thought, message, call])
    ]
    usage = {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 2}
    last = {
        "status": "completed",
        "usage": usage,
        "output": [{**thought, "encrypted_content": "second"}, message, call],
    }
    answer = read_answer("responses", stream([*events, {"type": "response.completed", "response": last}]))
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == ("Hello", "Hm", [CALL], "calls")
    assert answer.seals == ["first"]
    assert answer.usage == Usage(3, 1, 2, 0)


def test_responses_stream_that_breaks_off_keeps_its_text() -> None:
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
        {"type": "error", "message": "closed"},
    ]
    answer = read_answer("responses", stream(events))
    assert (answer.text, answer.error) == ("Hel", "closed")


def test_messages_stream_is_read() -> None:
    def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        ]

    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "cache_read_input_tokens": 2}}},
        *block(
            0,
            {"type": "thinking", "thinking": ""},
            {"type": "thinking_delta", "thinking": "Hm"},
            {"type": "signature_delta", "signature": "s"},
        ),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"}),
        *block(
            2,
            {"type": "tool_use", "id": "c1", "name": "clock", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"zone": "UTC"}'},
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
    ]
    answer = read_answer("messages", stream(events))
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == ("Hello", "Hm", [CALL], "calls")
    assert answer.seals == ["s"]
    assert answer.usage == Usage(3, 2, 2, 0)


def test_gemini_arguments_in_pieces_are_one_call() -> None:
    def chunk(call: dict[str, Any], **members: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"functionCall": call}]}, **members}]}

    def piece(path: str, text: str) -> dict[str, Any]:
        return {"partialArgs": [{"jsonPath": path, "stringValue": text}], "willContinue": True}

    events = [
        chunk({"name": "clock", "willContinue": True}),
        chunk(piece("$.zone", "U")),
        chunk(piece("$.zone", "TC")),
        chunk(piece("$.days[0].name", "Monday")),
        chunk({}, finishReason="STOP"),
    ]
    answer = read_answer("gemini", stream(events))
    assert answer.calls == [Call("", "clock", {"zone": "UTC", "days": [{"name": "Monday"}]})]
    assert answer.finish == "calls"


def test_gemini_json_array_is_a_stream() -> None:
    chunks = [{"candidates": [{"content": {"parts": [{"text": text}]}}]} for text in ("Hel", "lo")]
    assert read_answer("gemini", json.dumps(chunks).encode()).text == "Hello"


def test_ollama_lines_are_read() -> None:
    def line(message: dict[str, Any], **members: Any) -> bytes:
        return json.dumps({"model": "m", "message": message, "done": False, **members}).encode() + b"\n"

    call = {"id": "c1", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2}
    lines = [
        line({"role": "assistant", "content": "", "thinking": "Hm"}),
        line({"role": "assistant", "content": "Hel"}),
        line({"role": "assistant", "content": "lo", "tool_calls": [call]}),
        line({"role": "assistant", "content": ""}, **end),
    ]
    answer = read_answer("ollama", b"".join(lines))
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == ("Hello", "Hm", [CALL], "calls")
    assert answer.usage == Usage(3, 0, 2, 0)


def test_seals_in_envelopes_are_opened() -> None:
    content = base64.urlsafe_b64encode(b'{"signature":"made by a server"}').decode()
    envelope = f"antiphon.reasoning.maker.{content}"
    for seal in (envelope, base64.b64encode(envelope.encode()).decode()):
        assert "made by a server" in opened_seals([seal])
    assert opened_seals(["other"]) == {"other"}
