"""Reasoning through chat servers and chat clients and back to its server (RSN-1 … RSN-4)."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from msgspec import UNSET
from tests.dialects.chat.reading import REQUEST, call, chunk, frames_of, read, read_frames, read_whole

from antiphon import sse
from antiphon.dialects.chat import EventsFromHub, request_from_hub, request_to_hub, response_from_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.envelope import seal_reasoning, unseal_reasoning
from antiphon.protocol import codec
from antiphon.protocol.content import OutputTextParam, ReasoningText, SummaryText
from antiphon.protocol.items import FunctionCallOutputParam, ItemParam, MessageParam, Reasoning, ReasoningParam
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import ReasoningConfigParam, ReasoningEffort, Request
from antiphon.protocol.response import Response

BACK = ChatWire(maker="lab", reasoning_field="reasoning_content")
DETAILS = ChatWire(maker="router")
SIGNED = {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "format": "f", "index": 0}
USER = MessageParam(role="user", content="hi")
ANSWER = MessageParam(role="assistant", content="so")


def envelopes(response: Response) -> list[Any]:
    sealed = [item.encrypted_content for item in response.output if isinstance(item, Reasoning)]
    return [unseal_reasoning(each) if each else None for each in sealed]


def sent(items: list[ItemParam], wire: ChatWire) -> tuple[list[dict[str, Any]], list[str]]:
    body, losses = request_from_hub(Request(model="m", input=[USER, *items]), wire)
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return messages[1:], [loss.path for loss in losses]


def taken(message: dict[str, Any]) -> tuple[list[Any], list[str]]:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", **message}]}
    request, losses = request_to_hub(json.dumps(body).encode())
    assert isinstance(request.input, list)
    return request.input[1:], [loss.path for loss in losses]


def output_as_input(response: Response) -> list[ItemParam]:
    items: list[ItemParam] = codec.decode_as(codec.encode(response.output), list[ItemParam])
    return items


# From a server, and back to it


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_text_is_sealed_with_its_maker(field: Any) -> None:
    """RSN-2: the text is restored although the client sends back only the sealed form."""
    wire = ChatWire(maker="lab", reasoning_field=field)
    reading = read(
        chunk(**{field: "Let "}), chunk(**{field: "me."}), chunk(tool_calls=[call(0, "a", "get_time", "{}")]), wire=wire
    )
    thought, made = output_as_input(reading.response)
    assert isinstance(thought, ReasoningParam)
    assert thought.content == [ReasoningText(text="Let me.")]
    (envelope,) = envelopes(reading.response)
    assert (envelope.maker, envelope.content) == ("lab", {"reasoning_content": "Let me."})
    bare = ReasoningParam(summary=[], encrypted_content=thought.encrypted_content)
    messages, losses = sent([bare, made, FunctionCallOutputParam(call_id="a", output="now")], wire)
    assert messages[0][field] == "Let me."
    assert losses == []


def test_reasoning_text_without_a_maker_is_not_sealed() -> None:
    """RSN-1: sealing it would only cost bandwidth."""
    assert envelopes(read(chunk(reasoning_content="Hm."), chunk(content="So.")).response) == [None]


def test_reasoning_in_tags_is_sealed() -> None:
    """RSN-2."""
    (envelope,) = envelopes(read(chunk(content="<think>Hm.</think>So."), wire=BACK).response)
    assert envelope.content == {"reasoning_content": "Hm."}


def test_reasoning_details_are_returned_to_their_server_unchanged() -> None:
    """RSN-2: pieces are joined, and a late signature belongs to its text, streamed or not."""
    sealed = {"type": "reasoning.encrypted", "data": "c2VhbGVk", "id": "a", "index": 1}
    pieces = [
        chunk(reasoning="H", reasoning_details=[{"type": "reasoning.text", "text": "H", "format": "f", "index": 0}]),
        chunk(
            reasoning="m.", reasoning_details=[{"type": "reasoning.text", "text": "m.", "signature": None, "index": 0}]
        ),
        chunk(reasoning_details=[{"type": "reasoning.text", "signature": "c2ln", "index": 0}]),
        chunk(reasoning_details=[sealed]),
        chunk(tool_calls=[call(0, "a", "get_time", "{}")]),
    ]
    streamed = read(*pieces, wire=DETAILS)
    message = {
        "reasoning": "Hm.",
        "reasoning_details": [SIGNED, sealed],
        "tool_calls": [call(0, "a", "get_time", "{}")],
    }
    whole, _ = read_whole(
        json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode(), DETAILS
    )
    assert envelopes(streamed.response) == envelopes(whole)
    answered = [*output_as_input(whole), FunctionCallOutputParam(call_id="a", output="now")]
    messages, losses = sent(answered, DETAILS)
    assert messages[0]["reasoning_details"] == [SIGNED, sealed]
    assert losses == []
    assert list(streamed.losses) == []


def test_details_without_an_index_stay_separate_within_a_chunk() -> None:
    """RSN-2."""
    details = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b", "signature": "s"}]
    (envelope,) = envelopes(read(chunk(reasoning_details=details), wire=DETAILS).response)
    assert envelope.content == {"reasoning_details": details}


def test_detail_without_text_is_sealed() -> None:
    """RSN-1: sealed content alone is an item; an empty detail is none."""
    reading = read(
        chunk(reasoning_details=[{"type": "reasoning.text", "text": ""}]),
        chunk(content="So."),
        chunk(reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
        wire=DETAILS,
    )
    assert reading.summary == ["OutputText: So.", "sealed: x", "completed"]


def test_surrogate_halves_are_joined_in_the_envelope() -> None:
    """RSN-2."""
    first = b'{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"\\ud83d"}]}}]}'
    second = (
        b'{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"\\ude00!","signature":"s"}]}}]}'
    )
    (envelope,) = envelopes(read(first, second, wire=DETAILS).response)
    assert envelope.content["reasoning_details"] == [{"type": "reasoning.text", "text": "😀!", "signature": "s"}]


def test_reasoning_details_of_the_deepest_allowed_nesting_are_sealed() -> None:
    """F-4, RSN-2: whatever can be decoded can be sent back."""
    depth = MAX_NESTING - 6  # the brackets around it
    deep = b'{"choices":[{"delta":{"reasoning_details":[{"type":"x","data":%b1%b}]}}]}' % (b"[" * depth, b"]" * depth)
    reading = read(deep, wire=DETAILS)
    assert list(reading.losses) == []
    (envelope,) = envelopes(reading.response)
    assert json.dumps(envelope.content).count("[") == depth + 1


@pytest.mark.parametrize("sealed", [seal_reasoning("other", {"reasoning_content": "Hm."}), "gAAAAABpM0Yj"])
def test_reasoning_of_another_maker_is_dropped(sealed: str) -> None:
    """RSN-3: with and without plain text."""
    thought = ReasoningParam(summary=[], content=[ReasoningText(text="Hm.")], encrypted_content=sealed)
    messages, losses = sent([thought, ANSWER], BACK)
    assert messages == [{"role": "assistant", "content": "so"}]
    assert losses == ["input[1]"]


def test_own_reasoning_that_is_not_wanted_is_a_loss() -> None:
    """RSN-2, F-4: outside the tool loop, before an empty turn, and in an envelope with unknown content."""
    thought = ReasoningParam(summary=[], encrypted_content=seal_reasoning("lab", {"reasoning_content": "Hm."}))
    assert sent([thought, ANSWER, USER], BACK)[1] == ["input[1]"]
    details = ReasoningParam(summary=[], encrypted_content=seal_reasoning("router", {"reasoning_details": [SIGNED]}))
    assert sent([ANSWER, USER, details], DETAILS)[1] == ["input[3]"]
    odd = ReasoningParam(
        summary=[SummaryText(text="s")], encrypted_content=seal_reasoning("lab", {"reasoning_details": 3})
    )
    assert sent([odd, ANSWER], BACK) == ([{"role": "assistant", "content": "so", "reasoning_content": "s"}], [])


# To a client, and back from it


def client_of(*pieces: dict[str, Any], wire: ChatWire = BACK) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The message of the plain answer, and the deltas of the same as a stream."""
    response = read(*pieces, wire=wire).response
    body, losses = response_from_hub(response, REQUEST)
    assert list(losses) == []
    from_hub = EventsFromHub(REQUEST)
    events = read(*pieces, wire=wire).events
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    decoded = [json.loads(frame.data) for frame in frames_of(data) if frame.data != sse.DONE]
    deltas = [choice["delta"] for each in decoded for choice in each["choices"]]
    return json.loads(body)["choices"][0]["message"], deltas


