from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.generate.events import counting_stamps
from tests.testing.requests import make_request, send_request
from tests.testing.turns import turns

from antiphon import sse
from antiphon.dialects import gemini
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import FunctionToolParam
from antiphon.testing import (
    Gate,
    GeminiLimits,
    GeminiServer,
    custom_call,
    end,
    finish,
    gemini_error,
    interleaved,
    raw,
    reasoning,
    redacted,
    refusal,
    text,
    tool_call,
    turn,
    usage,
    wait,
)
from antiphon.testing.fixtures import StartGeminiServer
from antiphon.testing.gemini.errors import error_frame, retry_info
from antiphon.testing.gemini.prompt import make_prompt
from antiphon.testing.gemini.server import GeminiBehavior, blocked, empty
from antiphon.testing.improvise import OfferedTool, Prompt
from antiphon.testing.script import End, ReceivedRequest, ScriptedTurn

pytestmark = pytest.mark.without_coverage
PATH = "/v1beta/models/m:generateContent"
STREAM = "/v1beta/models/m:streamGenerateContent?alt=sse"
ARRAY = "/v1beta/models/m:streamGenerateContent"
QUESTION = "What's the weather in Rome?"
USER = {"role": "user", "parts": [{"text": QUESTION}]}
SCHEMA = {"type": "OBJECT", "properties": {"place": {"type": "STRING"}}, "required": ["place"]}
PLAIN_SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOLS = [{"functionDeclarations": [{"name": "get_weather", "parameters": SCHEMA}]}]
REQUEST = Request(model="m", input="hi", tools=[FunctionToolParam(name="f")])


def body(*contents: Any, **settings: Any) -> dict[str, Any]:
    return {"contents": list(contents) or [USER], **settings}


def model_request(path: str = PATH, **settings: Any) -> ReceivedRequest:
    return replace(make_request(body(**settings)), path=path)


def streamed(
    scripted_turn: ScriptedTurn, behavior: GeminiBehavior | None = None, path: str = STREAM, **settings: Any
) -> bytes:
    steps = (behavior or GeminiBehavior()).render_stream(scripted_turn, model_request(path, **settings))
    return b"".join(step for step in steps if isinstance(step, bytes))


def frames(
    scripted_turn: ScriptedTurn, behavior: GeminiBehavior | None = None, **settings: Any
) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in sse.Decoder().feed(streamed(scripted_turn, behavior, **settings))]


def parts(frames: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """What each frame says."""
    return [frame["candidates"][0]["content"]["parts"] for frame in frames]


def whole(scripted_turn: ScriptedTurn, behavior: GeminiBehavior | None = None, **settings: Any) -> Any:
    return json.loads((behavior or GeminiBehavior()).render_body(scripted_turn, model_request(**settings)))


def events_of(data: bytes) -> list[StreamEvent]:
    """The stream, as the gateway reads it."""
    decoder = sse.Decoder()
    to_hub = gemini.EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_1", created_at=1), counting_stamps())
    events = [event for frame in decoder.feed(data) + decoder.finish() for event in to_hub.feed(frame)]
    return events + to_hub.finish()


def response_of(data: bytes) -> Response:
    """The whole answer, as the gateway reads it."""
    return gemini.response_to_hub(
        data, REQUEST, make_initial_response(REQUEST, id="resp_1", created_at=1), counting_stamps()
    )[0]


@settings(max_examples=30)
@given(turns())
def test_a_stream_and_a_whole_answer_say_the_same_to_the_gateway(scripted_turn: ScriptedTurn) -> None:
    """STR-14 begins upstream: the gateway's two ways can only agree if the server's do."""
    events = events_of(streamed(scripted_turn))
    assert find_violations(events) == []
    assert fold_events(events) == response_of(GeminiBehavior().render_body(scripted_turn, model_request()))


def test_a_stream_has_a_frame_for_each_piece_and_ends_with_the_reason() -> None:
    output = frames(turn(text("Hel", "lo")))
    assert parts(output) == [[{"text": "Hel"}], [{"text": "lo"}], [{"text": ""}]]
    assert [frame["candidates"][0].get("finishReason") for frame in output] == [None, None, "STOP"]
    assert {(frame["modelVersion"], frame["responseId"]) for frame in output} == {("m", "resp-1")}
    assert streamed(turn(text("a"))).count(b"\r\n\r\n") == 2
    assert b"[DONE]" not in streamed(turn(text("a")))


def test_calls_are_told_whole_and_those_at_once_in_one_frame() -> None:
    scripted_turn = turn(
        interleaved(tool_call("c1", "f", '{"a"', ":1}"), tool_call("c2", "f")), custom_call("c3", "patch", "+", "1")
    )
    assert parts(frames(scripted_turn))[:-1] == [
        [
            {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}},
            {"functionCall": {"id": "c2", "name": "f", "args": {}}},
        ],
        [{"functionCall": {"id": "c3", "name": "patch", "args": {"input": "+1"}}}],
    ]
    assert whole(scripted_turn)["candidates"][0]["finishReason"] == "STOP"
    assert len(whole(scripted_turn)["candidates"][0]["content"]["parts"]) == 3


