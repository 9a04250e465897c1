"""The members that items, parts, citations and tools of the Responses API have, from its published reference.

"Unknown parameter: 'input[3].status'.": servers refuse all others.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.rules.content import CACHE_MARK, type_of
from antiphon.rules.report import Report

Members = dict[str, frozenset[str]]


def check_members(value: Any, members: Members, path: str, report: Report) -> None:
    """Report the members of an object that objects of its type do not have."""
    kind = type_of(value)
    if not isinstance(value, dict) or kind not in members:
        return
    report_unknown_members(value, kind, members[kind], path, report)


def report_unknown_members(value: dict[str, Any], kind: str, names: frozenset[str], path: str, report: Report) -> None:
    for name in value:
        if name not in names:
            exact_path = f"{path}.{name}"
            problem = f"strict servers know no such member of a {kind}"
            message, code = f"Unknown parameter: '{exact_path}'.", "unknown_parameter"
            report.add("unknown_field", exact_path, message, problem, code=code, is_certain=False)


ITEM_MEMBERS: Final[Members] = {
    "message": frozenset({"type", "id", "role", "content", "status", "phase"}),
    "function_call": frozenset(
        {"type", "id", "call_id", "name", "namespace", "arguments", "caller", "status", "async"}
    ),
    "function_call_output": frozenset({"type", "id", "call_id", "name", "namespace", "output", "caller", "status"}),
    "custom_tool_call": frozenset({"type", "id", "call_id", "name", "namespace", "input", "caller", "status", "async"}),
    "custom_tool_call_output": frozenset({"type", "id", "call_id", "output", "caller", "status", "name"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "compaction": frozenset({"type", "id", "encrypted_content", "created_by"}),
}
#: `rules.content` checks the cache mark, wherever it is.
PART_MEMBERS: Final[Members] = {
    "input_text": frozenset({"type", "text", CACHE_MARK}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", CACHE_MARK}),
    "input_file": frozenset({"type", "file_data", "file_url", "file_id", "filename", "detail", CACHE_MARK}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs", CACHE_MARK}),
    "refusal": frozenset({"type", "refusal", CACHE_MARK}),
}
CITATION_MEMBERS: Final[Members] = {
    "url_citation": frozenset({"type", "url", "title", "start_index", "end_index"}),
    "file_citation": frozenset({"type", "file_id", "filename", "index"}),
    "container_file_citation": frozenset({"type", "container_id", "file_id", "filename", "start_index", "end_index"}),
    "file_path": frozenset({"type", "file_id", "index"}),
}
TOOL_MEMBERS: Final[Members] = {
    "function": frozenset(
        {
            *("type", "name", "description", "parameters", "strict", "defer_loading", "allowed_callers"),
            *("output_schema", "async"),
        }
    ),
    "custom": frozenset({"type", "name", "description", "format", "defer_loading", "allowed_callers", "async"}),
}
