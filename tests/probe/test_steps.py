"""The request of each experiment has what the experiment tries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args
from unittest.mock import ANY

import pytest

from antiphon.dialects.dialect import ServerDialectName
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.probe.finding import LONG_TEXT, Body, Choice, Experiment
from antiphon.probe.samples import (
    CALL_AS_TEXT,
    CITY,
    EFFORTS,
    HELLO,
    PDF,
    PERSON,
    PNG,
    RESULT_AS_TEXT,
    TextForm,
)

DIALECTS: Final[tuple[ServerDialectName, ...]] = get_args(ServerDialectName)
ABSENT: Final = object()
RESULT: Final = RESULT_AS_TEXT + LONG_TEXT
HELLO_AND_MORE: Final = f"{HELLO} {LONG_TEXT}"
#: By dialect and experiment: values in its body, by path.
SENT: Final[dict[ServerDialectName, dict[str, dict[str, Any]]]] = {
    "responses": {
        "developer": {"input.0.role": "developer", "input.0.content.0.text": LONG_TEXT, "input.1.role": "user"},
        "tools": {"tools.0.type": "function", "tools.0.name": "get_weather", "tools.0.parameters": CITY},
        "assistant.string": {"input.1.role": "assistant", "input.1.content": LONG_TEXT},
        "assistant.output_text": {
            "input.1.role": "assistant",
            "input.1.content.0": {"type": "output_text", "text": LONG_TEXT},
        },
        "calls.paired": {
            "input.1.type": "function_call",
            "input.1.call_id": "call_probe_1",
            "input.2.type": "function_call_output",
            "input.2.call_id": "call_probe_1",
            "input.2.output": LONG_TEXT,
        },
        "result.alone": {"input.1.type": "function_call_output", "input.1.output": LONG_TEXT},
        "result.after-text": {"input.1.content": CALL_AS_TEXT, "input.2.type": "function_call_output"},
        "calls.as-text": {"input.1.content": CALL_AS_TEXT, "input.2.content.0.text": RESULT},
        "assistant.input_text": {
            "input.1.role": "assistant",
            "input.1.content.0": {"type": "input_text", "text": LONG_TEXT},
        },
        "assistant.refusal": {"input.1.role": "assistant", "input.1.content.0.type": "refusal"},
        "system": {"input.0.role": "system", "input.0.content.0.text": LONG_TEXT, "input.1.role": "user"},
        "system.middle": {"input.0.role": "user", "input.1.role": "system", "input.1.content.0.text": LONG_TEXT},
        "developer.middle": {"input.0.role": "user", "input.1.role": "developer", "input.1.content.0.text": LONG_TEXT},
        "instructions": {"instructions": LONG_TEXT},
        "input.string": {"input": HELLO_AND_MORE},
        "user.string": {"input.0.content": HELLO_AND_MORE},
        "user.parts": {"input.0.content.0": {"type": "input_text", "text": HELLO_AND_MORE}},
        "output.parts": {"input.2.output.0": {"type": "input_text", "text": LONG_TEXT}},
        "calls.text-before": {
            "input.1.role": "assistant",
            "input.2.type": "function_call",
            "input.3.type": "function_call_output",
            "input.3.output": LONG_TEXT,
        },
        "calls.parallel": {
            "input.1.call_id": "call_probe_1",
            "input.2.call_id": "call_probe_2",
            "input.3.call_id": "call_probe_1",
            "input.4.call_id": "call_probe_2",
            "input.4.output": LONG_TEXT,
        },
        "calls.unanswered": {"input.1.type": "function_call", "input.2.role": "user", "input.3": ABSENT},
        "calls.blocks": {
            "input.1.type": "function_call",
            "input.2.role": "user",
            "input.2.content.0": {"type": "tool_result", "tool_use_id": "call_probe_1", "content": LONG_TEXT},
        },
        "reasoning.content": {
            "input.1.type": "reasoning",
            "input.1.summary": [],
            "input.1.content.0": {"type": "reasoning_text", "text": LONG_TEXT},
        },
        "reasoning.summary": {
            "input.1.type": "reasoning",
            "input.1.summary.0": {"type": "summary_text", "text": LONG_TEXT},
            "input.1.content": ABSENT,
        },
        "item.custom-call": {
            "input.1.type": "custom_tool_call",
            "input.2.type": "custom_tool_call_output",
            "input.2.output": LONG_TEXT,
            "tools.0.type": "custom",
        },
        "item.unknown": {"input.0.type": "antiphon:note"},
        "item.ids": {"input.0.id": "msg_probe_1", "input.1.id": "msg_probe_2"},
        "item.status": {"input.1.status": "completed"},
        "item.phase": {"input.1.phase": "final_answer"},
        "item.cache_control": {"input.0.content.0.cache_control": {"type": "ephemeral"}},
        "image": {
            "input.0.content.1.type": "input_image",
            "input.0.content.1.image_url": f"data:image/png;base64,{PNG}",
        },
        "file": {
            "input.0.content.1.type": "input_file",
            "input.0.content.1.file_data": f"data:application/pdf;base64,{PDF}",
        },
        "tools.required": {"tool_choice": "required", "tools.0.name": "get_weather"},
        "tools.named": {"tool_choice": {"type": "function", "name": "get_weather"}, "tools.0.name": "get_weather"},
        "tools.none": {"tool_choice": "none", "tools.0.name": "get_weather"},
        "tools.parallel": {"parallel_tool_calls": True, "tools.0.name": "get_weather"},
        "tools.custom": {"tools.0.type": "custom", "tools.0.name": "shell"},
        "format.schema": {"text.format.type": "json_schema", "text.format.schema": PERSON, "text.format.strict": True},
        "format.json": {"text.format": {"type": "json_object"}},
        **{f"effort.{word}": {"reasoning.effort": word} for word in EFFORTS},
        "stream": {"stream": True},
        "cut": {"max_output_tokens": 16},
        "field.unknown": {"probe_unknown_field": 1},
        "cache.breakpoint": {"input.0.content.0.prompt_cache_breakpoint": {"mode": "explicit"}},
        "counts": {"input.0.role": "user"},
    },
    "chat": {
        "developer": {"messages.0": {"role": "developer", "content": LONG_TEXT}, "messages.1.role": "user"},
        "tools": {
            "tools.0.type": "function",
            "tools.0.function.name": "get_weather",
            "tools.0.function.parameters": CITY,
            "tools.0.function.strict": ABSENT,
        },
        "assistant.string": {"messages.1": {"role": "assistant", "content": LONG_TEXT}},
        "assistant.parts": {"messages.1.content.0": {"type": "text", "text": LONG_TEXT}},
        "calls.paired": {
            "messages.1.content": "",
            "messages.1.tool_calls.0.id": "call_probe_1",
            "messages.2": {"role": "tool", "tool_call_id": "call_probe_1", "content": LONG_TEXT},
        },
        "result.alone": {"messages.1.role": "tool", "messages.1.content": LONG_TEXT},
        "result.after-text": {"messages.1.content": CALL_AS_TEXT, "messages.2.role": "tool"},
        "calls.as-text": {"messages.1.content": CALL_AS_TEXT, "messages.2": {"role": "user", "content": RESULT}},
        "system": {"messages.0": {"role": "system", "content": LONG_TEXT}, "messages.1.role": "user"},
        "system.middle": {"messages.0.role": "user", "messages.1": {"role": "system", "content": LONG_TEXT}},
        "user.string": {"messages.0": {"role": "user", "content": HELLO_AND_MORE}},
        "user.parts": {"messages.0.content.0": {"type": "text", "text": HELLO_AND_MORE}},
        "result.parts": {"messages.2.content.0": {"type": "text", "text": LONG_TEXT}},
        "calls.null": {"messages.1.content": None, "messages.1.tool_calls.0.type": "function"},
        "calls.absent": {"messages.1.content": ABSENT, "messages.1.tool_calls.0.type": "function"},
        "calls.reasoning": {"messages.1.reasoning_content": ANY, "messages.1.tool_calls.0.type": "function"},
        "calls.thought": {"messages.1.reasoning": ANY, "messages.1.tool_calls.0.type": "function"},
        "calls.text-before": {"messages.1.content": "I look.", "messages.1.tool_calls.0.type": "function"},
        "calls.parallel": {
            "messages.1.tool_calls.0.id": "call_probe_1",
            "messages.1.tool_calls.1.id": "call_probe_2",
            "messages.2.tool_call_id": "call_probe_1",
            "messages.3": {"role": "tool", "tool_call_id": "call_probe_2", "content": LONG_TEXT},
        },
        "calls.unanswered": {"messages.1.tool_calls.0.id": "call_probe_1", "messages.2.role": "user"},
        "image": {
            "messages.0.content.1": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        },
        "file": {
            "messages.0.content.1.type": "file",
            "messages.0.content.1.file.file_data": f"data:application/pdf;base64,{PDF}",
        },
        "result.image": {"messages.2.role": "tool", "messages.2.content.0.type": "image_url"},
        "tools.strict": {"tools.0.function.strict": True},
        "tools.required": {"tool_choice": "required"},
        "tools.named": {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        "tools.none": {"tool_choice": "none"},
        "tools.parallel": {"tools.0.function.name": "get_weather"},
        "tools.custom": {"tools.0.type": "custom", "tools.0.custom.name": "shell"},
        "format.schema": {
            "response_format.type": "json_schema",
            "response_format.json_schema": {"name": "person", "schema": PERSON, "strict": True},
        },
        "format.json": {"response_format": {"type": "json_object"}},
        "field.parallel_tool_calls": {"parallel_tool_calls": True, "tools.0.function.name": "get_weather"},
        **{f"effort.{word}": {"reasoning_effort": word} for word in EFFORTS},
        "stream": {"stream": True, "stream_options": ABSENT},
        "stream.usage": {"stream": True, "stream_options": {"include_usage": True}},
        "field.unknown": {"probe_unknown_field": 1},
        "part.unknown": {"messages.0.content.0.probe_unknown_member": 1},
        "cache.control": {"messages.0.content.0.cache_control": {"type": "ephemeral"}},
        "cache.breakpoint": {"messages.0.content.0.prompt_cache_breakpoint": {"mode": "explicit"}},
        "counts": {"messages.0.role": "user"},
    },
    "messages": {
        "field.unknown": {"probe_unknown_field": 1},
        "cache.control": {"messages.0.content.1.cache_control": {"type": "ephemeral"}},
        "system": {"system": LONG_TEXT},
        "tools": {"tools.0.name": "get_weather", "tools.0.input_schema": CITY, "tools.0.strict": ABSENT},
        "assistant.string": {"messages.1": {"role": "assistant", "content": LONG_TEXT}},
        "assistant.parts": {"messages.1.content.0": {"type": "text", "text": LONG_TEXT}},
        "calls.paired": {
            "messages.1.content.0": {
                "type": "tool_use",
                "id": "toolu_probe_1",
                "name": "get_weather",
                "input": {"city": "Paris"},
            },
            "messages.2.content.0": {"type": "tool_result", "tool_use_id": "toolu_probe_1", "content": LONG_TEXT},
        },
        "result.alone": {"messages.1.content": "Hello.", "messages.2.content.0.type": "tool_result"},
        "result.after-text": {"messages.1.content": CALL_AS_TEXT, "messages.2.content.0.type": "tool_result"},
        "calls.as-text": {"messages.1.content": CALL_AS_TEXT, "messages.2": {"role": "user", "content": RESULT}},
        "system.blocks": {"system.0": {"type": "text", "text": LONG_TEXT}},
        "system.middle": {"messages.2.role": "user", "messages.3": {"role": "system", "content": LONG_TEXT}},
        "user.twice": {"messages.0.role": "user", "messages.1": {"role": "user", "content": HELLO_AND_MORE}},
        "calls.parallel": {
            "messages.1.content.0.id": "toolu_probe_1",
            "messages.1.content.1.id": "toolu_probe_2",
            "messages.2.content.0.tool_use_id": "toolu_probe_1",
            "messages.2.content.1.tool_use_id": "toolu_probe_2",
        },
        "calls.unanswered": {"messages.1.content.0.type": "tool_use", "messages.2.content": HELLO},
        "thinking.unsigned": {"messages.1.content.0.type": "thinking", "messages.1.content.0.signature": ANY},
        "image": {
            "messages.0.content.1": {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
            },
        },
        "document": {
            "messages.0.content.1": {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            },
        },
        "tools.strict": {"tools.0.name": "get_weather", "tools.0.strict": True},
        "tools.required": {"tool_choice": {"type": "any"}, "tools.0.name": "get_weather"},
        "tools.named": {"tool_choice": {"type": "tool", "name": "get_weather"}, "tools.0.name": "get_weather"},
        "tools.none": {"tool_choice": {"type": "none"}, "tools.0.name": "get_weather"},
        "tools.parallel": {"tools.0.name": "get_weather"},
        "format.output_config": {"output_config.format": {"type": "json_schema", "schema": PERSON}},
        "format.output_format": {"output_format": {"type": "json_schema", "schema": PERSON}},
        "thinking.adaptive": {"thinking": {"type": "adaptive"}},
        "thinking.budget": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1200},
        "thinking.display": {"thinking": {"type": "adaptive", "display": "summarized"}},
        **{f"effort.{word}": {"output_config": {"effort": word}} for word in ("low", "medium", "high", "xhigh", "max")},
        "samplings": {"temperature": 0.5, "top_p": 0.9},
        "cache.auto": {"cache_control": {"type": "ephemeral"}},
        "stream": {"stream": True},
        "counts": {"messages.0.role": "user"},
    },
    "gemini": {
        "field.unknown": {"probeUnknownField": 1},
        "system": {"systemInstruction.parts.0.text": LONG_TEXT},
        "tools": {
            "tools.0.functionDeclarations.0.name": "get_weather",
            "tools.0.functionDeclarations.0.parametersJsonSchema": CITY,
        },
        "assistant.parts": {"contents.1": {"role": "model", "parts": [{"text": LONG_TEXT}]}},
        "calls.paired": {
            "contents.1.parts.0.functionCall": {"name": "get_weather", "args": {"city": "Paris"}},
            "contents.2.parts.0.functionResponse": {"name": "get_weather", "response": {"output": LONG_TEXT}},
        },
        "result.alone": {"contents.1.parts.0.text": "Hello.", "contents.2.parts.0.functionResponse.name": ANY},
        "result.after-text": {
            "contents.1.parts.0.text": CALL_AS_TEXT,
            "contents.2.parts.0.functionResponse.name": "get_weather",
        },
        "calls.as-text": {"contents.1.parts.0.text": CALL_AS_TEXT, "contents.2.parts.0.text": RESULT},
        "calls.ids": {
            "contents.1.parts.0.functionCall.id": "call_probe_1",
            "contents.2.parts.0.functionResponse.id": "call_probe_1",
            "contents.2.parts.0.functionResponse.response": {"output": LONG_TEXT},
        },
        "model.last": {"contents.1.role": "model", "contents.2": ABSENT},
        "image": {"contents.0.parts.1.inlineData": {"mimeType": "image/png", "data": PNG}},
        "file": {"contents.0.parts.1.inlineData": {"mimeType": "application/pdf", "data": PDF}},
        "tools.required": {"toolConfig.functionCallingConfig.mode": "ANY"},
        "tools.none": {"toolConfig.functionCallingConfig.mode": "NONE"},
        "tools.parallel": {"tools.0.functionDeclarations.0.name": "get_weather"},
        "tools.openapi": {
            "tools.0.functionDeclarations.0.parametersJsonSchema": ABSENT,
            "tools.0.functionDeclarations.0.parameters": {
                "type": "OBJECT",
                "properties": {"city": {"type": "STRING"}},
                "required": ["city"],
            },
        },
        "format.schema": {
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": PERSON},
        },
        "format.openapi": {
            "generationConfig.responseMimeType": "application/json",
            "generationConfig.responseSchema": {
                "type": "OBJECT",
                "properties": {"name": {"type": "STRING"}, "age": {"type": "INTEGER"}},
                "required": ["name", "age"],
            },
        },
        "format.json": {"generationConfig": {"responseMimeType": "application/json"}},
        "thinking.budget": {"generationConfig.thinkingConfig": {"thinkingBudget": 1024}},
        "thinking.level": {"generationConfig.thinkingConfig": {"thinkingLevel": "low"}},
        "stream": {"contents.0.role": "user"},
        "counts": {"contents.0.role": "user"},
    },
    "ollama": {
        "field.unknown": {"probe_unknown_field": 1},
        "system": {"messages.0": {"role": "system", "content": LONG_TEXT}, "messages.1.role": "user"},
        "system.middle": {"messages.0.role": "user", "messages.1": {"role": "system", "content": LONG_TEXT}},
        "tools": {"tools.0.function.name": "get_weather", "tools.0.function.parameters": CITY},
        "calls.paired": {
            "messages.1.tool_calls.0.id": "call_probe_1",
            "messages.1.tool_calls.0.function.arguments": {"city": "Paris"},
            "messages.2": {
                "role": "tool",
                "content": LONG_TEXT,
                "tool_name": "get_weather",
                "tool_call_id": "call_probe_1",
            },
        },
        "calls.bare": {
            "messages.1.tool_calls.0.id": ABSENT,
            "messages.2.tool_name": "get_weather",
            "messages.2.tool_call_id": ABSENT,
        },
        "calls.as-text": {"messages.1.content": CALL_AS_TEXT, "messages.2.content": RESULT},
        "assistant.last": {"messages.1.role": "assistant", "messages.2": ABSENT},
        "result.alone": {"messages.1.role": "tool", "messages.2": ABSENT},
        "thinking.history": {"messages.1.role": "assistant", "messages.1.thinking": "A greeting."},
        "image": {"messages.0.images": [PNG]},
        "format.schema": {"format": PERSON},
        "format.json": {"format": "json"},
        "think": {"think": True},
        "think.off": {"think": False},
        "think.level": {"think": "low"},
        "logprobs": {"logprobs": True, "top_logprobs": 2},
        "keep_alive": {"keep_alive": "5m"},
        "stream": {"stream": True},
    },
}
#: The paths of requests that are no turns.
PATHS: Final[dict[ServerDialectName, dict[str, str]]] = {
    "responses": {"counts": "/responses/input_tokens"},
    "chat": {"counts": "/chat/completions/input_tokens"},
    "messages": {"counts": "/messages/count_tokens"},
    "gemini": {"counts": "/{model}:countTokens"},
    "ollama": {},
}


def experiments(dialect: ServerDialectName) -> dict[str, Experiment]:
    form: TextForm = "parts" if dialect == "responses" else "string"
    return {step.id: step for step in EXPERIMENTS[dialect].steps.probe_steps(form) if isinstance(step, Experiment)}


def value_at(body: Any, path: str) -> Any:
    """The value at a path of names and indices; ABSENT if there is none."""
    try:
        for step in path.split("."):
            body = body[int(step) if isinstance(body, list) else step]
    except LookupError:
        return ABSENT
    return body


def cases() -> Iterator[tuple[ServerDialectName, str]]:
    return ((dialect, id) for dialect, sent in SENT.items() for id in sent)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_experiment_is_in_the_table(dialect: ServerDialectName) -> None:
    assert experiments(dialect).keys() == SENT[dialect].keys()


@pytest.mark.parametrize(("dialect", "id"), list(cases()))
def test_experiment_sends_what_it_tries(dialect: ServerDialectName, id: str) -> None:
    """D-4."""
    body: Body = experiments(dialect)[id].body
    expected = SENT[dialect][id]
    assert {path: value_at(body, path) for path in expected} == expected


@pytest.mark.parametrize("dialect", DIALECTS)
def test_experiments_use_the_path_of_turns_except_counts(dialect: ServerDialectName) -> None:
    assert {id: step.path for id, step in experiments(dialect).items() if step.path} == PATHS[dialect]
    streaming = {id for id, step in experiments(dialect).items() if step.streams}
    assert streaming == ({"stream", "stream.usage"} if dialect == "chat" else {"stream"})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_member_of_a_choice_sends_its_field(dialect: ServerDialectName) -> None:
    choices = [step for step in EXPERIMENTS[dialect].steps.probe_steps("string") if isinstance(step, Choice)]
    assert [choice.id for choice in choices] == ["field"]
    prefix = {"gemini": "generationConfig.", "ollama": "options."}.get(dialect, "")
    for name, member in choices[0].members.items():
        assert value_at(member, prefix + name) is not ABSENT
