from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from tests.generate.events import counting_stamps
from tests.testing.requests import Answer, make_request, send_request
from tests.testing.turns import turns

from antiphon import sse
from antiphon.dialects import messages
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import FunctionToolParam
from antiphon.testing import (
    MessagesServer,
    custom_call,
    end,
    finish,
    interleaved,
    messages_error,
    raw,
    reasoning,
    redacted,
    refusal,
    text,
    tool_call,
    turn,
    usage,
)
from antiphon.testing.improvise import OfferedTool, Prompt
from antiphon.testing.messages.errors import error_event
from antiphon.testing.messages.issued_thoughts import signature_of
from antiphon.testing.messages.prompt import make_prompt
from antiphon.testing.messages.rules import MessagesLimits
from antiphon.testing.messages.server import Habit, MessagesBehavior
from antiphon.testing.script import End, ScriptedTurn

pytestmark = pytest.mark.without_coverage
PATH = "/v1/messages"
QUESTION = "What's the weather in Rome?"
USER = {"role": "user", "content": QUESTION}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL = {"name": "get_weather", "input_schema": SCHEMA}
REQUEST = Request(model="m", input="hi", tools=[FunctionToolParam(name="f")])
VERSION = {"some-version": "2023-06-01"}


def body(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 4096, "messages": list(messages) or [USER], **settings}


def streamed(scripted_turn: ScriptedTurn, habits: Collection[Habit] = (), **settings: Any) -> bytes:
    steps = MessagesBehavior(habits=habits).render_stream(scripted_turn, make_request(body(stream=True, **settings)))
    return b"".join(step for step in steps if isinstance(step, bytes))


def events(scripted_turn: ScriptedTurn, *habits: Habit, **settings: Any) -> list[dict[str, Any]]:
    frames = sse.Decoder().feed(streamed(scripted_turn, habits, **settings))
    output = [json.loads(frame.data) for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in output]
    return output


def whole(scripted_turn: ScriptedTurn, **settings: Any) -> Any:
    return json.loads(MessagesBehavior().render_body(scripted_turn, make_request(body(**settings))))


def kinds(scripted_turn: ScriptedTurn, *habits: Habit) -> str:
    """The events in short: what begins, goes on and stops, and under which index."""
    return " / ".join(
        event["type"].removeprefix("content_block_") + (f" {event['index']}" if "index" in event else "")
        for event in events(scripted_turn, *habits)
    )


def message_of(output: list[dict[str, Any]]) -> dict[str, Any]:
    """The stream, put together as a client of this API does."""
    message: dict[str, Any] = output[0]["message"]
    blocks: dict[int, dict[str, Any]] = {}
    for event in output[1:]:
        match event["type"]:
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                name = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                    delta["type"]
                )
                block[name or "json"] += delta[name or "partial_json"]
            case "content_block_stop":
                block = blocks[event["index"]]
                if written := block.pop("json"):
                    block["input"] = json.loads(written)
                message["content"].append(block)
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
    return message


def to_hub(data: bytes) -> Response:
    """The stream, as the gateway reads it."""
    decoder = sse.Decoder()
    reader = messages.EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_1", created_at=1), counting_stamps())
    output = [
        event for frame in decoder.feed(data) + decoder.finish() for event in reader.feed(frame)
    ] + reader.finish()
    assert find_violations(output) == []
    return fold_events(output)


@settings(max_examples=30)
@given(turns())
def test_a_stream_and_a_whole_answer_say_the_same(scripted_turn: ScriptedTurn) -> None:
    """STR-14 begins upstream: the gateway's two ways can only agree if the server's do."""
    assert message_of(events(scripted_turn)) == whole(scripted_turn)
    body_ = MessagesBehavior().render_body(scripted_turn, make_request(body()))
    initial_response = make_initial_response(REQUEST, id="resp_1", created_at=1)
    assert (
        to_hub(streamed(scripted_turn))
        == messages.response_to_hub(body_, REQUEST, initial_response, counting_stamps())[0]
    )


