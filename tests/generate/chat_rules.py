"""A chat server that refuses what real ones refuse. `assert_chat_accepts(body)` says what is wrong, and where."""

from __future__ import annotations

import json
import re
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PARTS = {"text": "text", "image_url": "image_url", "file": "file", "input_audio": "input_audio"}
FIELDS = {
    "user": {"role", "content"},
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "refusal", "reasoning_content", "reasoning"},
    "tool": {"role", "content", "tool_call_id"},
}


def assert_chat_accepts(body: bytes, *, developer: bool = True, media_in_tools: bool = True) -> dict[str, Any]:
    """The body, read; AssertionError if a server of this dialect would refuse it."""
    request: dict[str, Any] = json.loads(body, object_pairs_hook=_no_key_twice)
    assert None not in request.values(), "a null at the top"
    tools = _check_tools(request)
    _check_choice(request, tools)
    _check_format(request.get("response_format"))
    _check_settings(request)
    messages = request["messages"]
    assert messages, "no messages"
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role = message["role"]
        assert set(message) <= FIELDS[role], (
            f"messages[{at}]: {set(message) - FIELDS[role]} in a message of role {role}"
        )
        assert developer or role != "developer", f"messages[{at}]: unknown role"
        if role == "tool":
            assert waiting, f"messages[{at}]: a result with no call in the turn before it"
            assert message["tool_call_id"] == waiting.pop(0), f"messages[{at}]: not the result that comes next"
            _check_content(message["content"], at, set(PARTS) if media_in_tools else {"text"})
            continue
        assert not waiting, f"messages[{at}]: calls {waiting} are not answered"
        if role == "assistant":
            waiting = _check_assistant(message, at)
        else:
            _check_content(message["content"], at, set(PARTS) if role == "user" else {"text"})
    assert not waiting, f"calls {waiting} are not answered"
    return request


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), f"a key twice: {[name for name, _ in pairs]}"
    return dict(pairs)


def _check_content(content: Any, at: int, kinds: set[str]) -> None:
    if isinstance(content, str):
        return
    assert isinstance(content, list), f"messages[{at}].content is {content!r}"
    assert content, f"messages[{at}].content has no parts"
    for part in content:
        assert part["type"] in kinds, f"messages[{at}]: a part of type {part['type']} stands there"
        assert set(part) == {"type", PARTS[part["type"]]}, f"messages[{at}]: {part}"
        match part:
            case {"type": "text", "text": str()}:
                pass
            case {"type": "image_url", "image_url": {"url": str(), **rest}}:
                assert rest in ({}, {"detail": "low"}, {"detail": "high"}, {"detail": "auto"}), rest
            case {"type": "file", "file": {"file_data": str(), **rest}} | {
                "type": "file",
                "file": {"file_id": str(), **rest},
            }:
                assert set(rest) <= {"filename"}, rest
            case {"type": "input_audio", "input_audio": {"data": str(), "format": str(), **rest}}:
                assert not rest
            case _:
                raise AssertionError(f"messages[{at}]: {part}")


def _check_assistant(message: dict[str, Any], at: int) -> list[str]:
    calls = message.get("tool_calls")
    assert calls is None or calls, f"messages[{at}].tool_calls is empty"
    assert message.get("content") or calls, f"messages[{at}]: an assistant turn with nothing in it"
    if message.get("content") is not None:
        _check_content(message["content"], at, {"text"})
    for call in calls or ():
        match call:
            case {
                "id": str(),
                "type": "function",
                "function": {"name": str(name), "arguments": str(arguments), **none},
                **no,
            }:
                assert isinstance(json.loads(arguments), dict), f"messages[{at}]: arguments are no object"
            case {"id": str(), "type": "custom", "custom": {"name": str(name), "input": str(), **none}, **no}:
                pass
            case _:
                raise AssertionError(f"messages[{at}]: {call}")
        assert not none, f"messages[{at}]: {call}"
        assert not no, f"messages[{at}]: {call}"
        assert NAME.fullmatch(name), f"messages[{at}]: the name {name!r}"
    ids = [call["id"] for call in calls or ()]
    assert len(set(ids)) == len(ids), f"messages[{at}]: an id twice in one turn"
    return ids


def _check_tools(request: dict[str, Any]) -> list[str]:
    names = []
    assert request.get("tools", True), "no tools in tools"
    for tool in request.get("tools", ()):
        match tool:
            case {
                "type": "function",
                "function": {"name": str(name), "parameters": {"type": "object"}, **rest},
                **none,
            }:
                assert set(rest) <= {"description", "strict"}, tool
                assert isinstance(rest.get("strict", True), bool), tool
            case {"type": "custom", "custom": {"name": str(name), **rest}, **none}:
                assert set(rest) <= {"description", "format"}, tool
                _check_custom_format(rest.get("format", {"type": "text"}))
            case _:
                raise AssertionError(f"{tool}")
        assert not none, tool
        assert isinstance(rest.get("description", ""), str), tool
        names.append(name)
    for name in names:
        assert NAME.fullmatch(name), f"the name {name!r}"
    assert len(set(names)) == len(names), f"a tool twice: {names}"
    return names


def _check_custom_format(format: Any) -> None:
    match format:
        case {"type": "text", **rest} | {
            "type": "grammar",
            "grammar": {"syntax": "lark" | "regex", "definition": str()},
            **rest,
        }:
            assert not rest, format
        case _:
            raise AssertionError(f"format: {format}")


def _check_choice(request: dict[str, Any], tools: list[str]) -> None:
    assert tools or "parallel_tool_calls" not in request, "parallel_tool_calls without tools"
    if "tool_choice" not in request:
        return
    assert tools, "tool_choice without tools"
    match request["tool_choice"]:
        case "auto" | "none" | "required":
            pass
        case {"type": "function", "function": {"name": name, **rest}} | {
            "type": "custom",
            "custom": {"name": name, **rest},
        }:
            assert name in tools, f"the chosen tool {name} is not offered"
            assert not rest
        case other:
            raise AssertionError(f"tool_choice: {other}")


def _check_format(format: Any) -> None:
    match format:
        case None | {"type": "json_object"} | {"type": "grammar"}:  # the last on some servers only
            pass
        case {"type": "json_schema", "json_schema": {"name": str(name), **rest}}:
            assert NAME.fullmatch(name)
            assert set(rest) <= {"description", "schema", "strict"}
        case _:
            raise AssertionError(f"response_format: {format}")


def _check_settings(request: dict[str, Any]) -> None:
    assert request.get("logprobs") or "top_logprobs" not in request, "top_logprobs without logprobs"
    assert request.get("stream") or "stream_options" not in request, "stream_options without stream"
    assert not ("max_tokens" in request and "max_completion_tokens" in request), "two limits"
    for name in ("store", "background", "truncation", "previous_response_id", "include", "input", "instructions"):
        assert name not in request, f"{name} is not a field of this dialect"
