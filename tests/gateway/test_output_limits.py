"""Endless streams of every dialect end as `incomplete` at the limit on bytes or on items, for every kind of content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import msgspec
import pytest

from antiphon.dialects.common.server_turn import StreamReader
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.profiles import load_profile
from antiphon.protocol.codec import decode_request
from antiphon.protocol.events import ResponseIncomplete, StreamEvent
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.output_limits import BYTES_REASON, ITEMS_REASON, OutputLimits
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps

KIB = 1024
LIMITS = OutputLimits(max_bytes=64 * KIB, max_items=20)
MAX_FRAMES = 20_000  # more frames than this count as unbounded
REQUEST = decode_request(
    b'{"model": "m", "input": "Hi", "stream": true, "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}]}'
)
Frames = Callable[[int], list[dict[str, Any]]]


def chat_delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def chat_call(index: int, **function: Any) -> dict[str, Any]:
    return chat_delta(tool_calls=[{"index": index, "id": f"call_{index}", "function": function}])


def chat_tokens(size: int) -> dict[str, Any]:
    token = {"token": "x" * size, "logprob": -1.0, "bytes": [120], "top_logprobs": []}
    return {"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [token]}}]}


def block(index: int, kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": kind}


def block_delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def gemini_parts(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": list(parts)}}]}


def first_then(first: dict[str, Any], then: dict[str, Any]) -> Frames:
    return lambda number: [first, then] if number == 0 else [then]


X = "xyz" * 30
TEXT = {"type": "text", "text": ""}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
CITATION = {"type": "char_location", "cited_text": X, "document_index": 0, "start_char_index": 0, "end_char_index": 1}
CALL_ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": ""}

BY_BYTES: dict[str, tuple[ServerDialectName, Frames]] = {
    "chat text": ("chat", lambda _: [chat_delta(content=X)]),
    "chat text of two bytes": ("chat", lambda _: [chat_delta(content="éé" * 40)]),
    "chat reasoning": ("chat", lambda _: [chat_delta(reasoning_content=X)]),
    "chat reasoning details": (
        "chat",
        lambda _: [chat_delta(reasoning_details=[{"type": "reasoning.encrypted", "data": X}])],
    ),
    "chat arguments": ("chat", lambda n: [chat_call(0, name="f" if n == 0 else "", arguments=X)]),
    "chat arguments of a custom tool": ("chat", lambda n: [chat_call(0, name="c" if n == 0 else "", arguments=X)]),
    "chat arguments without a name": ("chat", lambda _: [chat_call(0, arguments=X)]),
    "chat calls without a name": ("chat", lambda n: [chat_call(n)]),
    "chat logprobs": ("chat", lambda _: [chat_tokens(100)]),
    "chat refusal": ("chat", lambda _: [chat_delta(refusal=X)]),
    "responses text": (
        "responses",
        lambda _: [{"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": X}],
    ),
    "responses summary": (
        "responses",
        lambda _: [{"type": "response.reasoning_summary_text.delta", "item_id": "r", "output_index": 0, "delta": X}],
    ),
    "responses parts": (
        "responses",
        lambda n: [
            {"type": "response.content_part.added", "item_id": "m", "content_index": n, "part": {"type": "output_text"}}
        ],
    ),
    "responses arguments": (
        "responses",
        first_then(
            {"type": "response.output_item.added", "output_index": 0, "item": CALL_ITEM},
            {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": X},
        ),
    ),
    "responses arguments without a name": (
        "responses",
        lambda _: [{"type": "response.function_call_arguments.delta", "item_id": "fc", "output_index": 0, "delta": X}],
    ),
    "messages text": ("messages", lambda _: [block_delta(0, {"type": "text_delta", "text": X})]),
    "messages thinking": ("messages", lambda _: [block_delta(0, {"type": "thinking_delta", "thinking": X})]),
    "messages signature": ("messages", lambda _: [block_delta(0, {"type": "signature_delta", "signature": X})]),
    "messages citations": ("messages", lambda _: [block_delta(0, {"type": "citations_delta", "citation": CITATION})]),
    "messages empty blocks": ("messages", lambda n: [block(n, TEXT)]),
    "messages arguments": (
        "messages",
        first_then(
            block(0, {"type": "tool_use", "id": "t", "name": "f", "input": {}}),
            block_delta(0, {"type": "input_json_delta", "partial_json": X}),
        ),
    ),
    "messages arguments of a custom tool": (
        "messages",
        first_then(
            block(0, {"type": "tool_use", "id": "t", "name": "c", "input": {}}),
            block_delta(0, {"type": "input_json_delta", "partial_json": X}),
        ),
    ),
    "messages arguments of a hosted tool": (
        "messages",
        first_then(block(0, SEARCH), block_delta(0, {"type": "input_json_delta", "partial_json": X})),
    ),
    "gemini text": ("gemini", lambda _: [gemini_parts({"text": X})]),
    "gemini thoughts": ("gemini", lambda _: [gemini_parts({"text": X, "thought": True})]),
    "gemini data": ("gemini", lambda _: [gemini_parts({"inlineData": {"mimeType": "image/png", "data": X * 40}})]),
    "gemini arguments": ("gemini", lambda _: [gemini_parts({"functionCall": {"name": "f", "args": {"x": X * 100}}})]),
}
BY_ITEMS: dict[str, tuple[ServerDialectName, Frames]] = {
    "chat calls": ("chat", lambda n: [chat_call(n, name="f", arguments="{}")]),
    "responses items": (
        "responses",
        lambda n: [
            {
                "type": "response.output_item.added",
                "output_index": n,
                "item": {**CALL_ITEM, "id": f"fc_{n}", "call_id": f"c_{n}"},
            },
            {
                "type": "response.output_item.done",
                "output_index": n,
                "item": {**CALL_ITEM, "id": f"fc_{n}", "call_id": f"c_{n}"},
            },
        ],
    ),
    "responses items of unknown type": (
        "responses",
        lambda n: [
            {"type": "response.output_item.done", "output_index": n, "item": {"type": "acme:thing", "id": f"x_{n}"}}
        ],
    ),
    "messages blocks": (
        "messages",
        lambda n: [
            block(n, {"type": "tool_use", "id": f"t_{n}", "name": "f", "input": {}}),
            {"type": "content_block_stop", "index": n},
        ],
    ),
    "gemini calls": ("gemini", lambda _: [gemini_parts({"functionCall": {"name": "f", "args": {}}})]),
    "gemini calls in one frame": (
        "gemini",
        lambda _: [gemini_parts(*[{"functionCall": {"name": "f", "args": {}}}] * 50)],
    ),
}
OPENING: dict[str, list[dict[str, Any]]] = {
    "messages": [
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 1}},
        }
    ],
}


def reader_of(dialect: ServerDialectName, limits: OutputLimits) -> StreamReader:
    numbers = count()
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)
    wire = load_profile(SERVER_DIALECTS[dialect].default_profile).wire
    return StreamReader(
        SERVER_DIALECTS[dialect].events_to_hub(
            REQUEST, make_initial_response(REQUEST, id="resp_1", created_at=1), stamps, wire
        ),
        limits,
    )


def stream(dialect: ServerDialectName, frames: Frames) -> Iterator[bytes]:
    yield from map(frame, OPENING.get(dialect, ()))
    for number in count():
        yield b"".join(map(frame, frames(number)))


def frame(event: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(event)


def read_to_end(dialect: ServerDialectName, frames: Frames, together: int) -> tuple[Response, StreamReader]:
    """The response of an endless stream that is fed with this many frames at a time."""
    reader = reader_of(dialect, LIMITS)
    events: list[StreamEvent] = []
    pieces = stream(dialect, frames)
    for _ in range(MAX_FRAMES // together):
        events += reader.feed(b"".join(islice(pieces, together)))
        if isinstance(events[-1] if events else None, ResponseIncomplete):
            break
    assert find_violations(events) == []
    assert isinstance(events[-1], ResponseIncomplete), "the stream never ended"
    assert reader.feed(next(pieces)) == []
    return events[-1].response, reader


@pytest.mark.without_coverage
@pytest.mark.parametrize("together", [1, 16])
@pytest.mark.parametrize("name", BY_BYTES)
def test_endless_stream_ends_at_the_byte_limit(name: str, together: int) -> None:
    response, reader = read_to_end(*BY_BYTES[name], together)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == BYTES_REASON
    assert reader.was_cut_off
    assert reader.error is None
    text = sum(
        len(part.text.encode())
        for item in response.output
        for part in getattr(item, "content", None) or ()
        if hasattr(part, "text")
    )
    assert text <= LIMITS.max_bytes


@pytest.mark.parametrize("together", [1, 16])
@pytest.mark.parametrize("name", BY_ITEMS)
def test_endless_stream_ends_at_the_item_limit(name: str, together: int) -> None:
    response, reader = read_to_end(*BY_ITEMS[name], together)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == ITEMS_REASON
    assert reader.was_cut_off
    assert len(response.output) == LIMITS.max_items


def test_text_exactly_at_the_limit_is_complete() -> None:
    size = LIMITS.max_bytes - 256  # the part itself counts too
    for over in (0, 1):
        reader = reader_of("chat", LIMITS)
        events = reader.feed(frame(chat_delta(content="x" * (size + over))))
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        events += reader.feed(frame(end)) + reader.finish()
        assert find_violations(events) == []
        assert reader.was_cut_off is bool(over)


def test_limit_exceeded_by_the_last_frame_is_detected_at_the_end() -> None:
    reader = reader_of("chat", LIMITS)
    last = frame(chat_delta(content="x" * LIMITS.max_bytes)).removesuffix(b"\n\n")  # complete, without its blank line
    events = reader.feed(frame(chat_delta(content="Hi")) + last) + reader.finish()
    assert find_violations(events) == []
    assert isinstance(events[-1], ResponseIncomplete)
    assert reader.was_cut_off


def test_white_space_before_a_think_tag_is_held_only_up_to_a_limit() -> None:
    reader = reader_of("chat", LIMITS)
    for _ in range(100):
        events = reader.feed(frame(chat_delta(content=" " * 100)))
    assert events, "the white space is still held back"
