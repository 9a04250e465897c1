"""Experiments for servers of Chat Completions."""

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
    ARGUMENTS,
    CALL_AS_TEXT,
    CITY,
    EFFORTS,
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

LIMIT_NAMES = ("max_tokens", "max_completion_tokens")


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
    return [
        Experiment(
            "developer", "developer message first", _request_body(_message("developer", LONG_TEXT), hello), is_counted
        ),
        Experiment("tools", "tools offered", _request_body(paris, **tools), counts_tools),
        Experiment(
            "assistant.string",
            "assistant message as a string",
            _request_body(hi, _message("assistant", LONG_TEXT), hello),
            is_counted,
        ),
        Experiment(
            "assistant.parts",
            "assistant message as parts",
            _request_body(hi, _message("assistant", LONG_TEXT, "parts"), hello),
            is_counted,
        ),
        Experiment(
            "calls.paired",
            "tool call and its result",
            _request_body(paris, _message_with_calls(""), _message_with_result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "result.alone",
            "tool result without a call",
            _request_body(paris, _message_with_result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "result.after-text",
            "tool result after a call written as text",
            _request_body(paris, _message("assistant", CALL_AS_TEXT), _message_with_result(LONG_TEXT), **tools),
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
        Experiment("system", "system message first", _request_body(_message("system", LONG_TEXT), hello), is_counted),
        Experiment(
            "system.middle",
            "system message in the middle",
            _request_body(hi, _message("system", LONG_TEXT), hello),
            is_counted,
            ("system",),
        ),
        # Strings and parts.
        Experiment(
            "user.string",
            "user message as a string",
            _request_body(_message("user", f"{HELLO} {LONG_TEXT}")),
            is_counted,
        ),
        Experiment(
            "user.parts",
            "user message as parts",
            _request_body(_message("user", f"{HELLO} {LONG_TEXT}", "parts")),
            is_counted,
        ),
        Experiment(
            "result.parts",
            "tool result as parts",
            _request_body(paris, _message_with_calls(""), _result_in_parts(), **tools),
            is_counted,
            ("calls.paired",),
        ),
        # Calls in the history, with and without content and reasoning.
        Experiment(
            "calls.null",
            "tool call with content null",
            _request_body(paris, _message_with_calls(None), _message_with_result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.absent",
            "tool call without content",
            _request_body(paris, _calls_without_content(), _message_with_result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.reasoning",
            "tool call with reasoning_content",
            _request_body(paris, _call_with_reasoning("reasoning_content"), _message_with_result(LONG_TEXT), **tools),
        ),
        Experiment(
            "calls.thought",
            "tool call with reasoning",
            _request_body(paris, _call_with_reasoning("reasoning"), _message_with_result(LONG_TEXT), **tools),
        ),
        Experiment(
            "calls.text-before",
            "text and tool call in one message",
            _request_body(paris, _message_with_calls("I look."), _message_with_result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.parallel",
            "two tool calls, then both results",
            _request_body(
                paris,
                _message_with_calls("", "call_probe_1", "call_probe_2"),
                _message_with_result("rain"),
                _message_with_result(LONG_TEXT, "call_probe_2"),
                **tools,
            ),
            is_counted,
        ),
        Experiment(
            "calls.unanswered",
            "tool call without result",
            _request_body(paris, _message_with_calls(""), hello, **tools),
            None,
            ("calls.paired",),
        ),
        # Images and files.
        Experiment("image", "image", _request_body(_user_message_with(IMAGE)), has_effect),
        Experiment("file", "file", _request_body(_user_message_with(FILE)), has_effect),
        Experiment(
            "result.image",
            "image in a tool result",
            _request_body(paris, _message_with_calls(""), {**_message_with_result(""), "content": [IMAGE]}, **tools),
            has_effect,
            ("calls.paired", "image"),
        ),
        # Tools and the form of the output.
        Experiment("tools.strict", "strict tool", _request_body(paris, tools=[STRICT_TOOL]), counts_tools, ("tools",)),
        Experiment(
            "tools.required", "tool_choice required", _request_body(hello, tool_choice="required", **tools), calls_tool
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
            _request_body(paris, tool_choice="none", **tools),
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
            "tools.custom",
            "custom tool",
            _request_body(user_message("Run ls. Call shell."), tools=[SHELL_TOOL]),
            counts_tools,
        ),
        Experiment(
            "format.schema",
            "output that follows a JSON schema",
            _request_body(user_message(PERSON_AS_JSON), response_format=SCHEMA_FORMAT),
            is_person_json,
        ),
        Experiment(
            "format.json",
            "output as a JSON object",
            _request_body(user_message(PERSON_AS_JSON), response_format={"type": "json_object"}),
            is_json,
        ),
        # Settings.
        Choice("field", "setting", minimal_body(form), FIELDS),
        Experiment(
            "field.parallel_tool_calls",
            "setting parallel_tool_calls",
            _request_body(paris, parallel_tool_calls=True, **tools),
            needs=("tools",),
        ),
        Experiment("effort.low", "reasoning_effort low", {**minimal_body(form), "reasoning_effort": "low"}),
        *(_effort_experiment(effort, form) for effort in EFFORTS if effort != "low"),
        # The answer.
        Experiment("stream", "streamed answer", {**minimal_body(form), "stream": True}, streams=True),
        Experiment(
            "stream.usage",
            "usage in a stream",
            {**minimal_body(form), "stream": True, "stream_options": {"include_usage": True}},
            needs=("stream",),
            streams=True,
        ),
        # Limits of tools.
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
            LONGEST_NAME,
            ("tools",),
        ),
        Bound(
            "limit.call-id",
            "length of a tool call id",
            lambda n: _request_body(
                paris, _message_with_calls("", long_id(n)), _message_with_result("rain", long_id(n)), **tools
            ),
            LONGEST_ID,
            ("calls.paired",),
        ),
        # Fields that the API does not have, and cache marks.
        Experiment("field.unknown", "unknown field", {**minimal_body(form), "probe_unknown_field": 1}),
        Experiment(
            "part.unknown", "unknown member of a part", _request_body(_marked_message("probe_unknown_member", 1))
        ),
        Experiment(
            "cache.control",
            "cache_control on a text",
            _request_body(_marked_message("cache_control", {"type": "ephemeral"})),
        ),
        Experiment(
            "cache.breakpoint",
            "prompt_cache_breakpoint on a text",
            _request_body(_marked_message("prompt_cache_breakpoint", {"mode": "explicit"})),
        ),
        Experiment(
            "counts", "token count without running a turn", minimal_body(form), path="/chat/completions/input_tokens"
        ),
    ]


def _effort_experiment(effort: str, form: TextForm) -> Experiment:
    body = {**minimal_body(form), "reasoning_effort": effort}
    return Experiment(f"effort.{effort}", f"reasoning_effort {effort}", body, needs=("effort.low",))


def _request_body(*messages: Body, **settings: Any) -> Body:
    return {"messages": [*messages], **settings}


def _message(role: str, text: str, form: TextForm = "string") -> Body:
    return {"role": role, "content": text if form == "string" else [{"type": "text", "text": text}]}


def _user_message_with(part: Body) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": HELLO}, part]}


def _message_with_calls(content: str | None, *ids: str) -> Body:
    function = {"name": "get_weather", "arguments": ARGUMENTS}
    calls = [{"id": id, "type": "function", "function": function} for id in ids or ("call_probe_1",)]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _tool(name: str) -> Body:
    return {"type": "function", "function": {"name": name, "parameters": NO_PARAMETERS}}


def _many_tools(count: int) -> list[Body]:
    return [_tool(probe_name(number)) for number in range(count)]


def _marked_message(name: str, value: Any) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": HELLO, name: value}]}


def _calls_without_content() -> Body:
    return {name: value for name, value in _message_with_calls("").items() if name != "content"}


def _call_with_reasoning(field: str) -> Body:
    return {**_message_with_calls(""), field: "I should look."}


def _message_with_result(text: str, id: str = "call_probe_1") -> Body:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _result_in_parts() -> Body:
    return {**_message_with_result(""), "content": [{"type": "text", "text": LONG_TEXT}]}


FUNCTION: Body = {"name": "get_weather", "description": "Tells the weather in a city.", "parameters": CITY}
WEATHER_TOOL: Body = {"type": "function", "function": FUNCTION}
STRICT_TOOL: Body = {"type": "function", "function": {**FUNCTION, "strict": True}}
NAMED_TOOL_CHOICE: Body = {"type": "function", "function": {"name": "get_weather"}}
SHELL_TOOL: Body = {"type": "custom", "custom": {"name": "shell", "description": "Runs a command."}}
IMAGE: Body = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
FILE: Body = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
SCHEMA_FORMAT: Body = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
FIELDS: dict[str, Body] = {
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.9},
    "presence_penalty": {"presence_penalty": 0.1},
    "frequency_penalty": {"frequency_penalty": 0.1},
    "logprobs": {"logprobs": True},
    "top_logprobs": {"logprobs": True, "top_logprobs": 1},
    "stop": {"stop": ["|||"]},
    "seed": {"seed": 1},
    "user": {"user": "probe"},
    "metadata": {"metadata": {"probe": "1"}},
    "service_tier": {"service_tier": "auto"},
    "safety_identifier": {"safety_identifier": "probe"},
    "prompt_cache_key": {"prompt_cache_key": "probe"},
    "verbosity": {"verbosity": "medium"},
}
