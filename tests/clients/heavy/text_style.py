"""Replies for clients that describe the form of answers, and tools, in their prompts as text (dspy)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.clients.heavy.task import ANSWER, CITY, HELLO, NO_ANSWER, NOTE, THOUGHT

from antiphon import testing
from antiphon.testing import ReceivedRequest, Reply, turn

FIELD: Final = re.compile(r"`(?:\[\[ ## )?(\w+)(?: ## \]\])?`")


def reply_as_text(feature: str, received: ReceivedRequest) -> Reply:
    """A value for each field that the last message requests: in sections, or as JSON."""
    if feature == "reasoning":
        return turn(testing.reasoning(THOUGHT), testing.text(ANSWER))
    text = _texts(received.json)[-1]
    request = text.rpartition("Respond with")[2].partition("ending with the marker")[0]
    has_result = NOTE in text or "no such note" in text
    values = {
        "answer": {"tool": ANSWER, "failed_tool": NO_ANSWER}.get(feature, HELLO),
        "next_thought": THOUGHT,
        "reasoning": THOUGHT,
        "next_tool_name": "finish" if has_result else "read_note",
        "next_tool_args": {} if has_result else {"title": "missing" if feature == "failed_tool" else "greeting"},
        "city": CITY,
    }
    fields = [name for name in FIELD.findall(request) if name in values]
    if "JSON object" in request:
        return turn(testing.text(json.dumps({name: values[name] for name in fields})))
    sections = "".join(f"[[ ## {name} ## ]]\n{_written(values[name])}\n\n" for name in fields)
    words = re.findall(r"\S*\s*", f"{sections}[[ ## completed ## ]]\n")
    return turn(testing.text(*(word for word in words if word)))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(body: Any) -> list[str]:
    """All strings of a body, in their order."""
    match body:
        case str():
            return [body]
        case dict():
            named = {
                name: value
                for name, value in body.items()
                if name in ("messages", "input", "contents", "content", "parts", "text")
            }
            return [text for value in named.values() for text in _texts(value)]
        case list():
            return [text for value in body for text in _texts(value)]
        case _:
            return []
