from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generate.events import counting_stamps
from tests.testing.requests import make_request, send_request
from tests.testing.turns import turns

from antiphon import sse
from antiphon.dialects import chat
from antiphon.protocol.content import OutputText
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import CustomTool, FunctionToolParam
from antiphon.testing import (
    ChatServer,
    custom_call,
    end,
    finish,
    interleaved,
    raw,
    reasoning,
    refusal,
    text,
    tool_call,
    turn,
    usage,
)
from antiphon.testing.chat.server import ChatBehavior, make_prompt
from antiphon.testing.improvise import OfferedTool, Prompt
from antiphon.testing.rules import ServerLimits
from antiphon.testing.script import End, ScriptedTurn

pytestmark = pytest.mark.without_coverage
PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "What's the weather in Rome?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
REQUEST = Request(model="m", input="hi", tools=[FunctionToolParam(name="f"), CustomTool(name="patch")])


def body(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [USER], **settings}


def streamed(scripted_turn: ScriptedTurn, **settings: Any) -> bytes:
    steps = ChatBehavior().render_stream(
        scripted_turn, make_request(body(stream=True, stream_options={"include_usage": True}, **settings))
    )
    return b"".join(step for step in steps if isinstance(step, bytes))


def chunks(scripted_turn: ScriptedTurn, **settings: Any) -> list[dict[str, Any]]:
    decoder = sse.Decoder()
    return [
        json.loads(frame.data) for frame in decoder.feed(streamed(scripted_turn, **settings)) if frame.data != sse.DONE
    ]


def whole(scripted_turn: ScriptedTurn, **settings: Any) -> Any:
    return json.loads(ChatBehavior().render_body(scripted_turn, make_request(body(**settings))))


def events_of(data: bytes) -> list[StreamEvent]:
    """The stream, as the gateway reads it."""
    decoder = sse.Decoder()
    to_hub = chat.EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_1", created_at=1), counting_stamps())
    events = [event for frame in decoder.feed(data) + decoder.finish() for event in to_hub.feed(frame)]
    return events + to_hub.finish()


def response_of(data: bytes) -> Response:
    """The whole answer, as the gateway reads it."""
    return chat.response_to_hub(
        data, REQUEST, make_initial_response(REQUEST, id="resp_1", created_at=1), counting_stamps()
    )[0]


@settings(max_examples=30)
@given(turns(), st.booleans())
def test_a_stream_and_a_whole_answer_say_the_same_to_the_gateway(scripted_turn: ScriptedTurn, logprobs: bool) -> None:
    """STR-14 begins upstream: the gateway's two ways can only agree if the server's do."""
    logprob_settings = {"logprobs": True, "top_logprobs": 1} if logprobs else {}
    events = events_of(streamed(scripted_turn, **logprob_settings))
    assert find_violations(events) == []
    assert fold_events(events) == response_of(
        ChatBehavior().render_body(scripted_turn, make_request(body(**logprob_settings)))
    )


