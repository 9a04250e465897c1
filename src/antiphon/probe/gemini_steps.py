"""Experiments for servers of the Gemini API."""

from __future__ import annotations

from typing import Any

from antiphon.probe.finding import (
    LONG_TEXT,
    Body,
    Bound,
    Choice,
    Experiment,
    Step,
    calls_no_tool,
    calls_tool,
    calls_two_tools,
    counts_tools,
    has_effect,
    is_counted,
    is_json,
    is_person_json,
)
from antiphon.probe.samples import (
    CALL_AS_TEXT,
    CITY,
    HELLO,
    LONGEST_ID,
    LONGEST_NAME,
    MOST_TOOLS,
    PDF,
    PERSON,
    PERSON_AS_JSON,
    PNG,
    RESULT_AS_TEXT,
    WEATHER_IN_PARIS,
    WEATHER_IN_TWO_CITIES,
    TextForm,
    long_id,
    long_name,
    probe_name,
)

LIMIT_NAMES = ("maxOutputTokens",)


def minimal_body(form: TextForm) -> Body:  # noqa: ARG001 - a text is always a part here
    """Return the minimal turn."""
    return _request_body(_content("user", HELLO))


def with_token_limit(body: Body, name: str, tokens: int) -> Body:
    return {**body, "generationConfig": {name: tokens, **body.get("generationConfig", {})}}


def probe_steps(form: TextForm) -> list[Step]:
    """Return the nine payloads of the published table, in this API's terms, then all other experiments."""
    hi, paris, hello = _content("user", "Hi."), _content("user", WEATHER_IN_PARIS), _content("user", HELLO)
    assistant_greeting = _content("model", "Hello.")
    return [
        Experiment(
            "system",
            "systemInstruction",
            {**_request_body(hello), "systemInstruction": {"parts": [{"text": LONG_TEXT}]}},
            is_counted,
        ),
        Experiment("tools", "tools offered", _request_body(paris, tools=TOOLS), counts_tools),
        Experiment(
            "assistant.parts", "model message", _request_body(hi, _content("model", LONG_TEXT), hello), is_counted
        ),
        Experiment(
            "calls.paired",
            "tool call and its result",
            _request_body(paris, _call_content(), _result_content(LONG_TEXT), tools=TOOLS),
            is_counted,
        ),
        Experiment(
            "result.alone",
            "tool result without a call",
            _request_body(paris, assistant_greeting, _result_content(LONG_TEXT), tools=TOOLS),
            is_counted,
        ),
        Experiment(
            "result.after-text",
            "tool result after a call written as text",
            _request_body(paris, _content("model", CALL_AS_TEXT), _result_content(LONG_TEXT), tools=TOOLS),
            is_counted,
        ),
        Experiment(
            "calls.as-text",
            "tool call and result written as text",
            _request_body(
                paris, _content("model", CALL_AS_TEXT), _content("user", RESULT_AS_TEXT + LONG_TEXT), tools=TOOLS
            ),
            is_counted,
        ),
        Experiment(
            "calls.ids",
            "tool call and its result, with ids",
            _request_body(
                paris, _call_content(id="call_probe_1"), _result_content(LONG_TEXT, id="call_probe_1"), tools=TOOLS
            ),
            is_counted,
        ),
        Experiment("model.last", "model message at the end", _request_body(hello, _content("model", "Good"))),
        # Images and files.
        Experiment("image", "image", _request_body(_user_message_with("image/png", PNG)), has_effect),
        Experiment("file", "file", _request_body(_user_message_with("application/pdf", PDF)), has_effect),
        # Tools and the form of the output.
        Experiment("tools.required", "mode ANY", _request_body(hello, tools=TOOLS, **_tool_mode("ANY")), calls_tool),
        Experiment(
            "tools.none",
            "mode NONE",
            _request_body(paris, tools=TOOLS, **_tool_mode("NONE")),
            calls_no_tool,
            ("tools",),
        ),
        Experiment(
            "tools.parallel",
            "two tool calls in one answer",
            _request_body(_content("user", WEATHER_IN_TWO_CITIES), tools=TOOLS),
            calls_two_tools,
            ("tools",),
        ),
        Experiment(
            "tools.openapi",
            "parameters as an OpenAPI schema",
            _request_body(paris, tools=_function_tools("parameters", OPENAPI_CITY)),
            counts_tools,
        ),
        Experiment(
            "format.schema",
            "JSON output through responseJsonSchema",
            _json_request(responseJsonSchema=PERSON),
            is_person_json,
        ),
        Experiment(
            "format.openapi",
            "JSON output through responseSchema",
            _json_request(responseSchema=OPENAPI_PERSON),
            is_person_json,
        ),
        Experiment("format.json", "output as JSON", _json_request(), is_json),
        # Thinking and settings.
        Experiment(
            "thinking.budget",
            "thinkingBudget",
            _request_with_generation_config(hello, thinkingConfig={"thinkingBudget": 1024}),
        ),
        Experiment(
            "thinking.level",
            "thinkingLevel",
            _request_with_generation_config(hello, thinkingConfig={"thinkingLevel": "low"}),
        ),
        Choice(
            "field",
            "setting",
            minimal_body(form),
            {name: {"generationConfig": {name: value}} for name, value in FIELDS.items()},
        ),
        # Limits of tools, and fields that the API does not have.
        Bound(
            "limit.tools",
            "number of tools",
            lambda n: _request_body(hello, tools=_many_tools(n)),
            MOST_TOOLS,
            ("tools",),
        ),
        Bound(
            "limit.name",
            "length of a tool name",
            lambda n: _request_body(hello, tools=_named_tools(long_name(n))),
            LONGEST_NAME,
            ("tools",),
        ),
        Bound(
            "limit.call-id",
            "length of a tool call id",
            lambda n: _request_body(
                paris, _call_content(id=long_id(n)), _result_content(LONG_TEXT, id=long_id(n)), tools=TOOLS
            ),
            LONGEST_ID,
            ("calls.ids",),
        ),
        Experiment("field.unknown", "unknown field", {**minimal_body(form), "probeUnknownField": 1}),
        # The answer.
        Experiment("stream", "streamed answer", minimal_body(form), streams=True),
        Experiment("counts", "token count without running a turn", minimal_body(form), path="/{model}:countTokens"),
    ]