def test_two_calls_of_one_name_may_come_without_ids_and_stay_apart() -> None:
    scripted_turn = turn(interleaved(tool_call("c1", "f", "{}"), tool_call("c2", "f", "{}")))
    call = {"functionCall": {"name": "f", "args": {}}}
    assert parts(frames(scripted_turn, GeminiBehavior(gives_ids=False)))[0] == [call, call]
    calls = [
        item
        for item in fold_events(events_of(streamed(scripted_turn, GeminiBehavior(gives_ids=False)))).output
        if isinstance(item, FunctionCall)
    ]
    assert len({call.call_id for call in calls}) == 2


def test_text_and_call_may_share_a_frame() -> None:
    scripted_turn = turn(reasoning("hm"), text("a", "b"), tool_call("c1", "f", "{}"))
    [frame] = frames(scripted_turn, GeminiBehavior(one_frame=True))
    assert [next(iter(part)) for part in parts([frame])[0]] == ["text", "text", "functionCall"]
    assert frame["candidates"][0]["finishReason"] == "STOP"
    assert (
        GeminiBehavior(one_frame=True).render_stream(turn(text("a"), raw(b": 1\n\n")), model_request(STREAM))[0]
        == b": 1\n\n"
    )


def test_thoughts_are_parts_of_their_own_and_the_call_after_them_is_signed() -> None:
    """RSN-2, at its source."""
    scripted_turn = turn(
        reasoning("hm", "m"), text("So"), interleaved(tool_call("c1", "f", "{}"), tool_call("c2", "f", "{}"))
    )
    output = parts(frames(scripted_turn))
    assert output[:3] == [[{"text": "hm", "thought": True}], [{"text": "m", "thought": True}], [{"text": "So"}]]
    assert ["thoughtSignature" in part for part in output[3]] == [True, False]
    assert output[4] == [{"text": ""}]
    parts_of_whole = whole(scripted_turn)["candidates"][0]["content"]["parts"]
    assert parts_of_whole == [{"text": "hmm", "thought": True}, {"text": "So"}, *output[3]]


def test_where_no_call_follows_the_end_is_signed() -> None:
    scripted_turn = turn(reasoning("hm"), text("So", "."))
    signature = parts(frames(scripted_turn))[-1][0]["thoughtSignature"]
    assert parts(frames(scripted_turn))[-1] == [{"text": "", "thoughtSignature": signature}]
    assert whole(scripted_turn)["candidates"][0]["content"]["parts"][-1] == {
        "text": "So.",
        "thoughtSignature": signature,
    }
    assert whole(turn(reasoning("hm")))["candidates"][0]["content"]["parts"][-1] == {
        "text": "",
        "thoughtSignature": signature,
    }


