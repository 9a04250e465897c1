"""Rules of the chat dialect: report what every server of the dialect should refuse."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.diagnosis.content import lint_parts, lint_role
from antiphon.diagnosis.finding import Findings, as_json, iter_objects
from antiphon.diagnosis.tools import lint_name, lint_schema
from antiphon.protocol.nesting import decode_json


def lint_chat(body: dict[str, Any], findings: Findings) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        instead = "; `input` is the field of the responses dialect" if "input" in body else ""
        findings.add(
            "missing_field", "messages", f"there is nothing to answer: `messages` is a list of messages{instead}"
        )
    waiting: dict[str, str] = {}
    for path, message in iter_objects(messages, "messages"):
        role = message.get("role")
        if not lint_role(role, f"{path}.role", tuple(PARTS), findings):
            continue
        if role == "tool":
            _lint_result(message, path, waiting, findings)
            continue
        _lint_unanswered(waiting, findings)
        waiting = _lint_calls(message, path, findings) if role == "assistant" else {}
        if role != "assistant" or message.get("content"):
            lint_parts(message.get("content"), f"{path}.content", PARTS[str(role)], findings)
        elif not message.get("tool_calls") and not message.get("refusal"):
            findings.add(
                "value", f"{path}.content", "an assistant message has content or tool_calls, and this one has neither"
            )
    _lint_unanswered(waiting, findings)
    _lint_settings(body, findings)


def _lint_unanswered(waiting: dict[str, str], findings: Findings) -> None:
    for id, path in waiting.items():
        findings.add("unanswered_call", path, f"no tool message right after it answers the call {as_json(id)}")


def _lint_result(message: dict[str, Any], path: str, waiting: dict[str, str], findings: Findings) -> None:
    id = message.get("tool_call_id")
    if id is None:
        findings.add("missing_field", f"{path}.tool_call_id", "a tool message says which call it answers")
    elif waiting.pop(str(id), None) is None:
        problem = (
            f"this is the result of a call that is not there: no assistant message right before it calls {as_json(id)}"
        )
        findings.add("orphan_result", f"{path}.tool_call_id", problem, 'wire.orphan_outputs = "text"')
    lint_parts(message.get("content"), f"{path}.content", PARTS["tool"], findings)


def _lint_calls(message: dict[str, Any], path: str, findings: Findings) -> dict[str, str]:
    calls = message.get("tool_calls")
    if calls is not None and (not isinstance(calls, list) or not calls):
        findings.add(
            "value", f"{path}.tool_calls", f"tool_calls is a list of calls, or not there at all; not {as_json(calls)}"
        )
    ids: dict[str, str] = {}
    for place, call in iter_objects(calls, f"{path}.tool_calls"):
        id = call.get("id")
        if not isinstance(id, str) or not id:
            findings.add("missing_field", f"{place}.id", "a call has an id, which its result names")
            continue
        if id in ids:
            findings.add("value", f"{path}.tool_calls", f"two calls have the id {as_json(id)}")
        if len(id) > LONGEST_ID:
            findings.add(
                "long_id",
                f"{place}.id",
                f"the id has {len(id)} characters; some servers allow {LONGEST_ID}",
                certain=False,
            )
        ids[id] = place
        _lint_call(call, place, findings)
    return ids


def _lint_call(call: dict[str, Any], path: str, findings: Findings) -> None:
    match call:
        case {"type": "custom", "custom": {**custom}}:
            lint_name(custom.get("name"), f"{path}.custom.name", "chat", findings)
        case {"function": {**function}}:
            if call.get("type") != "function":
                findings.add(
                    "discriminator",
                    f"{path}.type",
                    f"a call says that it is of type function, not {as_json(call.get('type'))}",
                )
            lint_name(function.get("name"), f"{path}.function.name", "chat", findings)
            _lint_arguments(function.get("arguments"), f"{path}.function.arguments", findings)
        case _:
            findings.add("tool_form", path, "a call has its name and its arguments under `function`")


def _lint_arguments(arguments: Any, path: str, findings: Findings) -> None:
    if not isinstance(arguments, str):
        findings.add("value", path, f"arguments are JSON in a string, not {as_json(arguments)}")
        return
    try:
        is_object = isinstance(decode_json(arguments), dict)
    except msgspec.DecodeError:
        is_object = False
    if not is_object:
        findings.add("value", path, f"arguments are a JSON object in a string, and {as_json(arguments)} is none")


def _lint_settings(body: dict[str, Any], findings: Findings) -> None:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        findings.add(
            "combination",
            "max_tokens",
            "`max_tokens` and `max_completion_tokens` are two names of one setting: give one",
        )
    if body.get("stream_options") is not None and not body.get("stream"):
        findings.add("combination", "stream_options", "`stream_options` is for streams, and `stream` is not true")
    if not body.get("tools"):
        for name in ("tool_choice", "parallel_tool_calls"):
            if body.get(name) is not None:
                findings.add("combination", name, f"`{name}` is for requests with tools, and there are none")
    format = body.get("response_format")
    if isinstance(format, dict) and format.get("type") == "json_schema":
        schema = format.get("json_schema")
        if not isinstance(schema, dict):
            findings.add(
                "missing_field", "response_format.json_schema", "the name and the schema stand under `json_schema`"
            )
        else:
            lint_name(schema.get("name"), "response_format.json_schema.name", "chat", findings)
            strict = schema.get("strict") is True
            lint_schema(schema.get("schema"), "response_format.json_schema.schema", findings, strict=strict)


PARTS: Final[dict[str, tuple[str, ...]]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text", "image_url"),
}
LONGEST_ID: Final = 64
