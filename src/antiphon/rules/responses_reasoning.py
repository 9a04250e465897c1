"""The rules of responses servers for reasoning: its form, its place, and requests for its encrypted form."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from antiphon.rules.content import type_of
from antiphon.rules.report import Report, as_json


def check_reasoning(item: dict[str, Any], path: str, report: Report) -> None:
    # A reasoning item always has its summary, empty or not, and texts of its own kind only.
    for field, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        parts = item.get(field)
        if parts is None and field == "content":
            continue
        message, exact_path, settings = (
            f"{field} is a list of {kind} parts",
            f"{path}.{field}",
            ("quirks: drop_reasoning",),
        )
        if not isinstance(parts, list):
            problem = f"the {field} of reasoning is a list of {kind} parts, not {as_json(parts)}"
            report.add("missing_field" if parts is None else "value", exact_path, message, problem, settings=settings)
            continue
        for index, part in enumerate(report.walk(parts)):
            if type_of(part) != kind:
                given = part.get("type") if isinstance(part, dict) else part
                problem = f"{as_json(given)} is no part type in the {field} of reasoning: expected {kind}"
                report.add(
                    "content_type", f"{exact_path}[{index}]", message, problem, param=exact_path, settings=settings
                )


def check_reasoning_pairs(items: list[Any], report: Report) -> None:
    # "Item 'rs_…' of type 'reasoning' was provided without its required following item.", param `input`, code null: the
    # message or call that the model made after it.
    is_paired = False
    for index, item in reversed(list(enumerate(report.walk(items)))):
        kind = type_of(item)
        if kind != "reasoning":
            is_paired = not _is_of_client(item, kind)
        elif not is_paired:
            problem = "no message or call of the model follows this reasoning"
            message = f"Item {item.get('id')!r} of type 'reasoning' was provided without its required following item."
            settings = ('wire.unpaired_reasoning = "drop"', "quirks: drop_reasoning")
            path = f"input[{index}]"
            report.add(
                "reasoning", path, message, problem, param="input", code=None, is_certain=False, settings=settings
            )


def _is_of_client(item: Any, kind: str) -> bool:
    if kind in ("", "message"):
        return not isinstance(item, dict) or item.get("role") != "assistant"
    return kind.endswith("_output") or kind in CLIENT_ITEMS


def check_encrypted_reasoning(body: dict[str, Any], plain_models: Collection[str], report: Report) -> None:
    # "Encrypted content is not supported with this model.", param `include`, code null: a model that does not reason
    # has nothing to encrypt. The models are known by public reports; a deployment has any name, and refuses all the
    # same.
    model, include = body.get("model"), body.get("include")
    if not isinstance(model, str) or not isinstance(include, list) or ENCRYPTED not in include:
        return
    if model in plain_models or PLAIN_MODEL.match(model):
        message = "Encrypted content is not supported with this model."
        problem = f"the model {as_json(model)} does not reason, so some servers refuse `{ENCRYPTED}`"
        report.add("unsupported", "include", message, problem, code=None, is_certain=False)


ENCRYPTED: Final = "reasoning.encrypted_content"
PLAIN_MODEL: Final = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4|chatgpt-|gpt-5-chat)")
#: Items of clients besides messages and outputs.
CLIENT_ITEMS: Final = ("additional_tools", "compaction_trigger", "mcp_approval_response")
