"""The rules of the Messages API for tools and the tool choice."""

from __future__ import annotations

import re
from typing import Any, Final

from antiphon.rules.content import type_of
from antiphon.rules.messages.blocks import check_cache_control, check_tool_name
from antiphon.rules.messages.members import Members, check_members, refuse
from antiphon.rules.messages.schemas import check_enforced_schema, check_input_schema
from antiphon.rules.report import Report, Rule, as_json
from antiphon.rules.tool_forms import check_unique_names, describe_form, form_of


def check_tools(tools: Any, report: Report) -> set[str] | None:
    """Check the tools; return their names. None if a name is unknown because a tool is wrong."""
    if not isinstance(tools, list):
        problem = f"{as_json(tools)} is no list of tools"
        refuse(report, "value", "tools", "Input should be a valid list", problem)
        return None
    names = [_check_tool(tool, f"tools.{index}", report) for index, tool in enumerate(report.walk(tools))]
    valid_names = [name for name in names if name is not None]
    check_unique_names(valid_names, "tools: Tool names must be unique.", report)
    return set(valid_names) if len(valid_names) == len(names) else None


def check_choice(choice: Any, tools: Any, names: set[str] | None, report: Report, *, excludes_force: bool) -> None:
    # "tool_choice may only be specified while providing tools".
    if not tools:
        problem = "`tool_choice` is for requests with tools, and there are none"
        refuse(report, "combination", "tool_choice", "may only be specified while providing tools", problem)
    kind = type_of(choice)
    # The choice is an object, never a bare word, and its types are these four.
    if kind not in CHOICES:
        server_text = f"Input tag {kind!r} does not match any of the expected tags: {', '.join(CHOICES)}"
        problem = f"a choice is an object with a type ({', '.join(CHOICES)}), not {as_json(choice)}"
        refuse(report, "discriminator", "tool_choice", server_text, problem)
        return
    is_whole = check_members(choice, f"tool_choice.{kind}", CHOICES[kind], report)
    if not isinstance(choice.get("disable_parallel_tool_use", False), bool):
        path, problem = f"tool_choice.{kind}.disable_parallel_tool_use", "it is a boolean"
        refuse(report, "value", path, "Input should be a valid boolean", problem)
    # "Tool 'x' not found in provided tools".
    if kind == "tool" and is_whole and names is not None and choice["name"] not in names:
        problem = f"the tool {as_json(choice['name'])} is chosen, and not offered"
        refuse(report, "name", "tool_choice", f"tool {choice['name']!r} not found in provided tools", problem)
    # "Thinking may not be enabled when tool_choice forces tool use."
    if excludes_force and kind in ("any", "tool"):
        message = "Thinking may not be enabled when tool_choice forces tool use."
        report.add("combination", "tool_choice", message, "with thinking, no tool can be forced")


def _check_tool(tool: Any, path: str, report: Report) -> str | None:
    """Check a tool; return its name, None if it has no valid one."""
    kind = type_of(tool)
    # Tools that the server runs, or whose schema it knows, are told apart by a dated type, and have settings of their
    # own.
    if HOSTED.fullmatch(kind):
        name = tool.get("name", kind)
        # Documented for its search and its fetch: a request has allowed or blocked domains, not both.
        if tool.get("allowed_domains") and tool.get("blocked_domains"):
            message = "only one of allowed_domains and blocked_domains may be set"
            refuse(report, "combination", path, message, "the domains are allowed or blocked, not both")
        return name if check_tool_name(name, path, report) else None
    form = form_of(tool) if isinstance(tool, dict) else None
    is_foreign = form not in (None, "input_schema")
    # "Input tag 'function' found using 'type' does not match any of the expected tags": tools of other APIs are not
    # known here.
    if kind not in ("", "custom"):
        server_text = f"Input tag {kind!r} found using 'type' does not match any of the expected tags: custom, ..."
        rule: Rule = "tool_form" if is_foreign or kind == "function" else "discriminator"
        refuse(report, rule, path, server_text, describe_form(form, "input_schema"))
        return None
    if is_foreign:
        refuse(
            report,
            "tool_form",
            f"{path}.custom.name",
            "Field required",
            describe_form(form, "input_schema"),
            exact_path=path,
        )
        return None
    if not check_members(tool, f"{path}.custom", TOOL, report):
        return None
    is_named = check_tool_name(tool["name"], f"{path}.custom", report)
    check_cache_control(tool.get("cache_control"), f"{path}.custom", report)
    for field, expected, word in (("description", str, "string"), ("strict", bool, "boolean")):
        if field in tool and not isinstance(tool[field], expected):
            problem = f"{as_json(tool[field])} is not a {word}"
            refuse(report, "value", f"{path}.custom.{field}", f"Input should be a valid {word}", problem)
    check_input_schema(tool["input_schema"], f"{path}.custom.input_schema", report)
    if tool.get("strict"):
        check_enforced_schema(tool["input_schema"], f"{path}.custom.input_schema", report)
    return tool["name"] if is_named else None


PARALLEL: Final = ("disable_parallel_tool_use",)
CHOICES: Final = {
    "auto": Members({"type": str}, PARALLEL),
    "any": Members({"type": str}, PARALLEL),
    "tool": Members({"type": str, "name": str}, PARALLEL),
    "none": Members({"type": str}),
}
TOOL: Final = Members(
    {"name": str, "input_schema": dict},
    (
        "type",
        "description",
        "cache_control",
        "strict",
        "defer_loading",
        "allowed_callers",
        "eager_input_streaming",
        "input_examples",
    ),
)
HOSTED: Final = re.compile(r"[a-z_]+_20\d{6}|mcp_toolset|tool_search_tool_(regex|bm25)")
