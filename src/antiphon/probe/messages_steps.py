"""Experiments for servers of the Messages API."""

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
    is_person_json,
)
from antiphon.probe.samples import (
    CALL_AS_TEXT,
    CITY,
    HELLO,
    LONGEST_ID,
    LONGEST_NAME,
    MOST_TOOLS,
    NO_PARAMETERS,
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

LIMIT_NAMES = ("max_tokens",)


def minimal_body(form: TextForm) -> Body:
    """Return the minimal turn."""
    return {"messages": [_message("user", HELLO, form)]}


def with_token_limit(body: Body, name: str, tokens: int) -> Body:
    return {name: tokens, **body}


def probe_steps(form: TextForm) -> list[Step]:
    """Return the nine payloads of the published table, in this API's terms, then all other experiments."""

    def user_message(text: str) -> Body:
        return _message("user", text, form)

    hi, paris, hello = user_message("Hi."), user_message(WEATHER_IN_PARIS), user_message(HELLO)
    tools: dict[str, Any] = {"tools": [WEATHER_TOOL]}
    assistant_greeting = _message("assistant", "Hello.")
    return [
        Experiment("system", "system field", {**_request_body(hello), "system": LONG_TEXT}, is_counted),
        Experiment("tools", "tools offered", _request_body(paris, **tools), counts_tools),
        Experiment(
            "assistant.string",
            "assistant message as a string",
            _request_body(hi, _message("assistant", LONG_TEXT), hello),
            is_counted,
        ),
        Experiment(
            "assistant.parts",
            "assistant message as blocks",
            _request_body(hi, _message("assistant", LONG_TEXT, "parts"), hello),
            is_counted,
        ),
        Experiment(
            "calls.paired",
            "tool call and its result",
            _request_body(paris, _message_with_calls(), _message_with_results(), **tools),
            is_counted,
        ),
        Experiment(
            "result.alone",
            "tool result without a call",
            _request_body(paris, assistant_greeting, _message_with_results(), **tools),
            is_counted,
        ),
        Experiment(
            "result.after-text",
            "tool result after a call written as text",
            _request_body(paris, _message("assistant", CALL_AS_TEXT), _message_with_results(), **tools),
            is_counted,
        ),
        Experiment(
            "calls.as-text",
            "tool call and result written as text",
            _request_body(
                paris, _message("assistant", CALL_AS_TEXT), user_message(RESULT_AS_TEXT + LONG_TEXT), **tools
            ),
            is_counted,
        ),
        # Roles and their places.
        Experiment(
            "system.blocks",
            "system field as blocks",
            {**_request_body(hello), "system": [_text_block(LONG_TEXT)]},
            is_counted,
        ),
        Experiment(
            "system.middle",
            "system message in the middle",
            _request_body(hi, assistant_greeting, hello, _message("system", LONG_TEXT)),
            is_counted,
            ("system",),
        ),
        Experiment(
            "user.twice",
            "two user messages in a row",
            _request_body(hi, user_message(f"{HELLO} {LONG_TEXT}")),
            is_counted,
        ),
        # Calls and thoughts in the history.
        Experiment(
            "calls.parallel",
            "two tool calls, then both results",
            _request_body(
                paris,
                _message_with_calls("toolu_probe_1", "toolu_probe_2"),
                _message_with_results("toolu_probe_1", "toolu_probe_2"),
                **tools,
            ),
            is_counted,
            ("calls.paired",),
        ),
        Experiment(
            "calls.unanswered",
            "tool call without result",
            _request_body(paris, _message_with_calls(), hello, **tools),
            needs=("calls.paired",),
        ),
        Experiment(
            "thinking.unsigned",
            "thinking block without a valid signature",
            _request_body(hi, _reasoning_message(), hello),
        ),
        # Images and files.
        Experiment("image", "image", _request_body(_user_message_with(IMAGE)), has_effect),
        Experiment("document", "document", _request_body(_user_message_with(DOCUMENT)), has_effect),
        # Tools and the form of the output.
        Experiment(
            "tools.strict",
            "strict tool",
            _request_body(paris, tools=[{**WEATHER_TOOL, "strict": True}]),
            counts_tools,
            ("tools",),
        ),
        Experiment(
            "tools.required", "tool_choice any", _request_body(hello, tool_choice={"type": "any"}, **tools), calls_tool
        ),
        Experiment(
            "tools.named",
            "tool_choice with one named tool",
            _request_body(hello, tool_choice=NAMED_TOOL_CHOICE, **tools),
            calls_tool,
        ),
        Experiment(
            "tools.none",
            "tool_choice none",
            _request_body(paris, tool_choice={"type": "none"}, **tools),
            calls_no_tool,
            ("tools",),
        ),
        Experiment(
            "tools.parallel",
            "two tool calls in one answer",
            _request_body(user_message(WEATHER_IN_TWO_CITIES), **tools),
            calls_two_tools,
            ("tools",),
        ),
        Experiment(
            "format.output_config",
            "JSON output through output_config",
            _request_body(user_message(PERSON_AS_JSON), output_config={"format": SCHEMA_FORMAT}),
            is_person_json,
        ),
        Experiment(
            "format.output_format",
            "JSON output through output_format",
            _request_body(user_message(PERSON_AS_JSON), output_format=SCHEMA_FORMAT),
            is_person_json,
        ),
        # Thinking.
        Experiment("thinking.adaptive", "adaptive thinking", _request_body(hello, thinking={"type": "adaptive"})),
        Experiment(
            "thinking.budget",
            "thinking with a budget",
            _request_body(hello, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1200),
        ),
        Experiment(
            "thinking.display",
            "thinking with a display",
            _request_body(hello, thinking={"type": "adaptive", "display": "summarized"}),
            needs=("thinking.adaptive",),
        ),
        Experiment(
            "effort.low",
            "effort low",
            _request_body(hello, output_config={"effort": "low"}),
            needs=("thinking.adaptive",),
        ),
        *(_effort_experiment(effort, hello) for effort in EFFORTS if effort != "low"),
        # Settings.
        Choice("field", "setting", minimal_body(form), FIELDS),
        Experiment(
            "samplings",
            "temperature and top_p together",
            _request_body(hello, temperature=0.5, top_p=0.9),
            needs=("field.temperature", "field.top_p"),
        ),
        # Limits of tools, fields that the API does not have, and cache marks.
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
            lambda n: _request_body(hello, tools=[_tool(long_name(n))]),
            2 * LONGEST_NAME,
            ("tools",),
        ),
        Bound(
            "limit.call-id",
            "length of a tool call id",
            lambda n: _request_body(paris, _message_with_calls(long_id(n)), _message_with_results(long_id(n)), **tools),
            LONGEST_ID,
            ("calls.paired",),
        ),
        Experiment("field.unknown", "unknown field", _request_body(hello, probe_unknown_field=1)),
        Experiment(
            "cache.control",
            "cache_control on a text",
            _request_body(_user_message_with({**_text_block(HELLO), "cache_control": {"type": "ephemeral"}})),
        ),
        Experiment(
            "cache.auto", "cache_control at the top level", _request_body(hello, cache_control={"type": "ephemeral"})
        ),
        # The answer.
        Experiment("stream", "streamed answer", {**minimal_body(form), "stream": True}, streams=True),
        Experiment("counts", "token count without running a turn", minimal_body(form), path="/messages/count_tokens"),
    ]


