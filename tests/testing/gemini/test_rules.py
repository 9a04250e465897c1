"""Each rule with a request that it refuses and one, as near as can be, that it takes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.generate.conversations import requests
from tests.testing.requests import make_request

from antiphon.dialects.gemini import request_from_hub
from antiphon.errors import ApiError
from antiphon.protocol.request import Request
from antiphon.rules.gemini.history import check_contents
from antiphon.rules.gemini.shapes import SHAPES, from_base64, read_message
from antiphon.testing.gemini.rules import GeminiLimits, ShapeReport, StrictReport, parse_model_call
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.gemini.signatures import Signatures
from antiphon.testing.script import PlainReply, ReceivedRequest

pytestmark = pytest.mark.without_coverage
PNG = {"mimeType": "image/png", "data": "AAAA"}
USER = {"role": "user", "parts": [{"text": "hi"}]}
MODEL = {"role": "model", "parts": [{"text": "ho"}]}
F: dict[str, Any] = {"functionCall": {"name": "f", "args": {}}}
G: dict[str, Any] = {"functionCall": {"name": "g", "args": {}}}
F_SAYS: dict[str, Any] = {"functionResponse": {"name": "f", "response": {"output": "1"}}}
G_SAYS: dict[str, Any] = {"functionResponse": {"name": "g", "response": {"output": "2"}}}
PLACE = {"type": "OBJECT", "properties": {"place": {"type": "STRING"}}}


def body_with(*contents: Any) -> dict[str, Any]:
    return {"contents": list(contents)}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def part(one: Any) -> dict[str, Any]:
    return body_with(user(one))


def result(**members: Any) -> dict[str, Any]:
    return body_with(USER, model(F), user({"functionResponse": {"name": "f", "response": {}, **members}}))


def identified(one: dict[str, Any], id: str) -> dict[str, Any]:
    return {name: {**inner, "id": id} for name, inner in one.items()}


def declares(*declarations: Any, **rest: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": list(declarations)}], **rest}


def function(**members: Any) -> dict[str, Any]:
    return declares({"name": "f", **members})


def takes(**schema: Any) -> dict[str, Any]:
    """A function with one argument of this schema."""
    return function(parameters={"type": "object", "properties": {"a": schema}})


def chooses(**config: Any) -> dict[str, Any]:
    return declares({"name": "f"}, toolConfig={"functionCallingConfig": config})


def config(**settings: Any) -> dict[str, Any]:
    return {"generationConfig": settings}


def thinks(**settings: Any) -> dict[str, Any]:
    return config(thinkingConfig=settings)


# (what is wrong, words of the error, the same done right); a value of ... leaves the field out.
RULES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    # Shapes.
    "an unknown field": ({"messages": []}, 'Unknown name "messages": Cannot find field.', {"system_instruction": USER}),
    "an unknown field further in": (
        body_with({**USER, "content": "hi"}),
        "Unknown name \"content\" at 'contents[0]': Cannot find field.",
        body_with({"parts": {"text": "one for a list of one"}}),
    ),
    "a string for an object": (
        part("hi"),
        "Invalid value at 'contents[0].parts[0]' (part), \"hi\"",
        part({"text": "hi"}),
    ),
    "a number for a string": (part({"text": 1}), "'contents[0].parts[0].text' (TYPE_STRING), 1", part({"text": "1"})),
    "a string for a number": (config(temperature="1"), "temperature' (TYPE_NUMBER)", config(temperature=1)),
    "a boolean for a number": (config(temperature=True), "temperature' (TYPE_NUMBER)", config(temperature=None)),
    "a fraction for a whole number": (config(top_k=1.5), "top_k' (TYPE_INTEGER)", config(top_k="40")),
    "a boolean for a whole number": (config(topK=True), "top_k' (TYPE_INTEGER)", config(topK=40)),
    "a string for a boolean": (
        config(responseLogprobs="yes"),
        "response_logprobs' (TYPE_BOOLEAN)",
        config(responseLogprobs=True, logprobs=2),
    ),
    "an unknown word": (chooses(mode="FORCED"), "mode' (TYPE_ENUM)", chooses(mode="any")),
    "a number for a word": (chooses(mode=1), "mode' (TYPE_ENUM)", chooses(mode="NONE")),
    "a list for one": (
        takes(type=["string", "null"]),
        "is not repeating, cannot start list",
        takes(type="string", nullable=True),
    ),
    "arguments in a string": (
        body_with(USER, model({"functionCall": {"name": "f", "args": "{}"}}), user(F_SAYS)),
        "function_call.args' (TYPE_OBJECT)",
        body_with(USER, model({"functionCall": {"name": "f"}}), user(F_SAYS)),
    ),
    "a result in a string": (
        result(response="1"),
        "function_response.response' (TYPE_OBJECT)",
        result(response={"result": 1}),
    ),
    "properties that are no object": (
        function(parameters={"type": "OBJECT", "properties": 1}),
        "parameters.properties' (an object), 1",
        function(parameters=PLACE),
    ),
    "bytes that are no base64": (
        part({"inlineData": {**PNG, "data": "data:image/png;base64,AAAA"}}),
        "inline_data.data' (TYPE_BYTES)",
        part({"inline_data": {"mime_type": "image/png", "data": "_-AA"}}),
    ),
    # The conversation.
    "no contents": ({"contents": ...}, "contents: contents is not specified", body_with(USER)),
    "empty contents": (body_with(), "contents: contents is not specified", body_with(USER)),
    "an unknown role": (
        body_with({**USER, "role": "assistant"}),
        "Please use a valid role",
        body_with({**USER, "role": "user"}),
    ),
    "no role among several": (
        body_with(USER, MODEL, {"parts": USER["parts"]}),
        "Please use a valid role",
        body_with(USER, MODEL, USER),
    ),
    "no parts": (body_with(user()), "contents[0].parts: contents.parts must not be empty.", body_with(USER)),
    "a part that is nothing": (part({}), "parts[0].data: required oneof field 'data'", part({"text": " "})),
    "a part that is a thought of nothing": (
        part({"thought": True}),
        "required oneof field 'data'",
        part({"text": "a"}),
    ),
    "an empty text": (
        part({"text": ""}),
        "parts[0].data: required oneof field 'data'",
        body_with(USER, model({"text": ""}), USER),
    ),
    "a part that is two things": (
        part({"text": "a", "inlineData": PNG}),
        "already set. Cannot set 'inlineData'",
        part({"text": "a"}),
    ),
    "an image of no type": (part({"inlineData": {"data": "AAAA"}}), "Unsupported MIME type", part({"inlineData": PNG})),
    "an image of half a type": (
        part({"inlineData": {**PNG, "mimeType": "png"}}),
        "Unsupported MIME type: png",
        part({"inlineData": PNG}),
    ),
    "an image of a wrong type": (
        part({"inlineData": {**PNG, "mimeType": "image/jpg"}}),
        "Unsupported MIME type: image/jpg",
        part({"inlineData": {**PNG, "mimeType": "image/jpeg"}}),
    ),
    "an image without data": (part({"inlineData": {**PNG, "data": ""}}), "it is empty", part({"inlineData": PNG})),
    "a file without a place": (
        part({"fileData": {}}),
        "unsupported file uri",
        part({"fileData": {"fileUri": "gs://a/b"}}),
    ),
    "a file inside its address": (
        part({"fileData": {"fileUri": "data:image/png;base64,AAAA"}}),
        "file_data.file_uri: Invalid or unsupported",
        part({"fileData": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"}}),
    ),
    "a call without a name": (
        body_with(USER, model({"functionCall": {}}), user(F_SAYS)),
        "Name cannot be empty.",
        result(),
    ),
    "a call of a bad name": (
        body_with(USER, model({"functionCall": {"name": "1f"}}), user(F_SAYS)),
        "Invalid function name: '1f'",
        body_with(USER, model({"functionCall": {"name": "f"}}), user(F_SAYS)),
    ),
    "a result without a name": (result(name=""), "function_response.name: Name cannot be empty.", result()),
    "a result that says nothing": (result(response=None), "response: required field is not set", result(response={})),
    "a result with a part of no type": (
        result(parts=[{"inlineData": {"data": "AAAA"}}]),
        "Unsupported MIME type",
        result(parts=[{"inlineData": PNG}]),
    ),
    # Turns.
    "the model has the last word": (body_with(USER, MODEL), "end with a user role", body_with(USER, MODEL, USER)),
    "the model alone": (body_with(MODEL), "end with a user role", body_with(USER)),
    "a call at the beginning": (
        body_with(model(F), user(F_SAYS)),
        "call turn comes immediately after a user turn",
        result(),
    ),
    "a call by the user": (body_with(USER, MODEL, user(F)), "call turn comes immediately after a user turn", result()),
    "a result without a call": (body_with(user(F_SAYS)), "response turn comes immediately after", result()),
    "a result after something else": (
        body_with(USER, model(F), user(F_SAYS), MODEL, user(F_SAYS)),
        "response turn comes immediately after",
        body_with(USER, model(F), user(F_SAYS), model(F), user(F_SAYS)),
    ),
    "a result by the model": (
        body_with(USER, model(F), USER, model(F_SAYS), USER),
        "number of function response parts",
        body_with(USER, model(F), {**user(F_SAYS), "role": "function"}),
    ),
    "a result by the model after its call": (
        body_with(USER, model(F), model(F_SAYS), USER),
        "response turn comes immediately after",
        body_with(USER, model({"text": "a"}), model(F), model({"text": ""}), user(F_SAYS)),
    ),
    "a call that nobody answers": (
        body_with(USER, model(F), USER),
        "number of function response parts",
        body_with(USER, model(F), user(F_SAYS)),
    ),
    "one call of two answered": (
        body_with(USER, model(F, G), user(F_SAYS)),
        "number of function response parts",
        body_with(USER, model(F, G), user(F_SAYS, G_SAYS)),
    ),
    "two results of one call": (
        body_with(USER, model(F), user(F_SAYS, F_SAYS)),
        "number of function response parts",
        body_with(USER, model(F), user(F_SAYS, {"text": "and?"})),
    ),
    "results in two contents": (
        body_with(USER, model(F, G), user(F_SAYS), user(G_SAYS)),
        "number of function response parts",
        body_with(USER, model(F, G), user(F_SAYS, G_SAYS)),
    ),
    "results out of order": (
        body_with(USER, model(F, G), user(G_SAYS, F_SAYS)),
        "names match those of the function call turn",
        body_with(
            USER,
            model(identified(F, "1"), identified(G, "2")),
            user(identified(G_SAYS, "2"), identified(F_SAYS, "1")),
        ),
    ),
    "a result of another call": (
        body_with(USER, model(identified(F, "1")), user(identified(F_SAYS, "2"))),
        "ids match those of the function call turn",
        body_with(USER, model(identified(F, "1")), user(F_SAYS)),
    ),
    "a result of one call under the name of the other": (
        body_with(USER, model(identified(F, "1")), user(identified(G_SAYS, "1"))),
        "names match those of the function call turn",
        body_with(USER, model(identified(F, "1")), user(identified(F_SAYS, "1"))),
    ),
    # Instructions.
    "an instruction without parts": (
        {"systemInstruction": {"parts": []}},
        "system_instruction.parts: contents.parts must not be empty.",
        {"systemInstruction": {"parts": [{"text": "a"}]}},
    ),
    "an instruction of nothing": (
        {"systemInstruction": {"parts": [{"text": ""}]}},
        "system_instruction.parts[0].data",
        {"systemInstruction": {"role": "system", "parts": {"text": "a"}}},
    ),
    "an instruction by an image": (
        {"systemInstruction": user({"inlineData": PNG})},
        "system_instruction.parts[0].data",
        {"systemInstruction": user({"text": "a"}, {"text": "b"})},
    ),
    # Tools.
    "a tool that is nothing": ({"tools": [{}]}, "tools[0].tool_type", {"tools": [{"codeExecution": {}}]}),
    "no functions": (declares(), "tools[0].tool_type", function()),
    "a function without a name": (declares({}), "function_declarations[0].name: Invalid function name", function()),
    "a function of a bad name": (declares({"name": "f g"}), "Invalid function name", declares({"name": "f.g:h-1"})),
    "a function of a long name": (declares({"name": "f" * 65}), "Invalid function name", declares({"name": "f" * 64})),
    "two functions of one name": (
        declares({"name": "f"}, {"name": "f"}),
        "Duplicate function declaration found: f",
        {"tools": [{"functionDeclarations": [{"name": "f"}]}, {"functionDeclarations": {"name": "g"}}]},
    ),
    "functions beside a tool of the server's own": (
        {"tools": [{"functionDeclarations": [{"name": "f"}]}, {"googleSearch": {}}]},
        "Tool use with function calling is unsupported",
        {"tools": [{"googleSearch": {}}, {"urlContext": {}}]},
    ),
    "two kinds of schema at once": (
        function(parameters=PLACE, parametersJsonSchema={"type": "object"}),
        "only one of parameters and parametersJsonSchema",
        function(parametersJsonSchema={"type": "object", "properties": {}, "additionalProperties": False, "oneOf": []}),
    ),
    "a JSON schema that is no object": (
        function(parametersJsonSchema=True),
        "must be a JSON schema object",
        function(parametersJsonSchema={"type": "object"}, responseJsonSchema={"type": "string"}),
    ),
    "a JSON schema of a string": (
        function(parametersJsonSchema={"type": "string"}),
        "should be of type OBJECT",
        function(parametersJsonSchema={"type": "object"}),
    ),
    "a reference to nothing": (
        function(parametersJsonSchema={"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}),
        "#/$defs/A is not defined",
        function(
            parametersJsonSchema={
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A", "description": "one"}, "more": {"anyOf": [{"$ref": "#"}]}},
                "$defs": {"A": {"type": "string"}},
            }
        ),
    ),
    "a reference with more beside it": (
        function(parametersJsonSchema={"type": "object", "properties": {"a": {"$ref": "#", "title": "A"}}}),
        "cannot be set together with title",
        function(parametersJsonSchema={"type": "object", "properties": {"a": {"$ref": "#"}}}),
    ),
    "parameters that are no object": (
        function(parameters={"type": "STRING"}),
        "parameters schema should be of type OBJECT",
        function(parameters=PLACE, response={"type": "STRING"}),
    ),
    "a schema of another draft": (
        function(parameters={**PLACE, "$schema": "https://json-schema.org/draft/2020-12/schema"}),
        "Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
        function(parameters=PLACE),
    ),
    "an object that is closed": (
        function(parameters={**PLACE, "additionalProperties": False}),
        'Unknown name "additionalProperties"',
        function(parameters={**PLACE, "property_ordering": ["place"]}),
    ),
    "a constant": (
        takes(type="string", const="a"),
        "Unknown name \"const\" at 'tools[0].function_declarations[0].parameters.properties[0].value'",
        takes(type="string", enum=["a"], format="enum"),
    ),
    "an unknown type": (takes(type="date"), "type' (TYPE_ENUM)", takes(type="string", format="date-time")),
    "no type": (
        takes(description="a"),
        "parameters.properties[a].type: must be specified",
        takes(anyOf=[{"type": "string"}]),
    ),
    "no type further in": (
        takes(anyOf=[{"type": "array", "items": {"title": "A"}}]),
        "properties[a].any_of[0].items.type: must be specified",
        takes(anyOf=[{"type": "array", "items": {"type": "number"}}]),
    ),
    "an array of nothing": (
        takes(type="array"),
        "items: missing field.",
        takes(type="array", items={"type": "number"}),
    ),
    "an object of nothing": (
        function(parameters={"type": "object", "properties": {}}),
        "parameters.properties: should be non-empty for OBJECT type",
        function(parameters=None),
    ),
    "properties of no object": (
        takes(type="string", properties={"b": {"type": "string"}}),
        "properties: only allowed for OBJECT type",
        takes(type="object", properties={"b": {"type": "string"}}),
    ),
    "a required property that is not there": (
        function(parameters={**PLACE, "required": ["place", "time"]}),
        "parameters.required[1]: property is not defined",
        function(parameters={**PLACE, "required": ["place"]}),
    ),
    "numbers to choose from": (
        takes(type="integer", enum=[1]),
        "enum[0]' (TYPE_STRING), 1",
        takes(type="string", enum=["1"]),
    ),
    "numbers in strings to choose from": (
        takes(type="integer", enum=["1"]),
        "enum: only allowed for STRING type",
        takes(type="integer", format="int32"),
    ),
    "nothing to choose": (
        takes(type="string", enum=["a", ""]),
        "enum[1]: cannot be empty",
        takes(type="string", enum=["a"]),
    ),
    "an unknown format": (
        takes(type="string", format="uri"),
        "format: only 'enum' and 'date-time' are supported for STRING type",
        takes(type="number", format="double"),
    ),
    "a choice without functions": (
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
        "config is set without function_declarations",
        chooses(mode="AUTO"),
    ),
    "some functions allowed, and none forced": (
        chooses(mode="AUTO", allowedFunctionNames=["f"]),
        "only when function calling mode is ANY",
        chooses(mode="ANY", allowedFunctionNames=["f"]),
    ),
    "an unknown function allowed": (
        chooses(mode="ANY", allowedFunctionNames=["g"]),
        "'g' is not one of function_declarations",
        chooses(mode="VALIDATED", allowedFunctionNames=["f"]),
    ),
    # Settings.
    "too hot": (config(temperature=2.1), "temperature must be in the range [0, 2]", config(temperature=2)),
    "no candidates": (config(candidateCount=0), "candidateCount must be in the range", config(candidateCount=1)),
    "no tokens": (config(maxOutputTokens=0), "maxOutputTokens must be in the range", config(maxOutputTokens=1)),
    "six words to stop at": (
        config(stopSequences=list("abcdef")),
        "at most 5 stop sequences",
        config(stopSequences=list("abcde")),
    ),
    "an empty word to stop at": (config(stopSequences=[""]), "none of them empty", config(stopSequences=["\n"])),
    "alternatives nobody asked for": (
        config(logprobs=2),
        "only valid if response_logprobs is true",
        config(logprobs=2, responseLogprobs=True),
    ),
    "budget and level": (
        thinks(thinkingBudget=1, thinkingLevel="low"),
        "only one of thinking budget and thinking level",
        thinks(thinkingLevel="low", includeThoughts=True),
    ),
    "too much thought": (
        thinks(thinkingBudget=98_304),
        "The thinking budget (98304) is invalid.",
        thinks(thinkingBudget=-1),
    ),
    "an unknown format of the answer": (
        config(responseMimeType="image/png"),
        "allowed mimetypes are",
        config(responseMimeType="application/json"),
    ),
    "a schema for plain text": (
        config(responseSchema=PLACE),
        "response_schema: only allowed when",
        config(responseSchema=PLACE, responseMimeType="application/json"),
    ),
    "a JSON schema for plain text": (
        config(responseJsonSchema={}),
        "response_json_schema: only allowed when",
        config(responseJsonSchema={}, responseMimeType="application/json"),
    ),
    "two schemas for an answer": (
        config(responseJsonSchema={}, responseSchema=PLACE, responseMimeType="application/json"),
        "only one of response_schema and response_json_schema",
        config(responseSchema={"type": "STRING", "enum": ["a"]}, responseMimeType="text/x.enum"),
    ),
    "a bad schema for an answer": (
        config(responseSchema={"type": "ARRAY"}, responseMimeType="application/json"),
        "generation_config.response_schema.items: missing field.",
        config(responseSchema={"type": "STRING"}, responseMimeType="application/json"),
    ),
    "functions and JSON": (
        {**function(), **config(responseMimeType="application/json")},
        "Function calling with a response mime type: 'application/json' is unsupported",
        {**function(), **config(responseMimeType="text/plain")},
    ),
}


def full(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**body_with(USER), **change}.items() if value is not ...}


def model_request(body: Any, model: str = "m", rest: str = ":generateContent", **headers: str) -> ReceivedRequest:
    return replace(make_request(body, **headers), path=f"/v1beta/models/{model}{rest}")


def status_and_message(reply: PlainReply | None) -> tuple[int, str]:
    """The status and the words of a refusal; zero and nothing where none was made."""
    if reply is None:
        return 0, ""
    error = json.loads(reply.body)["error"]
    assert error["code"] == reply.status
    return reply.status, error["message"]


@pytest.mark.parametrize("rule", RULES)
def test_rule_refuses_its_violation(rule: str) -> None:
    wrong, message_part, _ = RULES[rule]
    status, message = status_and_message(GeminiBehavior().find_refusal(model_request(full(wrong))))
    assert status == 400
    assert message_part in message


@pytest.mark.parametrize("rule", RULES)
def test_the_same_done_right_is_taken(rule: str) -> None:
    assert status_and_message(GeminiBehavior().find_refusal(model_request(full(RULES[rule][2])))) == (0, "")


@pytest.mark.parametrize("rule", RULES)
def test_a_lenient_server_takes_everything(rule: str) -> None:
    assert status_and_message(
        GeminiBehavior(GeminiLimits(strict=False)).find_refusal(model_request(full(RULES[rule][0])))
    ) == (0, "")


# What depends on the version of the server: (limits, model, request, words of the error; None where it is taken).
VERSIONS: dict[str, tuple[GeminiLimits, str, dict[str, Any], str | None]] = {
    "ids unknown": (
        GeminiLimits(ids=False),
        "m",
        body_with(USER, model(identified(F, "1")), user(F_SAYS)),
        'Unknown name "id"',
    ),
    "ids unknown and not sent": (GeminiLimits(ids=False), "m", body_with(USER, model(F), user(F_SAYS)), None),
    "users in a row": (GeminiLimits(alternation=True), "m", body_with(USER, USER), "alternate between user and model"),
    "models in a row": (
        GeminiLimits(alternation=True),
        "m",
        body_with(USER, MODEL, MODEL, USER),
        "alternate between user and model",
    ),
    "users and models in turns": (GeminiLimits(alternation=True), "m", body_with(USER, MODEL, USER), None),
    "users in a row on a newer server": (GeminiLimits(), "m", body_with(USER, USER), None),
    "the model has the last word": (GeminiLimits(last_word=False), "m", body_with(USER, MODEL), None),
    "a closed object": (
        GeminiLimits(additional_properties=True),
        "m",
        function(parameters={**PLACE, "additionalProperties": False}),
        None,
    ),
    "an empty object": (GeminiLimits(empty_objects=True), "m", function(parameters={"type": "object"}), None),
    "an empty object that requires something": (
        GeminiLimits(empty_objects=True),
        "m",
        function(parameters={"type": "object", "required": ["a"]}),
        "property is not defined",
    ),
    "JSON with functions": (
        GeminiLimits(json_with_tools=True),
        "m",
        {**function(), **config(responseMimeType="application/json")},
        None,
    ),
    "JSON with functions of a newer model": (
        GeminiLimits(),
        "gemini-3-pro",
        {**function(), **config(responseMimeType="application/json")},
        None,
    ),
    "JSON with functions of a newer model that cannot": (
        GeminiLimits(json_with_tools=False),
        "gemini-3-pro",
        {**function(), **config(responseMimeType="application/json")},
        "is unsupported",
    ),
    "hosted tools beside functions of a newer model": (
        GeminiLimits(),
        "gemini-3-pro",
        {"tools": [{"functionDeclarations": [{"name": "f"}], "googleSearch": {}}]},
        None,
    ),
    "a level for an older model": (
        GeminiLimits(),
        "gemini-2.5-flash",
        thinks(thinkingLevel="LOW"),
        "level is not supported",
    ),
    "a level for a newer model": (GeminiLimits(), "gemini-3-flash", thinks(thinkingLevel="LOW"), None),
    "a model that cannot but think": (
        GeminiLimits(),
        "gemini-2.5-pro",
        thinks(thinkingBudget=0),
        "budget (0) is invalid",
    ),
    "a model that need not think": (GeminiLimits(), "gemini-2.5-flash", thinks(thinkingBudget=0), None),
    "a small model that thinks too little": (
        GeminiLimits(),
        "gemini-2.5-flash-lite",
        thinks(thinkingBudget=511),
        "(511) is invalid",
    ),
    "a small model that thinks not at all": (GeminiLimits(), "gemini-2.5-flash-lite", thinks(thinkingBudget=0), None),
    "a model that thinks its most": (GeminiLimits(), "gemini-2.5-pro", thinks(thinkingBudget=32_768), None),
    "a model that thinks more than that": (
        GeminiLimits(),
        "gemini-2.5-flash",
        thinks(thinkingBudget=32_768),
        "is invalid",
    ),
    "a call without its signature": (
        GeminiLimits(),
        "gemini-3-pro",
        body_with(USER, model(F), user(F_SAYS)),
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly. "
        "Additional data, function call `default_api:f` , position 2.",
    ),
    "a call without its signature, of an older model": (
        GeminiLimits(),
        "gemini-2.5-pro",
        body_with(USER, model(F), user(F_SAYS)),
        None,
    ),
    "an older model that is strict": (
        GeminiLimits(signatures=True),
        "gemini-2.5-pro",
        body_with(USER, model(F), user(F_SAYS)),
        "missing a thought_signature",
    ),
    "a call of a turn that is over": (
        GeminiLimits(),
        "gemini-3-pro",
        body_with(USER, model(F), user(F_SAYS), MODEL, USER),
        None,
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_version_limits_decide_what_is_refused(version: str) -> None:
    limits, name, body, message_part = VERSIONS[version]
    status, message = status_and_message(GeminiBehavior(limits).find_refusal(model_request(full(body), name)))
    assert status == (400 if message_part else 0)
    assert (message_part or "") in message


SIGNATURE = Signatures().make_signature(F)
OTHER = Signatures(b"another server").make_signature(F)
# (the parts of the model's turn, words of the error; None where it is taken).
SIGNED: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "as it was given": ([{**F, "thoughtSignature": SIGNATURE}], None),
    "on the call with its id": ([{**identified(F, "1"), "thoughtSignature": SIGNATURE}], None),
    "on the first of two calls": ([{**F, "thoughtSignature": SIGNATURE}, G], None),
    "on the second of two calls": ([G, {**F, "thoughtSignature": SIGNATURE}], "missing a thought_signature"),
    "on another call": ([{**G, "thoughtSignature": SIGNATURE}], "Corrupted thought signature."),
    "on a text": ([{"text": "a", "thoughtSignature": SIGNATURE}], "Corrupted thought signature."),
    "changed": ([{**F, "thoughtSignature": "AAAA" + SIGNATURE[4:]}], "Corrupted thought signature."),
    "of another server": ([{**F, "thoughtSignature": OTHER}], "Corrupted thought signature."),
    "of nobody": ([{**F, "thoughtSignature": "skip_thought_signature_validator"}], None),
    "of nobody, in base64": (
        [{**F, "thought_signature": base64.b64encode(b"skip_thought_signature_validator").decode()}],
        None,
    ),
    "empty": ([{**F, "thoughtSignature": ""}], "missing a thought_signature"),
    "no base64": ([{**F, "thoughtSignature": "sig 1"}], "thought_signature' (TYPE_BYTES)"),
}


@pytest.mark.parametrize("case", SIGNED)
def test_a_signature_comes_back_to_its_maker_and_to_its_place(case: str) -> None:
    """RSN-2, RSN-3: what the fake holds the gateway to."""
    parts, message_part = SIGNED[case]
    results = [
        {"functionResponse": {"name": one["functionCall"]["name"], "response": {}}}
        for one in parts
        if "functionCall" in one
    ]
    history = body_with(USER, model(*parts), user(*results) if results else USER)
    status, message = status_and_message(GeminiBehavior().find_refusal(model_request(history, "gemini-3-pro")))
    assert status == (400 if message_part else 0)
    assert (message_part or "") in message


def test_a_signature_from_a_script_is_remembered() -> None:
    signatures = Signatures()
    assert signatures.accept_scripted("AAAA") == "AAAA"
    signatures.check_part({"text": "a", "thoughtSignature": signatures.accept_scripted("sig 1")})


# What a server demands of everyone: (limits, body, what follows the model, headers, status and words; None where it is
# taken).
DEMANDS: dict[str, tuple[GeminiLimits, Any, str, dict[str, str], tuple[int, str] | None]] = {
    "no key": (GeminiLimits(key="k"), full({}), ":generateContent", {}, (403, "unregistered callers")),
    "a wrong key": (
        GeminiLimits(key="k"),
        full({}),
        ":generateContent",
        {"x_goog_api_key": "j"},
        (400, "API key not valid"),
    ),
    "the right key": (GeminiLimits(key="k"), full({}), ":generateContent", {"x_goog_api_key": "k"}, None),
    "the right key in the address": (GeminiLimits(key="k"), full({}), ":generateContent?key=k", {}, None),
    "a wrong key in the address": (
        GeminiLimits(key="k"),
        full({}),
        ":generateContent?key=j",
        {},
        (400, "API key not valid"),
    ),
    "no JSON": (GeminiLimits(), b"{", ":generateContent", {}, (400, "Invalid JSON payload")),
    "no object": (GeminiLimits(), b"[]", ":generateContent", {}, (400, "Invalid JSON payload")),
    "far too deep": (GeminiLimits(), b"[" * 100_000, ":generateContent", {}, (400, "Invalid JSON payload")),
    "a lenient server wants JSON too": (
        GeminiLimits(strict=False),
        b"{",
        ":generateContent",
        {},
        (400, "Invalid JSON payload"),
    ),
    "an unknown model": (GeminiLimits(models=("a",)), full({}), ":generateContent", {}, (404, "models/m is not found")),
    "a known model": (GeminiLimits(models=("m",)), full({}), ":generateContent", {}, None),
    "a long prompt": (
        GeminiLimits(max_chars=3),
        full({"systemInstruction": USER}),
        ":generateContent",
        {},
        (400, "The input token count (4) exceeds the maximum number of tokens allowed (3)."),
    ),
    "a prompt that just fits": (
        GeminiLimits(max_chars=4),
        full({"systemInstruction": USER}),
        ":generateContent",
        {},
        None,
    ),
    "thoughts are not counted": (
        GeminiLimits(max_chars=4),
        body_with(USER, model({"text": "hmm", "thought": True}), USER),
        ":generateContent",
        {},
        None,
    ),
    "a lenient server counts too": (
        GeminiLimits(max_chars=1, strict=False),
        full({}),
        ":generateContent",
        {},
        (400, "exceeds"),
    ),
    "nothing is too long of what is no text": (
        GeminiLimits(max_chars=1, strict=False),
        {"contents": [1, {"parts": 1}, {"parts": [{"text": 1}]}]},
        ":generateContent",
        {},
        None,
    ),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_server_refuses_requests_without_its_demands(demand: str) -> None:
    limits, body, rest, headers, expected = DEMANDS[demand]
    status, message = status_and_message(GeminiBehavior(limits).find_refusal(model_request(body, "m", rest, **headers)))
    assert status == (expected or (0, ""))[0]
    assert (expected or (0, ""))[1] in message


def test_all_that_is_wrong_with_the_shape_is_told_at_once() -> None:
    reply = GeminiBehavior().find_refusal(model_request({"contents": [{"role": 1, "part": []}], "max_tokens": 1}))
    assert reply is not None
    error = json.loads(reply.body)["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert len(error["message"].split("\n")) == 3
    assert [violation.get("field") for violation in error["details"][0]["fieldViolations"]] == [
        "contents[0].role",
        "contents[0]",
        None,
    ]


def test_a_wrong_key_is_told_by_its_reason() -> None:
    reply = GeminiBehavior(GeminiLimits(key="k")).find_refusal(model_request(full({}), x_goog_api_key="j"))
    assert reply is not None
    assert json.loads(reply.body)["error"]["details"][0]["reason"] == "API_KEY_INVALID"


def test_an_error_of_a_stream_that_is_an_array_stands_in_one() -> None:
    reply = GeminiBehavior().find_refusal(model_request({}, rest=":streamGenerateContent"))
    assert reply is not None
    assert json.loads(reply.body)[0]["error"]["code"] == 400
    assert (
        status_and_message(GeminiBehavior().find_refusal(model_request({}, rest=":streamGenerateContent?alt=sse")))[0]
        == 400
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1beta/models/a/b%2Fc:generateContent", ("a/b/c", "generateContent", False)),
        ("/v1/models/a:b%3AstreamGenerateContent?key=k&alt=sse", ("a:b", "streamGenerateContent", True)),
        ("/v1beta/models/a", None),
        ("/v1beta/tuned/a:generateContent", None),
    ],
)
def test_the_address_says_what_is_asked_of_which_model(path: str, expected: tuple[str, str, bool] | None) -> None:
    model_call = parse_model_call(replace(make_request({}), path=path))
    assert (model_call and (model_call.model, model_call.method, model_call.sse)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("_-8=", b"\xff\xef"),
        ("/+8", b"\xff\xef"),
        ("A", None),
        ("AAAA=A", None),
        ("a b=", None),
        ("AA===", None),
    ],
)
def test_base64_is_read_in_either_alphabet(text: str, expected: bytes | None) -> None:
    assert from_base64(text) == expected


@settings(max_examples=30)
@given(requests())
def test_every_conversation_that_the_dialect_writes_is_taken(request: Request) -> None:
    """REQ-6, F-4: whatever a client's history looks like; settings, schemas and data are the client's own business."""
    try:
        body, _ = request_from_hub(replace(request, model="m"))
    except ApiError:
        return
    contents = read_message(json.loads(body), "request", SHAPES, ShapeReport()).value["contents"]
    check_contents(contents, StrictReport(), must_alternate=True, must_end_with_user=True, needs_signatures=False)
    for content in contents:
        for part in content["parts"]:
            Signatures().check_part(part)
