"""One request has the same facts in every dialect."""

from __future__ import annotations

from typing import Any

import pytest
from tests.recorded_traffic.requests import read_request

from antiphon.dialects.dialect import ServerDialectName

REQUESTS: dict[ServerDialectName, dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "When?"}, {"type": "image_url", "image_url": {}}]},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "clock", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "noon"},
        ],
        "tools": [{"type": "function", "function": {"name": "clock"}}],
        "tool_choice": "required",
        "max_completion_tokens": 9,
        "temperature": 0.5,
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "When?"}, {"type": "input_image"}]},
            {"type": "function_call", "call_id": "1", "name": "clock", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "noon"},
        ],
        "tools": [{"type": "function", "name": "clock"}],
        "tool_choice": "required",
        "max_output_tokens": 9,
        "temperature": 0.5,
    },
    "messages": {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "When?"}, {"type": "image"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "clock", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "noon"}]},
        ],
        "tools": [{"name": "clock"}],
        "tool_choice": {"type": "any"},
        "max_tokens": 9,
        "temperature": 0.5,
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "When?"}, {"inlineData": {}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "clock", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "clock", "response": {"output": "noon"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "clock"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "any"}},
        "generationConfig": {"maxOutputTokens": 9, "temperature": 0.5},
    },
    "ollama": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "When?", "images": ["iVBO"]},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "clock", "arguments": {}}}]},
            {"role": "tool", "content": "noon"},
        ],
        "tools": [{"type": "function", "function": {"name": "clock"}}],
        "options": {"num_predict": 9, "temperature": 0.5},
    },
}


@pytest.mark.parametrize("dialect", list(REQUESTS))
def test_request_facts_are_the_same_in_every_dialect(dialect: ServerDialectName) -> None:
    facts = read_request(dialect, REQUESTS[dialect])
    assert len(facts.pop("media")) == 1
    if dialect != "ollama":  # which has no choice of tools
        assert facts.pop("settings.tool_choice") == ["required"]
    assert facts == {
        "text.system": ["Be brief."],
        "text.user": ["When?"],
        "calls": [("clock", {})],
        "results": ["noon"],
        "tools": ["clock"],
        "settings.max_tokens": [9],
        "settings.temperature": [0.5],
    }