def test_newer_models_sign_without_telling_their_thoughts() -> None:
    signs = GeminiBehavior(GeminiLimits(signatures=True))
    assert "thoughtSignature" in parts(frames(turn(tool_call("c1", "f", "{}")), signs))[0][0]
    assert "thoughtSignature" in parts(frames(turn(text("a")), signs))[-1][0]
    assert frames(turn(finish("SAFETY")), signs)[0]["candidates"] == [{"finishReason": "SAFETY", "index": 0}]


@pytest.mark.parametrize("thoughts", [redacted("c2VhbGVk"), reasoning(signature="c2VhbGVk")])
def test_a_signature_from_the_script_is_given_to_the_letter(thoughts: Any) -> None:
    assert parts(frames(turn(thoughts))) == [[{"text": "", "thoughtSignature": "c2VhbGVk"}]]
    assert parts(frames(turn(thoughts, tool_call("c1", "f", "{}"))))[0][0]["thoughtSignature"] == "c2VhbGVk"


def test_thoughts_may_come_after_the_text() -> None:
    scripted_turn = turn(text("a"), reasoning("hm"), text("b"))
    assert [part.get("thought") for part in whole(scripted_turn)["candidates"][0]["content"]["parts"]] == [
        None,
        True,
        None,
    ]


@pytest.mark.parametrize(
    ("scripted_turn", "reason"),
    [
        (turn(text("a"), finish("length")), "MAX_TOKENS"),
        (turn(text("a"), finish("content_filter")), "SAFETY"),
        (turn(text("a"), finish("RECITATION")), "RECITATION"),
        (turn(refusal("no")), "SAFETY"),
        (turn(refusal("no"), finish("stop")), "STOP"),
        (turn(finish("MALFORMED_FUNCTION_CALL")), "MALFORMED_FUNCTION_CALL"),
    ],
)
def test_the_reason_to_stop_is_told_in_the_words_of_the_dialect(scripted_turn: ScriptedTurn, reason: str) -> None:
    assert whole(scripted_turn)["candidates"][0]["finishReason"] == reason
    assert frames(scripted_turn)[-1]["candidates"][0]["finishReason"] == reason


def test_arguments_that_are_no_object_make_a_malformed_call() -> None:
    output = whole(turn(text("a"), tool_call("c1", "f", '{"a"')))["candidates"][0]
    assert output["content"]["parts"] == [{"text": "a"}]
    assert (output["finishReason"], output["finishMessage"]) == (
        "MALFORMED_FUNCTION_CALL",
        'Malformed function call: f({"a")',
    )


def test_a_blocked_prompt_has_no_candidates() -> None:
    for output in (whole(blocked("PROHIBITED_CONTENT")), *frames(blocked("PROHIBITED_CONTENT"))):
        assert output["promptFeedback"] == {"blockReason": "PROHIBITED_CONTENT"}
        assert "candidates" not in output
        assert sorted(output["usageMetadata"]) == ["promptTokenCount", "totalTokenCount"]


def test_an_answer_may_have_no_candidates_at_all() -> None:
    assert [output["candidates"] for output in (whole(empty()), *frames(empty()))] == [[], []]


def test_usage_counts_thoughts_apart_and_cached_tokens_inside() -> None:
    scripted_turn = turn(text("a", "b"), usage(10, 7, cached=3, reasoning=2))
    total = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 2,
        "cachedContentTokenCount": 3,
        "totalTokenCount": 17,
    }
    assert whole(scripted_turn)["usageMetadata"] == total
    assert [frame["usageMetadata"]["candidatesTokenCount"] for frame in frames(scripted_turn)] == [1, 2, 5]
    assert frames(scripted_turn)[-1]["usageMetadata"] == total
    assert [frame.get("usageMetadata") for frame in frames(scripted_turn, GeminiBehavior(usage_in="last"))] == [
        None,
        None,
        total,
    ]
    assert [frame.get("usageMetadata") for frame in frames(scripted_turn, GeminiBehavior(usage_in="first"))] == [
        total,
        None,
        None,
    ]