def test_a_stream_begins_with_the_message_and_ends_with_its_stop() -> None:
    output = events(turn(text("Hel"), text("lo")))
    assert [event["type"] for event in output] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    message = output[0]["message"]
    assert (message["id"], message["content"], message["stop_reason"]) == ("msg_1", [], None)
    assert message["usage"]["output_tokens"] == 1
    assert output[3] == {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}
    assert output[6]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert output[6]["usage"]["output_tokens"] == 2


def test_thoughts_are_signed_right_before_their_block_stops() -> None:
    """RSN-1, at its source."""
    output = events(turn(reasoning("so", "?"), redacted("sealed"), text("a")))
    assert output[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert [event["delta"] for event in output[3:6]] == [
        {"type": "thinking_delta", "thinking": "so"},
        {"type": "thinking_delta", "thinking": "?"},
        {"type": "signature_delta", "signature": signature_of("so?")},
    ]
    assert output[6] == {"type": "content_block_stop", "index": 0}
    assert output[7]["content_block"] == {"type": "redacted_thinking", "data": "sealed"}
    assert [block["type"] for block in message_of(output)["content"]] == ["thinking", "redacted_thinking", "text"]


def test_thoughts_that_are_not_to_be_shown_are_signed_all_the_same() -> None:
    scripted_turn = turn(reasoning("so"), text("a"))
    block = whole(scripted_turn, thinking={"type": "adaptive", "display": "omitted"})["content"][0]
    assert block == {"type": "thinking", "thinking": "", "signature": signature_of("")}


def test_calls_come_one_after_the_other_and_their_input_in_pieces() -> None:
    scripted_turn = turn(
        interleaved(tool_call("t1", "f", '{"a"', ":1}"), tool_call("t2", "f", "{}")),
        custom_call("t3", "patch", "+", "1"),
    )
    output = events(scripted_turn)
    assert [event["content_block"]["id"] for event in output if event["type"] == "content_block_start"] == [
        "t1",
        "t2",
        "t3",
    ]
    pieces = [
        (event["index"], event["delta"]["partial_json"]) for event in output if event["type"] == "content_block_delta"
    ]
    assert pieces == [(0, ""), (0, '{"a"'), (0, ":1}"), (1, ""), (2, ""), (2, '{"input":"+1"}')]
    message = whole(scripted_turn)
    assert [block["input"] for block in message["content"]] == [{"a": 1}, {}, {"input": "+1"}]
    assert message["stop_reason"] == "tool_use"


def test_input_that_is_no_json_is_streamed_as_it_was_said() -> None:
    scripted_turn = turn(tool_call("t1", "f", "{bad"))
    assert [event["delta"]["partial_json"] for event in events(scripted_turn)[3:5]] == ["", "{bad"]
    assert whole(scripted_turn)["content"][0]["input"] == {}


REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "pause_turn": "pause_turn",
}


@pytest.mark.parametrize("reason", REASONS)
def test_reasons_are_told_in_the_words_of_this_api(reason: str) -> None:
    assert whole(turn(text("a"), finish(reason)))["stop_reason"] == REASONS[reason]


def test_a_stop_sequence_is_named() -> None:
    output = whole(turn(text("a"), finish("stop_sequence")), stop_sequences=["END"])
    assert (output["stop_reason"], output["stop_sequence"]) == ("stop_sequence", "END")


def test_a_refusal_is_text_and_a_reason() -> None:
    output = whole(turn(refusal("I ", "won't")))
    assert output["content"] == [{"type": "text", "text": "I won't"}]
    assert (output["stop_reason"], output["stop_details"]["type"]) == ("refusal", "refusal")


def test_usage_counts_cached_tokens_separately() -> None:
    output = whole(turn(reasoning("hm"), text("a"), usage(10, 7, cached=4, reasoning=2)))["usage"]
    assert (output["input_tokens"], output["cache_read_input_tokens"], output["output_tokens"]) == (6, 4, 7)
    assert output["output_tokens_details"] == {"thinking_tokens": 2}


