"""Experiments for servers of Chat Completions."""

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
    ARGUMENTS,
    BOTH,
    CALL_AS_TEXT,
    CITY,
    EFFORTS,
    HELLO,
    LONG_ID,
    PDF,
    PERSON,
    PNG,
    RESULT_AS_TEXT,
    WEATHER_IN_PARIS,
    TextForm,
)

LIMITS = ("max_tokens", "max_completion_tokens")


def minimal(form: TextForm) -> Body:
    """Return the minimal turn."""
    return {"messages": [_message("user", HELLO, form)]}


def limited(body: Body, name: str, tokens: int) -> Body:
    return {name: tokens, **body}


def steps(form: TextForm) -> list[Step]:
    """Return the nine payloads of the published table, in this API's terms, then all other experiments."""

    def user(text: str) -> Body:
        return _message("user", text, form)

    hi, paris, hello = user("Hi."), user(WEATHER_IN_PARIS), user(HELLO)
    tools: dict[str, Any] = {"tools": [WEATHER]}
    return [
        Experiment("developer", "developer message first", _chat(_message("developer", LONG_TEXT), hello), is_counted),
        Experiment("tools", "tools offered", _chat(paris, **tools), counts_tools),
        Experiment(
            "assistant.string",
            "assistant message as a string",
            _chat(hi, _message("assistant", LONG_TEXT), hello),
            is_counted,
        ),
        Experiment(
            "assistant.parts",
            "assistant message as parts",
            _chat(hi, _message("assistant", LONG_TEXT, "parts"), hello),
            is_counted,
        ),
        Experiment(
            "calls.paired",
            "tool call and its result",
            _chat(paris, _calls(""), _result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment("result.alone", "tool result without a call", _chat(paris, _result(LONG_TEXT), **tools), is_counted),
        Experiment(
            "result.after-text",
            "tool result after a call written as text",
            _chat(paris, _message("assistant", CALL_AS_TEXT), _result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.as-text",
            "tool call and result written as text",
            _chat(paris, _message("assistant", CALL_AS_TEXT), user(RESULT_AS_TEXT + LONG_TEXT), **tools),
            is_counted,
        ),
        # Roles and their places.
        Experiment("system", "system message first", _chat(_message("system", LONG_TEXT), hello), is_counted),
        Experiment(
            "system.middle",
            "system message in the middle",
            _chat(hi, _message("system", LONG_TEXT), hello),
            is_counted,
            ("system",),
        ),
        # Strings and parts.
        Experiment(
            "user.string", "user message as a string", _chat(_message("user", f"{HELLO} {LONG_TEXT}")), is_counted
        ),
        Experiment(
            "user.parts", "user message as parts", _chat(_message("user", f"{HELLO} {LONG_TEXT}", "parts")), is_counted
        ),
        Experiment(
            "result.parts",
            "tool result as parts",
            _chat(paris, _calls(""), _parts_result(), **tools),
            is_counted,
            ("calls.paired",),
        ),
        # Calls in the history, and what stands beside them.
        Experiment(
            "calls.null",
            "tool call with content null",
            _chat(paris, _calls(None), _result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.absent",
            "tool call without content",
            _chat(paris, _without_content(), _result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.reasoning",
            "tool call with reasoning_content",
            _chat(paris, _thought("reasoning_content"), _result(LONG_TEXT), **tools),
        ),
        Experiment(
            "calls.thought",
            "tool call with reasoning",
            _chat(paris, _thought("reasoning"), _result(LONG_TEXT), **tools),
        ),
        Experiment(
            "calls.text-before",
            "text and tool call in one message",
            _chat(paris, _calls("I look."), _result(LONG_TEXT), **tools),
            is_counted,
        ),
        Experiment(
            "calls.parallel",
            "two tool calls, then both results",
            _chat(
                paris,
                _calls("", "call_probe_1", "call_probe_2"),
                _result("rain"),
                _result(LONG_TEXT, "call_probe_2"),
                **tools,
            ),
            is_counted,
        ),
        Experiment(
            "calls.unanswered",
            "tool call without result",
            _chat(paris, _calls(""), hello, **tools),
            None,
            ("calls.paired",),
        ),
        # What is no text.
        Experiment("image", "image", _chat(_with(IMAGE)), has_effect),
        Experiment("file", "file", _chat(_with(FILE)), has_effect),
        Experiment(
            "result.image",
            "image in a tool result",
            _chat(paris, _calls(""), {**_result(""), "content": [IMAGE]}, **tools),
            has_effect,
            ("calls.paired", "image"),
        ),
        # Tools and the form of the output.
        Experiment("tools.strict", "strict tool", _chat(paris, tools=[STRICT]), counts_tools, ("tools",)),
        Experiment("tools.required", "tool_choice required", _chat(hello, tool_choice="required", **tools), calls_tool),
        Experiment(
            "tools.named", "tool_choice with one named tool", _chat(hello, tool_choice=NAMED, **tools), calls_tool
        ),
        Experiment(
            "tools.none", "tool_choice none", _chat(paris, tool_choice="none", **tools), calls_no_tool, ("tools",)
        ),
        Experiment(
            "tools.parallel", "two tool calls in one answer", _chat(user(BOTH), **tools), calls_two_tools, ("tools",)
        ),
        Experiment("tools.custom", "custom tool", _chat(user("Run ls. Call shell."), tools=[SHELL]), counts_tools),
        Experiment(
            "format.schema",
            "output that follows a JSON schema",
            _chat(user(ALICE), response_format=SCHEMA),
            is_person_json,
        ),
        Experiment(
            "format.json",
            "output as a JSON object",
            _chat(user(ALICE), response_format={"type": "json_object"}),
            is_json,
        ),
        # Settings.
        Choice("field", "setting", minimal(form), FIELDS),
        Experiment(
            "field.parallel_tool_calls", "setting parallel_tool_calls", _chat(paris, parallel_tool_calls=True, **tools)
        ),
        Experiment("effort.low", "reasoning_effort low", {**minimal(form), "reasoning_effort": "low"}),
        *(_effort(word, form) for word in EFFORTS if word != "low"),
        # The answer.
        Experiment("stream", "streamed answer", {**minimal(form), "stream": True}, streams=True),
        Experiment(
            "stream.usage",
            "usage in a stream",
            {**minimal(form), "stream": True, "stream_options": {"include_usage": True}},
            needs=("stream",),
            streams=True,
        ),
        Experiment(
            "limit.call-id",
            "tool call id of 100 characters",
            _chat(paris, _calls("", LONG_ID), _result("rain", LONG_ID), **tools),
            needs=("calls.paired",),
        ),
        Experiment(
            "counts", "token count without running a turn", minimal(form), path="/chat/completions/input_tokens"
        ),
    ]


def _effort(word: str, form: TextForm) -> Experiment:
    body = {**minimal(form), "reasoning_effort": word}
    return Experiment(f"effort.{word}", f"reasoning_effort {word}", body, needs=("effort.low",))


def _chat(*messages: Body, **settings: Any) -> Body:
    return {"messages": [*messages], **settings}


def _message(role: str, text: str, form: TextForm = "string") -> Body:
    return {"role": role, "content": text if form == "string" else [{"type": "text", "text": text}]}


def _with(part: Body) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": HELLO}, part]}


def _calls(content: str | None, *ids: str) -> Body:
    function = {"name": "get_weather", "arguments": ARGUMENTS}
    calls = [{"id": id, "type": "function", "function": function} for id in ids or ("call_probe_1",)]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _without_content() -> Body:
    return {name: value for name, value in _calls("").items() if name != "content"}


def _thought(field: str) -> Body:
    return {**_calls(""), field: "I should look."}


def _result(text: str, id: str = "call_probe_1") -> Body:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _parts_result() -> Body:
    return {**_result(""), "content": [{"type": "text", "text": LONG_TEXT}]}


FUNCTION: Body = {"name": "get_weather", "description": "Tells the weather in a city.", "parameters": CITY}
WEATHER: Body = {"type": "function", "function": FUNCTION}
STRICT: Body = {"type": "function", "function": {**FUNCTION, "strict": True}}
NAMED: Body = {"type": "function", "function": {"name": "get_weather"}}
SHELL: Body = {"type": "custom", "custom": {"name": "shell", "description": "Runs a command."}}
IMAGE: Body = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
FILE: Body = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
SCHEMA: Body = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
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