def test_a_stream_begins_with_the_role_and_ends_with_reason_usage_and_done() -> None:
    output = chunks(turn(text("Hel", "lo")))
    deltas = [chunk["choices"][0]["delta"] for chunk in output[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in output[:-1]] == [None, None, None, "stop"]
    assert (output[-1]["choices"], output[-1]["usage"]["completion_tokens"]) == ([], 2)
    assert len({chunk["id"] for chunk in output}) == 1
    assert streamed(turn(text("a"))).endswith(b"data: [DONE]\n\n")


def test_usage_is_only_streamed_to_who_asks_for_it() -> None:
    steps = ChatBehavior().render_stream(turn(text("a")), make_request(body(stream=True)))
    assert b"usage" not in b"".join(step for step in steps if isinstance(step, bytes))


def test_omitted_parts_are_missing_from_stream_and_body() -> None:
    scripted_turn = turn(text("a"), omit=["finish", "usage", "done"])
    assert b'finish_reason":null}]}\n\n' in streamed(scripted_turn)
    assert b"usage" not in streamed(scripted_turn)
    assert b"[DONE]" not in streamed(scripted_turn)
    assert "usage" not in whole(scripted_turn)
    assert whole(scripted_turn)["choices"][0]["finish_reason"] is None


def test_interleaved_calls_come_in_turns_under_their_own_indexes() -> None:
    scripted_turn = turn(
        interleaved(tool_call("c1", "f", '{"a"', ":1}"), tool_call("c2", "f", "{}")), custom_call("c3", "patch", "+")
    )
    pieces = [call for chunk in chunks(scripted_turn)[1:-2] for call in chunk["choices"][0]["delta"]["tool_calls"]]
    assert [piece["index"] for piece in pieces] == [0, 1, 0, 1, 0, 2, 2]
    assert pieces[0] == {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert pieces[-1] == {"index": 2, "custom": {"input": "+"}}
    message = whole(scripted_turn)["choices"][0]["message"]
    assert [call["id"] for call in message["tool_calls"]] == ["c1", "c2", "c3"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert whole(scripted_turn)["choices"][0]["finish_reason"] == "tool_calls"


def test_reasoning_refusals_and_numbers_are_told_as_scripted() -> None:
    scripted_turn = turn(
        reasoning("hm", "m"), refusal("no"), finish("content_filter"), usage(5, 7, cached=3, reasoning=2)
    )
    output = whole(scripted_turn)
    assert output["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "reasoning_content": "hmm",
    }
    assert output["choices"][0]["finish_reason"] == "content_filter"
    assert [chunk["choices"][0]["delta"] for chunk in chunks(scripted_turn)[1:-2]] == [
        {"reasoning_content": "hm"},
        {"reasoning_content": "m"},
        {"refusal": "no"},
    ]
    assert output["usage"]["total_tokens"] == 12
    assert output["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_reasoning_stands_in_the_field_that_the_server_has_for_it() -> None:
    output = json.loads(
        ChatBehavior(ServerLimits(), "reasoning").render_body(turn(reasoning("hm")), make_request(body()))
    )
    assert output["choices"][0]["message"]["reasoning"] == "hm"


def test_raw_bytes_and_ends_stand_where_they_were_put() -> None:
    steps = ChatBehavior().render_stream(turn(raw(b": 1\n\n"), text("a"), end("rst")), make_request(body(stream=True)))
    assert steps[0] == b": 1\n\n"
    assert steps[3] == End("rst")


def test_logprobs_are_given_with_every_piece_when_asked_for() -> None:
    """STR-12, at its source."""
    events = events_of(streamed(turn(text("a", "b")), logprobs=True, top_logprobs=2))
    deltas = [event for event in events if isinstance(event, OutputTextDelta)]
    assert [[len(token.top_logprobs) for token in delta.logprobs or ()] for delta in deltas] == [[2], [2]]
    output = whole(turn(text("a", "b")), logprobs=True)["choices"][0]["logprobs"]
    assert [token["token"] for token in output["content"]] == ["a", "b"]


CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
OFFERED = OfferedTool("get_weather", TOOL["function"]["parameters"])  # type: ignore[index]
QUESTION = "What's the weather in Rome?"
PROMPTS: list[tuple[dict[str, Any], Prompt]] = [
    (body(), Prompt(text=QUESTION)),
    (body({"role": "system", "content": "a"}), Prompt(text="")),
    (body({"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}), Prompt(text="look", media=1)),
    (body(tools=[TOOL]), Prompt(text=QUESTION, tools=(OFFERED,))),
    (body(tools=[TOOL], tool_choice="none"), Prompt(text=QUESTION, tools=(OFFERED,), choice="none")),
    (
        body(
            tools=[TOOL, {"type": "custom", "custom": {"name": "patch"}}],
            tool_choice={"type": "custom", "custom": {"name": "patch"}},
        ),
        Prompt(text=QUESTION, tools=(OfferedTool("patch", {}, "custom"),), choice="required"),
    ),
    (
        body(
            tools=[TOOL], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}}
        ),
        Prompt(text=QUESTION, tools=(OFFERED,), choice="required"),
    ),
    (body(tools=[TOOL], parallel_tool_calls=False), Prompt(text=QUESTION, tools=(OFFERED,), parallel=False)),
    (body(USER, CALLED, RESULT), Prompt(text=QUESTION, results=(("get_weather", "sunny"),), calls_before=1)),
    (
        body(USER, CALLED, RESULT, CALLED, {**RESULT, "content": "rain"}),
        Prompt(text=QUESTION, results=(("get_weather", "rain"),), calls_before=2),
    ),
    (body(USER, CALLED, RESULT, USER), Prompt(text=QUESTION, calls_before=1)),
    (body(response_format={"type": "json_object"}), Prompt(text=QUESTION, schema={})),
    (
        body(response_format={"type": "json_schema", "json_schema": {"schema": {"a": 1}}}),
        Prompt(text=QUESTION, schema={"a": 1}),
    ),
    (body(response_format={"type": "text"}), Prompt(text=QUESTION)),
    (body(reasoning_effort="low", max_tokens=3), Prompt(text=QUESTION, thinks=True, max_pieces=3)),
    (body(reasoning_effort="none", max_completion_tokens=4), Prompt(text=QUESTION, max_pieces=4)),
]


@pytest.mark.parametrize(("request_body", "prompt"), PROMPTS)
def test_a_request_is_understood(request_body: dict[str, Any], prompt: Prompt) -> None:
    assert make_prompt(request_body) == prompt


@pytest.mark.io
def test_without_a_script_it_calls_a_tool_and_sums_up_the_result() -> None:
    with ChatServer() as server:
        first = send_request(server, PATH, body(tools=[TOOL])).json["choices"][0]
        second = send_request(
            server, PATH, body(USER, first["message"], {**RESULT, "tool_call_id": "call_1"}, tools=[TOOL])
        ).json
    assert first["finish_reason"] == "tool_calls"
    assert second["choices"][0]["message"]["content"] == "get_weather says: sunny"
    assert server.refusals == []


@pytest.mark.io
def test_the_sdk_of_the_api_s_maker_reads_it() -> None:
    with (
        ChatServer([turn(text("Hel", "lo"))] * 2, key="k") as server,
        openai.OpenAI(api_key="k", base_url=server.base_url) as client,
    ):
        plain = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert plain.choices[0].message.content == "Hello"
        assert [chunk.choices[0].delta.content for chunk in stream] == ["", "Hel", "lo", None]


def test_the_text_arrives_as_it_was_said() -> None:
    long_text = 'Grüße, "世界"\u2028\n\ndata: [DONE]\n\n\\ 😀'
    part = next(item for item in fold_events(events_of(streamed(turn(text(*long_text))))).output)
    assert [content.text for content in getattr(part, "content", []) if isinstance(content, OutputText)] == [long_text]
