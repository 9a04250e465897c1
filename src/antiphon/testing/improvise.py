"""Answers of a server without a script: it echoes, calls tools that the user mentions, and repeats their results.

The rules are few and fixed, so that people and tests can predict the answer. Every dialect converts its request to a
`Prompt`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.protocol.codec import check_nesting
from antiphon.testing.sample import sample
from antiphon.testing.script import Finish, Reasoning, ScriptedTurn, Text, ToolCall, ToolCalls, TurnElement, turn


class OfferedTool(Struct, frozen=True):
    """A tool that may be called."""

    name: str
    schema: dict[str, Any]
    kind: Literal["function", "custom"] = "function"


class Prompt(Struct, frozen=True, kw_only=True):
    """A request, independent of the dialect."""

    #: The text of the last user message.
    text: str
    media: int = 0
    #: The tool results after it: the name of the tool, and the text.
    results: tuple[tuple[str, str], ...] = ()
    #: The number of calls in the conversation; new calls continue the numbering.
    calls_before: int = 0
    tools: tuple[OfferedTool, ...] = ()
    #: `auto`, `none`, `required`; a named tool is `required` with that tool alone in `tools`.
    choice: str = "auto"
    parallel: bool = True
    #: The schema that the answer must have; empty for any JSON object.
    schema: dict[str, Any] | None = None
    thinks: bool = False
    max_pieces: int | None = None


def improvise(prompt: Prompt) -> ScriptedTurn:
    """Return the answer. Each word is a piece and counts as a token."""
    elements: list[TurnElement] = (
        [Reasoning(_split_pieces(f"The user wrote {len(prompt.text)} characters."))] if prompt.thinks else []
    )
    calls = _make_calls(prompt)
    elements.append(ToolCalls(tuple(calls)) if calls else Text(_split_pieces(_answer_text(prompt))))
    return turn(*_limit_pieces(elements, prompt.max_pieces))


def schema_in_instructions(instructions: str) -> dict[str, Any] | None:
    """Return the schema that these instructions require: empty for any JSON object, None if they require no JSON."""
    request_match = JSON_INSTRUCTION.search(instructions)
    if request_match is None:
        return None
    following_text = instructions[request_match.end() :]
    schema_text = _object_at_start(following_text[following_text.find("{") :])
    schema: dict[str, Any] = msgspec.json.decode(schema_text) if schema_text else {}
    return schema


def _make_calls(prompt: Prompt) -> list[ToolCall]:
    """Return the calls that the user writes out, else one call of a tool that the user mentions or the request
    forces."""
    if prompt.choice == "none" or prompt.results:
        return []
    calls = _parse_calls(prompt)
    if not calls:
        mentioned_tools = [tool for tool in prompt.tools if _mentions_tool(prompt.text, tool)]
        chosen_tools = mentioned_tools or (list(prompt.tools) if prompt.choice == "required" else [])
        calls = [(tool, _sample_arguments(tool, prompt.text)) for tool in chosen_tools[:1]]
    if not prompt.parallel:
        calls = calls[:1]
    first_number = prompt.calls_before + 1
    return [
        ToolCall(f"call_{number}", tool.name, _split_pieces(arguments), tool.kind)
        for number, (tool, arguments) in enumerate(calls, first_number)
    ]


def _mentions_tool(text: str, tool: OfferedTool) -> bool:
    """Whether the text has a word of the tool's name: `weather` for `get_weather`."""
    words = set(WORD.findall(text.lower()))
    return any(word in words for word in WORD.findall(tool.name.lower().replace("_", " ")) if len(word) > 3)


def _parse_calls(prompt: Prompt) -> list[tuple[OfferedTool, str]]:
    """Parse `call NAME {json}`: a function with these arguments, or a custom tool with the rest of the text."""
    tools_by_name = {tool.name: tool for tool in prompt.tools}
    calls = [
        (tools_by_name[match[1]], prompt.text[match.end() :].lstrip())
        for match in CALL_COMMAND.finditer(prompt.text)
        if match[1] in tools_by_name
    ]
    return [
        (
            tool,
            following_text
            if tool.kind == "custom"
            else _object_at_start(following_text) or _sample_arguments(tool, ""),
        )
        for tool, following_text in calls
    ]


def _object_at_start(text: str) -> str:
    """Return the JSON object at the start of the text as written; empty if there is none."""
    try:
        check_nesting(text)
        _, end = DECODER.raw_decode(text)
    except ValueError:
        return ""
    return text[:end] if text.startswith("{") else ""


def _sample_arguments(tool: OfferedTool, text: str) -> str:
    return text if tool.kind == "custom" else _encode_json(sample({"type": "object", **tool.schema}))


def _answer_text(prompt: Prompt) -> str:
    if prompt.schema is not None:
        return _encode_json(sample(prompt.schema) if prompt.schema else {"echo": prompt.text})
    if prompt.results:
        return " ".join(f"{name} says: {result}" for name, result in prompt.results)
    if prompt.media:
        return f"I see {prompt.media} attached. You said: {prompt.text}"
    return f"You said: {prompt.text}"


def _limit_pieces(elements: list[TurnElement], max_pieces: int | None) -> list[TurnElement]:
    """Cut the answer to this many pieces; a cut answer finishes with `length`."""
    if max_pieces is None:
        return elements
    kept_elements: list[TurnElement] = []
    for element in elements:
        match element:
            case Text() | Reasoning() if len(element.pieces) > max_pieces:
                return [
                    *kept_elements,
                    msgspec.structs.replace(element, pieces=element.pieces[:max_pieces]),
                    Finish("length"),
                ]
            case Text() | Reasoning():
                max_pieces -= len(element.pieces)
        kept_elements.append(element)
    return kept_elements


def _split_pieces(text: str) -> tuple[str, ...]:
    """Split a text into pieces: each is a word with the space before it."""
    return tuple(PIECE.findall(text))


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


JSON_INSTRUCTION: Final = re.compile(r"answer with one json object", re.IGNORECASE)
CALL_COMMAND: Final = re.compile(r"\bcall ([a-zA-Z0-9_-]+)")
DECODER: Final = json.JSONDecoder()
WORD: Final = re.compile(r"[a-z0-9]+")
PIECE: Final = re.compile(r"\s*\S+|\s+$")
