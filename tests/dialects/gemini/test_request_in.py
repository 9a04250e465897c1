"""A gemini client's settings in the hub, and laws over whole requests both ways."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.gemini.asking import ask, call, model, result, user
from tests.generate.conversations import marks_of, requests

from antiphon.dialects.common.effort import EFFORT_BUDGETS
from antiphon.dialects.gemini import request_from_hub, request_to_hub
from antiphon.dialects.gemini.request_in import normalize_spelling, to_camel_case
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.errors import InvalidJson, InvalidValue, MissingField
from antiphon.protocol import codec
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    MessageParam,
)
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    TextParam,
    input_items,
)

# Laws

WITH_IDS = GeminiWire(call_ids=True, result_media_models=("",), system="first")


@settings(max_examples=30)
@given(requests(orderly=True))
def test_requests_survive_hub_to_gemini_to_hub(request: Request) -> None:
    """Law (d): every text, call and result, in order; system texts move to the start, which is named as a loss."""
    body, losses = request_from_hub(request, WITH_IDS)
    again, lost = request_to_hub(body)
    assert list(lost) == []
    assert conversation_of(again) == conversation_of(request)
    before, after = system_marks(request), system_marks(again)
    assert sorted(before) == sorted(after)
    assert before == after or [loss for loss in losses if "place of a system text" in loss.what]


def conversation_of(request: Request) -> list[Any]:
    """The texts of users and the model, without the boundaries between messages."""
    collected: list[Any] = []
    for item in input_items(request):
        match item:
            case MessageParam(role="user" | "assistant" as role):
                collected.append((role, marks_of(codec.encode(item.content).decode())))
            case FunctionCallParam():
                collected.append((item.call_id, item.name, json.loads(item.arguments)))
            case FunctionCallOutputParam():
                collected.append((item.call_id, marks_of(codec.encode(item.output).decode())))
    joined: list[Any] = []
    for entry in collected:
        if entry[1] == []:  # our own text, where the API requires some
            continue
        if joined and joined[-1][0] == entry[0] and entry[0] in ("user", "assistant"):
            joined[-1] = (entry[0], joined[-1][1] + entry[1])
        else:
            joined.append(entry)
    return joined


def system_marks(request: Request) -> list[str]:
    system = [
        item for item in input_items(request) if isinstance(item, MessageParam) and item.role in ("system", "developer")
    ]
    return marks_of((request.instructions or "") + codec.encode(system).decode())


TEXTS = st.text(alphabet='ab "\n\u2028é', min_size=1, max_size=5)
OBJECTS = st.dictionaries(st.sampled_from(["a", "my_key", "z"]), TEXTS | st.integers() | st.none(), max_size=2)
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Conversations of a well-behaved client of this dialect; ids everywhere or nowhere."""
    has_ids, contents, number = draw(st.booleans()), [], 0
    for _ in range(draw(st.integers(0, 3))):
        contents.append(user({"text": draw(TEXTS)}, *draw(st.lists(st.just(IMAGE), max_size=1))))
        names = draw(st.lists(st.sampled_from(["look", "read.file", "look"]), max_size=3))
        ids = [{"id": f"c_{number + at}"} if has_ids else {} for at in range(len(names))]
        number += len(names)
        words = [{"text": draw(TEXTS)}] if draw(st.booleans()) or not names else []
        contents.append(model(*words, *(call(name, draw(OBJECTS), **id) for name, id in zip(names, ids, strict=True))))
        if names:
            contents.append(user(*(result(name, draw(OBJECTS), **id) for name, id in zip(names, ids, strict=True))))
    settings = draw(
        st.fixed_dictionaries({}, optional={"temperature": st.just(0.5), "topK": st.just(3), "seed": st.just(7)})
    )
    tools = [{"functionDeclarations": [{"name": "look"}, {"name": "read.file"}]}, {"googleSearch": {}}]
    return {"contents": [*contents, user({"text": draw(TEXTS)})], "generationConfig": settings, "tools": tools}


@settings(max_examples=30)
@given(bodies())
def test_requests_survive_gemini_to_hub_to_gemini(body: dict[str, Any]) -> None:
    """Law (d), REQ-7: calls and results, with ids or without, and every setting of the dialect's own."""
    has_ids = any("id" in part.get("functionCall", {}) for content in body["contents"] for part in content["parts"])
    request, lost = request_to_hub(json.dumps(body).encode())
    sent, losses = request_from_hub(request, GeminiWire(call_ids=has_ids))
    assert list(lost) == list(losses) == []
    again = json.loads(sent)
    assert [unnamed(content) for content in again["contents"]] == [
        unnamed(content) for content in merged(body["contents"])
    ]
    assert again.get("generationConfig", {}) == body["generationConfig"]
    assert again["tools"][1] == {"googleSearch": {}}


