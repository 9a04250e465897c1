"""What no server of the chat dialect should take."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.diagnosis.content import lint_parts, lint_role
from antiphon.diagnosis.finding import Findings, as_json, iter_objects
from antiphon.diagnosis.tools import lint_name, lint_schema
from antiphon.protocol.nesting import decode_json


def lint_chat(body: dict[str, Any], found: Findings) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        instead = "; `input` is the field of the responses dialect" if "input" in body else ""
        found.add("missing_field", "messages", f"there is nothing to answer: `messages` is a list of messages{instead}")
    waiting: dict[str, str] = {}
    for path, message in iter_objects(messages, "messages"):
        role = message.get("role")
        if not lint_role(role, f"{path}.role", tuple(PARTS), found):
            continue
        if role == "tool":
            _lint_result(message, path, waiting, found)
            continue
        _lint_unanswered(waiting, found)
        waiting = _lint_calls(message, path, found) if role == "assistant" else {}
        if role != "assistant" or message.get("content"):
            lint_parts(message.get("content"), f"{path}.content", PARTS[str(role)], found)
        elif not message.get("tool_calls") and not message.get("refusal"):
            found.add("value", f"{path}.content", "an assistant message has content or tool_calls, and this one has neither")
    _lint_unanswered(waiting, found)
    _lint_settings(body, found)


def _lint_unanswered(waiting: dict[str, str], found: Findings) -> None:
    for id, path in waiting.items():
        found.add("unanswered_call", path, f"no tool message right after it answers the call {as_json(id)}")


def _lint_result(message: dict[str, Any], path: str, waiting: dict[str, str], found: Findings) -> None:
    id = message.get("tool_call_id")
    if id is None:
        found.add("missing_field", f"{path}.tool_call_id", "a tool message says which call it answers")
    elif waiting.pop(str(id), None) is None:
        said = f"this is the result of a call that is not there: no assistant message right before it calls {as_json(id)}"
        found.add("orphan_result", f"{path}.tool_call_id", said, 'wire.orphan_outputs = "text"')
    lint_parts(message.get("content"), f"{path}.content", PARTS["tool"], found)


def _lint_calls(message: dict[str, Any], path: str, found: Findings) -> dict[str, str]:
    calls = message.get("tool_calls")
    if calls is not None and (not isinstance(calls, list) or not calls):
        found.add("value", f"{path}.tool_calls", f"tool_calls is a list of calls, or not there at all; not {as_json(calls)}")
    ids: dict[str, str] = {}
    for place, call in iter_objects(calls, f"{path}.tool_calls"):
        id = call.get("id")
        if not isinstance(id, str) or not id:
            found.add("missing_field", f"{place}.id", "a call has an id, which its result names")
            continue
        if id in ids:
            found.add("value", f"{path}.tool_calls", f"two calls have the id {as_json(id)}")
        if len(id) > LONGEST_ID:
            found.add("long_id", f"{place}.id", f"the id has {len(id)} characters; some servers allow {LONGEST_ID}", certain=False)
        ids[id] = place
        _lint_call(call, place, found)
    return ids


def _lint_call(call: dict[str, Any], path: str, found: Findings) -> None:
    match call:
        case {"type": "custom", "custom": {**custom}}:
            lint_name(custom.get("name"), f"{path}.custom.name", "chat", found)
        case {"function": {**function}}:
            if call.get("type") != "function":
                found.add(
                    "discriminator", f"{path}.type", f"a call says that it is of type function, not {as_json(call.get('type'))}"
                )
            lint_name(function.get("name"), f"{path}.function.name", "chat", found)
            _lint_arguments(function.get("arguments"), f"{path}.function.arguments", found)
        case _:
            found.add("tool_form", path, "a call has its name and its arguments under `function`")


def _lint_arguments(arguments: Any, path: str, found: Findings) -> None:
    if not isinstance(arguments, str):
        found.add("value", path, f"arguments are JSON in a string, not {as_json(arguments)}")
        return
    try:
        is_object = isinstance(decode_json(arguments), dict)
    except msgspec.DecodeError:
        is_object = False
    if not is_object:
        found.add("value", path, f"arguments are a JSON object in a string, and {as_json(arguments)} is none")


def _lint_settings(body: dict[str, Any], found: Findings) -> None:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        found.add("combination", "max_tokens", "`max_tokens` and `max_completion_tokens` are two names of one setting: give one")
    if body.get("stream_options") is not None and not body.get("stream"):
        found.add("combination", "stream_options", "`stream_options` is for streams, and `stream` is not true")
    if not body.get("tools"):
        for name in ("tool_choice", "parallel_tool_calls"):
            if body.get(name) is not None:
                found.add("combination", name, f"`{name}` is for requests with tools, and there are none")
    format = body.get("response_format")
    if isinstance(format, dict) and format.get("type") == "json_schema":
        schema = format.get("json_schema")
        if not isinstance(schema, dict):
            found.add("missing_field", "response_format.json_schema", "the name and the schema stand under `json_schema`")
        else:
            lint_name(schema.get("name"), "response_format.json_schema.name", "chat", found)
            strict = schema.get("strict") is True
            lint_schema(schema.get("schema"), "response_format.json_schema.schema", found, strict=strict)


PARTS: Final[dict[str, tuple[str, ...]]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text", "image_url"),
}
LONGEST_ID: Final = 64
