"""Answers that are not streamed, both ways: a server's message, and a response as one message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.dialects.messages.client_stream import REQUEST, USAGE, MessagesWriter
from tests.dialects.messages.reading import read_whole, summary_of

from antiphon.dialects.messages.stream_out import response_from_hub
from antiphon.dialects.messages.wire import block_to_item
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.content import UrlCitation
from antiphon.protocol.response import Response


def whole(life: MessagesWriter) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(response_from_hub(life.response, REQUEST)[0])
    return decoded


def test_plain_message_has_every_block_in_order() -> None:
    """STR-14, E-3, RSN-2."""
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    life = MessagesWriter()
    life.add_reasoning("r", "hm")
    life.set_encrypted_content("r", "sealed")
    life.close_item("r")
    life.set_encrypted_content("q", "more")
    life.close_item("q")
    life.add_text("m", "I look.")
    life.add_annotation("m", UrlCitation(start_index=0, end_index=7, url="u", title="t"))
    life.close_item("m")
    life.add_whole_item("s", block_to_item("web_search_tool_result", Raw(json.dumps(block).encode()), id="x_1"))
    life.open_call("a", name="look", call_id="c_a")
    life.add_arguments("a", '{"x": 1.50}')
    life.open_call("b", name="look", call_id="c_b")
    life.complete(USAGE)
    citation = {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "", "encrypted_index": ""}
    assert whole(life) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sealed"},
            {"type": "redacted_thinking", "data": "more"},
            {"type": "text", "text": "I look.", "citations": [citation]},
            block,
            {"type": "tool_use", "id": "c_a", "name": "look", "input": {"x": 1.5}},
            {"type": "tool_use", "id": "c_b", "name": "look", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": 7,
            "output_tokens": 4,
            "output_tokens_details": {"thinking_tokens": 2},
        },
    }


def test_answer_at_the_token_limit_has_stop_reason_max_tokens() -> None:
    """REQ-3."""
    life = MessagesWriter()
    life.add_text("m", "half")
    life.end_incomplete("max_output_tokens")
    assert whole(life)["stop_reason"] == "max_tokens"


def failed(code: str) -> Response:
    life = MessagesWriter()
    life.fail(UpstreamFault("what went wrong", code=code))
    return life.response


@pytest.mark.parametrize(
    ("code", "status", "type"),
    [
        ("rate_limit_exceeded", 429, "too_many_requests"),
        ("upstream_disconnected", 502, "server_error"),
    ],
)
def test_failed_response_raises_its_error(code: str, status: int, type: str) -> None:
    """ERR-1."""
    with pytest.raises(ApiError, match="what went wrong") as raised:
        response_from_hub(failed(code), REQUEST)
    assert (raised.value.code, raised.value.status, raised.value.type) == (code, status, type)


def test_unfinished_response_without_error_is_refused() -> None:
    with pytest.raises(ApiError, match="the response is cancelled without a reason"):
        response_from_hub(replace(MessagesWriter().response, status="cancelled"), REQUEST)


def test_answer_without_a_stop_reason_is_complete() -> None:
    response, losses = read_whole({"content": [{"type": "text", "text": "x"}]})
    assert summary_of(response) == ["OutputText: x", "completed"]
    assert not list(losses)


def test_repaired_answer_reports_losses() -> None:
    """F-4."""
    response, losses = read_whole(b'{"content":[{"type":"text","text":"a\\ud83d"}],"usage":{"input_tokens":"3"}}')
    assert summary_of(response) == ["OutputText: a\ufffd", "completed"]
    assert response.usage is not None
    assert response.usage.input_tokens == 3
    assert [loss.path for loss in losses] == ["stream"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"type":"message"}', b'{"content":"text"}'])
def test_body_that_is_not_a_message_is_an_upstream_fault(body: bytes) -> None:
    """ERR-4."""
    with pytest.raises(UpstreamFault) as raised:
        read_whole(body)
    assert raised.value.code == "upstream_invalid_response"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, 503, "overloaded"),
        ("everything is broken", 502, "upstream_error"),
        ({"type": "billing_error", "message": "Your credit is too low"}, 502, "upstream_auth_failed"),
    ],
)
def test_error_in_place_of_an_answer_is_raised(error: object, status: int, code: str) -> None:
    """ERR-4."""
    with pytest.raises(ApiError) as raised:
        read_whole({"type": "error", "error": error})
    assert (raised.value.status, raised.value.code) == (status, code)