def test_omitted_parts_are_missing_from_stream_and_body() -> None:
    assert "finishReason" not in json.dumps(
        [whole(turn(text("a"), omit=["finish"])), frames(turn(text("a"), omit=["finish"]))]
    )
    assert "usageMetadata" not in json.dumps(
        [whole(turn(text("a"), omit=["usage"])), frames(turn(text("a"), omit=["usage"]))]
    )
    # Without a reason a last frame is still there for the usage, or for a signature.
    assert [list(frame) for frame in frames(turn(text("a"), omit=["finish"]))][-1] == [
        "modelVersion",
        "responseId",
        "usageMetadata",
    ]
    assert len(frames(turn(text("a"), omit=["finish", "usage"]))) == 1
    assert len(frames(turn(text("a"), omit=["finish"]), GeminiBehavior(usage_in="first"))) == 1
    assert len(frames(turn(reasoning("a"), omit=["finish", "usage"]))) == 2


def test_logprobs_are_given_with_every_piece_when_asked_for() -> None:
    """STR-12, at its source."""
    settings: Any = {"generationConfig": {"responseLogprobs": True, "logprobs": 2}}
    output = frames(turn(reasoning("hm"), text("a", "b")), **settings)
    chosen = [frame["candidates"][0].get("logprobsResult", {}).get("chosenCandidates", []) for frame in output]
    assert [[token["token"] for token in tokens] for tokens in chosen] == [[], ["a"], ["b"], []]
    result = whole(turn(text("a", "b")), **settings)["candidates"][0]["logprobsResult"]
    assert [token["token"] for token in result["chosenCandidates"]] == ["a", "b"]
    assert [len(top["candidates"]) for top in result["topCandidates"]] == [2, 2]
    assert "logprobsResult" not in json.dumps(whole(turn(text("a"))))


def test_raw_bytes_errors_and_ends_stand_where_they_were_put() -> None:
    steps = GeminiBehavior().render_stream(
        turn(text("a"), raw(error_frame(503, "overloaded")), end("rst")), model_request(STREAM)
    )
    assert isinstance(steps[1], bytes)
    assert json.loads(steps[1].removeprefix(b"data: "))["error"] == {
        "code": 503,
        "message": "overloaded",
        "status": "UNAVAILABLE",
    }
    assert steps[2] == End("rst")
    response = fold_events(events_of(streamed(turn(text("a"), raw(error_frame(503, "overloaded"))))))
    assert response.status == "failed"


@pytest.mark.io
def test_a_stream_that_nobody_wants_as_events_is_one_array(start_gemini_server: StartGeminiServer) -> None:
    server = start_gemini_server([turn(text("a", "b"), raw(b" "))] * 2)
    array, events = send_request(server, ARRAY, body()), send_request(server, STREAM, body())
    assert array.headers["content-type"] == "application/json"
    assert parts(array.json) == [[{"text": "a"}], [{"text": "b"}], [{"text": ""}]]
    assert events.headers["content-type"] == "text/event-stream"


@pytest.mark.io
def test_a_stream_waits_where_the_script_says(start_gemini_server: StartGeminiServer) -> None:
    gate = Gate()
    server = start_gemini_server([turn(text("a"), wait(gate), text("b"))])
    gate.open()
    assert b'"b"' in send_request(server, STREAM, body()).body


