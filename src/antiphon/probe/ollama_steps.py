"""Experiments for servers of Ollama's own API. Servers ignore unknown fields, so few of them can be refused."""

from __future__ import annotations

from typing import Any

from antiphon.probe.finding import (
    LONG_TEXT,
    Body,
    Bound,
    Choice,
    Experiment,
    Step,
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
    MOST_TOOLS,
    NO_PARAMETERS,
    PERSON,
    PERSON_AS_JSON,
    PNG,
    RESULT_AS_TEXT,
    WEATHER_IN_PARIS,
    TextForm,
    probe_name,
)

LIMIT_NAMES = ("num_predict",)


def minimal_body(form: TextForm) -> Body:  # noqa: ARG001 - a text is always a string here
    """Return the minimal turn. The default of `stream` is true."""
    return _request_body(_message("user", HELLO))


def with_token_limit(body: Body, name: str, tokens: int) -> Body:
    return {**body, "options": {name: tokens, **body.get("options", {})}}


def probe_steps(form: TextForm) -> list[Step]:
    """Return all experiments."""
    hello, paris, hi = _message("user", HELLO), _message("user", WEATHER_IN_PARIS), _message("user", "Hi.")
    return [
        Experiment("system", "system message", _request_body(_message("system", LONG_TEXT), hello), is_counted),
        Experiment(
            "system.middle", "system message in the middle", _request_body(hi, _message("system", LONG_TEXT), hello)
        ),
        Experiment("tools", "tools offered", _request_body(paris, tools=[TOOL]), counts_tools),
        Experiment(
            "calls.paired",
            "tool call and its result",
            _request_body(paris, CALL, RESULT, tools=[TOOL]),
            is_counted,
            ("tools",),
        ),
        Experiment(
            "calls.bare",
            "tool call and its result, without ids",
            _request_body(paris, BARE_CALL, BARE_RESULT, tools=[TOOL]),
            is_counted,
            ("tools",),
        ),
        Experiment(
            "calls.as-text",
            "tool call and result written as text",
            _request_body(paris, _message("assistant", CALL_AS_TEXT), _message("user", RESULT_AS_TEXT + LONG_TEXT)),
            is_counted,
        ),
        Experiment(
            "assistant.last", "assistant message at the end", _request_body(hello, _message("assistant", "Good"))
        ),
        Experiment("result.alone", "tool result without a call", _request_body(paris, RESULT)),
        Experiment(
            "thinking.history",
            "earlier thinking",
            _request_body(hi, {**_message("assistant", "Hello."), "thinking": "A greeting."}, hello),
        ),
        Experiment("image", "image", _request_body({**hello, "images": [PNG]}), has_effect),
        Experiment("format.schema", "JSON output by a schema", _formed(PERSON), is_person_json),
        Experiment("format.json", "output as JSON", _formed("json"), is_json),
        Experiment("think", "think", _request_body(hello, think=True)),
        Experiment("think.off", "think set to false", _request_body(hello, think=False)),
        Experiment("think.level", "think with a level", _request_body(hello, think="low"), needs=("think",)),
        Experiment("logprobs", "log probabilities", _request_body(hello, logprobs=True, top_logprobs=2)),
        Experiment("keep_alive", "keep_alive", _request_body(hello, keep_alive="5m")),
        Choice(
            "field", "option", minimal_body(form), {name: {"options": {name: value}} for name, value in FIELDS.items()}
        ),
        Bound(
            "limit.tools",
            "number of tools",
            lambda n: _request_body(hello, tools=_many_tools(n)),
            MOST_TOOLS,
            ("tools",),
        ),
        Experiment("field.unknown", "unknown field", _request_body(hello, probe_unknown_field=1)),
        Experiment("stream", "streamed answer", {**minimal_body(form), "stream": True}, streams=True),
    ]


def _request_body(*messages: Body, **settings: Any) -> Body:
    return {"messages": [*messages], "stream": False, **settings}


def _formed(format: Any) -> Body:
    return _request_body(_message("user", PERSON_AS_JSON), format=format)


def _message(role: str, text: str) -> Body:
    return {"role": role, "content": text}


def _many_tools(count: int) -> list[Body]:
    functions = [{"name": probe_name(number), "parameters": NO_PARAMETERS} for number in range(count)]
    return [{"type": "function", "function": function} for function in functions]


TOOL: Body = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Tells the weather in a city.", "parameters": CITY},
}
CALL: Body = {
    **_message("assistant", ""),
    "tool_calls": [{"id": "call_probe_1", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}],
}
BARE_CALL: Body = {
    **_message("assistant", ""),
    "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}],
}
BARE_RESULT: Body = {**_message("tool", LONG_TEXT), "tool_name": "get_weather"}
RESULT: Body = {**_message("tool", LONG_TEXT), "tool_name": "get_weather", "tool_call_id": "call_probe_1"}
FIELDS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "stop": ["|||"],
    "seed": 1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
}
