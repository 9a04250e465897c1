from __future__ import annotations

from typing import Any

import openai
import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.generate.events import counting_stamps
from tests.testing.requests import make_request, send_request
from tests.testing.turns import turns

from antiphon import sse
from antiphon.dialects import responses
from antiphon.protocol import codec
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.testing import (
    ResponsesServer,
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
from antiphon.testing.improvise import OfferedTool, Prompt
from antiphon.testing.responses.rules import make_encrypted_content
from antiphon.testing.responses.server import ResponsesBehavior, make_prompt
from antiphon.testing.script import End, ScriptedTurn

pytestmark = pytest.mark.without_coverage
PATH = "/v1/responses"
QUESTION = "What's the weather in Rome?"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def body(**settings: Any) -> dict[str, Any]:
    return {"model": "m", "input": QUESTION, **settings}


def streamed(scripted_turn: ScriptedTurn, **settings: Any) -> bytes:
    steps = ResponsesBehavior().render_stream(scripted_turn, make_request(body(**settings)))
    return b"".join(step for step in steps if isinstance(step, bytes))


def events(scripted_turn: ScriptedTurn, **settings: Any) -> list[StreamEvent]:
    """The events to the letter, nothing mended."""
    frames = sse.Decoder().feed(streamed(scripted_turn, **settings))
    return [codec.decode_event(frame.data) for frame in frames if frame.data != sse.DONE]


def whole(scripted_turn: ScriptedTurn, **settings: Any) -> Response:
    return codec.decode_response(ResponsesBehavior().render_body(scripted_turn, make_request(body(**settings))))


def timeless(response: Response) -> Response:
    return replace(response, created_at=0, completed_at=None)


@settings(max_examples=30)
@given(turns())
def test_a_stream_obeys_the_grammar_and_says_what_the_whole_answer_says(scripted_turn: ScriptedTurn) -> None:
    """STR-14, on the upstream's side."""
    output = events(scripted_turn)
    assert find_violations(output) == []
    assert timeless(fold_events(output)) == timeless(whole(scripted_turn))


def test_the_gateway_reads_the_stream_without_mending() -> None:
    scripted_turn = turn(reasoning("hm"), text("a", "b"), tool_call("c1", "get_weather", "{}"))
    request = Request(model="m", input=QUESTION)
    to_hub = responses.EventsToHub(
        request, make_initial_response(request, id="resp_1", created_at=1), counting_stamps()
    )
    read = [
        event for frame in sse.Decoder().feed(streamed(scripted_turn)) for event in to_hub.feed(frame)
    ] + to_hub.finish()
    assert [type(event) for event in read] == [type(event) for event in events(scripted_turn)]
    assert list(to_hub.losses) == []


def test_kinds_of_content_make_items_and_pieces_make_deltas() -> None:
    calls = interleaved(tool_call("c1", "f", "{", "}"), custom_call("c2", "patch", "+"))
    response = whole(turn(reasoning("h", "m"), text("a"), text("b"), refusal("no"), calls, text("c")))
    assert [codec.encode(item).partition(b",")[0] for item in response.output] == [
        b'{"type":"reasoning"',
        b'{"type":"message"',
        b'{"type":"function_call"',
        b'{"type":"custom_tool_call"',
        b'{"type":"message"',
    ]
    assert len([event for event in events(turn(text("a", "b"))) if isinstance(event, OutputTextDelta)]) == 2


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("stop", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("error", "failed", None),
    ],
)
def test_the_finish_reason_decides_how_the_response_ends(reason: str, status: str, why: str | None) -> None:
    response = whole(turn(text("a"), finish(reason), usage(3, 4, cached=1, reasoning=2)))
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (status, why)
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.input_tokens_details.cached_tokens) == (7, 1)


def test_arguments_cut_by_the_limit_are_an_incomplete_call() -> None:
    response = whole(turn(tool_call("c1", "f", '{"a'), finish("length")))
    assert getattr(response.output[0], "status", None) == "incomplete"


def test_omitted_parts_are_missing_from_the_stream() -> None:
    assert b"response.completed" not in streamed(turn(text("a"), omit=["finish"]))
    assert b"[DONE]" not in streamed(turn(text("a"), omit=["done"]))
    assert whole(turn(text("a"), omit=["usage"])).usage is None


def test_raw_bytes_and_ends_stand_where_they_were_put() -> None:
    steps = ResponsesBehavior().render_stream(turn(raw(b": 1\n\n"), end("rst")), make_request(body()))
    assert steps[:2] == [b": 1\n\n", End("rst")]


