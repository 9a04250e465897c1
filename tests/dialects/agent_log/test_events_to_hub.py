"""VT Code's lines: the same events, optionally in an envelope, with its own items."""

from __future__ import annotations

import msgspec
from tests.generate.events import counting_stamps

from antiphon.dialects.agent_log import EventsToHub
from antiphon.dialects.agent_log.wire import ThreadWire
from antiphon.protocol.fold import fold
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.open_items import type_of
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response

LINES = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "turn.started"},
    {"type": "item.started", "item": {"id": "0", "type": "reasoning", "text": "Let me", "stage": "analysis"}},
    {"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": "Let me see.", "stage": "analysis"}},
    {"type": "item.completed", "item": {"id": "1", "type": "tool_invocation", "tool_name": "read_file",
     "arguments": {"path": "a.rs"}, "tool_call_id": "call_1", "status": "completed"}},
    {"type": "item.completed", "item": {"id": "2", "type": "tool_output", "call_id": "1", "output": "fn",
     "status": "completed"}},
    {"type": "item.completed", "item": {"id": "3", "type": "file_change", "status": "completed",
     "changes": [{"path": "a.rs", "kind": "update"}]}},
    {"type": "item.completed", "item": {"id": "4", "type": "harness", "event": "verification_passed"}},
    {"type": "item.completed", "item": {"id": "5", "type": "agent_message", "text": "Done."}},
    {"type": "turn.completed",
     "usage": {"input_tokens": 10, "cached_input_tokens": 5, "cache_creation_tokens": 0, "output_tokens": 2}},
    {"type": "thread.completed", "thread_id": "t", "session_id": "s", "subtype": "success", "outcome_code": "ok",
     "usage": {"input_tokens": 10, "cached_input_tokens": 5, "cache_creation_tokens": 0, "output_tokens": 2},
     "num_turns": 1},
]  # fmt: skip


def response_of_lines(lines: list[bytes], slug: str = "vtcode") -> Response:
    request = Request(model="m")
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    to_hub = EventsToHub(request, initial_response, counting_stamps(), ThreadWire(slug=slug))
    events = [event for line in lines for event in to_hub.feed(line)] + to_hub.finish()
    assert find_violations(events) == []
    assert list(to_hub.losses) == []
    return fold(events)


def test_turn_is_translated_with_and_without_envelope() -> None:
    """B-3, B-5: bare events, and events in the envelope with the version of the schema."""
    plain = response_of_lines([msgspec.json.encode(line) for line in LINES])
    wrapped = response_of_lines([msgspec.json.encode({"schema_version": "0.8.0", "event": line}) for line in LINES])
    assert plain == wrapped
    assert [type_of(item) for item in plain.output] == [
        "reasoning", "function_call", "function_call_output", "vtcode:file_change", "vtcode:harness", "message",
    ]  # fmt: skip
    assert plain.status == "completed"


def test_slug_is_the_prefix_of_extension_items() -> None:
    response = response_of_lines([msgspec.json.encode(line) for line in LINES], "acme")
    assert "acme:file_change" in map(type_of, response.output)
