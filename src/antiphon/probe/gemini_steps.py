"""Experiments for servers of the Gemini API."""

from __future__ import annotations

from typing import Any

from antiphon.probe.finding import (
    LONG_TEXT,
    Body,
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
    ALICE,
    BOTH,
    CALL_AS_TEXT,
    CITY,
    HELLO,
    PDF,
    PERSON,
    PNG,
    RESULT_AS_TEXT,
    WEATHER_IN_PARIS,
    TextForm,
)

LIMITS = ("maxOutputTokens",)


def minimal(form: TextForm) -> Body:  # noqa: ARG001 - a text is always a part here
    """Return the minimal turn."""
    return _talk(_content("user", HELLO))


def limited(body: Body, name: str, tokens: int) -> Body:
    return {**body, "generationConfig": {name: tokens, **body.get("generationConfig", {})}}


def steps(form: TextForm) -> list[Step]:
    """Return the nine payloads of the published table, in this API's terms, then all other experiments."""
    hi, paris, hello = _content("user", "Hi."), _content("user", WEATHER_IN_PARIS), _content("user", HELLO)
    yes = _content("model", "Hello.")
    return [
        Experiment(
            "system",
            "systemInstruction",
            {**_talk(hello), "systemInstruction": {"parts": [{"text": LONG_TEXT}]}},
            is_counted,
        ),
        Experiment("tools", "tools offered", _talk(paris, tools=TOOLS), counts_tools),
        Experiment("assistant.parts", "model message", _talk(hi, _content("model", LONG_TEXT), hello), is_counted),
        Experiment(
            "calls.paired",
            "tool call and its result",
            _talk(paris, _call(), _result(LONG_TEXT), tools=TOOLS),
            is_counted,
        ),
        Experiment(
            "result.alone", "tool result without a call", _talk(paris, yes, _result(LONG_TEXT), tools=TOOLS), is_counted
        ),
        Experiment(
            "result.after-text",
            "tool result after a call written as text",
            _talk(paris, _content("model", CALL_AS_TEXT), _result(LONG_TEXT), tools=TOOLS),
            is_counted,
        ),
        Experiment(
            "calls.as-text",
            "tool call and result written as text",
            _talk(paris, _content("model", CALL_AS_TEXT), _content("user", RESULT_AS_TEXT + LONG_TEXT), tools=TOOLS),
            is_counted,
        ),
        Experiment(
            "calls.ids",
            "tool call and its result, with ids",
            _talk(paris, _call(id="call_probe_1"), _result(LONG_TEXT, id="call_probe_1"), tools=TOOLS),
            is_counted,
        ),
        Experiment("model.last", "model message at the end", _talk(hello, _content("model", "Good"))),
        # What is no text.
        Experiment("image", "image", _talk(_with("image/png", PNG)), has_effect),
        Experiment("file", "file", _talk(_with("application/pdf", PDF)), has_effect),
        # Tools and the form of the output.
        Experiment("tools.required", "mode ANY", _talk(hello, tools=TOOLS, **_mode("ANY")), calls_tool),
        Experiment("tools.none", "mode NONE", _talk(paris, tools=TOOLS, **_mode("NONE")), calls_no_tool, ("tools",)),
        Experiment(
            "tools.parallel",
            "two tool calls in one answer",
            _talk(_content("user", BOTH), tools=TOOLS),
            calls_two_tools,
            ("tools",),
        ),
        Experiment(
            "tools.openapi",
            "parameters as an OpenAPI schema",
            _talk(paris, tools=_tools("parameters", NARROW)),
            counts_tools,
        ),
        Experiment(
            "format.schema",
            "JSON output through responseJsonSchema",
            _formed(responseJsonSchema=PERSON),
            is_person_json,
        ),
        Experiment(
            "format.openapi",
            "JSON output through responseSchema",
            _formed(responseSchema=NARROW_PERSON),
            is_person_json,
        ),
        Experiment("format.json", "output as JSON", _formed(), is_json),
        # Thinking and settings.
        Experiment("thinking.budget", "thinkingBudget", _set(hello, thinkingConfig={"thinkingBudget": 1024})),
        Experiment("thinking.level", "thinkingLevel", _set(hello, thinkingConfig={"thinkingLevel": "low"})),
        Choice(
            "field",
            "setting",
            minimal(form),
            {name: {"generationConfig": {name: value}} for name, value in FIELDS.items()},
        ),
        # The answer.
        Experiment("stream", "streamed answer", minimal(form), streams=True),
        Experiment("counts", "token count without running a turn", minimal(form), path="/{model}:countTokens"),
    ]


def _talk(*contents: Body, **settings: Any) -> Body:
    return {"contents": [*contents], **settings}


def _set(content: Body, **settings: Any) -> Body:
    return _talk(content, generationConfig=settings)


def _formed(**schema: Any) -> Body:
    return _set(_content("user", ALICE), responseMimeType="application/json", **schema)


def _content(role: str, text: str) -> Body:
    return {"role": role, "parts": [{"text": text}]}


def _with(kind: str, data: str) -> Body:
    return {"role": "user", "parts": [{"text": HELLO}, {"inlineData": {"mimeType": kind, "data": data}}]}


def _call(**id: str) -> Body:
    return {"role": "model", "parts": [{"functionCall": {"name": "get_weather", "args": {"city": "Paris"}, **id}}]}


def _result(text: str, **id: str) -> Body:
    return {
        "role": "user",
        "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": text}, **id}}],
    }


def _mode(mode: str) -> Body:
    return {"toolConfig": {"functionCallingConfig": {"mode": mode}}}


def _tools(field: str, schema: Body) -> list[Body]:
    return [
        {
            "functionDeclarations": [
                {"name": "get_weather", "description": "Tells the weather in a city.", field: schema}
            ]
        }
    ]


TOOLS = _tools("parametersJsonSchema", CITY)
NARROW: Body = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
NARROW_PERSON: Body = {
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
