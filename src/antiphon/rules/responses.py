"""The rules of responses servers. `check` reports what strict servers refuse in a body.

References to stored objects are no violation: a server with a store accepts them. The comment of each rule names what
it copies.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from antiphon.protocol.base import is_extension_type
from antiphon.protocol.suggestions import did_you_mean
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
from antiphon.rules.responses_members import (
    CITATION_MEMBERS,
    ITEM_MEMBERS,
    PART_MEMBERS,
    TOOL_MEMBERS,
    check_members,
    report_unknown_members,
)
from antiphon.rules.responses_reasoning import (
    ENCRYPTED,
    check_encrypted_reasoning,
    check_reasoning,
    check_reasoning_pairs,
)
from antiphon.rules.schemas import check_parameters, check_schema
from antiphon.rules.settings import (
    NAME_PATTERN,
    Range,
    Setting,
    check_mentions_json,
    check_metadata,
    check_name,
    check_settings,
    check_user,
)
from antiphon.rules.tool_forms import MAX_TOOLS, check_unique_names, describe_form, form_of


def check(
    body: dict[str, Any], report: Report, *, own_tools: Collection[str] = (), plain_models: Collection[str] = ()
) -> None:
    """Check a body, except its model and unknown fields (`settings` has these checks).

    `own_tools` are types of tools that the server provides; `plain_models` are models that do not reason.
    """
    check_settings(body, SETTINGS, report)
    _check_stream_options(body, report)
    _check_include(body.get("include"), report)
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict):
        check_settings(reasoning, REASONING, report, "reasoning.")
    check_encrypted_reasoning(body, plain_models, report)
    check_user(body, report)
    check_metadata(body, report)
    _check_input(body, report)
    names = _check_tools(body.get("tools"), own_tools, report)
    _check_choice(body, names, report)
    _check_format(body, report)


def prompt_texts(body: dict[str, Any]) -> list[str]:
    """Return the texts of the instructions and the input."""
    given = body.get("input")
    texts = [body["instructions"]] if isinstance(body.get("instructions"), str) else []
    if isinstance(given, str):
        return [*texts, given]
    items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    return texts + [text for item in items for text in texts_in(item.get("content")) + texts_in(item.get("output"))]


def _check_stream_options(body: dict[str, Any], report: Report) -> None:
    # "stream_options is only allowed when stream is enabled".
    if body.get("stream_options") is not None and not body.get("stream"):
        problem = "`stream_options` needs `stream`, which is not true"
        report.add("combination", "stream_options", "stream_options is only allowed with stream", problem)


def _check_include(include: Any, report: Report) -> None:
    # `include` is a list of known words; servers have more of them than all servers know.
    for index, word in enumerate(report.walk(include if isinstance(include, list) else ())):
        if word not in INCLUDES:
            message = f"{word!r} is not one of {', '.join(INCLUDES)}"
            problem = f"{as_json(word)} is no value that every server knows: {', '.join(INCLUDES)}"
            report.add("value", f"include[{index}]", message, problem, is_certain=not isinstance(word, str))


# The conversation.


def _check_input(body: dict[str, Any], report: Report) -> None:
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    # "Missing required parameter: input"; an empty string or list is nothing to answer.
    if not isinstance(given, list) or not given:
        hint = "; `messages` is the field of the chat dialect" if "messages" in body else ""
        report.add(
            "missing_field",
            "input",
            "input is a string or a list of items, and not empty",
            f"`input` is a string or a list of items, and not empty{hint}",
            code="missing_required_parameter",
        )
        return
    unanswered_calls: dict[str, str] = {}
    for index, item in enumerate(report.walk(given)):
        if isinstance(item, dict):
            _check_item(item, f"input[{index}]", unanswered_calls, report)
        else:
            report.add("value", f"input[{index}]", "an item is an object", code="invalid_type")
    check_reasoning_pairs(given, report)
    # "No tool output found for function call X": every call in the input has its output after it.
    for id, path in unanswered_calls.items():
        problem = f"no item after the call {as_json(id)} has its output"
        report.add("unanswered_call", path, f"no tool output found for the call {id}", problem)


def _check_item(item: dict[str, Any], path: str, unanswered_calls: dict[str, str], report: Report) -> None:
    # A message may leave out its type, since it has a role; nothing else may.
    kind = item.get("type", "message" if "role" in item else None)
    if isinstance(kind, str) and kind in ITEM_MEMBERS:
        report_unknown_members(item, kind, ITEM_MEMBERS[kind], path, report)
        _check_id(item, kind, path, report)
    match kind:
        case "message":
            _check_message(item, path, report)
        case "function_call" | "custom_tool_call":
            _check_call(item, path, unanswered_calls, report)
        case "function_call_output" | "custom_tool_call_output":
            _check_output(item, path, unanswered_calls, report)
        case "reasoning":
            check_reasoning(item, path, report)
        case "compaction":
            # Encrypted by the server itself: only its type is checked.
            if not isinstance(item.get("encrypted_content"), str):
                exact_path = f"{path}.encrypted_content"
                report.add("reasoning", exact_path, "encrypted_content is no string", code="invalid_type")
        case "item_reference":
            pass
        case _:
            # Clients answer a search for tools with its own output or with that of a function call.
            if kind == "tool_search_call" and isinstance(item.get("call_id"), str):
                unanswered_calls[item["call_id"]] = path
            elif kind == "tool_search_output":
                unanswered_calls.pop(str(item.get("call_id")), None)
            _report_unknown_item(kind, path, report)


def _report_unknown_item(kind: Any, path: str, report: Report) -> None:
    # An unknown type is refused with the list of known ones.
    message, settings = f"{kind!r} is no known type of item", ('wire.unknown_items = "drop"',)
    if kind is None:
        problem = f"an item has a type: one of {', '.join(ITEM_MEMBERS)}"
        report.add("discriminator", f"{path}.type", message, problem)
    elif not isinstance(kind, str):
        problem = f"the type of an item is a string, not {as_json(kind)}"
        report.add("discriminator", f"{path}.type", message, problem)
    elif kind in SERVER_ITEMS or is_extension_type(kind):
        problem = f"not every server knows items of type {as_json(kind)}"
        report.add("discriminator", f"{path}.type", message, problem, is_certain=False, settings=settings)
    else:
        hint = did_you_mean(kind, (*ITEM_MEMBERS, *SERVER_ITEMS))
        if kind in ("tool_use", "tool_result", "tool_call"):
            hint = "; calls are `function_call` and their results `function_call_output` here"
        problem = f"{as_json(kind)} is no known type of item{hint}"
        report.add("discriminator", f"{path}.type", message, problem, settings=settings)


def _check_id(item: dict[str, Any], kind: str, path: str, report: Report) -> None:
    # "Expected an ID that begins with 'msg'": the prefix of an id is the type of its item.
    prefix = PREFIXES.get(kind)
    if prefix is not None and item.get("id") is not None and not str(item["id"]).startswith(prefix):
        message = f"the id {item['id']!r} does not begin with {prefix!r}"
        problem = f"the id of a {kind} begins with {prefix!r}, not {as_json(item['id'])}"
        report.add("value", f"{path}.id", message, problem, settings=ID_SETTINGS)
    # "string too long. Expected a string with maximum length 64".
    elif isinstance(item.get("id"), str) and len(item["id"]) > MAX_ITEM_ID_LENGTH:
        message = f"the id of an item has at most {MAX_ITEM_ID_LENGTH} characters"
        problem = f"the id has {len(item['id'])} characters; {MAX_ITEM_ID_LENGTH} are allowed"
        report.add("long_id", f"{path}.id", message, problem, settings=ID_SETTINGS)


def _check_message(item: dict[str, Any], path: str, report: Report) -> None:
    role = item.get("role")
    # An unknown role is refused with the list of known ones; there is no `tool` among them.
    if isinstance(role, str) and role in PARTS_OF_ROLE:
        settings = ASSISTANT if role == "assistant" else ()
        _check_content(item.get("content"), f"{path}.content", PARTS_OF_ROLE[role], report, settings)
        return
    flaw = describe_role(role, PARTS_OF_ROLE)
    report.add(flaw.rule, f"{path}.role", f"{role!r} is not one of {', '.join(PARTS_OF_ROLE)}", flaw.problem)


def _check_content(
    content: Any, path: str, allowed: tuple[str, ...], report: Report, settings: tuple[str, ...] = ()
) -> None:
    if isinstance(content, str):
        return
    # Null, a number or an object is neither a string nor an array of parts.
    if not isinstance(content, list) or not content:
        message = "content is a string or a list of at least one part"
        report.add("value", path, message, f"{message}, not {as_json(content)}", code="invalid_type")
        return
    for index, part in enumerate(report.walk(content)):
        exact_path, kind = f"{path}[{index}]", type_of(part)
        if kind in allowed:
            _check_part(part, exact_path, report)
            continue
        # "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'": each role has its own words.
        message, flaw = f"{kind or None!r} stands where {', '.join(allowed)} may", describe_part(part, allowed)
        is_audio = kind == "input_audio" and "input_image" in allowed  # some servers take it, the API's maker does not
        report.add(
            flaw.rule,
            part_type_path(part, exact_path),
            message,
            flaw.problem,
            param=f"{exact_path}.type",
            is_certain=not is_audio,
            settings=settings,
        )


def _check_part(part: dict[str, Any], path: str, report: Report) -> None:
    check_members(part, PART_MEMBERS, path, report)
    citations = part.get("annotations")
    for index, citation in enumerate(report.walk(citations if isinstance(citations, list) else ())):
        _check_citation(citation, f"{path}.annotations[{index}]", report)
    if CACHE_MARK in part:
        check_cache_mark(part[CACHE_MARK], path, report, is_allowed=part["type"] in PARTS_OF_ROLE["user"])
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
    kind = part["type"]
    report.add("value", path, f"this is no part of type {kind}", f"a part of type `{kind}` has {FORM_OF_PART[kind]}")


def _check_citation(citation: Any, path: str, report: Report) -> None:
    # "Invalid value: 'char_location'. Supported values are: 'file_citation', 'url_citation', …".
    kind = type_of(citation)
    if kind not in CITATION_MEMBERS:
        message = f"{kind!r} is no type of citation: expected {', '.join(CITATION_MEMBERS)}"
        report.add("discriminator", f"{path}.type", message, is_certain=False)
    check_members(citation, CITATION_MEMBERS, path, report)


def _check_call(item: dict[str, Any], path: str, unanswered_calls: dict[str, str], report: Report) -> None:
    if _check_call_id(item, path, report):
        unanswered_calls[item["call_id"]] = path
    field = "arguments" if item["type"] == "function_call" else "input"
    # `arguments` is a string; an object is refused.
    if not isinstance(item.get(field), str):
        problem = f"`{field}` is a string, not {as_json(item.get(field))}"
        rule: Rule = "value" if field in item else "missing_field"
        report.add(rule, f"{path}.{field}", f"{field} is a string", problem, code="invalid_type")
    check_name(item.get("name"), f"{path}.name", report)


def _check_call_id(item: dict[str, Any], path: str, report: Report) -> bool:
    # `call_id`: 1 to 64 characters; longer ones are "string too long".
    id = item.get("call_id")
    message, exact_path = "call_id is a string of 1 to 64 characters", f"{path}.call_id"
    if id is None:
        report.add("missing_field", exact_path, message, "calls and their outputs are joined by a call_id")
    elif not isinstance(id, str) or not id:
        report.add("value", exact_path, message, f"a call_id is a string that is not empty, not {as_json(id)}")
    elif len(id) > MAX_CALL_ID_LENGTH:
        report.add(
            "long_id", exact_path, message, f"the call_id has {len(id)} characters; {MAX_CALL_ID_LENGTH} are allowed"
        )
        return True
    else:
        return True
    return False


def _check_output(item: dict[str, Any], path: str, unanswered_calls: dict[str, str], report: Report) -> None:
    # "No tool call found for function call output with call_id X": orphans and second outputs are refused alike.
    if _check_call_id(item, path, report) and unanswered_calls.pop(item["call_id"], None) is None:
        id = item["call_id"]
        problem = f"this output has no call: no item before it calls {as_json(id)}"
        report.add(
            "orphan_result", path, f"no tool call found for the output of {id!r}", problem, settings=ORPHAN_SETTINGS
        )
    _check_content(item.get("output"), f"{path}.output", PARTS_OF_ROLE["user"], report)


# Tools and formats.


def _check_tools(tools: Any, own_tools: Collection[str], report: Report) -> set[str] | None:
    """Check the tools; return their names. None if a name is unknown because a tool is wrong."""
    if tools is None:
        return set()
    message = f"tools is a list of at most {MAX_TOOLS} tools"
    if not isinstance(tools, list):
        report.add("value", "tools", message, f"{as_json(tools)} is no list of tools", code="invalid_type")
        return None
    if len(tools) > MAX_TOOLS:
        problem = f"there are {len(tools)} tools; many servers take at most {MAX_TOOLS}"
        report.add("value", "tools", message, problem, code="invalid_type", is_certain=False)
    names = [_check_tool(tool, f"tools[{index}]", own_tools, report) for index, tool in enumerate(report.walk(tools))]
    _check_deferred_tools(tools, report)
    valid_names = [name for name in names if name is not None]
    check_unique_names(valid_names, "two tools have one name", report)
    return set(valid_names) if len(valid_names) == len(names) else None


def _check_deferred_tools(tools: list[Any], report: Report) -> None:
    # The provider refuses deferred tools without its own search for them, which loads them.
    if any(type_of(tool) == "tool_search" for tool in tools):
        return
    for index, tool in enumerate(tools):
        if isinstance(tool, dict) and tool.get("defer_loading") is True:
            message = "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
            problem = "a deferred tool needs a tool of type `tool_search`, and there is none"
            path, settings = f"tools[{index}].defer_loading", ('wire.deferred_tools = "with_search"',)
            report.add(
                "combination", path, message, problem, param="tools.defer_loading", is_certain=False, settings=settings
            )
            return


def _check_tool(tool: Any, path: str, own_tools: Collection[str], report: Report) -> str | None:
    """Check a tool; return its name, None if it has no valid one."""
    match tool:
        case {"type": "function", "name": name}:
            check_members(tool, TOOL_MEMBERS, path, report)
            check_parameters(tool.get("parameters"), f"{path}.parameters", report, strict=tool.get("strict"))
            return name if check_name(name, f"{path}.name", report) else None
        case {"type": "custom", "name": name}:
            check_members(tool, TOOL_MEMBERS, path, report)
            return name if check_name(name, f"{path}.name", report) else None
        case {"type": "function" | "custom"}:
            # "Missing required parameter: tools[0].name": the nested form of chat is not known here.
            form = form_of(tool)
            rule: Rule = "tool_form" if form else "missing_field"
            problem = describe_form(form, "flat") if form else "a tool has its name beside its type"
            report.add(
                rule,
                path if form else f"{path}.name",
                "a tool has its name beside its type",
                problem,
                param=f"{path}.name",
                code="missing_required_parameter",
            )
        case {"type": str(kind)} if kind in own_tools:
            return str(tool.get("name", kind))
        case _:
            _report_unknown_tool(tool, path, report)
    return None


def _report_unknown_tool(tool: Any, path: str, report: Report) -> None:
    # Hosted tools are each provider's own.
    message, param = "only function and custom tools are known here", f"{path}.type"
    form, kind = form_of(tool) if isinstance(tool, dict) else None, type_of(tool)
    if not isinstance(tool, dict):
        report.add("value", path, message, f"a tool is an object, not {as_json(tool)}", param=param)
    elif form is not None:
        report.add("tool_form", path, message, describe_form(form, "flat"), param=param)
    elif not kind:
        report.add("discriminator", param, message, f"a tool has a type, not {as_json(tool.get('type'))}")
    else:
        problem = f"{as_json(kind)} is a tool that the server must provide, and not every server does"
        report.add(
            "unsupported", param, message, problem, is_certain=False, settings=('wire.extension_tools = "flatten"',)
        )


def _check_choice(body: dict[str, Any], names: set[str] | None, report: Report) -> None:
    choice = body.get("tool_choice")
    chosen: list[Any] = []
    match choice:
        case None | "auto" | "none":
            return
        case "required":
            # "Tool choice 'required' must be specified with 'tools' parameter."
            if not body.get("tools"):
                message = "tool_choice required is only allowed with tools"
                problem = "`tool_choice` requires a tool, and there are none"
                report.add("combination", "tool_choice", message, problem)
        case {"type": "function" | "custom", "name": name}:
            chosen = [name]
        case {"type": "allowed_tools", "mode": "auto" | "required", "tools": [_, *_] as allowed}:
            chosen = [tool.get("name") for tool in allowed if isinstance(tool, dict)]
        case {"type": "function", "function": {**_function}}:
            problem = "the name of the tool stands beside the type here"
            report.add("tool_form", "tool_choice", f"{choice!r} is no tool choice", problem)
        case _:
            # A choice of a tool that the server provides is known to that server only.
            problem = f"{as_json(choice)} is no tool choice that every server knows"
            is_own = type_of(choice) not in ("", "function", "custom", "allowed_tools")
            report.add("discriminator", "tool_choice", f"{choice!r} is no tool choice", problem, is_certain=not is_own)
    for name in report.walk(chosen):
        # "Tool choice X not found in tools parameter."
        if names is not None and (not isinstance(name, str) or name not in names):
            message = f"the tool {name!r} is chosen but not offered"
            report.add("name", "tool_choice", message, f"the tool {as_json(name)} is chosen, and not offered")


def _check_format(body: dict[str, Any], report: Report) -> None:
    settings = body.get("text")
    if not isinstance(settings, dict):
        return
    check_settings(settings, {"verbosity": ("low", "medium", "high")}, report, "text.")
    match settings.get("format"):
        case None | {"type": "text"}:
            pass
        case {"type": "json_object"}:
            check_mentions_json(prompt_texts(body), "input", report)
        case {"type": "json_schema", "json_schema": _, **format} if "name" not in format:
            message = f"{None!r} does not match {NAME_PATTERN.pattern}"
            problem = "the schema is nested as in chat; here it stands beside its type"
            report.add("schema", "text.format.json_schema", message, problem, param="text.format.name")
        case {"type": "json_schema", **format}:
            check_name(format.get("name"), "text.format.name", report)
            # "Missing required parameter: text.format.schema".
            if isinstance(format.get("schema"), dict):
                check_schema(format["schema"], "text.format.schema", report, strict=format.get("strict"))
            else:
                problem = f"a schema is an object, not {as_json(format.get('schema'))}"
                code = "missing_required_parameter"
                report.add("schema", "text.format.schema", "a schema is an object", problem, code=code)
        case other:
            # Unknown types of format are refused with the list of known ones; some servers have more.
            problem = f"{as_json(other)} is no format that every server knows: text, json_object, json_schema"
            message, is_certain = f"{other!r} is no text format", not type_of(other)
            report.add("discriminator", "text.format", message, problem, is_certain=is_certain)


PARTS_OF_ROLE: Final[dict[str, tuple[str, ...]]] = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
FORM_OF_PART: Final = {
    "input_text": "a string under `text`",
    "output_text": "a string under `text`",
    "refusal": "a string under `refusal`",
    "input_image": "an `image_url` or a `file_id`",
    "input_file": "`file_data`, a `file_url` or a `file_id`",
}
#: Items that only servers with these tools know.
SERVER_ITEMS: Final = (
    *("additional_tools", "image_generation_call", "web_search_call", "file_search_call", "computer_call"),
    *("computer_call_output", "code_interpreter_call", "local_shell_call", "local_shell_call_output"),
    *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
    *("tool_search_call", "tool_search_output"),
)
#: From public reports of "Expected an ID that begins with …".
PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "web_search_call": "ws",
}
INCLUDES: Final = (ENCRYPTED, "message.output_text.logprobs")
REASONING: Final[dict[str, Setting]] = {
    "effort": ("none", "minimal", "low", "medium", "high", "xhigh"),
    "summary": ("auto", "concise", "detailed"),
}
ASSISTANT: Final = ("quirks: assistant_as_string", 'wire.assistant_content = "output_text"')
ORPHAN_SETTINGS: Final = ('wire.orphan_outputs = "text"', "quirks: tool_history_as_text")
ID_SETTINGS: Final = ('wire.item_ids = "own"', "quirks: drop_item_ids")
MAX_ITEM_ID_LENGTH: Final = 64  # characters
MAX_CALL_ID_LENGTH: Final = 64  # characters
SETTINGS: Final[dict[str, Setting]] = {
    "temperature": Range(0, 2, allows_fraction=True),
    "top_p": Range(0, 1, allows_fraction=True),
    "presence_penalty": Range(-2, 2, allows_fraction=True),
    "frequency_penalty": Range(-2, 2, allows_fraction=True),
    "max_output_tokens": Range(16, 2**31, is_certain=False),
    "max_tool_calls": Range(1, 2**31),
    "top_logprobs": Range(0, 20, is_certain=False),
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
    "prompt_cache_options": dict,
    "prompt_cache_retention": ("in_memory", "24h"),
    "user": str,
    "truncation": ("auto", "disabled"),
    "service_tier": ("auto", "default", "flex", "priority", "scale", "fast", "ultrafast"),
}
FIELDS: Final = frozenset(
    {"model", "input", "tools", "tool_choice", "metadata", "previous_response_id", "conversation", *SETTINGS}
)
