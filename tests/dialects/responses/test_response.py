"""Plain answers of other servers, and our own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from tests.dialects.responses.upstreams import PAIRS, REQUEST, normalized, recording, stable_fields
from tests.generate.events import counting_stamps, responses

from antiphon.dialects.responses import ResponsesWire, response_from_hub, response_to_hub
from antiphon.errors import ApiError
from antiphon.protocol import codec
from antiphon.protocol.fold import replay_response
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response


def read(body: bytes, request: Request = REQUEST, wire: ResponsesWire = ResponsesWire()) -> tuple[Response, Losses]:  # noqa: B008
    return response_to_hub(
        body, request, make_initial_response(request, id="resp_1", created_at=1), counting_stamps(), wire
    )


def answer(**members: object) -> bytes:
    return json.dumps({"object": "response", "id": "resp_up", **members}).encode()


@pytest.mark.parametrize("name", PAIRS)
def test_response_replays_as_a_valid_stream(name: str) -> None:
    response, _ = read(recording(f"{name}_plain.json"))
    assert find_violations(replay_response(response)) == []


@pytest.mark.parametrize("name", PAIRS)
def test_response_has_our_id_and_the_content_of_the_server(name: str) -> None:
    """HTTP-2: our id, and the rest as the server sent it."""
    body = recording(f"{name}_plain.json")
    response, _ = read(body)
    sent = {"model": "m", "created_at": 1, **json.loads(body)}
    assert (response.id, response.model, response.created_at) == ("resp_1", sent["model"], sent["created_at"])
    assert codec.decode_response(codec.encode(response)) == response


@given(responses())
def test_own_answers_survive_the_round_trip(response: Response) -> None:
    """STR-14, ITEM-6"""
    body, losses = response_from_hub(response, REQUEST)
    assert list(losses) == []
    assert body == codec.encode(response)
    again, _ = read(body)
    assert normalized(stable_fields(again)) == normalized(stable_fields(response))


def test_failed_answer_is_a_failed_response() -> None:
    """STR-8, ERR-4"""
    response, _ = read(recording("good_failed_plain.json"))
    assert response.status == "failed"
    assert response.error is not None
    assert (response.error.code, response.error.message) == ("rate_limit_exceeded", "slow down")
    assert response.usage is not None


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_failure_without_a_message_gets_one(status: str) -> None:
    response, _ = read(answer(status=status))
    assert response.error is not None
    assert status in response.error.message


def test_answer_without_a_status_is_complete() -> None:
    item = {"type": "message", "role": "assistant", "content": "Hi"}
    response, _ = read(answer(output=[item]))
    assert response.status == "completed"
    assert stable_fields(response)["output"][0]["content"][0]["text"] == "Hi"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}', 429, "rate_limit_exceeded"),
        (b'{"error":{"message":"bad","type":"invalid_request_error"}}', 400, "invalid_value"),
        (b'{"error":"boom"}', 502, "upstream_error"),
        (b"{}", 502, "upstream_invalid_response"),
        (b"[]", 502, "upstream_invalid_response"),
        (b"<html>", 502, "upstream_invalid_response"),
        (b'{"output":[', 502, "upstream_invalid_response"),
        (b'{"status":"completed","output":[{"type":"message","content":"\\ud800"}]}', 502, "upstream_invalid_response"),
    ],
)
def test_error_in_place_of_an_answer_is_raised(body: bytes, status: int, code: str) -> None:
    with pytest.raises(ApiError) as raised:
        read(body)
    assert (raised.value.status, raised.value.code) == (status, code)


def test_answer_at_the_token_limit_is_incomplete_if_configured() -> None:
    """REQ-3: llama.cpp reports a truncated answer as completed; its usage shows the truncation."""
    request = Request(model="m", input="hi", max_output_tokens=16)
    wire = ResponsesWire(cut="by_usage")
    cut, _ = read(recording("llama_cpp_length_plain.json"), request, wire)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    assert stable_fields(cut)["output"][0]["status"] == "incomplete"
    whole, _ = read(recording("llama_cpp_text_plain.json"), Request(model="m", input="hi", max_output_tokens=40), wire)
    assert whole.status == "completed"
    unlimited, _ = read(recording("llama_cpp_length_plain.json"), REQUEST, wire)
    assert unlimited.status == "completed"
    uncounted, _ = read(answer(status="completed", output=[]), request, wire)
    assert uncounted.status == "completed"