@pytest.mark.io
def test_errors_may_be_scripted_with_a_time_to_come_again(start_gemini_server: StartGeminiServer) -> None:
    answer = send_request(start_gemini_server([gemini_error(429, "slow down", details=[retry_info(30)])]), PATH, body())
    assert answer.status == 429
    assert answer.json["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert answer.json["error"]["details"][0]["retryDelay"] == "30s"
    assert gemini_error(418).body == b'{"error":{"code":418,"message":"scripted","status":"UNKNOWN"}}'


@pytest.mark.io
def test_it_lists_its_models_and_counts_tokens() -> None:
    with GeminiServer(models=["a", "b/c"], key="k") as server:
        key = {"x-goog-api-key": "k"}
        listed = send_request(server, "/v1beta/models", method="GET", headers=key).json["models"]
        one = send_request(server, "/v1beta/models/b/c?key=k", method="GET").json
        counted = send_request(server, "/v1beta/models/a:countTokens", body(), headers=key).json
        inside = {"generateContentRequest": body(systemInstruction=USER)}
        counted_inside = send_request(server, "/v1beta/models/a:countTokens", inside, headers=key).json
        refused = [
            send_request(server, "/v1beta/models", method="GET").status,
            send_request(server, "/v1beta/models/a", method="GET", headers={"x-goog-api-key": "j"}).status,
            send_request(server, "/v1beta/models/a:countTokens", {}, headers=key).status,
            send_request(server, "/v1beta/models/a:countTokens", {**body(), **inside}, headers=key).status,
            send_request(server, "/v1beta/models/d:countTokens", body(), headers=key).status,
            send_request(server, "/v1beta/models/a:predict", body(), headers=key).status,
            send_request(server, "/v1beta/models/d", method="GET", headers=key).status,
            send_request(server, "/v1beta/models/a:generateContent", method="GET", headers=key).status,
        ]
    assert [model["name"] for model in listed] == ["models/a", "models/b/c"]
    assert one["name"] == "models/b/c"
    assert (counted["totalTokens"], counted_inside["totalTokens"]) == (7, 14)
    assert refused == [403, 400, 400, 400, 404, 404, 404, 404]
    assert server.base_url == f"{server.origin}/v1beta"


CALLED = {"role": "model", "parts": [{"functionCall": {"name": "get_weather", "args": {}}}]}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
OFFERED = OfferedTool("get_weather", PLAIN_SCHEMA)
CLOCK = {"functionDeclarations": [{"name": "clock", "parametersJsonSchema": {"type": "object"}}, {"name": "bell"}]}


def results(*responses: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": "user",
        "parts": [{"functionResponse": {"name": "get_weather", "response": one}} for one in responses],
    }


def as_json(**settings: Any) -> dict[str, Any]:
    return body(generationConfig={"responseMimeType": "application/json", **settings})


def choice(**config: Any) -> dict[str, Any]:
    return body(tools=[*TOOLS, CLOCK], toolConfig={"functionCallingConfig": config})


PROMPTS: list[tuple[dict[str, Any], Prompt]] = [
    (body(), Prompt(text=QUESTION)),
    (body({"role": "model", "parts": [{"text": "a"}]}), Prompt(text="")),
    (body({"role": "user", "parts": [{"text": "look"}, IMAGE, {"fileData": {}}]}), Prompt(text="look", media=2)),
    (body(tools=TOOLS), Prompt(text=QUESTION, tools=(OFFERED,))),
    (
        body(tools=[CLOCK, {"googleSearch": {}}]),
        Prompt(text=QUESTION, tools=(OfferedTool("clock", {"type": "object"}), OfferedTool("bell", {}))),
    ),
    (
        choice(mode="NONE", allowedFunctionNames=["bell"]),
        Prompt(text=QUESTION, tools=(OfferedTool("bell", {}),), choice="none"),
    ),
    (
        choice(mode="ANY", allowedFunctionNames=["get_weather"]),
        Prompt(text=QUESTION, tools=(OFFERED,), choice="required"),
    ),
    (choice(mode="VALIDATED", allowedFunctionNames=["get_weather"]), Prompt(text=QUESTION, tools=(OFFERED,))),
    (
        body(USER, CALLED, results({"output": "sunny"})),
        Prompt(text=QUESTION, results=(("get_weather", "sunny"),), calls_before=1),
    ),
    (
        body(USER, CALLED, results({"output": "sunny"}), CALLED, results({"sky": "grey"}, {"error": "none"})),
        Prompt(text=QUESTION, results=(("get_weather", '{"sky":"grey"}'), ("get_weather", "none")), calls_before=2),
    ),
    (body(USER, CALLED, results({"output": "sunny"}), CALLED, USER), Prompt(text=QUESTION, calls_before=2)),
    (as_json(), Prompt(text=QUESTION, schema={})),
    (as_json(responseJsonSchema={"a": 1}), Prompt(text=QUESTION, schema={"a": 1})),
    (
        as_json(responseSchema={**SCHEMA, "anyOf": [{"type": "NULL"}]}),
        Prompt(text=QUESTION, schema={**PLAIN_SCHEMA, "anyOf": [{"type": "null"}]}),
    ),
    (
        body(generationConfig={"thinkingConfig": {"includeThoughts": True}, "maxOutputTokens": 3}),
        Prompt(text=QUESTION, thinks=True, max_pieces=3),
    ),
    (body(generationConfig={"thinkingConfig": {"thinkingBudget": 1}}), Prompt(text=QUESTION)),
]


@pytest.mark.parametrize(("request_body", "prompt"), PROMPTS)
def test_a_request_is_understood(request_body: dict[str, Any], prompt: Prompt) -> None:
    assert make_prompt(request_body) == prompt


@pytest.mark.io
@pytest.mark.parametrize("model", ["m", "gemini-3-pro"])
@pytest.mark.parametrize("thinks", [True, False])
def test_without_a_script_it_calls_a_tool_and_sums_up_the_result(model: str, thinks: bool) -> None:
    """RSN-2: what it says comes back as it was, signatures and all."""
    path = f"/v1beta/models/{model}:generateContent"
    settings = {"tools": TOOLS, "generation_config": {"thinking_config": {"include_thoughts": thinks}}}
    with GeminiServer() as server:
        first = send_request(server, path, body(**settings)).json["candidates"][0]["content"]
        id = first["parts"][-1]["functionCall"]["id"]
        sunny = {
            "role": "user",
            "parts": [{"functionResponse": {"id": id, "name": "get_weather", "response": {"output": "sunny"}}}],
        }
        second = send_request(server, path, body(USER, first, sunny, **settings)).json["candidates"][0]["content"]
        third = send_request(server, path, body(USER, first, sunny, second, USER)).json["candidates"][0]
    assert second["parts"][-1]["text"] == "get_weather says: sunny"
    assert third["content"]["parts"][0]["text"] == f"You said: {QUESTION}"
    assert server.refusals == []
    assert ("thoughtSignature" in first["parts"][-1]) == (thinks or model != "m")


@pytest.mark.io
def test_signature_is_invalid_on_another_server(start_gemini_server: StartGeminiServer) -> None:
    """RSN-3, as a server sees it."""
    one, other = start_gemini_server(secret=b"one"), start_gemini_server(secret=b"other")
    path = "/v1beta/models/gemini-3-pro:generateContent"
    answer_content = send_request(one, path, body(tools=TOOLS)).json["candidates"][0]["content"]
    answers = [
        send_request(server, path, body(USER, answer_content, results({"output": "sunny"}), tools=TOOLS))
        for server in (one, other)
    ]
    assert [answer.status for answer in answers] == [200, 400]
    assert answers[1].json["error"]["message"] == "Corrupted thought signature."
    assert len(other.refusals) == 1


@pytest.mark.io
def test_a_lenient_server_answers_all_the_same() -> None:
    with GeminiServer(strict=False) as server:
        assert send_request(server, PATH, body({"role": "system", "parts": [{"text": "a"}]}, messages=[])).status == 200