def merged(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Alternating roles, as a server requires."""
    collected: list[dict[str, Any]] = []
    for content in contents:
        if collected and collected[-1]["role"] == content["role"]:
            collected[-1] = {**collected[-1], "parts": collected[-1]["parts"] + content["parts"]}
        else:
            collected.append(content)
    return collected


def unnamed(content: dict[str, Any]) -> Any:
    """Without the names of tools, which a server may require in another form."""
    return json.loads(
        json.dumps(content), object_hook=lambda member: {**member, "name": "x"} if "name" in member else member
    )


# Settings


def test_hub_settings_are_decoded_and_others_pass_with_the_dialect_prefix() -> None:
    """REQ-7, PREV-4: nothing is stored unless requested, and sealed reasoning is always requested (RSN-2)."""
    asked = ask(
        generationConfig={
            "temperature": 0.2,
            "topP": 0.9,
            "topK": 40,
            "candidateCount": 1,
            "maxOutputTokens": 500,
            "stopSequences": ["END"],
            "seed": 7,
            "presencePenalty": 0.1,
            "frequencyPenalty": 0.3,
            "responseLogprobs": True,
            "logprobs": 3,
            "mediaResolution": "MEDIA_RESOLUTION_LOW",
        },
        safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        cachedContent="cachedContents/1",
        labels={"my_team": "x"},
        model="models/m-1",
    )
    request = asked.request
    assert (request.model, request.temperature, request.top_p, request.max_output_tokens) == ("m-1", 0.2, 0.9, 500)
    assert (request.presence_penalty, request.frequency_penalty, request.top_logprobs) == (0.1, 0.3, 3)
    assert request.include == [ENCRYPTED_IF_ANY, "message.output_text.logprobs"]
    assert request.store is False
    assert asked.own == {
        "gemini:topK": 40,
        "gemini:stopSequences": ["END"],
        "gemini:seed": 7,
        "gemini:mediaResolution": "MEDIA_RESOLUTION_LOW",
        "gemini:safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "gemini:cachedContent": "cachedContents/1",
        "gemini:labels": {"my_team": "x"},
    }
    assert asked.lost == []


def test_minimal_request_sets_nothing_else() -> None:
    request = ask().request
    assert codec.encode(request) == (
        b'{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],'
        b'"include":["antiphon:reasoning.encrypted_content"],"store":false}'
    )


def test_store_flag_is_translated() -> None:
    assert ask(store=True).request.store is True


def test_unknown_members_of_the_body_are_sent_to_gemini_servers() -> None:
    """REQ-7: also one that has the name of a setting."""
    members = {"modelArmorConfig": {"a": 1}, "labels": {"b": "c"}, "seed": 3}
    asked = ask(user({"text": "hi"}), nothing=None, generationConfig={"seed": 7}, **members)
    assert asked.lost == []
    body, losses = request_from_hub(asked.request)
    assert {name: json.loads(body)[name] for name in members} == members
    assert json.loads(body)["generationConfig"] == {"seed": 7}
    assert list(losses) == []


def test_number_of_candidates_is_kept_if_there_are_several() -> None:
    assert ask(generationConfig={"candidateCount": 1}).own == {}
    assert ask(generationConfig={"candidateCount": 2}).own == {"gemini:candidateCount": 2}


@pytest.mark.parametrize(
    ("settings", "format"),
    [
        ({"responseMimeType": "application/json"}, JsonObjectFormat()),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}},
            JsonSchemaFormatParam(name="response", schema={"type": "string"}),
        ),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}},
            JsonSchemaFormatParam(name="response", schema={"type": "array"}),
        ),
        ({"responseSchema": {"type": "STRING"}}, JsonSchemaFormatParam(name="response", schema={"type": "string"})),
    ],
)
def test_output_format_is_decoded(settings: dict[str, Any], format: Any) -> None:
    """REQ-1."""
    assert ask(generationConfig=settings).request.text == TextParam(format=format)


def test_plain_text_sets_no_format_and_native_formats_pass_through() -> None:
    """REQ-1."""
    assert not ask(generationConfig={"responseMimeType": "text/plain"}).request.text
    asked = ask(
        generationConfig={"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a"]}}
    )
    assert not asked.request.text
    assert asked.own == {
        "gemini:responseMimeType": "text/x.enum",
        "gemini:responseJsonSchema": {"type": "string", "enum": ["a"]},
    }
    assert ask(generationConfig={"responseMimeType": "text/x.enum"}).own == {"gemini:responseMimeType": "text/x.enum"}


@pytest.mark.parametrize(
    ("thinking", "reasoning"),
    [
        ({"includeThoughts": True}, ReasoningConfigParam(summary="auto")),
        ({"thinkingLevel": "HIGH"}, ReasoningConfigParam(effort="high")),
        ({"thinkingBudget": 0}, ReasoningConfigParam(effort="none")),
        (
            {"thinkingLevel": "MEDIUM", "includeThoughts": True},
            ReasoningConfigParam(effort="medium", summary="auto"),
        ),
    ],
)
def test_thinking_becomes_effort_where_the_hub_has_a_value(
    thinking: dict[str, Any], reasoning: ReasoningConfigParam
) -> None:
    """RSN-4: and in no other field, so that no other server loses anything."""
    asked = ask(generationConfig={"thinkingConfig": thinking})
    assert asked.request.reasoning == reasoning
    assert asked.own == {}


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinkingBudget": -1}, None),
        ({"thinkingBudget": 5000}, "medium"),
        ({"thinkingBudget": EFFORT_BUDGETS["medium"], "includeThoughts": True}, "medium"),
        ({"thinkingLevel": "GALAXY"}, None),
        ({"thinkingLevel": "LOW", "newest": 1}, "low"),
        ({"thinkingLevel": "LOW", "thinkingBudget": 100}, "low"),
    ],
)
def test_thinking_without_hub_value_travels_unchanged(thinking: dict[str, Any], effort: str | None) -> None:
    """RSN-4: an exact budget, or left to the model."""
    asked = ask(generationConfig={"thinkingConfig": thinking})
    assert (asked.request.reasoning.effort if asked.request.reasoning else None) == effort
    assert asked.own == {"gemini:thinkingConfig": thinking}


def test_empty_thinking_sets_nothing() -> None:
    assert not ask(generationConfig={"thinkingConfig": {"includeThoughts": False}}).request.reasoning


@pytest.mark.parametrize(
    ("body", "error", "param"),
    [
        (b"{", InvalidJson, None),
        (b"{}", MissingField, "contents"),
        (b'{"contents":[{"parts":[{"text":1}]}]}', InvalidValue, "contents[0].parts[0].text"),
        (b'{"contents":[{"role":"boss"}]}', InvalidValue, "contents[0].role"),
        (b'{"contents":[],"generation_config":{"top_p":"x"}}', InvalidValue, "generationConfig.topP"),
        (
            b'{"contents":[{"parts":[{"inline_data":{"data":"x"}}]}]}',
            MissingField,
            "contents[0].parts[0].inlineData.mimeType",
        ),
    ],
)
def test_request_error_names_the_field(body: bytes, error: type[Exception], param: str | None) -> None:
    """ERR-3."""
    with pytest.raises(error) as caught:
        request_to_hub(body)
    assert caught.value.param == param  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("top_p", "topP"),
        ("system_instruction", "systemInstruction"),
        ("topP", "topP"),
        ("_private", "_private"),
        ("x", "x"),
    ],
)
def test_to_camel_case_converts_snake_case(name: str, spelled: str) -> None:
    assert to_camel_case(name) == spelled


def test_normalize_spelling_renames_api_fields_but_not_user_json() -> None:
    own: dict[str, Any] = {"my_key": {"top_p": 1}}
    body = {
        "system_instruction": {"parts": [{"text": "say top_p"}]},
        "contents": [
            {
                "parts": [
                    {"function_call": {"name": "a", "args": own}},
                    {"function_response": {"name": "a", "response": own}},
                ]
            },
            {"parts": [{"inline_data": {"mime_type": "image/png", "data": ""}, "part_metadata": own}]},
        ],
        "tools": [{"function_declarations": [{"parameters": own, "parameters_json_schema": own}]}],
        "generation_config": {"response_schema": own, "response_json_schema": own},
        "labels": own,
    }
    assert json.loads(normalize_spelling(json.dumps(body).encode())) == {
        "systemInstruction": {"parts": [{"text": "say top_p"}]},
        "contents": [
            {
                "parts": [
                    {"functionCall": {"name": "a", "args": own}},
                    {"functionResponse": {"name": "a", "response": own}},
                ]
            },
            {"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}, "partMetadata": own}]},
        ],
        "tools": [{"functionDeclarations": [{"parameters": own, "parametersJsonSchema": own}]}],
        "generationConfig": {"responseSchema": own, "responseJsonSchema": own},
        "labels": own,
    }


def test_normalize_spelling_wraps_single_objects_in_lists() -> None:
    """The API's own examples for curl use this spelling."""
    own: dict[str, Any] = {"parts": {"contents": {}}}
    body = {
        "contents": {"parts": {"functionResponse": {"name": "a", "response": own, "parts": {"text": "b"}}}},
        "tools": {"functionDeclarations": {"name": "a", "parameters": own}},
    }
    assert json.loads(normalize_spelling(json.dumps(body).encode())) == {
        "contents": [{"parts": [{"functionResponse": {"name": "a", "response": own, "parts": [{"text": "b"}]}}]}],
        "tools": [{"functionDeclarations": [{"name": "a", "parameters": own}]}],
    }


@pytest.mark.parametrize(
    "body", [b'{"topP": 1 }', b'{"top_p": ', b'{"top_p": {"\xed\xa0\x80": 1}}', b'{"top_p":' * 2000]
)
def test_normalize_spelling_keeps_correct_and_invalid_bodies(body: bytes) -> None:
    assert normalize_spelling(body) == body
