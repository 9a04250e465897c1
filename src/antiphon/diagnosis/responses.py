"""Rules of the responses dialect: report what every server of the dialect should refuse."""

from __future__ import annotations

from typing import Any, Final

from antiphon.diagnosis.content import lint_parts, lint_role
from antiphon.diagnosis.finding import Findings, iter_objects
from antiphon.diagnosis.tools import lint_name, lint_schema
from antiphon.protocol.base import is_extension_type
from antiphon.protocol.suggestions import did_you_mean
from antiphon.rules.report import as_json


def lint_responses(body: dict[str, Any], findings: Findings) -> None:
    items = body.get("input")
    if items is None or items in ("", []):
        instead = "; `messages` is the field of the chat dialect" if "messages" in body else ""
        findings.keep(
            "missing_field", "input", f"there is nothing to answer: `input` is a string or a list of items{instead}"
        )
    calls: dict[str, str] = {}
    for path, item in iter_objects(items, "input"):
        _lint_item(item, path, calls, findings)
    for id, path in calls.items():
        findings.keep("unanswered_call", path, f"no item after the call {as_json(id)} has its output")
    format = body["text"].get("format") if isinstance(body.get("text"), dict) else None
    if isinstance(format, dict) and format.get("type") == "json_schema":
        if "json_schema" in format:
            findings.keep(
                "schema", "text.format.json_schema", "the schema is nested as in chat; here it stands beside its type"
            )
        else:
            lint_name(format.get("name"), "text.format.name", "responses", findings)
            lint_schema(format.get("schema"), "text.format.schema", findings, strict=format.get("strict") is True)


def _lint_item(item: dict[str, Any], path: str, calls: dict[str, str], findings: Findings) -> None:
    kind = item.get("type", "message" if "role" in item else None)
    prefix = PREFIXES.get(str(kind))
    if prefix is not None and item.get("id") is not None and not str(item["id"]).startswith(prefix):
        findings.keep(
            "value",
            f"{path}.id",
            f"the id of a {kind} begins with {prefix!r}, not {as_json(item['id'])}",
            "quirks: drop_item_ids",
        )
    match kind:
        case "message":
            role = item.get("role")
            if lint_role(role, f"{path}.role", tuple(PARTS), findings):
                settings = ASSISTANT if role == "assistant" else ()
                lint_parts(item.get("content"), f"{path}.content", PARTS[str(role)], findings, *settings)
        case "function_call" | "custom_tool_call":
            _lint_call(item, path, findings)
            calls[str(item.get("call_id"))] = path
        case "function_call_output" | "custom_tool_call_output":
            _lint_id(item, path, findings)
            if calls.pop(str(item.get("call_id")), None) is None:
                id = as_json(item.get("call_id"))
                problem = f"this is the output of a call that is not there: no item before it calls {id}"
                findings.keep("orphan_result", path, problem, *ORPHANS)
            lint_parts(item.get("output"), f"{path}.output", PARTS["user"], findings)
        case "reasoning":
            _lint_reasoning(item, path, findings)
        case None:
            findings.keep(
                "discriminator", f"{path}.type", f"an item says what it is: wanted is one of {', '.join(ITEMS)}"
            )
        case _ if kind not in ITEMS and not is_extension_type(str(kind)):
            problem = f"{as_json(kind)} is no known type of item{_explained(str(kind))}"
            findings.keep("discriminator", f"{path}.type", problem, 'wire.unknown_items = "drop"')


def _explained(kind: str) -> str:
    if kind in ("tool_use", "tool_result", "tool_call"):
        return "; calls are `function_call` and their results `function_call_output` here"
    return did_you_mean(kind, ITEMS)


def _lint_call(item: dict[str, Any], path: str, findings: Findings) -> None:
    _lint_id(item, path, findings)
    field = "arguments" if item["type"] == "function_call" else "input"
    if field not in item:
        findings.keep("missing_field", f"{path}.{field}", f"a call has {field}, in a string")
    elif not isinstance(item[field], str):
        findings.keep("value", f"{path}.{field}", f"{field} is JSON in a string, not {as_json(item[field])}")
    lint_name(item.get("name"), f"{path}.name", "responses", findings)


def _lint_id(item: dict[str, Any], path: str, findings: Findings) -> None:
    id = item.get("call_id")
    if id is None:
        findings.keep("missing_field", f"{path}.call_id", "calls and their outputs are joined by a call_id")
    elif not isinstance(id, str) or not id:
        findings.keep("value", f"{path}.call_id", f"a call_id is a string, not {as_json(id)}")
    elif len(id) > LONGEST_ID:
        findings.keep("long_id", f"{path}.call_id", f"the call_id has {len(id)} characters; {LONGEST_ID} are allowed")


def _lint_reasoning(item: dict[str, Any], path: str, findings: Findings) -> None:
    if not isinstance(item.get("summary"), list):
        findings.keep(
            "missing_field",
            f"{path}.summary",
            "reasoning has a summary, a list that may be empty",
            "quirks: drop_reasoning",
        )
    for place, part in iter_objects(item.get("content"), f"{path}.content"):
        if part.get("type") != "reasoning_text":
            problem = f"{as_json(part.get('type'))} is no type of reasoning's own text: wanted is reasoning_text"
            findings.keep("content_type", place, problem, "quirks: drop_reasoning")


PARTS: Final[dict[str, tuple[str, ...]]] = {
    "user": ("input_text", "input_image", "input_file", "input_audio"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
ASSISTANT: Final = ("quirks: assistant_as_string", 'wire.assistant_content = "output_text"')
ORPHANS: Final = ('wire.orphan_outputs = "text"', "quirks: tool_history_as_text")
PREFIXES: Final = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
ITEMS: Final = (
    *("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning"),
    *(
        "compaction",
        "item_reference",
        "additional_tools",
        "image_generation_call",
        "web_search_call",
        "file_search_call",
    ),
    *("computer_call", "computer_call_output", "code_interpreter_call", "local_shell_call", "local_shell_call_output"),
    *(
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "tool_search_call",
        "tool_search_output",
    ),
)
LONGEST_ID: Final = 64
