"""Experiments for servers of the Responses API."""

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
    reports_truncation,
)
from antiphon.probe.samples import (
    ARGUMENTS,
    CALL_AS_TEXT,
    CITY,
    COUNTING,
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

LIMIT_NAMES = ("max_output_tokens",)


def minimal_body(form: TextForm) -> Body:
    """Return the minimal turn."""
    return {"input": [_user(HELLO, form)]}


def with_token_limit(body: Body, name: str, tokens: int) -> Body:
    return {name: tokens, **body}


def probe_steps(form: TextForm) -> list[Step]:
    """Return the nine payloads of the published table, then all other experiments."""

    def user_message(text: str) -> Body:
        return _user(text, form)

    paris, tools = user_message(WEATHER_IN_PARIS), [WEATHER_TOOL]
    after_call = [paris, CALL, _output(LONG_TEXT)]
    return [
        Experiment(
            "developer",
            "developer message before a user message",
            _request(_message("developer", LONG_TEXT, form), user_message(HELLO)),
            inspection=is_counted,
        ),
        Experiment("tools", "tools offered", _request(paris, tools=tools), inspection=counts_tools),
        Experiment(
            "assistant.string",
            "assistant message as a string",
            _request(user_message("Hi."), _message("assistant", LONG_TEXT, "string"), user_message(HELLO)),
            inspection=is_counted,
        ),
        Experiment(
            "assistant.output_text",
            "assistant message as output_text",
            _request(user_message("Hi."), _assistant_message("output_text"), user_message(HELLO)),
            inspection=is_counted,
        ),
        Experiment(
            "calls.paired", "tool call and its output", _request(*after_call, tools=tools), inspection=is_counted
        ),
        Experiment(
            "result.alone",
            "tool output without a call",
            _request(paris, _output(LONG_TEXT), tools=tools),
            inspection=is_counted,
        ),
        Experiment(
            "result.after-text",
            "tool output after a call written as text",
            _request(paris, _message("assistant", CALL_AS_TEXT, "string"), _output(LONG_TEXT), tools=tools),
            inspection=is_counted,
        ),
        Experiment(
            "calls.as-text",
            "tool call and output written as text",
            _request(
                paris,
                _message("assistant", CALL_AS_TEXT, "string"),
                user_message(RESULT_AS_TEXT + LONG_TEXT),
                tools=tools,
            ),
            inspection=is_counted,
        ),
        # The assistant's turns.
        Experiment(
            "assistant.input_text",
            "assistant message as input_text",
            _request(user_message("Hi."), _assistant_message("input_text"), user_message(HELLO)),
            inspection=is_counted,
        ),
        Experiment(
            "assistant.refusal",
            "assistant message with a refusal",
            _request(
                user_message("Hi."),
                {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": LONG_TEXT}]},
                user_message(HELLO),
            ),
        ),
        # Roles and their places.
        Experiment(
            "system",
            "system message first",
            _request(_message("system", LONG_TEXT, form), user_message(HELLO)),
            inspection=is_counted,
        ),
        Experiment(
            "system.middle",
            "system message in the middle",
            _request(user_message("Hi."), _message("system", LONG_TEXT, form), user_message(HELLO)),
            inspection=is_counted,
            needs=("system",),
        ),
        Experiment(
            "developer.middle",
            "developer message in the middle",
            _request(user_message("Hi."), _message("developer", LONG_TEXT, form), user_message(HELLO)),
            inspection=is_counted,
            needs=("developer",),
        ),
        Experiment(
            "instructions",
            "instructions",
            {**_request(user_message(HELLO)), "instructions": LONG_TEXT},
            inspection=is_counted,
        ),
        # Strings and parts.
        Experiment("input.string", "input as one string", {"input": HELLO + " " + LONG_TEXT}, inspection=is_counted),
        Experiment(
            "user.string",
            "user message as a string",
            _request(_message("user", HELLO + " " + LONG_TEXT, "string")),
            inspection=is_counted,
        ),
        Experiment(
            "user.parts",
            "user message as parts",
            _request(_message("user", HELLO + " " + LONG_TEXT, "parts")),
            inspection=is_counted,
        ),
        Experiment(
            "output.parts",
            "tool output as parts",
            _request(paris, CALL, {**_output(""), "output": [{"type": "input_text", "text": LONG_TEXT}]}, tools=tools),
            inspection=is_counted,
            needs=("calls.paired",),
        ),
        # Calls in the history.
        Experiment(
            "calls.text-before",
            "text before a tool call",
            _request(paris, _message("assistant", "I look.", "string"), CALL, _output(LONG_TEXT), tools=tools),
            inspection=is_counted,
            needs=("calls.paired",),
        ),
        Experiment(
            "calls.parallel",
            "two tool calls, then both outputs",
            _request(
                paris,
                CALL,
                {**CALL, "call_id": "call_probe_2"},
                _output("rain"),
                {**_output(LONG_TEXT), "call_id": "call_probe_2"},
                tools=tools,
            ),
            inspection=is_counted,
            needs=("calls.paired",),
        ),
        Experiment(
            "calls.unanswered",
            "tool call without output",
            _request(paris, CALL, user_message(HELLO), tools=tools),
            needs=("calls.paired",),
        ),
        Experiment(
            "calls.blocks",
            "tool_result block in a user message",
            _request(
                paris,
                CALL,
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": CALL["call_id"], "content": LONG_TEXT}],
                },
                tools=tools,
            ),
            inspection=is_counted,
        ),
        # Items.
        Experiment(
            "reasoning.content",
            "reasoning with plain text",
            _request(
                user_message("Hi."),
                {**REASONING, "content": [{"type": "reasoning_text", "text": LONG_TEXT}]},
                _message("assistant", "Hello.", "string"),
                user_message(HELLO),
            ),
        ),
        Experiment(
            "reasoning.summary",
            "reasoning with a summary only",
            _request(
                user_message("Hi."),
                {**REASONING, "summary": [{"type": "summary_text", "text": LONG_TEXT}]},
                _message("assistant", "Hello.", "string"),
                user_message(HELLO),
            ),
        ),
        Experiment(
            "item.custom-call",
            "custom tool call and output",
            _request(
                paris,
                {"type": "custom_tool_call", "call_id": "call_probe_1", "name": "shell", "input": "ls"},
                {"type": "custom_tool_call_output", "call_id": "call_probe_1", "output": LONG_TEXT},
                tools=[SHELL_TOOL],
            ),
            inspection=is_counted,
        ),
        Experiment(
            "item.unknown",
            "item of an unknown type",
            _request({"type": "antiphon:note", "text": "x"}, user_message(HELLO)),
        ),
        Experiment(
            "item.ids",
            "items with ids",
            _request(
                {**user_message("Hi."), "id": "msg_probe_1"},
                {**_message("assistant", "Hello.", "string"), "id": "msg_probe_2"},
                user_message(HELLO),
            ),
            needs=("assistant.string",),
        ),
        Experiment(
            "item.status",
            "items with a status",
            _request(
                user_message("Hi."),
                {**_message("assistant", "Hello.", "string"), "status": "completed"},
                user_message(HELLO),
            ),
            needs=("assistant.string",),
        ),
        Experiment(
            "item.phase",
            "assistant message with a phase",
            _request(
                user_message("Hi."),
                {**_message("assistant", "Hello.", "string"), "phase": "final_answer"},
                user_message(HELLO),
            ),
            needs=("assistant.string",),
        ),
        Experiment(
            "item.cache_control",
            "content part with cache_control",
            _request(
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": HELLO, "cache_control": {"type": "ephemeral"}}],
                }
            ),
            needs=("user.parts",),
        ),
        # Images and files.
        Experiment(
            "image",
            "image",
            _request(
                _user_message_with(
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
                )
            ),
            inspection=has_effect,
            needs=("user.parts",),
        ),
        Experiment(
            "file",
            "file",
            _request(
                _user_message_with(
                    {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
                )
            ),
            inspection=has_effect,
            needs=("user.parts",),
        ),
        # Tools and the form of the output.
        Experiment(
            "tools.required",
            "tool_choice required",
            _request(user_message(HELLO), tools=tools, tool_choice="required"),
            inspection=calls_tool,
        ),
        Experiment(
            "tools.named",
            "tool_choice with one named tool",
            _request(user_message(HELLO), tools=tools, tool_choice={"type": "function", "name": "get_weather"}),
            inspection=calls_tool,
        ),
        Experiment(
            "tools.none",
            "tool_choice none",
            _request(paris, tools=tools, tool_choice="none"),
            inspection=calls_no_tool,
            needs=("tools",),
        ),
        Experiment(
            "tools.parallel",
            "two tool calls in one answer",
            _request(user_message(WEATHER_IN_TWO_CITIES), tools=tools, parallel_tool_calls=True),
            inspection=calls_two_tools,
            needs=("tools",),
        ),
        Experiment(
            "tools.custom",
            "custom tool",
            _request(user_message("Run ls. Call shell."), tools=[SHELL_TOOL]),
            inspection=counts_tools,
        ),
        Experiment(
            "format.schema",
            "output that follows a JSON schema",
            _request(
                user_message(PERSON_AS_JSON),
                text={"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}},
            ),
            inspection=is_person_json,
        ),
        Experiment(
            "format.json",
            "output as a JSON object",
            _request(user_message(PERSON_AS_JSON), text={"format": {"type": "json_object"}}),
            inspection=is_json,
        ),
        # Settings.
        Choice("field", "setting", minimal_body(form), FIELDS),
        Experiment("effort.low", "reasoning.effort low", {**minimal_body(form), "reasoning": {"effort": "low"}}),
        *(
            Experiment(
                f"effort.{effort}",
                f"reasoning.effort {effort}",
                {**minimal_body(form), "reasoning": {"effort": effort}},
                needs=("effort.low",),
            )
            for effort in EFFORTS
            if effort != "low"
        ),
        # The answer.
        Experiment("stream", "streamed answer", {**minimal_body(form), "stream": True}, streams=True),
        Experiment(
            "cut",
            "answer truncated by a limit",
            {**_request(user_message(COUNTING)), "max_output_tokens": 16},
            inspection=reports_truncation,
            needs=("limit.max_output_tokens",),
        ),
        # Limits of tools.
        Bound(
            "limit.tools", "number of tools", lambda n: _request(paris, tools=_many_tools(n)), MOST_TOOLS, ("tools",)
        ),
        Bound(
            "limit.name",
            "length of a tool name",
            lambda n: _request(paris, tools=[_tool(long_name(n))]),
            LONGEST_NAME,
            ("tools",),
        ),
        Bound(
            "limit.call-id",
            "length of a tool call id",
            lambda n: _request(
                paris, {**CALL, "call_id": long_id(n)}, {**_output("rain"), "call_id": long_id(n)}, tools=tools
            ),
            LONGEST_ID,
            ("calls.paired",),
        ),
        # Fields that the API does not have, and cache marks.
        Experiment("field.unknown", "unknown field", {**minimal_body(form), "probe_unknown_field": 1}),
        Experiment(
            "cache.breakpoint",
            "prompt_cache_breakpoint on a text",
            _request(_marked_message("prompt_cache_breakpoint", {"mode": "explicit"})),
        ),
        Experiment("counts", "token count without running a turn", minimal_body(form), path="/responses/input_tokens"),
    ]


def _request(*items: Body, **settings: Any) -> Body:
    return {"input": [*items], **settings}


def _message(role: str, text: str, form: TextForm) -> Body:
    part_type = "output_text" if role == "assistant" else "input_text"
    return {
        "type": "message",
        "role": role,
        "content": text if form == "string" else [{"type": part_type, "text": text}],
    }


def _user(text: str, form: TextForm) -> Body:
    return _message("user", text, form)


def _assistant_message(part_type: str) -> Body:
    return {"type": "message", "role": "assistant", "content": [{"type": part_type, "text": LONG_TEXT}]}


def _user_message_with(part: Body) -> Body:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": HELLO}, part]}


def _tool(name: str) -> Body:
    return {"type": "function", "name": name, "parameters": NO_PARAMETERS, "strict": False}


def _many_tools(count: int) -> list[Body]:
    return [_tool(probe_name(number)) for number in range(count)]


def _marked_message(name: str, value: Any) -> Body:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": HELLO, name: value}]}


def _output(text: str) -> Body:
    return {"type": "function_call_output", "call_id": CALL["call_id"], "output": text}


WEATHER_TOOL: Body = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "parameters": CITY,
    "strict": True,
}
SHELL_TOOL: Body = {"type": "custom", "name": "shell", "description": "Runs a command."}
CALL: Body = {"type": "function_call", "call_id": "call_probe_1", "name": "get_weather", "arguments": ARGUMENTS}
REASONING: Body = {"type": "reasoning", "summary": []}
FIELDS: dict[str, Body] = {
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.9},
    "presence_penalty": {"presence_penalty": 0.1},
    "frequency_penalty": {"frequency_penalty": 0.1},
    "top_logprobs": {"top_logprobs": 1},
    "metadata": {"metadata": {"probe": "1"}},
    "include": {"include": ["reasoning.encrypted_content"]},
    "truncation": {"truncation": "disabled"},
    "service_tier": {"service_tier": "auto"},
    "safety_identifier": {"safety_identifier": "probe"},
    "prompt_cache_key": {"prompt_cache_key": "probe"},
    "user": {"user": "probe"},
    "store": {"store": False},
    "max_tool_calls": {"max_tool_calls": 4},
    "text.verbosity": {"text": {"verbosity": "medium"}},
    "parallel_tool_calls": {"parallel_tool_calls": True},
}