def _effort_experiment(effort: str, hello: Body) -> Experiment:
    return Experiment(
        f"effort.{effort}",
        f"effort {effort}",
        _request_body(hello, output_config={"effort": effort}),
        needs=("effort.low",),
    )


def _request_body(*messages: Body, **settings: Any) -> Body:
    return {"messages": [*messages], **settings}


def _text_block(text: str) -> Body:
    return {"type": "text", "text": text}


def _message(role: str, text: str, form: TextForm = "string") -> Body:
    return {"role": role, "content": text if form == "string" else [_text_block(text)]}


def _user_message_with(block: Body) -> Body:
    return {"role": "user", "content": [_text_block(HELLO), block]}


def _message_with_calls(*ids: str) -> Body:
    call = {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris"}}
    return {"role": "assistant", "content": [{**call, "id": id} for id in ids or ("toolu_probe_1",)]}


def _message_with_results(*ids: str) -> Body:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": id, "content": LONG_TEXT} for id in ids or ("toolu_probe_1",)
        ],
    }


def _tool(name: str) -> Body:
    return {"name": name, "input_schema": NO_PARAMETERS}


def _many_tools(count: int) -> list[Body]:
    return [_tool(probe_name(number)) for number in range(count)]


def _reasoning_message() -> Body:
    thinking = {"type": "thinking", "thinking": "I greet.", "signature": "bm9ib2R5J3M="}
    return {"role": "assistant", "content": [thinking, _text_block("Hello.")]}


EFFORTS = ("low", "medium", "high", "xhigh", "max")
WEATHER_TOOL: Body = {"name": "get_weather", "description": "Tells the weather in a city.", "input_schema": CITY}
NAMED_TOOL_CHOICE: Body = {"type": "tool", "name": "get_weather"}
SCHEMA_FORMAT: Body = {"type": "json_schema", "schema": PERSON}
IMAGE: Body = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
DOCUMENT: Body = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}
FIELDS: dict[str, Body] = {
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 40},
    "stop_sequences": {"stop_sequences": ["|||"]},
    "metadata": {"metadata": {"user_id": "probe"}},
    "service_tier": {"service_tier": "auto"},
}
