"""Recorded streams, of llama.cpp and by hand after the documentation of others: the resulting response of each."""

from __future__ import annotations

import json

import pytest
from tests.dialects.responses.upstreams import output_of, read_stream, recording, stable_fields

from antiphon.dialects.responses import ResponsesWire
from antiphon.protocol import codec
from antiphon.protocol.content import UnknownAnnotation, UrlCitation
from antiphon.protocol.events import (
    AnnotationAdded,
    ErrorEvent,
    OutputTextDelta,
    RefusalDelta,
    ResponseFailed,
    UnknownEvent,
)
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.request import Request

HELLO = {
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello, world!"}],
}
CALL = {"type": "function_call", "status": "completed", "name": "get_weather", "arguments": '{"city":"Paris"}'}
CUT = {**HELLO, "status": "incomplete", "content": [{"type": "output_text", "text": "Hello"}]}
BOTH = [HELLO, CALL]
THOUGHT = {
    "type": "reasoning",
    "status": "completed",
    "summary": [{"type": "summary_text", "text": "Short."}],
    "content": [{"type": "reasoning_text", "text": "Long thought."}],
}
COMPLETED = {
    "poor_arguments_only_in_done": BOTH,
    "poor_arguments_only_in_item_done": BOTH,
    "poor_created_twice": BOTH,
    "poor_empty_output_at_the_end": BOTH,
    "poor_events_after_the_end": BOTH,
    "poor_every_index_is_zero": BOTH,
    "poor_ids_that_drift": BOTH,
    "poor_ids_that_drift_without_indexes": BOTH,
    "poor_items_only_at_the_end": BOTH,
    "poor_more_in_done_than_in_deltas": BOTH,
    "poor_name_only_at_the_end": BOTH,
    "poor_no_created": BOTH,
    "poor_no_ids_at_all": BOTH,
    "poor_no_indexes_and_numbers": BOTH,
    "poor_no_item_added": BOTH,
    "poor_no_item_done": BOTH,
    "poor_no_terminal_event": BOTH,
    "poor_null_fields": BOTH,
    "poor_objects_for_strings": BOTH,
    "poor_text_only_in_done": BOTH,
    "poor_text_only_in_item_done": BOTH,
    "older_reasoning_names": [THOUGHT, HELLO],
    "good_queued_stream": [HELLO],
    "good_text_stream": [HELLO],
}
FAILED = {
    "good_failed_stream": ([CUT], "rate_limit_exceeded", "slow down"),
    "older_flat_error": ([CUT], "upstream_error", "The server had an error"),
    "error_then_something_else": ([CUT], "invalid_value", "too long"),
    "poor_not_json": ([CUT], "upstream_invalid_response", "the upstream sent invalid JSON"),
    "poor_error_without_a_type": ([], "upstream_error", "boom"),
    "poor_failed_without_words": ([HELLO], "upstream_error", "the response of the upstream is failed"),
}


@pytest.mark.parametrize("name", COMPLETED)
def test_recorded_streams_of_all_servers_are_decoded(name: str) -> None:
    read = read_stream(recording(f"{name}.sse"))
    assert output_of(read) == COMPLETED[name]
    assert read.response.status == "completed"
    assert read.losses == []


@pytest.mark.parametrize("name", FAILED)
def test_failure_of_any_form_fails_the_response(name: str) -> None:
    """STR-8, ITEM-3, API-6: nested or flat, before `response.failed` or alone; open items are incomplete."""
    output, code, message = FAILED[name]
    read = read_stream(recording(f"{name}.sse"))
    assert output_of(read) == output
    assert read.response.error is not None
    assert (read.response.error.code, read.response.error.message) == (code, message)
    assert [type(event) for event in read.events[-2:]] == [ErrorEvent, ResponseFailed]


def test_failed_response_keeps_its_usage() -> None:
    """REQ-4"""
    assert read_stream(recording("good_failed_stream.sse")).response.usage is not None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("good_incomplete_arguments_stream", "max_output_tokens"),
        ("good_content_filter_stream", "content_filter"),
        ("poor_completed_that_was_cut", "max_output_tokens"),
    ],
)
def test_incomplete_answer_has_its_reason(name: str, reason: str) -> None:
    """REQ-3, ITEM-3"""
    response = read_stream(recording(f"{name}.sse")).response
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == reason


def test_only_the_last_item_can_be_incomplete() -> None:
    """ITEM-3"""
    output = stable_fields(read_stream(recording("good_incomplete_arguments_stream.sse")).response)["output"]
    assert [item["status"] for item in output] == ["completed", "incomplete"]
    assert output[1]["arguments"] == '{"city":"Pa'


def test_older_reasoning_events_are_converted() -> None:
    """STR-10, API-6: inside a `reasoning_text` part, summaries in separate parts."""
    kinds = [type(event).__name__ for event in read_stream(recording("older_reasoning_names.sse")).events]
    assert kinds[2:13] == [
        "ItemAdded",
        "ContentPartAdded",
        "ReasoningDelta",
        "ReasoningDelta",
        "SummaryPartAdded",
        "SummaryTextDelta",
        "ReasoningDone",
        "ContentPartDone",
        "SummaryTextDone",
        "SummaryPartDone",
        "ItemDone",
    ]


def test_sealed_reasoning_at_the_end_is_kept() -> None:
    """RSN-1"""
    output = stable_fields(read_stream(recording("good_reasoning_summaries_sealed_at_the_end_stream.sse")).response)[
        "output"
    ]
    assert output[0]["encrypted_content"] == "sealed=="
    assert [part["text"] for part in output[0]["summary"]] == ["First.", "Second."]