def test_logprobs_are_given_with_every_piece_when_asked_for() -> None:
    """STR-12, at its source."""
    output = events(turn(text("a", "b")), include=["message.output_text.logprobs"], top_logprobs=2)
    deltas = [event for event in output if isinstance(event, OutputTextDelta)]
    assert [[len(token.top_logprobs) for token in delta.logprobs or ()] for delta in deltas] == [[2], [2]]


CALL = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sunny"}]}
USER = {"role": "user", "content": QUESTION}
IMAGE = {"type": "input_image", "image_url": "https://example.org/a.png"}
PARAMETERS: Any = TOOL["parameters"]
OFFERED = OfferedTool("get_weather", PARAMETERS)
PROMPTS: list[tuple[dict[str, Any], Prompt]] = [
    (body(), Prompt(text=QUESTION)),
    (body(input=[{"role": "system", "content": "a"}]), Prompt(text="")),
    (
        body(input=[{"role": "user", "content": [{"type": "input_text", "text": "look"}, IMAGE]}]),
        Prompt(text="look", media=1),
    ),
    (body(tools=[TOOL], tool_choice="required"), Prompt(text=QUESTION, tools=(OFFERED,), choice="required")),
    (
        body(tools=[TOOL, {"type": "custom", "name": "patch"}], tool_choice={"type": "custom", "name": "patch"}),
        Prompt(text=QUESTION, tools=(OfferedTool("patch", {}, "custom"),), choice="required"),
    ),
    (
        body(tools=[TOOL], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"name": "get_weather"}]}),
        Prompt(text=QUESTION, tools=(OFFERED,)),
    ),
    (body(parallel_tool_calls=False), Prompt(text=QUESTION, parallel=False)),
    (body(input=[USER, CALL, RESULT]), Prompt(text=QUESTION, results=(("get_weather", "sunny"),), calls_before=1)),
    (
        body(input=[USER, CALL, RESULT, {"type": "reasoning", "summary": []}, CALL, {**RESULT, "output": "rain"}]),
        Prompt(text=QUESTION, results=(("get_weather", "rain"),), calls_before=2),
    ),
    (body(text={"format": {"type": "json_object"}}), Prompt(text=QUESTION, schema={})),
    (body(text={"format": {"type": "json_schema", "schema": {"a": 1}}}), Prompt(text=QUESTION, schema={"a": 1})),
    (body(reasoning={"effort": "low"}, max_output_tokens=16), Prompt(text=QUESTION, thinks=True, max_pieces=16)),
]


@pytest.mark.parametrize(("request_body", "prompt"), PROMPTS)
def test_a_request_is_understood(request_body: dict[str, Any], prompt: Prompt) -> None:
    assert make_prompt(request_body) == prompt


@pytest.mark.io
def test_without_a_script_it_calls_a_tool_and_sums_up_the_result() -> None:
    with ResponsesServer() as server:
        output = send_request(server, PATH, body(tools=[TOOL])).json["output"]
        second = send_request(
            server, PATH, body(input=[USER, *output, {**RESULT, "call_id": "call_1"}], tools=[TOOL])
        ).json
    assert output[0]["type"] == "function_call"
    assert second["output"][0]["content"][0]["text"] == "get_weather says: sunny"
    assert server.refusals == []


@pytest.mark.io
def test_the_sdk_of_the_api_s_maker_reads_it() -> None:
    with (
        ResponsesServer([turn(text("Hel", "lo"))] * 2) as server,
        openai.OpenAI(api_key="k", base_url=server.base_url) as client,
    ):
        assert client.responses.create(model="m", input="hi").output_text == "Hello"
        with client.responses.stream(model="m", input="hi") as stream:
            assert stream.get_final_response().output_text == "Hello"


@pytest.mark.io
def test_models_are_listed() -> None:
    with ResponsesServer() as server:
        assert [model["id"] for model in send_request(server, "/v1/models", method="GET").json["data"]] == ["mock-1"]


@pytest.mark.io
def test_reasoning_is_sealed_for_who_asks_for_that_and_taken_back() -> None:
    """RSN-2: each item for itself."""
    scripted_turn = turn(reasoning("h", "m"), text("a"), reasoning("so"))
    with ResponsesServer([scripted_turn, scripted_turn]) as server:
        request_body = {"model": "mock-1", "input": "hi"}
        plain = send_request(server, "/v1/responses", request_body).json["output"]
        thoughts = send_request(
            server, "/v1/responses", {**request_body, "include": ["reasoning.encrypted_content"]}
        ).json["output"]
    assert not any("encrypted_content" in item for item in plain)
    issued = [(item["id"], item["encrypted_content"]) for item in thoughts if item["type"] == "reasoning"]
    assert issued == [(id, make_encrypted_content(id, "fake")) for id, _ in issued]
    assert len(issued) == 2
