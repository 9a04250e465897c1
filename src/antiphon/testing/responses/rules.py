"""The rules of real responses servers. `check(received, limits)` returns the body or raises `RequestRefused`.

The server is stateless: references to stored objects are refused. The comment of each rule names what it copies.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final

from antiphon.rules.content import texts_in
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
)
from antiphon.testing.script import ReceivedRequest


def sealed(id: str, maker: str) -> str:
    """Return the encrypted content of a reasoning item: it has the item's id, and its maker can verify it."""
    mark = hashlib.sha256(f"{maker}:{id}".encode()).hexdigest()[:32]
    return base64.urlsafe_b64encode(f"{id}:{mark}".encode()).decode()


def check(received: ReceivedRequest, limits: ServerLimits) -> dict[str, Any]:
    check_key(received, limits)
    body = json_object(received)
    if limits.strict_fields:
        check_fields(body, FIELDS)
    check_model(body, limits)
    if limits.strict:
        check_settings(body, SETTINGS)
        _check_nothing_stored(body)
        _check_combinations(body)
        _check_sealing(body, limits)
        check_user(body)
        check_metadata(body)
        _check_input(body, limits)
        names = _check_tools(body, limits)
        _check_choice(body, names)
        _check_format(body)
    check_length(prompt_chars(body), limits, "input")
    return body


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    return sum(len(text) for text in prompt_texts(body))


def prompt_texts(body: dict[str, Any]) -> list[str]:
    given = body.get("input")
    texts = [body["instructions"]] if isinstance(body.get("instructions"), str) else []
    if isinstance(given, str):
        return [*texts, given]
    items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    return texts + [text for item in items for text in texts_in(item.get("content")) + texts_in(item.get("output"))]