def test_refusals_and_citations_have_their_own_events() -> None:
    """STR-11: also a citation that only the finished part contains."""
    events = read_stream(recording("good_refusal_stream.sse")).events
    assert [event.delta for event in events if isinstance(event, RefusalDelta)] == ["I can", "not."]
    events = read_stream(recording("good_web_search_with_citations_stream.sse")).events
    cited = [event for event in events if isinstance(event, AnnotationAdded)]
    assert [type(event.annotation) for event in cited] == [UrlCitation, UnknownAnnotation]
    assert [event.annotation_index for event in cited] == [0, 1]


def test_logprobs_are_on_deltas_with_their_bytes() -> None:
    """STR-12"""
    events = read_stream(recording("good_logprobs_stream.sse")).events
    logprobs = [event.logprobs[0] for event in events if isinstance(event, OutputTextDelta) and event.logprobs]
    assert [(one.token, one.bytes, one.top_logprobs[0].bytes) for one in logprobs] == [
        ("H", [72], [120]),
        ("é", [195, 169], [120]),
    ]


def test_late_phases_are_kept() -> None:
    """ITEM-7"""
    output = stable_fields(read_stream(recording("good_phases_stream.sse")).response)["output"]
    assert [item["phase"] for item in output] == ["commentary", "final_answer"]


def test_hosted_tool_events_keep_their_place() -> None:
    """ITEM-5, STR-5: with our numbers."""
    events = read_stream(recording("good_mcp_call_stream.sse")).events
    decoded = [json.loads(bytes(event.raw)) for event in events if isinstance(event, UnknownEvent)]
    assert [(event["type"].rpartition(".")[2], event["item_id"], event["output_index"]) for event in decoded] == [
        ("in_progress", "mcpl_a", 0),
        ("completed", "mcpl_a", 0),
        ("delta", "mcp_a", 1),
        ("done", "mcp_a", 1),
        ("completed", "mcp_a", 1),
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_extension_items_events_and_fields_are_passed_through() -> None:
    """ITEM-5, ITEM-6"""
    read = read_stream(recording("good_extensions_stream.sse"))
    output = json.loads(codec.encode(read.response.output))
    assert output[0] == {"id": "th_a", "type": "acme:thing", "status": "completed", "deep": {"a": [1]}}
    assert output[1]["acme_signature"] == "s1"
    assert read.losses == []


def test_item_ids_are_kept_and_the_response_id_is_ours() -> None:
    """ITEM-6"""
    response = read_stream(recording("good_parallel_calls_interleaved_stream.sse")).response
    assert response.id == "resp_1"
    assert [(item.id, item.call_id) for item in response.output if isinstance(item, FunctionCall)] == [
        ("fc_a", "call_1"),
        ("fc_b", "call_2"),
    ]


def test_contradicting_final_text_is_a_loss_and_the_stream_counts() -> None:
    """STR-6"""
    read = read_stream(recording("contradicting_final_text.sse"))
    assert output_of(read) == BOTH
    assert [loss.path for loss in read.losses] == ["output[0].content[0]", "output[1].arguments"]


def test_surrogate_halves_are_joined() -> None:
    assert output_of(read_stream(recording("split_character.sse"))) == [
        {**HELLO, "content": [{"type": "output_text", "text": "Hi 😀!"}]}
    ]


def test_lone_surrogate_is_a_loss() -> None:
    """F-4"""
    data = b'data: {"type":"response.output_text.delta","delta":"a\\udc00b"}\n\n'
    read = read_stream(data)
    assert output_of(read) == [{**CUT, "content": [{"type": "output_text", "text": "a\ufffdb"}]}]
    assert [loss.path for loss in read.losses] == ["stream"]


def test_service_tier_and_usage_are_read_from_the_server() -> None:
    """REQ-4, REQ-5"""
    response = read_stream(recording("good_text_stream.sse")).response
    assert response.service_tier == "flex"
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 2
    poor = read_stream(recording("poor_objects_for_strings.sse")).response.usage
    assert poor is not None
    assert (poor.input_tokens, poor.output_tokens, poor.total_tokens) == (9, 5, 14)


def test_llama_cpp_stream_gets_indexes() -> None:
    """API-6: it has neither indexes nor numbers, and the older spelling of reasoning."""
    read = read_stream(recording("llama_cpp_reasoning_stream.sse"))
    assert [item["type"] for item in stable_fields(read.response)["output"]] == ["reasoning", "message"]
    assert read.losses == []


def test_llama_cpp_answer_at_the_limit_is_incomplete_if_configured() -> None:
    """REQ-3"""
    request = Request(model="m", input="hi", max_output_tokens=16)
    read = read_stream(recording("llama_cpp_length_stream.sse"), request, ResponsesWire(cut="by_usage"))
    assert find_violations(read.events) == []
    assert read.response.status == "incomplete"
    assert stable_fields(read.response)["output"][0]["status"] == "incomplete"


def test_cut_by_usage_makes_only_the_last_item_incomplete() -> None:
    """ITEM-3, REQ-3"""
    request = Request(model="m", input="hi", max_output_tokens=16)
    read = read_stream(recording("poor_empty_output_at_the_end.sse"), request, ResponsesWire(cut="by_usage"))
    assert find_violations(read.events) == []
    assert output_of(read) == BOTH
    kinds = [type(event).__name__ for event in read.events]
    assert kinds.index("ItemDone") < kinds.index("ArgumentsDelta")  # the message is done before the call starts