def _request_body(*contents: Body, **settings: Any) -> Body:
    return {"contents": [*contents], **settings}


def _request_with_generation_config(content: Body, **settings: Any) -> Body:
    return _request_body(content, generationConfig=settings)


def _json_request(**schema: Any) -> Body:
    return _request_with_generation_config(
        _content("user", PERSON_AS_JSON), responseMimeType="application/json", **schema
    )


def _content(role: str, text: str) -> Body:
    return {"role": role, "parts": [{"text": text}]}


def _user_message_with(mime_type: str, data: str) -> Body:
    return {"role": "user", "parts": [{"text": HELLO}, {"inlineData": {"mimeType": mime_type, "data": data}}]}


def _call_content(**id_field: str) -> Body:
    return {
        "role": "model",
        "parts": [{"functionCall": {"name": "get_weather", "args": {"city": "Paris"}, **id_field}}],
    }


def _result_content(text: str, **id_field: str) -> Body:
    return {
        "role": "user",
        "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": text}, **id_field}}],
    }


def _tool_mode(mode: str) -> Body:
    return {"toolConfig": {"functionCallingConfig": {"mode": mode}}}


def _function_tools(field: str, schema: Body) -> list[Body]:
    return [
        {
            "functionDeclarations": [
                {"name": "get_weather", "description": "Tells the weather in a city.", field: schema}
            ]
        }
    ]


def _named_tools(*names: str) -> list[Body]:
    return [{"functionDeclarations": [{"name": name} for name in names]}]


def _many_tools(count: int) -> list[Body]:
    return _named_tools(*map(probe_name, range(count)))


TOOLS = _function_tools("parametersJsonSchema", CITY)
OPENAPI_CITY: Body = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
OPENAPI_PERSON: Body = {
    "type": "OBJECT",
    "properties": {"name": {"type": "STRING"}, "age": {"type": "INTEGER"}},
    "required": ["name", "age"],
}
FIELDS: dict[str, Any] = {
    "temperature": 0.5,
    "topP": 0.9,
    "topK": 40,
    "stopSequences": ["|||"],
    "seed": 1,
    "presencePenalty": 0.1,
    "frequencyPenalty": 0.1,
    "responseLogprobs": True,
}