def _check_nothing_stored(body: dict[str, Any]) -> None:
    # A response that is not stored, expired or somebody else's cannot be continued: 400 with a code of its own.
    if body.get("previous_response_id") is not None:
        raise RequestRefused(
            f"previous response {body['previous_response_id']!r} not found",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    # Background work and conversations live in a store; servers without one refuse both.
    for name in ("background", "conversation"):
        if body.get(name):
            raise RequestRefused(
                f"{name} is not supported here: nothing is stored", param=name, code="unsupported_parameter"
            )


def _check_combinations(body: dict[str, Any]) -> None:
    # "stream_options is only allowed when stream is enabled".
    if body.get("stream_options") is not None and not body.get("stream"):
        raise RequestRefused("stream_options is only allowed with stream", param="stream_options", code="invalid_value")
    # `include` is a list of known words.
    include = body.get("include") or []
    for at, word in enumerate(include):
        if word not in INCLUDES:
            raise RequestRefused(
                f"{word!r} is not one of {', '.join(INCLUDES)}", param=f"include[{at}]", code="invalid_value"
            )
    reasoning = body.get("reasoning") or {}
    check_settings(reasoning, {"effort": EFFORTS, "summary": ("auto", "concise", "detailed")})


def _check_sealing(body: dict[str, Any], limits: ServerLimits) -> None:
    # "Encrypted content is not supported with this model.", param `include`, code null: a model that does not reason
    # has nothing to encrypt. The models are known by public reports; a deployment has any name, and refuses all the
    # same.
    model = body["model"]
    if SEALED in (body.get("include") or ()) and (model in limits.plain_models or PLAIN_MODEL.match(model)):
        raise RequestRefused("Encrypted content is not supported with this model.", param="include")


# The conversation.


def _check_input(body: dict[str, Any], limits: ServerLimits) -> None:
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    # "Missing required parameter: input"; an empty string or list is nothing to answer.
    if not isinstance(given, list) or not given:
        raise RequestRefused(
            "input is a string or a list of items, and not empty", param="input", code="missing_required_parameter"
        )
    waiting: dict[str, str] = {}
    for at, item in enumerate(given):
        path = f"input[{at}]"
        if not isinstance(item, dict):
            raise RequestRefused("an item is an object", param=path, code="invalid_type")
        _check_item(item, path, waiting)
        if item.get("type") == "reasoning" and item.get("encrypted_content"):
            _check_sealed(item, path, limits.maker)
    # "No tool output found for function call X": every call in the input has its output after it.
    for id, path in waiting.items():
        raise RequestRefused(f"no tool output found for the call {id}", param=path, code="invalid_value")


def _check_item(item: dict[str, Any], path: str, waiting: dict[str, str]) -> None:
    # A message may leave out its type, since it has a role; nothing else may.
    kind = item.get("type", "message" if "role" in item else None)
    _check_members(item, kind, path)
    _check_id(item, kind, path)
    match kind:
        case "message":
            _check_message(item, path)
        case "function_call" | "custom_tool_call":
            _check_call(item, path)
            waiting[item["call_id"]] = path
        case "function_call_output" | "custom_tool_call_output":
            _check_output(item, path, waiting)
        case "reasoning":
            _check_reasoning(item, path)
        case "compaction":
            # Sealed by the server itself: it is looked at, not inside.
            if not isinstance(item.get("encrypted_content"), str):
                raise RequestRefused(
                    "encrypted_content is no string", param=f"{path}.encrypted_content", code="invalid_type"
                )
        case "item_reference":
            # "Item with id X not found. Items are not persisted when store is set to false."
            raise RequestRefused(
                f"item {item.get('id')!r} not found: nothing is stored", param=path, code="not_found", status=404
            )
        case _:
            # An unknown type is refused with the list of known ones.
            raise RequestRefused(f"{kind!r} is no known type of item", param=f"{path}.type", code="invalid_value")


def _check_members(item: dict[str, Any], kind: Any, path: str) -> None:
    # "Unknown parameter: 'input[3].status'.": members of items that are not in the API's reference are refused.
    for name in item:
        if kind in MEMBERS and name not in MEMBERS[kind]:
            raise RequestRefused(
                f"Unknown parameter: '{path}.{name}'.", param=f"{path}.{name}", code="unknown_parameter"
            )


def _check_id(item: dict[str, Any], kind: Any, path: str) -> None:
    # "Expected an ID that begins with 'msg'": ids say what they name.
    prefix = PREFIXES.get(kind)
    if prefix is not None and item.get("id") is not None and not str(item["id"]).startswith(prefix):
        raise RequestRefused(
            f"the id {item['id']!r} does not begin with {prefix!r}", param=f"{path}.id", code="invalid_value"
        )


def _check_message(item: dict[str, Any], path: str) -> None:
    role = item.get("role")
    # An unknown role is refused with the list of known ones; there is no `tool` among them.
    if role not in PARTS_OF_ROLE:
        raise RequestRefused(
            f"{role!r} is not one of {', '.join(PARTS_OF_ROLE)}", param=f"{path}.role", code="invalid_value"
        )
    _check_content(item.get("content"), f"{path}.content", PARTS_OF_ROLE[role])


def _check_content(content: Any, path: str, kinds: tuple[str, ...]) -> None:
    if isinstance(content, str):
        return
    # Null, a number or an object is neither a string nor an array of parts.
    if not isinstance(content, list) or not content:
        raise RequestRefused("content is a string or a list of at least one part", param=path, code="invalid_type")
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        # "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'": each role has its own words.
        if kind not in kinds:
            raise RequestRefused(
                f"{kind!r} stands where {', '.join(kinds)} may", param=f"{path}[{at}].type", code="invalid_value"
            )
        _check_part(part, f"{path}[{at}]")


def _check_part(part: dict[str, Any], path: str) -> None:
    # Each part holds its content under its own name. Images and files come by address, data or id.
    match part:
        case {"type": "input_text" | "output_text", "text": str()} | {"type": "refusal", "refusal": str()}:
            return
        case {"type": "input_image", "image_url": str()} | {"type": "input_image", "file_id": str()}:
            return
        case {"type": "input_file", "file_data": str()} | {"type": "input_file", "file_url": str()}:
            return
        case {"type": "input_file", "file_id": str()}:
            return
    raise RequestRefused(f"this is no part of type {part['type']}", param=path, code="invalid_value")


def _check_call(item: dict[str, Any], path: str) -> None:
    _check_call_id(item, path)
    field = "arguments" if item["type"] == "function_call" else "input"
    # `arguments` is a string; an object is refused.
    if not isinstance(item.get(field), str):
        raise RequestRefused(f"{field} is a string", param=f"{path}.{field}", code="invalid_type")
    check_name(item.get("name"), f"{path}.name")


def _check_call_id(item: dict[str, Any], path: str) -> None:
    # `call_id`: 1 to 64 characters; longer ones are "string too long".
    if not isinstance(item.get("call_id"), str) or not 1 <= len(item["call_id"]) <= 64:
        raise RequestRefused("call_id is a string of 1 to 64 characters", param=f"{path}.call_id", code="invalid_value")


def _check_output(item: dict[str, Any], path: str, waiting: dict[str, str]) -> None:
    _check_call_id(item, path)
    # "No tool call found for function call output with call_id X": orphans and second outputs are refused alike.
    if waiting.pop(item["call_id"], None) is None:
        raise RequestRefused(
            f"no tool call found for the output of {item['call_id']!r}", param=path, code="invalid_value"
        )
    _check_content(item.get("output"), f"{path}.output", ("input_text", "input_image", "input_file"))


def _check_reasoning(item: dict[str, Any], path: str) -> None:
    # A reasoning item always has its summary, empty or not, and texts of its own kind only.
    for field, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        parts = item.get(field)
        if parts is None and field == "content":
            continue
        good = isinstance(parts, list) and all(isinstance(part, dict) and part.get("type") == kind for part in parts)
        if not good:
            raise RequestRefused(f"{field} is a list of {kind} parts", param=f"{path}.{field}", code="invalid_value")


def _check_sealed(item: dict[str, Any], path: str, maker: str) -> None:
    # "The encrypted content … could not be verified": what another server sealed, or what was changed on the way.
    content = item["encrypted_content"]
    id = _opened(content).partition(":")[0]
    if content != sealed(id, maker):
        message = (
            f"the encrypted content {str(content)[:20]}… could not be verified: it could not be decrypted or parsed"
        )
        raise RequestRefused(message, param=f"{path}.encrypted_content", code="invalid_encrypted_content")
    # "Encrypted content item_id did not match the target item id": an item without an id is taken.
    if item.get("id") not in (None, id):
        message = (
            f"the encrypted content {content[:20]}… could not be verified: its item id did not match the target item id"
        )
        raise RequestRefused(message, param=f"{path}.encrypted_content", code="invalid_encrypted_content")


def _opened(content: Any) -> str:
    try:
        return base64.urlsafe_b64decode(content).decode()
    except (ValueError, TypeError):
        return ""


# Tools and formats.


def _check_tools(body: dict[str, Any], limits: ServerLimits) -> list[str]:
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list) or len(tools) > 128:
        raise RequestRefused("tools is a list of at most 128 tools", param="tools", code="invalid_type")
    names = [_check_tool(tool, f"tools[{at}]", limits) for at, tool in enumerate(tools)]
    # Tool names must be unique.
    if len(set(names)) != len(names):
        raise RequestRefused("two tools have one name", param="tools", code="invalid_value")
    return names


