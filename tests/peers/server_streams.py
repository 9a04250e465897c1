"""Streams of servers of each dialect, frame by frame, in the cases in which other gateways fail."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon import sse

ROME: Final = '{"city":"Rome"}'
OSLO: Final = '{"city":"Oslo"}'
SIGNATURE: Final = "c2lnbmVkIGJ5IG9uZSBzZXJ2ZXI="


def chat(*deltas: dict[str, Any], finish: str = "stop", usage: Any = None) -> list[bytes]:
    """A stream of chat, a chunk for each delta. Usage comes after the finish reason, in a chunk without choices."""
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage is not None:
        chunks.append({"choices": [], "usage": usage})
    return [*(sse.encode_data(msgspec.json.encode(chunk)) for chunk in chunks), sse.DONE_FRAME]


def chat_call(id: str | None, arguments: str, index: int = 0, name: str | None = "get_weather") -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def messages(*events: dict[str, Any], stop: str = "end_turn", usage: Any = None, read: Any = None) -> list[bytes]:
    """A stream of messages around these events. What was read is told first, what was written last."""
    begun = {
        "type": "message_start",
        "message": {"role": "assistant", "content": [], "usage": read or {"input_tokens": 1}},
    }
    ended = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage or {"output_tokens": 1}}
    return [named(event) for event in (begun, *events, ended, {"type": "message_stop"})]


def named(event: dict[str, Any]) -> bytes:
    return sse.encode_frame(event["type"], msgspec.json.encode(event))


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """A block from its start to its stop."""
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *pieces,
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, text: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})


def thinking_block(index: int, thinking: str) -> list[dict[str, Any]]:
    signed = {"type": "signature_delta", "signature": SIGNATURE}
    return block(index, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": thinking}, signed)


def call_block(index: int, id: str, arguments: str) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": id, "name": "get_weather", "input": {}}
    return block(index, start, {"type": "input_json_delta", "partial_json": arguments})


def gemini(*frames: list[dict[str, Any]], finish: str = "STOP", usage: Any = None) -> list[bytes]:
    """A stream of gemini, a frame for each list of parts. Usage comes after the finish reason."""
    answers: list[Any] = [
        {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]} for parts in frames
    ]
    answers[-1]["candidates"][0]["finishReason"] = finish
    if usage is not None:
        answers.append({"candidates": [], "usageMetadata": usage})
    return [b"data: %b\r\n\r\n" % msgspec.json.encode(answer) for answer in answers]


def gemini_call(arguments: str, id: str | None = None) -> dict[str, Any]:
    return {
        "functionCall": {"name": "get_weather", "args": msgspec.json.decode(arguments), **({"id": id} if id else {})}
    }


def responses(*items: list[dict[str, Any]], reason: str | None = None, usage: Any = None) -> list[bytes]:
    """A stream of responses around the events of its items. The terminal response lists none of them, as with poor
    servers."""
    begun = {"type": "response.created", "response": {"id": "resp_up", "status": "in_progress", "output": []}}
    status = "incomplete" if reason else "completed"
    details = {"incomplete_details": {"reason": reason}} if reason else {}
    ended = {
        "type": f"response.{status}",
        "response": {"id": "resp_up", "status": status, "output": [], "usage": usage, **details},
    }
    return [named(event) for event in (begun, *(event for item in items for event in item), ended)] + [sse.DONE_FRAME]


def message_item(index: int, text: str) -> list[dict[str, Any]]:
    item = {"type": "message", "id": f"msg_{index}", "role": "assistant"}
    at = {"item_id": f"msg_{index}", "output_index": index, "content_index": 0}
    whole = {"type": "output_text", "text": text, "annotations": []}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **at, "part": {**whole, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": text},
        {"type": "response.output_text.done", **at, "text": text},
        {"type": "response.content_part.done", **at, "part": whole},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "status": "completed", "content": [whole]},
        },
    ]


def reasoning_item(index: int, thought: str) -> list[dict[str, Any]]:
    item = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    at = {"item_id": f"rs_{index}", "output_index": index, "content_index": 0}
    whole = {"type": "reasoning_text", "text": thought}
    sealed = {**item, "content": [whole], "encrypted_content": SIGNATURE, "status": "completed"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {"type": "response.content_part.added", **at, "part": {**whole, "text": ""}},
        {"type": "response.reasoning_text.delta", **at, "delta": thought},
        {"type": "response.reasoning_text.done", **at, "text": thought},
        {"type": "response.content_part.done", **at, "part": whole},
        {"type": "response.output_item.done", "output_index": index, "item": sealed},
    ]


def call_item(
    index: int, call_id: str, arguments: str, *, ids: tuple[str, str, str] | None = None, only_in: str = ""
) -> list[dict[str, Any]]:
    """A call. `ids` are those of its beginning, its middle and its end; `only_in` says which event alone has the
    arguments."""
    first, middle, last = ids or (f"fc_{index}",) * 3
    item = {"type": "function_call", "call_id": call_id, "name": "get_weather", "status": "completed"}
    at = {"item_id": middle, "output_index": index}
    told = {"item": "", "done": "", only_in: arguments} if only_in else {"item": arguments, "done": arguments}
    delta = [] if only_in else [{"type": "response.function_call_arguments.delta", **at, "delta": arguments}]
    added = {**item, "id": first, "arguments": "", "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": added},
        *delta,
        {"type": "response.function_call_arguments.done", **at, "arguments": told["done"]},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "id": last, "arguments": told["item"]},
        },
    ]