def test_omitted_parts_are_missing_from_stream_and_body() -> None:
    scripted_turn = turn(text("a"), omit=["finish", "usage", "done"])
    assert kinds(scripted_turn) == "message_start / start 0 / ping / delta 0 / stop 0"
    assert b"usage" not in streamed(scripted_turn)
    assert (whole(scripted_turn)["stop_reason"], "usage" in whole(scripted_turn)) == (None, False)
    assert events(turn(text("a"), omit=["finish"]))[-2]["delta"]["stop_reason"] is None
    assert "usage" not in events(turn(text("a"), omit=["usage"]))[-2]
    assert kinds(turn(text("a"), omit=["done"])).endswith(" / message_delta")


def test_raw_bytes_and_ends_stand_where_they_were_put() -> None:
    steps = MessagesBehavior().render_stream(
        turn(raw(b": 1\n\n"), text("a"), end("rst")), make_request(body(stream=True))
    )
    assert steps[0] == b": 1\n\n"
    assert steps[5] == End("rst")


def test_an_error_can_come_at_any_time() -> None:
    scripted_turn = turn(raw(error_event()), omit=["finish", "usage", "done"])
    expected = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert events(scripted_turn) == [expected]
    failing = turn(text("a"), finish("error"))
    assert kinds(failing) == "message_start / start 0 / ping / delta 0 / stop 0 / error"
    assert whole(failing)["error"]["type"] == "api_error"


# What poor servers make of text, thoughts and two calls.
POOR = turn(text("a"), reasoning("b"), interleaved(tool_call("t1", "f", '{"a":1}'), tool_call("t2", "f", '{"a":2}')))


def test_a_good_server_closes_each_block_before_the_next() -> None:
    assert kinds(POOR) == (
        "message_start / start 0 / ping / delta 0 / stop 0 / start 1 / delta 1 / delta 1 / stop 1 / start 2 / delta 2 / delta 2 / "
        "stop 2 / start 3 / delta 3 / delta 3 / stop 3 / message_delta / message_stop"
    )


def test_a_server_may_leave_every_block_open() -> None:
    """A bug of peers: blocks overlap when text precedes thinking."""
    assert kinds(POOR, "overlapping") == (
        "message_start / start 0 / ping / delta 0 / start 1 / delta 1 / delta 1 / start 2 / start 3 / delta 2 / delta 3 / "
        "delta 2 / delta 3 / stop 0 / stop 1 / stop 2 / stop 3 / message_delta / message_stop"
    )


def test_a_server_may_give_every_block_the_same_index() -> None:
    assert {event["index"] for event in events(POOR, "shared_index") if "index" in event} == {0}


def test_a_server_may_begin_twice() -> None:
    output = kinds(POOR, "second_start")
    assert " / stop 0 / message_start / start 1 / " in output
    assert output.count("message_start") == 2


def test_a_server_may_give_the_input_at_the_start_alone() -> None:
    output = events(POOR, "input_at_start")
    assert [event["content_block"]["input"] for event in output if "id" in event.get("content_block", {})] == [
        {"a": 1},
        {"a": 2},
    ]
    assert b"input_json_delta" not in streamed(POOR, ["input_at_start"])


@pytest.mark.parametrize(
    "habits",
    [
        ["overlapping"],
        ["shared_index"],
        ["second_start"],
        ["input_at_start"],
        ["overlapping", "second_start", "input_at_start"],
    ],
)
def test_the_gateway_reads_a_poor_server_as_a_good_one(habits: list[Habit]) -> None:
    """Bugs of peers: overlapping blocks, calls sharing index 0, a second start, arguments in one place only."""
    assert to_hub(streamed(POOR, habits)).output == to_hub(streamed(POOR)).output


def test_habits_are_of_streams_alone() -> None:
    poor = MessagesBehavior(habits=["overlapping", "input_at_start"]).render_body(POOR, make_request(body()))
    assert json.loads(poor) == whole(POOR)


# Without a script.