def _check_tool(tool: Any, path: str, limits: ServerLimits) -> str:
    match tool:
        case {"type": "function", "name": name}:
            check_parameters(tool.get("parameters"), f"{path}.parameters", strict=tool.get("strict"))
            return check_name(name, f"{path}.name")
        case {"type": "custom", "name": name}:
            return check_name(name, f"{path}.name")
        case {"type": "function" | "custom"}:
            # "Missing required parameter: tools[0].name": the nested form of chat is not known here.
            raise RequestRefused(
                "a tool has its name beside its type", param=f"{path}.name", code="missing_required_parameter"
            )
        case {"type": str(kind)} if kind in limits.own_tools:
            return str(tool.get("name", kind))
        case _:
            # Hosted tools are each provider's own; this server has none but those.
            raise RequestRefused(
                "only function and custom tools are known here", param=f"{path}.type", code="invalid_value"
            )


def _check_choice(body: dict[str, Any], names: list[str]) -> None:
    chosen: list[Any] = []
    match body.get("tool_choice"):
        case None | "auto" | "none":
            pass
        case "required":
            # "Tool choice 'required' must be specified with 'tools' parameter."
            if not names:
                raise RequestRefused(
                    "tool_choice required is only allowed with tools", param="tool_choice", code="invalid_value"
                )
        case {"type": "function" | "custom", "name": name}:
            chosen = [name]
        case {"type": "allowed_tools", "mode": "auto" | "required", "tools": [_, *_] as allowed}:
            chosen = [tool.get("name") for tool in allowed if isinstance(tool, dict)]
        case other:
            raise RequestRefused(f"{other!r} is no tool choice", param="tool_choice", code="invalid_value")
    for name in chosen:
        # "Tool choice X not found in tools parameter."
        if name not in names:
            raise RequestRefused(
                f"the tool {name!r} is chosen but not offered", param="tool_choice", code="invalid_value"
            )