def test_reasoning_is_restored_from_the_message_that_a_chat_client_echoes() -> None:
    """RSN-2: plain and streaming; the reasoning before a call precedes that call again."""
    pieces = [chunk(reasoning_content="Hm."), chunk(content="So."), chunk(reasoning_content="And?")]
    pieces.append(chunk(tool_calls=[call(0, "a", "get_time", "{}"), call(1, "b", "get_time", "{}")]))
    message, deltas = client_of(*pieces)
    assert message["reasoning_content"] == "Hm.And?"
    assert [(detail["index"], detail.get("id")) for detail in message["reasoning_details"]] == [(0, None), (1, "a")]
    assert [detail for delta in deltas for detail in delta.get("reasoning_details", ())] == message["reasoning_details"]
    items, losses = taken(message)
    assert losses == []
    first, answer, second, one, two = items
    assert (first.content, second.content) == ([ReasoningText(text="Hm.And?")], UNSET)
    assert isinstance(answer, MessageParam)
    assert [item.call_id for item in (one, two)] == ["a", "b"]
    answered = [FunctionCallOutputParam(call_id=id, output="now") for id in ("a", "b")]
    messages, _ = sent([first, answer, second, one, two, *answered], BACK)
    assert [message.get("reasoning_content") for message in messages] == ["Hm.", "And?", None, None]


def test_trailing_sealed_reasoning_is_sent_at_the_end() -> None:
    """RSN-2, STR-14."""
    message, deltas = client_of(chunk(content="So."), chunk(reasoning_content="Hm."))
    assert len(message["reasoning_details"]) == 1
    assert deltas[-1] == {"reasoning_details": message["reasoning_details"]}


