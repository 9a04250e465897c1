"""Experiments for servers of the Messages API."""

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

LIMITS = ("max_tokens",)


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
    yes = _message("assistant", "Hello.")
    return [
        Experiment("system", "system field", {**_talk(hello), "system": LONG_TEXT}, is_counted),
        Experiment("tools", "tools offered", _talk(paris, **tools), counts_tools),
        Experiment(
            "assistant.string",
            "assistant message as a string",
            _talk(hi, _message("assistant", LONG_TEXT), hello),
            is_counted,
        ),
        Experiment(
            "assistant.parts",
            "assistant message as blocks",
            _talk(hi, _message("assistant", LONG_TEXT, "parts"), hello),
            is_counted,
        ),
        Experiment("calls.paired", "tool call and its result", _talk(paris, _calls(), _results(), **tools), is_counted),
        Experiment("result.alone", "tool result without a call", _talk(paris, yes, _results(), **tools), is_counted),
        Experiment(
            "result.after-text",
            "tool result after a call written as text",
            _talk(paris, _message("assistant", CALL_AS_TEXT), _results(), **tools),
            is_counted,
        ),
        Experiment(
            "calls.as-text",
            "tool call and result written as text",
            _talk(paris, _message("assistant", CALL_AS_TEXT), user(RESULT_AS_TEXT + LONG_TEXT), **tools),
            is_counted,
        ),
        # Roles and their places.
        Experiment(
            "system.blocks", "system field as blocks", {**_talk(hello), "system": [_text(LONG_TEXT)]}, is_counted
        ),
        Experiment(
            "system.middle",
            "system message in the middle",
            _talk(hi, yes, hello, _message("system", LONG_TEXT)),
            is_counted,
            ("system",),
        ),
        Experiment(
            "user.twice",
            "two user messages in a row",
            _talk(hi, user(f"{HELLO} {LONG_TEXT}")),
            is_counted,
        ),
        # Calls and thoughts in the history.
        Experiment(
            "calls.parallel",
            "two tool calls, then both results",
            _talk(paris, _calls("toolu_probe_1", "toolu_probe_2"), _results("toolu_probe_1", "toolu_probe_2"), **tools),
            is_counted,
            ("calls.paired",),
        ),
        Experiment(
            "calls.unanswered",
            "tool call without result",
            _talk(paris, _calls(), hello, **tools),
            needs=("calls.paired",),
        ),
        Experiment("thinking.unsigned", "thinking block without a valid signature", _talk(hi, _thought(), hello)),
        # What is no text.
        Experiment("image", "image", _talk(_with(IMAGE)), has_effect),
        Experiment("document", "document", _talk(_with(DOCUMENT)), has_effect),
        # Tools and the form of the output.
        Experiment(
            "tools.strict", "strict tool", _talk(paris, tools=[{**WEATHER, "strict": True}]), counts_tools, ("tools",)
        ),
        Experiment("tools.required", "tool_choice any", _talk(hello, tool_choice={"type": "any"}, **tools), calls_tool),
        Experiment(
            "tools.named", "tool_choice with one named tool", _talk(hello, tool_choice=NAMED, **tools), calls_tool
        ),
        Experiment(
            "tools.none",
            "tool_choice none",
            _talk(paris, tool_choice={"type": "none"}, **tools),
            calls_no_tool,
            ("tools",),
        ),
        Experiment(
            "tools.parallel", "two tool calls in one answer", _talk(user(BOTH), **tools), calls_two_tools, ("tools",)
        ),
        Experiment(
            "format.output_config",
            "JSON output through output_config",
            _talk(user(ALICE), output_config={"format": SCHEMA}),
            is_person_json,
        ),
        Experiment(
            "format.output_format",
            "JSON output through output_format",
            _talk(user(ALICE), output_format=SCHEMA),
            is_person_json,
        ),
        # Thinking.
        Experiment("thinking.adaptive", "adaptive thinking", _talk(hello, thinking={"type": "adaptive"})),
        Experiment(
            "thinking.budget",
            "thinking with a budget",
            _talk(hello, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1200),
        ),
        Experiment(
            "thinking.display",
            "thinking with a display",
            _talk(hello, thinking={"type": "adaptive", "display": "summarized"}),
            needs=("thinking.adaptive",),
        ),
        Experiment(
            "effort.low", "effort low", _talk(hello, output_config={"effort": "low"}), needs=("thinking.adaptive",)
        ),
        *(_effort(word, hello) for word in EFFORTS if word != "low"),
        # Settings.
        Choice("field", "setting", minimal(form), FIELDS),
        Experiment("samplings", "temperature and top_p together", _talk(hello, temperature=0.5, top_p=0.9)),
        Experiment("cache.auto", "cache_control at the top level", _talk(hello, cache_control={"type": "ephemeral"})),
        # The answer.
        Experiment("stream", "streamed answer", {**minimal(form), "stream": True}, streams=True),
        Experiment("counts", "token count without running a turn", minimal(form), path="/messages/count_tokens"),
    ]


def _effort(word: str, hello: Body) -> Experiment:
    return Experiment(
        f"effort.{word}", f"effort {word}", _talk(hello, output_config={"effort": word}), needs=("effort.low",)
    )


def _talk(*messages: Body, **settings: Any) -> Body:
    return {"messages": [*messages], **settings}


def _text(text: str) -> Body:
    return {"type": "text", "text": text}


def _message(role: str, text: str, form: TextForm = "string") -> Body:
    return {"role": role, "content": text if form == "string" else [_text(text)]}


def _with(block: Body) -> Body:
    return {"role": "user", "content": [_text(HELLO), block]}


def _calls(*ids: str) -> Body:
    use = {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris"}}
    return {"role": "assistant", "content": [{**use, "id": id} for id in ids or ("toolu_probe_1",)]}


def _results(*ids: str) -> Body:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": id, "content": LONG_TEXT} for id in ids or ("toolu_probe_1",)
        ],
    }


def _thought() -> Body:
    thinking = {"type": "thinking", "thinking": "I greet.", "signature": "bm9ib2R5J3M="}
    return {"role": "assistant", "content": [thinking, _text("Hello.")]}


EFFORTS = ("low", "medium", "high", "xhigh", "max")
WEATHER: Body = {"name": "get_weather", "description": "Tells the weather in a city.", "input_schema": CITY}
NAMED: Body = {"type": "tool", "name": "get_weather"}
SCHEMA: Body = {"type": "json_schema", "schema": PERSON}
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
