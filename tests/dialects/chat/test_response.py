"""Plain chat answers, both ways: read by the same code as a stream, written as all its pieces joined."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace
from tests.dialects.chat.habits import Habit, Message, habits, messages, whole
from tests.dialects.chat.reading import INITIAL_RESPONSE, REQUEST, call, frames_of, read_whole, summary_of
from tests.generate.events import responses

from antiphon import sse
from antiphon.dialects.chat import EventsFromHub, response_from_hub
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.protocol.errors import Error
from antiphon.protocol.fold import replay_response
from antiphon.protocol.response import Response


def body(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}).encode()


def encoded(response: Response) -> dict[str, Any]:
    data, _ = response_from_hub(response, REQUEST)
    completion: dict[str, Any] = json.loads(data)
    return completion


# Laws


@given(messages(), habits())
def test_answer_survives_the_round_trip(message: Message, habit: Habit) -> None:
    """E-3, law (d): chat → hub → chat → hub keeps the content."""
    response, _ = read_whole(whole(message, habit))
    data, losses = response_from_hub(response, REQUEST)
    assert list(losses) == []
    assert summary_of(read_whole(data)[0]) == summary_of(response)
    completion = json.loads(data)["choices"][0]["message"]
    assert (completion["content"] or "") == message.text
    assert completion.get("reasoning_content", "") == message.reasoning
    assert len(completion.get("tool_calls", ())) == len(message.calls)


@given(responses(("complete", "incomplete")))
def test_plain_answer_equals_its_joined_stream(response: Response) -> None:
    """STR-14, as a chat client sees it."""
    from_hub = EventsFromHub(REQUEST)
    data = b"".join(map(from_hub.feed, replay_response(response))) + from_hub.finish()
    data_whole, losses = response_from_hub(response, REQUEST)
    completion = json.loads(data_whole)
    assert data.count(b'"annotations":') <= 1  # SDKs accept no second list, or only the last
    assert assembled(data) == {
        "message": {name: value for name, value in completion["choices"][0]["message"].items() if value},
        "logprobs": (completion["choices"][0]["logprobs"] or {"content": []})["content"],
        "finish_reason": completion["choices"][0]["finish_reason"],
    }
    assert list(losses) == list(from_hub.losses)


def assembled(data: bytes) -> dict[str, Any]:
    """The message that a client accumulates from a stream."""
    message: dict[str, Any] = {}
    tokens: list[Any] = []
    finish_reason = None
    for frame in frames_of(data):
        if frame.data == sse.DONE:
            continue
        choice = json.loads(frame.data)["choices"][0]
        finish_reason = choice["finish_reason"]
        tokens += (choice["logprobs"] or {"content": []})["content"]
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    add_piece(message.setdefault("tool_calls", []), piece)
            else:
                message[name] = message.get(name, type(value)()) + value
    return {
        "message": {name: value for name, value in message.items() if value},
        "logprobs": tokens,
        "finish_reason": finish_reason,
    }


def add_piece(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece.pop("index")
    if index == len(calls):
        calls.append(piece)
        return
    for kind in ("function", "custom"):
        for name, value in piece.get(kind, {}).items():
            calls[index][kind][name] += value


# To the hub


def test_usage_and_service_tier_are_read_from_the_server() -> None:
    """REQ-4, REQ-5."""
    response, _ = read_whole(
        body({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 2}, service_tier="flex")
    )
    assert response.usage is not None
    assert response.usage.total_tokens == 3
    assert response.service_tier == "flex"


def test_message_is_read_beside_an_empty_delta() -> None:
    """The form of a current search API."""
    message = {"role": "assistant", "content": "Paris."}
    choice = {"index": 0, "message": message, "delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
    assert summary_of(read_whole(json.dumps({"choices": [choice]}).encode())[0]) == ["OutputText: Paris.", "completed"]


def test_call_form_follows_its_type_or_the_filled_member() -> None:
    """TOOL-3: servers with a member for each form fill one and send the other empty, or null."""
    function, none = {"name": "get_time", "arguments": "{}"}, {"name": "", "arguments": ""}
    custom, empty = {"name": "apply_patch", "input": "x"}, {"name": "", "input": ""}
    calls: list[dict[str, Any]] = [
        {"type": "function", "function": function, "custom": empty},
        {"function": function, "custom": empty},
        {"type": "custom", "function": none, "custom": custom},
        {"function": none, "custom": custom},
        {"function": None, "custom": custom},
        {"type": "function", "function": None, "custom": custom},
        {"type": "custom", "function": function, "custom": None},
    ]
    for written in calls:
        response, losses = read_whole(body({"content": None, "tool_calls": [{"id": "a", **written}]}))
        is_custom = written.get("custom") == custom
        assert summary_of(response) == ["a = apply_patch[x]" if is_custom else "a = get_time({})", "completed"], written
        assert list(losses) == []


def test_answer_without_a_finish_reason_is_complete() -> None:
    assert summary_of(read_whole(b'{"choices":[{"message":{"content":"a"}}]}')[0]) == ["OutputText: a", "completed"]


def test_every_entry_of_the_call_list_is_a_call() -> None:
    """For any index and id."""
    entries = [call(0, "a", "get_time", "{"), call(0, "a", "get_time", "}"), call(0, None, "get_time", "{}")]
    response, losses = read_whole(body({"content": None, "tool_calls": entries}))
    assert summary_of(response) == ["a = get_time({)", "call_2 = get_time(})", "call_4 = get_time({})", "completed"]
    assert [loss.path for loss in losses] == ["tool_calls.id"]


def test_empty_answer_has_no_output() -> None:
    """E-3."""
    assert summary_of(read_whole(body({"content": None}))[0]) == ["completed"]
    assert summary_of(read_whole(body({"content": ""}))[0]) == ["completed"]


def test_lone_surrogates_are_a_loss() -> None:
    response, losses = read_whole(b'{"choices":[{"message":{"content":"a\\ud83d"}}]}')
    assert summary_of(response) == ["OutputText: a\ufffd", "completed"]
    assert [loss.path for loss in losses] == ["stream"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "upstream_invalid_response"),
        (b"<html>", "upstream_invalid_response"),
        (b"[]", "upstream_invalid_response"),
        (b"{}", "upstream_invalid_response"),
        (b'{"choices":[]}', "upstream_invalid_response"),
        (b'{"choices":[null]}', "upstream_invalid_response"),
        (b'{"choices":"no"}', "upstream_invalid_response"),
        (b'{"choices":[{"message":{"content":"a"},"finish_reason":"error"}]}', "upstream_error"),
        (b'{"error":{"message":"slow down","code":429}}', "rate_limit_exceeded"),
        (b'{"object":"error","message":"no such model","code":404}', "model_not_found"),
        (b'{"detail":"it broke"}', "upstream_error"),
    ],
)
def test_body_without_a_completion_raises(answer: bytes, code: str) -> None:
    """ERR-4."""
    with pytest.raises(ApiError) as raised:
        read_whole(answer)
    assert raised.value.code == code
    assert isinstance(raised.value, UpstreamFault | ClientFault)


# From the hub


def test_completion_has_the_shape_of_the_api() -> None:
    response, _ = read_whole(body({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 2}))
    assert encoded(response) == {
        "id": "chatcmpl-resp_1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "total_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_answer_without_text_has_no_invented_text() -> None:
    """E-3: empty without content, null where something else replaces it."""
    empty, _ = read_whole(body({"content": None}))
    assert encoded(empty)["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    called, _ = read_whole(body({"tool_calls": [call(0, "a", "get_time", "{}")]}))
    assert encoded(called)["choices"][0]["message"]["content"] is None
    refused, _ = read_whole(body({"refusal": "no"}))
    assert encoded(refused)["choices"][0]["message"] == {"role": "assistant", "content": None, "refusal": "no"}


def test_failed_response_raises_its_error() -> None:
    failed = replace(INITIAL_RESPONSE, status="failed", error=Error(code="overloaded", message="busy"))
    with pytest.raises(ApiError) as raised:
        response_from_hub(failed, REQUEST)
    assert (raised.value.status, raised.value.code, raised.value.message) == (503, "overloaded", "busy")


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress"])
def test_unfinished_response_is_refused(status: str) -> None:
    with pytest.raises(ApiError, match=status):
        response_from_hub(replace(INITIAL_RESPONSE, status=status), REQUEST)