CALL = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}
CALLED = {"role": "assistant", "content": [CALL]}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]}
RESULTS = {"role": "user", "content": [RESULT]}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
OFFERED = OfferedTool("get_weather", SCHEMA)
FORMAT = {"type": "json_schema", "schema": {"a": 1}}
PROMPTS: list[tuple[dict[str, Any], Prompt]] = [
    ({}, Prompt(text=QUESTION)),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}]},
        Prompt(text="look", media=1),
    ),
    ({"messages": [{"role": "assistant", "content": "a"}]}, Prompt(text="")),
    ({"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]}, Prompt(text=QUESTION, tools=(OFFERED,))),
    ({"tools": [TOOL], "tool_choice": {"type": "none"}}, Prompt(text=QUESTION, tools=(OFFERED,), choice="none")),
    ({"tools": [TOOL], "tool_choice": {"type": "any"}}, Prompt(text=QUESTION, tools=(OFFERED,), choice="required")),
    (
        {"tools": [{**TOOL, "name": "f"}, TOOL], "tool_choice": {"type": "tool", "name": "get_weather"}},
        Prompt(text=QUESTION, tools=(OFFERED,), choice="required"),
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        Prompt(text=QUESTION, tools=(OFFERED,), parallel=False),
    ),
    ({"messages": [USER, CALLED, RESULTS]}, Prompt(text=QUESTION, results=(("get_weather", "sunny"),), calls_before=1)),
    (
        {"messages": [USER, CALLED, {"role": "user", "content": [RESULT, {"type": "text", "text": "and now?"}]}]},
        Prompt(text="and now?", calls_before=1),
    ),
    ({"output_config": {"format": FORMAT}}, Prompt(text=QUESTION, schema={"a": 1})),
    ({"output_format": FORMAT}, Prompt(text=QUESTION, schema={"a": 1})),
    ({"system": "Be brief. Answer with one JSON object."}, Prompt(text=QUESTION, schema={})),
    ({"thinking": {"type": "adaptive"}}, Prompt(text=QUESTION, thinks=True)),
    ({"thinking": {"type": "disabled"}, "max_tokens": 3}, Prompt(text=QUESTION, max_pieces=3)),
]


@pytest.mark.parametrize(("change", "prompt"), PROMPTS)
def test_a_request_is_understood(change: dict[str, Any], prompt: Prompt) -> None:
    assert make_prompt({"model": "m", "messages": [USER], **change}) == prompt


def post(server: MessagesServer, request_body: Any, path: str = PATH, **headers: str) -> Answer:
    return send_request(server, path, request_body, headers={**VERSION, **headers})


@pytest.mark.io
def test_without_a_script_it_thinks_calls_a_tool_and_knows_its_thoughts_again() -> None:
    """RSN-1: signed thoughts come back to their server in a loop of tools, and are taken."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with MessagesServer() as server:
        first = post(server, body(tools=[TOOL], thinking=thinking), f"{PATH}?beta=true").json
        call = first["content"][-1]
        results = {"role": "user", "content": [{**RESULT, "tool_use_id": call["id"]}]}
        history = [USER, {"role": "assistant", "content": first["content"]}, results]
        second = post(server, body(*history, tools=[TOOL], thinking=thinking)).json
        first["content"][0]["thinking"] += "!"
        changed = post(server, body(*history, tools=[TOOL]))
    assert [block["type"] for block in first["content"]] == ["thinking", "tool_use"]
    assert call["input"] == {"place": "place"}
    assert second["content"][-1]["text"] == "get_weather says: sunny"
    assert changed.json["error"]["message"] == "messages.1.content.0: Invalid `signature` in `thinking` block"
    assert len(server.refusals) == 1


@pytest.mark.io
def test_signatures_and_sealed_thoughts_of_a_script_are_the_servers_own() -> None:
    with MessagesServer(
        [turn(reasoning("so", signature="own"), redacted("data"), text("a")), turn(text("b"))]
    ) as server:
        first = post(server, body()).json
        second = post(server, body(USER, {"role": "assistant", "content": first["content"]}, USER))
    assert first["content"][:2] == [
        {"type": "thinking", "thinking": "so", "signature": "own"},
        {"type": "redacted_thinking", "data": "data"},
    ]
    assert second.status == 200


@pytest.mark.io
def test_tokens_are_counted_as_they_are_charged() -> None:
    with MessagesServer() as server:
        counted = post(server, {"model": "m", "messages": [USER]}, f"{PATH}/count_tokens")
        charged = post(server, body()).json["usage"]["input_tokens"]
        refused = post(server, body(), f"{PATH}/count_tokens")
    assert counted.json == {"input_tokens": charged}
    assert (refused.status, refused.json["error"]["message"]) == (400, "max_tokens: Extra inputs are not permitted")


@pytest.mark.io
def test_models_are_listed_for_who_has_the_key() -> None:
    with MessagesServer(models=["one", "two"], key="k") as server:
        listed = send_request(server, "/v1/models", method="GET", headers={"x-api-key": "k"}).json
        refused = send_request(server, "/v1/models", method="GET")
    assert ([model["id"] for model in listed["data"]], listed["last_id"]) == (["one", "two"], "two")
    assert refused.json["error"] == {"type": "authentication_error", "message": "x-api-key header is required"}


@pytest.mark.io
@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", PATH, 405), ("POST", "/v1/models", 405), ("POST", "/v1/complete", 404)]
)
def test_nothing_else_is_there(method: str, path: str, status: int) -> None:
    with MessagesServer() as server:
        answer = send_request(server, path, {}, method=method)
    assert (answer.status, answer.json["type"]) == (status, "error")


@pytest.mark.io
def test_a_scripted_error_has_the_form_of_this_api() -> None:
    with MessagesServer([messages_error(529, "busy", headers={"retry-after": "1"}), messages_error(418)]) as server:
        answer = post(server, body())
        odd = post(server, body())
    assert (answer.status, answer.headers["retry-after"]) == (529, "1")
    assert answer.json == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "busy"},
        "request_id": "req_fake",
    }
    assert odd.json["error"] == {"type": "api_error", "message": "scripted"}


@pytest.mark.io
def test_a_server_is_as_strict_as_it_is_told_to_be() -> None:
    request_body = body(
        USER, {"role": "system", "content": "be brief"}, {"role": "assistant", "content": "a"}, USER, USER
    )
    with MessagesServer(alternating=False, system_messages=True, max_bytes=5000) as server:
        taken, huge = post(server, request_body), post(server, body(system="x" * 5000))
    assert (taken.status, huge.status, huge.json["error"]["type"]) == (200, 413, "request_too_large")
    assert MessagesBehavior(MessagesLimits(strict=False)).find_refusal(make_request({"model": "m"})) is None


@pytest.mark.io
def test_the_sdk_of_the_api_s_maker_reads_it() -> None:
    sdk: Any = anthropic  # what it is asked is plain JSON here
    scripted_turn = turn(
        reasoning("so", "?"),
        redacted("data"),
        text("Hel", "lo"),
        tool_call("t1", "get_weather", '{"place"', ':"Rome"}'),
    )
    request_body = {"model": "m", "max_tokens": 100, "messages": [USER], "tools": [TOOL]}
    with (
        MessagesServer(
            [scripted_turn, scripted_turn, turn(text("a"), raw(error_event())), messages_error(529)], key="k"
        ) as server,
        sdk.Anthropic(api_key="k", base_url=server.origin, max_retries=0) as client,
    ):
        plain = client.messages.create(**request_body)
        with client.messages.stream(**request_body) as stream:
            streamed_message = stream.get_final_message()
        with pytest.raises(sdk.APIStatusError) as failed, client.messages.stream(**request_body) as stream:
            stream.until_done()
        with pytest.raises(sdk.APIStatusError) as busy:
            client.messages.create(**request_body)
        counted = client.messages.count_tokens(model="m", messages=[USER])
        models = [model.id for model in client.models.list()]
    assert [block.type for block in plain.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert plain.content[-1].input == {"place": "Rome"}
    assert [block.to_dict() for block in streamed_message.content] == [block.to_dict() for block in plain.content]
    assert streamed_message.usage.output_tokens == plain.usage.output_tokens
    assert (failed.value.body["error"]["type"], busy.value.status_code) == ("overloaded_error", 529)
    assert (counted.input_tokens, models) == (plain.usage.input_tokens, ["mock-1"])
    assert server.refusals == []


def test_the_text_arrives_as_it_was_said() -> None:
    long_text = 'Grüße, "世界"\u2028\n\nevent: message_stop\n\n\\ 😀'
    assert message_of(events(turn(text(*long_text))))["content"] == [{"type": "text", "text": long_text}]
