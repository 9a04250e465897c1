"""The rules of real chat servers. `check(received, limits)` returns the body or raises `RequestRefused`.

Not every server has every rule; a request that passes here is accepted by all of them. The comment of each rule names
what it copies.
"""

from __future__ import annotations

import re
from typing import Any, Final

from antiphon.testing.rules import (
    Range,
    RequestRefused,
    ServerLimits,
    check_fields,
    check_key,
    check_length,
    check_mentions_json,
    check_metadata,
    check_model,
    check_name,
    check_parameters,
    check_settings,
    check_strict,
    check_user,
    json_object,
    parse_json,
    texts_in,
)
from antiphon.testing.script import ReceivedRequest


def check(received: ReceivedRequest, limits: ServerLimits) -> dict[str, Any]:
    check_key(received, limits)
    body = json_object(received)
    if limits.strict_fields:
        check_fields(body, FIELDS)
    check_model(body, limits)
    if limits.strict:
        check_settings(body, SETTINGS)
        _check_combinations(body)
        check_user(body)
        check_metadata(body)
        _check_messages(body)
        if limits.wants_reasoning:
            _check_reasoning(body["messages"])
        names = _check_tools(body)
        _check_choice(body, names)
        _check_format(body)
    check_length(prompt_chars(body), limits, "messages")
    return body


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    messages = body.get("messages")
    contents = (
        [message.get("content") for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )
    return sum(len(text) for content in contents for text in texts_in(content))


def _check_combinations(body: dict[str, Any]) -> None:
    # "stream_options is only allowed when stream is enabled".
    if body.get("stream_options") is not None and not body.get("stream"):
        raise RequestRefused("stream_options is only allowed with stream", param="stream_options", code="invalid_value")
    # The older and the newer name of one limit: both at once are refused.
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise RequestRefused(
            "max_tokens and max_completion_tokens are one setting",
            param="max_tokens",
            code="invalid_parameter_combination",
        )
    # "logprobs must be true to use top_logprobs".
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise RequestRefused("top_logprobs needs logprobs", param="top_logprobs", code="invalid_value")
    # `stop`: a string or at most four of them.
    stop = body.get("stop")
    if isinstance(stop, list) and (len(stop) > 4 or not all(isinstance(word, str) for word in stop)):
        raise RequestRefused("stop is a string or at most four of them", param="stop", code="invalid_value")
    if stop is not None and not isinstance(stop, str | list):
        raise RequestRefused("stop is a string or at most four of them", param="stop", code="invalid_type")


# The conversation.


def _check_messages(body: dict[str, Any]) -> None:
    messages = body.get("messages")
    # "messages is a required property", and an empty list is too short.
    if not isinstance(messages, list) or not messages:
        raise RequestRefused(
            "messages is a list of at least one message", param="messages", code="missing_required_parameter"
        )
    waiting: list[str] = []
    for at, message in enumerate(messages):
        path = f"messages[{at}]"
        if not isinstance(message, dict):
            raise RequestRefused("a message is an object", param=path, code="invalid_type")
        role = message.get("role")
        # An unknown role is refused with the list of known ones; the `function` role is long gone from newer servers.
        if role not in PARTS_OF_ROLE:
            raise RequestRefused(
                f"{role!r} is not one of {', '.join(PARTS_OF_ROLE)}", param=f"{path}.role", code="invalid_value"
            )
        if role == "tool":
            _check_result(message, path, waiting)
            continue
        _check_all_answered(waiting, path)
        # A participant's name has no white space and none of the signs that templates use.
        if message.get("name") is not None and not (
            isinstance(message["name"], str) and PARTICIPANT.fullmatch(message["name"])
        ):
            raise RequestRefused("the name does not match its pattern", param=f"{path}.name", code="invalid_value")
        if role == "assistant":
            waiting = _check_assistant(message, path)
        else:
            _check_content(message.get("content"), f"{path}.content", PARTS_OF_ROLE[role])
    _check_all_answered(waiting, f"messages[{len(messages) - 1}]")


def _check_reasoning(messages: list[dict[str, Any]]) -> None:
    # One provider: "The `reasoning_content` in the thinking mode must be passed back to the API", in every turn that
    # called tools.
    for at, message in enumerate(messages):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            raise RequestRefused(
                "the `reasoning_content` in the thinking mode must be passed back to the API",
                param=f"messages[{at}].reasoning_content",
                code="invalid_request_error",
            )


def _check_all_answered(waiting: list[str], path: str) -> None:
    # "An assistant message with tool_calls must be followed by tool messages responding to each tool_call_id."
    if waiting:
        raise RequestRefused(
            f"no tool message answers {', '.join(waiting)} before this", param=path, code="invalid_value"
        )


def _check_result(message: dict[str, Any], path: str, waiting: list[str]) -> None:
    # "messages with role tool must be a response to a preceding message with tool_calls": orphans, wrong ids and second
    # answers to one call are refused alike.
    id = message.get("tool_call_id")
    if not isinstance(id, str):
        raise RequestRefused(
            "a tool message says which call it answers", param=f"{path}.tool_call_id", code="missing_required_parameter"
        )
    if id not in waiting:
        raise RequestRefused(
            f"no call right before this waits for {id!r}", param=f"{path}.tool_call_id", code="invalid_value"
        )
    waiting.remove(id)
    _check_content(message.get("content"), f"{path}.content", PARTS_OF_ROLE["tool"])


def _check_assistant(message: dict[str, Any], path: str) -> list[str]:
    """The ids of its calls."""
    calls = message.get("tool_calls")
    # "[] is too short": an assistant message has calls or no such field.
    if calls is not None and (not isinstance(calls, list) or not calls):
        raise RequestRefused(
            "tool_calls is a list of at least one call", param=f"{path}.tool_calls", code="invalid_value"
        )
    content = message.get("content")
    # Several providers: an assistant turn has content or tool calls; the empty string is no content.
    if not content and not calls and not message.get("refusal"):
        raise RequestRefused(
            "an assistant message has content or tool_calls", param=f"{path}.content", code="invalid_value"
        )
    if content is not None and content != "":
        _check_content(content, f"{path}.content", PARTS_OF_ROLE["assistant"])
    ids = [_check_call(call, f"{path}.tool_calls[{at}]") for at, call in enumerate(calls or ())]
    # One id names one call.
    if len(set(ids)) != len(ids):
        raise RequestRefused("two calls have one id", param=f"{path}.tool_calls", code="invalid_value")
    return ids


def _check_call(call: Any, path: str) -> str:
    match call:
        case {"id": str(id), "type": "function", "function": {"name": name, "arguments": str(arguments)}} if id:
            # `arguments` is a string, and servers that render it through a template parse it as a JSON object.
            if not isinstance(parse_json(arguments), dict):
                raise RequestRefused(
                    "arguments is no JSON object in a string", param=f"{path}.function.arguments", code="invalid_value"
                )
            check_name(name, f"{path}.function.name")
        case {"id": str(id), "type": "custom", "custom": {"name": name, "input": str()}} if id:
            check_name(name, f"{path}.custom.name")
        case _:
            # A call has an id, a type, and a function with a name and arguments in a string (an object is refused).
            raise RequestRefused(
                "a call has an id, a type, a name and its arguments in a string", param=path, code="invalid_type"
            )
    return id


def _check_content(content: Any, path: str, kinds: tuple[str, ...]) -> None:
    if isinstance(content, str):
        return
    # Null, a number or an object: "expected a string or an array of content parts"; an empty array is too short.
    if not isinstance(content, list) or not content:
        raise RequestRefused("content is a string or a list of at least one part", param=path, code="invalid_type")
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        # Each role has its parts: images, sound and files only from the user, refusals only from the assistant.
        if kind not in kinds:
            raise RequestRefused(
                f"a part of type {kind!r} stands where {', '.join(kinds)} may",
                param=f"{path}[{at}]",
                code="invalid_value",
            )
        _check_part(part, f"{path}[{at}]")


def _check_part(part: dict[str, Any], path: str) -> None:
    # Each part holds its content under its own name, in its own form.
    match part:
        case {"type": "text", "text": str()} | {"type": "refusal", "refusal": str()}:
            return
        case {"type": "image_url", "image_url": {"url": str(url), **rest}} if IMAGE_URL.match(url):
            # An image is a web address or a data URL of an image, and its detail one of three words.
            if rest.get("detail", "auto") in ("auto", "low", "high"):
                return
        case {"type": "input_audio", "input_audio": {"data": str(), "format": "wav" | "mp3"}}:
            return
        case {"type": "file", "file": {"file_data": str()} | {"file_id": str()}}:
            return
    raise RequestRefused(f"this is no part of type {part['type']}", param=path, code="invalid_value")


# Tools and formats.


def _check_tools(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools")
    if tools is None:
        return []
    # "[] is too short - tools", and at most 128.
    if not isinstance(tools, list) or not 1 <= len(tools) <= 128:
        raise RequestRefused("tools is a list of 1 to 128 tools", param="tools", code="invalid_value")
    names = [_check_tool(tool, f"tools[{at}]") for at, tool in enumerate(tools)]
    # Several providers: tool names must be unique.
    if len(set(names)) != len(names):
        raise RequestRefused("two tools have one name", param="tools", code="invalid_value")
    return names


def _check_tool(tool: Any, path: str) -> str:
    match tool:
        case {"type": "function", "function": {**function}}:
            name = check_name(function.get("name"), f"{path}.function.name")
            if not isinstance(function.get("description") or "", str):
                raise RequestRefused(
                    "a description is a string", param=f"{path}.function.description", code="invalid_type"
                )
            check_parameters(function.get("parameters"), f"{path}.function.parameters", strict=function.get("strict"))
            return name
        case {"type": "custom", "custom": {**custom}}:
            return check_name(custom.get("name"), f"{path}.custom.name")
        case _:
            # "Missing required parameter: tools[0].function": the flat form of the responses API is not known here.
            raise RequestRefused(
                "a tool is a type and, under its name, a function",
                param=f"{path}.function",
                code="missing_required_parameter",
            )


def _check_choice(body: dict[str, Any], names: list[str]) -> None:
    for field in ("tool_choice", "parallel_tool_calls"):
        # "tool_choice is only allowed when tools are specified"; the same for parallel_tool_calls.
        if body.get(field) is not None and not names:
            raise RequestRefused(f"{field} is only allowed with tools", param=field, code="invalid_value")
    match body.get("tool_choice"):
        case None | "auto" | "none" | "required":
            return
        case {"type": "function", "function": {"name": name}} | {"type": "custom", "custom": {"name": name}}:
            chosen = [name]
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": [*allowed]}}:
            chosen = [tool.get(tool.get("type"), {}).get("name") for tool in allowed if isinstance(tool, dict)]
        case other:
            raise RequestRefused(f"{other!r} is no tool choice", param="tool_choice", code="invalid_value")
    for name in chosen:
        # "Tool choice X not found in tools parameter."
        if name not in names:
            raise RequestRefused(
                f"the tool {name!r} is chosen but not offered", param="tool_choice", code="invalid_value"
            )


def _check_format(body: dict[str, Any]) -> None:
    match body.get("response_format"):
        case None | {"type": "text"}:
            return
        case {"type": "json_object"}:
            texts = [text for message in body["messages"] for text in texts_in(message.get("content"))]
            check_mentions_json(texts, "messages")
        case {"type": "json_schema", "json_schema": {**format}}:
            path = "response_format.json_schema"
            check_name(format.get("name"), f"{path}.name")
            # "Missing required parameter: response_format.json_schema.schema".
            if not isinstance(format.get("schema"), dict):
                raise RequestRefused("a schema is an object", param=f"{path}.schema", code="missing_required_parameter")
            check_strict(format["schema"], f"{path}.schema", strict=format.get("strict"))
        case other:
            # Unknown types of format are refused with the list of known ones.
            raise RequestRefused(f"{other!r} is no response format", param="response_format", code="invalid_value")


PARTS_OF_ROLE: Final[dict[str, tuple[str, ...]]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
SETTINGS: Final[dict[str, Range | type | tuple[str, ...]]] = {
    "temperature": Range(0, 2, fraction=True),
    "top_p": Range(0, 1, fraction=True),
    "presence_penalty": Range(-2, 2, fraction=True),
    "frequency_penalty": Range(-2, 2, fraction=True),
    "n": Range(1, 128),
    "max_tokens": Range(1, 2**31),
    "max_completion_tokens": Range(1, 2**31),
    "top_logprobs": Range(0, 20),
    "seed": Range(-(2**63), 2**63),
    "logprobs": bool,
    "stream": bool,
    "store": bool,
    "parallel_tool_calls": bool,
    "stream_options": dict,
    "logit_bias": dict,
    "user": str,
    "safety_identifier": str,
    "prompt_cache_key": str,
    "reasoning_effort": ("none", "minimal", "low", "medium", "high", "xhigh"),
    "verbosity": ("low", "medium", "high"),
    "service_tier": ("auto", "default", "flex", "priority", "scale"),
}
FIELDS: Final = {"model", "messages", "tools", "tool_choice", "response_format", "metadata", "stop", *SETTINGS}
PARTICIPANT: Final = re.compile(r"[^\s<|\\/>]{1,64}")
IMAGE_URL: Final = re.compile(r"https?://|data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)
