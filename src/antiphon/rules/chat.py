"""The rules of chat servers. `check` reports what strict servers refuse in a body.

Not every server has every rule; a request without violations is accepted by all of them. The comment of each rule names
what it copies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.rules.content import (
    CACHE_MARK,
    check_cache_mark,
    describe_part,
    describe_role,
    part_type_path,
    texts_in,
    type_of,
)
from antiphon.rules.report import Report, Rule, as_json
from antiphon.rules.schemas import check_parameters, check_schema
from antiphon.rules.settings import (
    Range,
    Setting,
    check_mentions_json,
    check_metadata,
    check_name,
    check_settings,
    check_user,
)
from antiphon.rules.tool_forms import MAX_TOOLS, check_unique_names, describe_form, form_of

#: Reports a call that is not well formed: the rule, the path and the problem.
Refuse = Callable[[Rule, str, str], None]


def check(body: dict[str, Any], report: Report) -> None:
    """Check a body, except its model and unknown fields (`settings` has these checks)."""
    check_settings(body, SETTINGS, report)
    _check_field_combinations(body, report)
    _check_stop(body.get("stop"), report)
    check_user(body, report)
    check_metadata(body, report)
    _check_messages(body, report)
    names = _check_tools(body.get("tools"), report)
    _check_tool_choice(body, names, report)
    _check_response_format(body, report)


def _check_field_combinations(body: dict[str, Any], report: Report) -> None:
    # "stream_options is only allowed when stream is enabled".
    if body.get("stream_options") is not None and not body.get("stream"):
        problem = "`stream_options` needs `stream`, which is not true"
        report.add("combination", "stream_options", "stream_options is only allowed with stream", problem)
    # The older and the newer name of one limit: both at once are refused.
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        report.add(
            "combination",
            "max_tokens",
            "max_tokens and max_completion_tokens are one setting",
            "`max_tokens` and `max_completion_tokens` are two names of one setting: send one",
            code="invalid_parameter_combination",
        )
    # "logprobs must be true to use top_logprobs".
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        report.add("combination", "top_logprobs", "top_logprobs needs logprobs")


def _check_stop(stop: Any, report: Report) -> None:
    # A string or at most four of them.
    message = "stop is a string or at most four of them"
    if isinstance(stop, list):
        if not all(isinstance(word, str) for word in stop):
            report.add("value", "stop", message)
        elif len(stop) > MAX_STOP_WORDS:
            report.add(
                "value",
                "stop",
                message,
                f"{len(stop)} stop words; some servers allow {MAX_STOP_WORDS}",
                is_certain=False,
            )
    elif stop is not None and not isinstance(stop, str):
        report.add("value", "stop", message, code="invalid_type")


# The conversation.


def _check_messages(body: dict[str, Any], report: Report) -> None:
    messages = body.get("messages")
    # "messages is a required property", and an empty list is too short.
    if not isinstance(messages, list) or not messages:
        hint = "; `input` is the field of the responses dialect" if "input" in body else ""
        report.add(
            "missing_field",
            "messages",
            "messages is a list of at least one message",
            f"`messages` is a list of at least one message{hint}",
            code="missing_required_parameter",
        )
        return
    unanswered_calls: dict[str, str] = {}
    for index, message in enumerate(report.walk(messages)):
        unanswered_calls = _check_message(message, f"messages[{index}]", unanswered_calls, report)
    _check_all_answered(unanswered_calls, f"messages[{len(messages) - 1}]", report)


def _check_message(message: Any, path: str, unanswered_calls: dict[str, str], report: Report) -> dict[str, str]:
    """Check a message after calls that wait for results (id and path); return the calls that wait after it."""
    if not isinstance(message, dict):
        report.add("value", path, "a message is an object", code="invalid_type")
        return unanswered_calls
    role = message.get("role")
    # An unknown role is refused with the list of known ones; the `function` role is long gone from newer servers.
    if not isinstance(role, str) or role not in PARTS_OF_ROLE:
        flaw = describe_role(role, PARTS_OF_ROLE)
        report.add(flaw.rule, f"{path}.role", f"{role!r} is not one of {', '.join(PARTS_OF_ROLE)}", flaw.problem)
        return unanswered_calls
    if role == "tool":
        _check_tool_message(message, path, unanswered_calls, report)
        return unanswered_calls
    _check_all_answered(unanswered_calls, path, report)
    # A participant's name has no white space and none of the signs that templates use.
    name = message.get("name")
    if name is not None and not (isinstance(name, str) and PARTICIPANT_NAME.fullmatch(name)):
        problem = f"{as_json(name)} is not a valid name: expected {PARTICIPANT_NAME.pattern}"
        is_certain = not isinstance(name, str)
        report.add("name", f"{path}.name", "the name does not match its pattern", problem, is_certain=is_certain)
    if role == "assistant":
        return _check_assistant_message(message, path, report)
    _check_content(message.get("content"), f"{path}.content", role, report)
    return {}


def _check_all_answered(unanswered_calls: dict[str, str], param: str, report: Report) -> None:
    # "An assistant message with tool_calls must be followed by tool messages responding to each tool_call_id."
    message = f"no tool message answers {', '.join(unanswered_calls)} before this"
    for id, path in unanswered_calls.items():
        problem = f"no tool message right after it answers the call {as_json(id)}"
        report.add("unanswered_call", path, message, problem, param=param)


def _check_tool_message(message: dict[str, Any], path: str, unanswered_calls: dict[str, str], report: Report) -> None:
    # "messages with role tool must be a response to a preceding message with tool_calls": orphans, wrong ids and second
    # answers to one call are refused alike.
    id = message.get("tool_call_id")
    if not isinstance(id, str):
        report.add(
            "missing_field",
            f"{path}.tool_call_id",
            "a tool message says which call it answers",
            "a tool message has the id of the call that it answers",
            code="missing_required_parameter",
        )
    elif unanswered_calls.pop(id, None) is None:
        problem = f"this result has no call: no assistant message right before it calls {as_json(id)}"
        message_text = f"no call right before this waits for {id!r}"
        report.add("orphan_result", f"{path}.tool_call_id", message_text, problem, settings=ORPHAN_SETTINGS)
    _check_content(message.get("content"), f"{path}.content", "tool", report)


def _check_assistant_message(message: dict[str, Any], path: str, report: Report) -> dict[str, str]:
    """Return the ids and paths of its calls."""
    calls, content = message.get("tool_calls"), message.get("content")
    # "[] is too short": an assistant message has calls or no such field.
    if calls is not None and (not isinstance(calls, list) or not calls):
        problem = f"`tool_calls` is a list of at least one call, or absent; not {as_json(calls)}"
        report.add("value", f"{path}.tool_calls", "tool_calls is a list of at least one call", problem)
    # Several providers: an assistant turn has content or tool calls; the empty string is no content.
    if not content and not calls and not message.get("refusal"):
        problem = "an assistant message has content or tool_calls, and this one has neither"
        report.add("value", f"{path}.content", "an assistant message has content or tool_calls", problem)
    elif content is not None and content != "":
        _check_content(content, f"{path}.content", "assistant", report)
    ids: dict[str, str] = {}
    for index, call in enumerate(report.walk(calls if isinstance(calls, list) else ())):
        exact_path = f"{path}.tool_calls[{index}]"
        id = _check_call(call, exact_path, report)
        # One id names one call.
        if id in ids:
            report.add("value", f"{path}.tool_calls", "two calls have one id", f"two calls have the id {as_json(id)}")
        if id:
            ids[id] = exact_path
    return ids


def _check_call(call: Any, path: str, report: Report) -> str:
    """Check a call; return its id, empty if it has none."""

    # A call has an id, a type, and a function with a name and arguments in a string (an object is refused).
    def refuse_call(rule: Rule, exact_path: str, problem: str) -> None:
        message = "a call has an id, a type, a name and its arguments in a string"
        report.add(rule, exact_path, message, problem, param=path, code="invalid_type")

    if not isinstance(call, dict):
        refuse_call("value", path, "a call is an object")
        return ""
    id = call.get("id")
    if not isinstance(id, str) or not id:
        refuse_call("missing_field", f"{path}.id", "a call has an id, which its result names")
        id = ""
    elif len(id) > MAX_CALL_ID_LENGTH:
        # "string too long. Expected a string with maximum length 40", later 64; not every server has a limit.
        problem = f"the id has {len(id)} characters; some servers allow {MAX_CALL_ID_LENGTH}"
        report.suspect("long_id", f"{path}.id", problem)
    match call:
        case {"type": "custom", "custom": {**custom}}:
            if not isinstance(custom.get("input"), str):
                refuse_call("missing_field", f"{path}.custom.input", "a custom call has its input in a string")
            _check_call_name(custom, f"{path}.custom.name", refuse_call, report)
        case {"function": {**function}}:
            if call.get("type") != "function":
                problem = f"the type of a call is function, not {as_json(call.get('type'))}"
                refuse_call("discriminator", f"{path}.type", problem)
            _check_arguments(function.get("arguments"), f"{path}.function.arguments", refuse_call, report)
            _check_call_name(function, f"{path}.function.name", refuse_call, report)
        case _:
            refuse_call("tool_form", path, "a call has its name and its arguments under `function`")
    return id


def _check_call_name(called_tool: Mapping[Any, Any], path: str, refuse: Refuse, report: Report) -> None:
    if "name" in called_tool:
        check_name(called_tool["name"], path, report)
    else:
        refuse("missing_field", path, "a call has the name of its function")


def _check_arguments(arguments: Any, path: str, refuse: Refuse, report: Report) -> None:
    if not isinstance(arguments, str):
        refuse("value", path, f"arguments are JSON in a string, not {as_json(arguments)}")
        return
    # Servers that render the arguments through a template parse them as a JSON object.
    try:
        is_object = isinstance(decode_json(arguments), dict)
    except msgspec.DecodeError:
        is_object = False
    if not is_object:
        problem = f"arguments are a JSON object in a string, and {as_json(arguments)} is none"
        report.add("value", path, "arguments is no JSON object in a string", problem)


def _check_content(content: Any, path: str, role: str, report: Report) -> None:
    if isinstance(content, str):
        return
    # Null, a number or an object: "expected a string or an array of content parts"; an empty array is too short.
    if not isinstance(content, list) or not content:
        message = "content is a string or a list of at least one part"
        report.add("value", path, message, f"{message}, not {as_json(content)}", code="invalid_type")
        return
    for index, part in enumerate(report.walk(content)):
        _check_part(part, f"{path}[{index}]", role, report)


def _check_part(part: Any, path: str, role: str, report: Report) -> None:
    kind, allowed = type_of(part), PARTS_OF_ROLE[role]
    # Each role has its parts: images, sound and files only from the user, refusals only from the assistant.
    if kind not in allowed:
        message = f"a part of type {kind or None!r} stands where {', '.join(allowed)} may"
        exact_path, flaw = part_type_path(part, path), describe_part(part, allowed)
        if role == "tool" and kind in PARTS_OF_ROLE["user"]:
            # "Image URLs are only allowed for messages with role 'user'": other servers take them from tools too.
            problem = f"some servers take `{kind}` from the user only, not from a tool"
            settings = ('wire.tool_images = "lift"',)
            report.add("media", exact_path, message, problem, param=path, is_certain=False, settings=settings)
        else:
            report.add(flaw.rule, exact_path, message, flaw.problem, param=path)
        return
    if CACHE_MARK in part:
        check_cache_mark(part[CACHE_MARK], path, report, is_allowed=kind != "refusal")
    message = f"this is no part of type {kind}"
    # Each part holds its content under its own name, in its own form.
    match part:
        case {"type": "text", "text": str()} | {"type": "refusal", "refusal": str()}:
            return
        case {"type": "image_url", "image_url": {"url": str(url), **rest}}:
            # An image is a web address or a data URL of an image, and its detail one of three words.
            if not IMAGE_URL.match(url):
                problem = "an image is a web address or a data URL of an image; some servers take more"
                report.add("media", path, message, problem, is_certain=False)
            elif rest.get("detail", "auto") not in IMAGE_DETAILS:
                problem = f"{as_json(rest['detail'])} is no detail that every server knows: {', '.join(IMAGE_DETAILS)}"
                report.add("media", path, message, problem, is_certain=False)
        case {"type": "input_audio", "input_audio": {"data": str(), "format": str(format)}}:
            if format not in AUDIO_FORMATS:
                problem = f"{as_json(format)} is no format that every server knows: {', '.join(AUDIO_FORMATS)}"
                report.add("media", path, message, problem, is_certain=False)
        case {"type": "file", "file": {"file_data": str()} | {"file_id": str()}}:
            return
        case _:
            report.add("value", path, message, f"a part of type `{kind}` has {FORM_OF_PART[kind]}")


# Tools and formats.


def _check_tools(tools: Any, report: Report) -> set[str] | None:
    """Check the tools; return their names. None if a name is unknown because a tool is wrong."""
    if tools is None:
        return set()
    # "[] is too short - tools", and at most 128.
    message = "tools is a list of 1 to 128 tools"
    if not isinstance(tools, list):
        report.add("value", "tools", message, f"{as_json(tools)} is no list of tools")
        return None
    if not 1 <= len(tools) <= MAX_TOOLS:
        problem = f"there are {len(tools)} tools; many servers take 1 to {MAX_TOOLS}, or no such field"
        report.add("value", "tools", message, problem, is_certain=False)
    names = [_check_tool(tool, f"tools[{index}]", report) for index, tool in enumerate(report.walk(tools))]
    valid_names = [name for name in names if name is not None]
    check_unique_names(valid_names, "two tools have one name", report)
    return set(valid_names) if len(valid_names) == len(names) else None


def _check_tool(tool: Any, path: str, report: Report) -> str | None:
    """Check a tool; return its name, None if it has no valid one."""

    # "Missing required parameter: tools[0].function": the flat form of the responses API is not known here.
    def refuse_tool(rule: Rule, exact_path: str, problem: str, *, is_certain: bool = True) -> None:
        message = "a tool is a type and, under its name, a function"
        code = "missing_required_parameter"
        report.add(rule, exact_path, message, problem, param=f"{path}.function", code=code, is_certain=is_certain)

    match tool:
        case {"type": "function", "function": {**function}}:
            is_named = check_name(function.get("name"), f"{path}.function.name", report)
            if not isinstance(function.get("description") or "", str):
                exact_path = f"{path}.function.description"
                report.add("value", exact_path, "a description is a string", code="invalid_type")
            schema, strict = function.get("parameters"), function.get("strict")
            check_parameters(schema, f"{path}.function.parameters", report, strict=strict)
            return str(function["name"]) if is_named else None
        case {"type": "custom", "custom": {**custom}}:
            is_named = check_name(custom.get("name"), f"{path}.custom.name", report)
            return str(custom["name"]) if is_named else None
        case {"function": {**_nested}} | {"custom": {**_nested}}:
            problem = f"the type of a tool is the name under which it stands, not {as_json(tool.get('type'))}"
            refuse_tool("discriminator", f"{path}.type", problem)
        case {"type": str(kind)} if form_of(tool) is None and kind not in ("function", "custom"):
            # Tools of the server's own are each provider's own.
            problem = f"{as_json(kind)} is a tool that the server must provide, and not every server does"
            refuse_tool("unsupported", f"{path}.type", problem, is_certain=False)
        case {**members}:
            form = form_of(members)
            refuse_tool("tool_form" if form else "missing_field", path, describe_form(form, "nested"))
        case _:
            refuse_tool("value", path, f"a tool is an object, not {as_json(tool)}")
    return None


def _check_tool_choice(body: dict[str, Any], offered_names: set[str] | None, report: Report) -> None:
    choice = body.get("tool_choice")
    for field in ("tool_choice", "parallel_tool_calls"):
        # "tool_choice is only allowed when tools are specified"; the same for parallel_tool_calls.
        if body.get(field) is not None and not body.get("tools"):
            problem = f"`{field}` is for requests with tools, and there are none"
            report.add("combination", field, f"{field} is only allowed with tools", problem)
    match choice:
        case None | "auto" | "none" | "required":
            return
        case {"type": "function", "function": {"name": name}} | {"type": "custom", "custom": {"name": name}}:
            chosen = [name]
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": [*allowed]}}:
            chosen = [_name_of_allowed_tool(tool) for tool in allowed if isinstance(tool, dict)]
        case {"type": "function", "name": _}:
            message = f"{choice!r} is no tool choice"
            report.add("tool_form", "tool_choice", message, "the name of the tool stands under `function` here")
            return
        case _:
            problem = (
                f"{as_json(choice)} is no tool choice: expected auto, none, required or an object that names a tool"
            )
            report.add("discriminator", "tool_choice", f"{choice!r} is no tool choice", problem)
            return
    for name in report.walk(chosen):
        # "Tool choice X not found in tools parameter."
        if offered_names is not None and (not isinstance(name, str) or name not in offered_names):
            message = f"the tool {name!r} is chosen but not offered"
            report.add("name", "tool_choice", message, f"the tool {as_json(name)} is chosen, and not offered")


def _name_of_allowed_tool(tool: dict[str, Any]) -> Any:
    """Return the name of an allowed tool."""
    inner = tool.get(type_of(tool))
    return inner.get("name") if isinstance(inner, dict) else None


def _check_response_format(body: dict[str, Any], report: Report) -> None:
    path = "response_format.json_schema"
    match body.get("response_format"):
        case None | {"type": "text"}:
            pass
        case {"type": "json_object"}:
            messages = body.get("messages")
            contents = [
                message.get("content")
                for message in (messages if isinstance(messages, list) else ())
                if isinstance(message, dict)
            ]
            check_mentions_json([text for content in contents for text in texts_in(content)], "messages", report)
        case {"type": "json_schema", "json_schema": {**format}}:
            check_name(format.get("name"), f"{path}.name", report)
            # "Missing required parameter: response_format.json_schema.schema".
            if isinstance(format.get("schema"), dict):
                check_schema(format["schema"], f"{path}.schema", report, strict=format.get("strict"))
            else:
                problem = f"a schema is an object, not {as_json(format.get('schema'))}"
                code = "missing_required_parameter"
                report.add("schema", f"{path}.schema", "a schema is an object", problem, code=code)
        case {"type": "json_schema"} as other:
            problem = "the name and the schema stand under `json_schema`"
            report.add("missing_field", path, f"{other!r} is no response format", problem, param="response_format")
        case other:
            # Unknown types of format are refused with the list of known ones; some servers have more.
            problem = f"{as_json(other)} is no response format that every server knows: {', '.join(FORMAT_TYPES)}"
            is_certain = not type_of(other)
            report.add(
                "discriminator", "response_format", f"{other!r} is no response format", problem, is_certain=is_certain
            )


PARTS_OF_ROLE: Final[dict[str, tuple[str, ...]]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
FORM_OF_PART: Final = {
    "text": "a string under `text`",
    "refusal": "a string under `refusal`",
    "image_url": "an object with a `url` under `image_url`",
    "input_audio": "an object with `data` and a `format` under `input_audio`",
    "file": "an object with `file_data` or a `file_id` under `file`",
}
SETTINGS: Final[dict[str, Setting]] = {
    "temperature": Range(0, 2, allows_fraction=True),
    "top_p": Range(0, 1, allows_fraction=True),
    "presence_penalty": Range(-2, 2, allows_fraction=True),
    "frequency_penalty": Range(-2, 2, allows_fraction=True),
    "n": Range(1, 128),
    "max_tokens": Range(1, 2**31),
    "max_completion_tokens": Range(1, 2**31),
    "top_logprobs": Range(0, 20, is_certain=False),
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
    "prompt_cache_options": dict,
    "prompt_cache_retention": ("in_memory", "24h"),
    "reasoning_effort": ("none", "minimal", "low", "medium", "high", "xhigh"),
    "verbosity": ("low", "medium", "high"),
    "service_tier": ("auto", "default", "flex", "priority", "scale", "fast"),
}
FIELDS: Final = frozenset(
    {"model", "messages", "tools", "tool_choice", "response_format", "metadata", "stop", *SETTINGS}
)
FORMAT_TYPES: Final = ("text", "json_object", "json_schema")
IMAGE_DETAILS: Final = ("auto", "low", "high")
AUDIO_FORMATS: Final = ("wav", "mp3")
ORPHAN_SETTINGS: Final = ('wire.orphan_outputs = "text"',)
MAX_CALL_ID_LENGTH: Final = 64  # characters
MAX_STOP_WORDS: Final = 4
PARTICIPANT_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
IMAGE_URL: Final = re.compile(r"https?://|data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)
