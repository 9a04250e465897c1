"""Convert a request of the Messages API to a `Prompt` for `improvise`."""

from __future__ import annotations

from typing import Any

from antiphon.rules.content import texts_in
from antiphon.rules.messages.history import THINKING, blocks_of
from antiphon.testing.improvise import OfferedTool, Prompt, schema_in_instructions


def make_prompt(body: dict[str, Any]) -> Prompt:
    """Convert the request to a `Prompt`."""
    messages: list[dict[str, Any]] = body["messages"]
    last_user_index = max(
        (index for index, message in enumerate(messages) if message["role"] == "user" and _has_user_content(message)),
        default=-1,
    )
    blocks = (
        [block for block in blocks_of(messages[last_user_index]) if block["type"] != "tool_result"]
        if last_user_index >= 0
        else []
    )
    tool_names = _tool_names_by_call_id(messages)
    tools, choice = _offered_tools(body)
    return Prompt(
        text=" ".join(texts_in(blocks)),
        media=sum(block["type"] != "text" for block in blocks),
        results=_tool_results(messages[last_user_index + 1 :], tool_names),
        calls_before=len(tool_names),
        tools=tools,
        choice=choice,
        parallel=not (body.get("tool_choice") or {}).get("disable_parallel_tool_use"),
        schema=_answer_schema(body),
        thinks=(body.get("thinking") or {}).get("type") in THINKING,
        max_pieces=body.get("max_tokens"),
    )


def _has_user_content(message: dict[str, Any]) -> bool:
    return any(block["type"] != "tool_result" for block in blocks_of(message))


def _tool_names_by_call_id(messages: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tool name of each call, by call id."""
    blocks = [block for message in messages for block in blocks_of(message)]
    return {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}


def _tool_results(messages: list[dict[str, Any]], tool_names: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the tool results of the newest round of calls."""
    user_messages = [message for message in messages if message["role"] == "user"]
    results = blocks_of(user_messages[-1]) if user_messages else []
    return tuple(
        (tool_names.get(result["tool_use_id"], "the tool"), " ".join(texts_in(result.get("content"))))
        for result in results
    )


def _offered_tools(body: dict[str, Any]) -> tuple[tuple[OfferedTool, ...], str]:
    """Return the tools that may be called, and the tool choice. Hosted tools are never called."""
    tools = tuple(
        OfferedTool(tool["name"], tool["input_schema"]) for tool in body.get("tools") or () if "input_schema" in tool
    )
    match body.get("tool_choice"):
        case {"type": "tool", "name": name}:
            return tuple(tool for tool in tools if tool.name == name), "required"
        case {"type": "any"}:
            return tools, "required"
        case {"type": "none"}:
            return tools, "none"
        case _:
            return tools, "auto"


def _answer_schema(body: dict[str, Any]) -> dict[str, Any] | None:
    format = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    schema: dict[str, Any] | None = format.get("schema")
    return schema_in_instructions(" ".join(texts_in(body.get("system")))) if schema is None else schema