def test_custom_call_keeps_its_reasoning() -> None:
    """RSN-2."""
    entry = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "apply_patch", "input": "x"}}
    message, _ = client_of(chunk(reasoning_content="Hm."), chunk(tool_calls=[entry]))
    items, _ = taken(message)
    assert [type(item).__name__ for item in items] == ["ReasoningParam", "CustomToolCallParam"]


TEXT, SUMMARY = {"type": "reasoning.text", "text": "Hm."}, {"type": "reasoning.summary", "summary": "short"}


def test_text_of_details_is_read() -> None:
    """RSN-1: a summary beside a text only repeats it."""

    def read_details(*details: dict[str, Any], **members: Any) -> tuple[Any, Any]:
        (item, _), losses = taken({"content": "so", "reasoning_details": [*details], **members})
        assert losses == []
        return item.content, item.summary

    text, summary = ReasoningText(text="Hm."), SummaryText(text="short")
    assert read_details(TEXT, SUMMARY) == ([text], [])
    assert read_details(SUMMARY) == ([], [summary])
    assert read_details(TEXT, reasoning="Hm.") == ([text], [])
    assert read_details({**TEXT, "signature": "s"}, {"type": "new", "x": 1}, {"type": "reasoning.text"}) == ([text], [])
    assert taken({"content": "so", "reasoning_details": [{"type": "new"}]})[0] == [
        MessageParam(role="assistant", content=[OutputTextParam(text="so")])
    ]


@pytest.mark.parametrize(
    "details",
    [
        [TEXT, SUMMARY],
        [SUMMARY],
        [SUMMARY, {**TEXT, "signature": "s"}],
        [{"type": "reasoning.encrypted", "data": "x", "id": 3}, TEXT, {"type": "new", "x": 1}],
    ],
)
def test_details_of_a_chat_server_are_returned_to_any_chat_server(details: list[dict[str, Any]]) -> None:
    """RSN-2: unchanged and in their order, with and without a seal."""
    items, losses = taken({"content": "so", "reasoning_details": details})
    assert losses == []
    messages, losses = sent(items, DETAILS)
    assert messages == [{"role": "assistant", "content": "so", "reasoning_details": details}]
    assert losses == []


def test_details_of_a_server_and_envelopes_stay_apart() -> None:
    """RSN-2: the server's details come first; an envelope is placed before its call."""
    sealed = seal_reasoning("router", {"reasoning_details": [SIGNED]})
    envelope = {"type": "reasoning.encrypted", "data": sealed, "id": "a"}
    calls = {"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    items, _ = taken({**calls, "reasoning_details": [envelope, {"type": "reasoning.encrypted", "data": "x"}]})
    assert [item.encrypted_content for item in items[:2]] == [
        seal_reasoning("any-chat", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}),
        sealed,
    ]
    (thought, _), _ = taken({**calls, "reasoning_details": [TEXT, envelope]})
    assert (thought.content, thought.encrypted_content) == ([ReasoningText(text="Hm.")], sealed)


def test_reasoning_survives_two_gateways() -> None:
    """Law (d): a gateway behind a gateway."""
    reading = read(chunk(reasoning_content="Hm."), chunk(tool_calls=[call(0, "a", "get_time", "{}")]), wire=BACK)
    from_hub = EventsFromHub(REQUEST)
    again = read_frames(frames_of(b"".join(map(from_hub.feed, reading.events)) + from_hub.finish()), DETAILS)
    (outer,) = envelopes(again.response)
    (detail,) = outer.content["reasoning_details"]
    assert unseal_reasoning(detail["data"]) == envelopes(reading.response)[0]


# Reasoning effort


@pytest.mark.parametrize("effort", get_args(ReasoningEffort))
def test_effort_is_mapped_to_the_levels_of_the_server(effort: ReasoningEffort) -> None:
    """RSN-4: unchanged, or the nearest supported level, which is a loss."""
    nearest: dict[str, str] = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
    request = Request(model="m", input="hi", reasoning=ReasoningConfigParam(effort=effort))
    body, losses = request_from_hub(request)
    assert (json.loads(body)["reasoning_effort"], list(losses)) == (effort, [])
    body, losses = request_from_hub(request, ChatWire(efforts=("low", "medium", "high")))
    assert json.loads(body)["reasoning_effort"] == nearest.get(effort, effort)
    assert [loss.path for loss in losses] == (["reasoning.effort"] if effort in nearest else [])


def test_summary_setting_is_no_loss_and_unset_effort_is_not_sent() -> None:
    """RSN-4: the client gets the open reasoning as its summary."""
    request = Request(model="m", input="hi", reasoning=ReasoningConfigParam(summary="auto"))
    body, losses = request_from_hub(request, ChatWire(efforts=("low",)))
    assert "reasoning_effort" not in json.loads(body)
    assert list(losses) == []


def test_wants_reasoning_back_follows_the_wire_option() -> None:
    """RSN-2."""
    assert BACK.wants_reasoning_back
    assert not DETAILS.wants_reasoning_back