def _check_format(body: dict[str, Any]) -> None:
    settings = body.get("text") or {}
    check_settings(settings, {"verbosity": ("low", "medium", "high")})
    match settings.get("format"):
        case None | {"type": "text"}:
            return
        case {"type": "json_object"}:
            check_mentions_json(prompt_texts(body), "input")
        case {"type": "json_schema", **format}:
            check_name(format.get("name"), "text.format.name")
            # "Missing required parameter: text.format.schema"; nested as in chat it is missing too.
            if not isinstance(format.get("schema"), dict):
                raise RequestRefused(
                    "a schema is an object", param="text.format.schema", code="missing_required_parameter"
                )
            check_strict(format["schema"], "text.format.schema", strict=format.get("strict"))
        case other:
            # Unknown types of format are refused with the list of known ones.
            raise RequestRefused(f"{other!r} is no text format", param="text.format", code="invalid_value")


PARTS_OF_ROLE: Final[dict[str, tuple[str, ...]]] = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
#: What each type of item may have, from the published reference of POST /v1/responses.
MEMBERS: Final[dict[str, frozenset[str]]] = {
    "message": frozenset({"type", "id", "role", "content", "status", "phase"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "namespace", "arguments", "caller", "status"}),
    "function_call_output": frozenset({"type", "id", "call_id", "name", "namespace", "output", "caller", "status"}),
    "custom_tool_call": frozenset({"type", "id", "call_id", "name", "namespace", "input", "caller", "status"}),
    "custom_tool_call_output": frozenset({"type", "id", "call_id", "output", "caller", "status", "name"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "compaction": frozenset({"type", "id", "encrypted_content", "created_by"}),
}
PREFIXES: Final = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
SEALED: Final = "reasoning.encrypted_content"
INCLUDES: Final = (SEALED, "message.output_text.logprobs")
PLAIN_MODEL: Final = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|chatgpt-|gpt-5-chat)")
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
SETTINGS: Final[dict[str, Range | type | tuple[str, ...]]] = {
    "temperature": Range(0, 2, fraction=True),
    "top_p": Range(0, 1, fraction=True),
    "presence_penalty": Range(-2, 2, fraction=True),
    "frequency_penalty": Range(-2, 2, fraction=True),
    "max_output_tokens": Range(16, 2**31),
    "max_tool_calls": Range(1, 2**31),
    "top_logprobs": Range(0, 20),
    "stream": bool,
    "store": bool,
    "background": bool,
    "parallel_tool_calls": bool,
    "stream_options": dict,
    "reasoning": dict,
    "text": dict,
    "include": list,
    "instructions": str,
    "safety_identifier": str,
    "prompt_cache_key": str,
    "user": str,
    "truncation": ("auto", "disabled"),
    "service_tier": ("auto", "default", "flex", "priority", "scale"),
}
FIELDS: Final = {
    "model",
    "input",
    "tools",
    "tool_choice",
    "metadata",
    "previous_response_id",
    "conversation",
    *SETTINGS,
}
