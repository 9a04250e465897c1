"""Rules of the messages dialect: report what every server of the dialect should refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from antiphon.diagnosis.content import lint_parts, lint_role
from antiphon.diagnosis.finding import Findings, iter_objects
from antiphon.diagnosis.tools import lint_name
from antiphon.rules.report import as_json


def lint_messages(body: dict[str, Any], findings: Findings) -> None:
    if "max_tokens" not in body:
        findings.keep("missing_field", "max_tokens", "servers of this dialect have no default for it")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        instead = "; `input` is the field of the responses dialect" if "input" in body else ""
        findings.keep(
            "missing_field", "messages", f"there is nothing to answer: `messages` is a list of messages{instead}"
        )
    if "system" in body and body["system"] is not None:
        lint_parts(body["system"], "system", ("text",), findings)
    waiting: dict[str, str] = {}
    ids: set[str] = set()
    for path, message in iter_objects(messages, "messages"):
        role = message.get("role")
        if not lint_role(role, f"{path}.role", ("user", "assistant"), findings, *(SYSTEM if role == "system" else ())):
            continue
        if role == "user" or message.get("content") != []:
            lint_parts(message.get("content"), f"{path}.content", BLOCKS[str(role)], findings)
        for place, block in iter_objects(message.get("content"), f"{path}.content"):
            _lint_block(block, place, findings)
        if role == "user":
            _lint_results(message, path, waiting, findings)
            waiting = {}
        else:
            _lint_unanswered(waiting, findings)
            calls = [(str(block.get("id")), place) for place, block in _blocks(message, path, "tool_use")]
            waiting = dict(calls)
            for at, (id, place) in enumerate(calls):
                if id in ids or id in dict(calls[:at]):
                    findings.keep("value", place, f"another call has the id {as_json(id)} already")
            ids.update(waiting)
    _lint_unanswered(waiting, findings)
    _lint_order(list(iter_objects(messages, "messages")), findings)
    _lint_settings(body, findings)


def _lint_block(block: dict[str, Any], path: str, findings: Findings) -> None:
    match block.get("type"):
        case "text" if not block.get("text"):
            findings.keep("value", path, "a block of text has a text, which is not empty")
        case "tool_use":
            id = block.get("id")
            if not isinstance(id, str):
                findings.keep("missing_field", f"{path}.id", "a call has an id, which its result names")
            elif not CALL_ID.fullmatch(id):
                findings.keep(
                    "long_id", f"{path}.id", f"{as_json(id)} is no id that servers take: wanted is {CALL_ID.pattern}"
                )
            lint_name(block.get("name"), f"{path}.name", "messages", findings)
            if not isinstance(block.get("input"), dict):
                findings.keep(
                    "value", f"{path}.input", f"the input of a call is an object, not {as_json(block.get('input'))}"
                )
        case "tool_result" if not isinstance(block.get("tool_use_id"), str):
            findings.keep("missing_field", f"{path}.tool_use_id", "a result says which call it answers")
        case "thinking" if not isinstance(block.get("signature"), str):
            findings.keep(
                "reasoning",
                f"{path}.signature",
                "thinking goes back with the signature it came with",
                "quirks: drop_reasoning",
            )


def _lint_results(message: dict[str, Any], path: str, waiting: dict[str, str], findings: Findings) -> None:
    for place, block in _blocks(message, path, "tool_result"):
        if waiting.pop(str(block.get("tool_use_id")), None) is None:
            problem = (
                f"this is the result of a call that is not in the message before: {as_json(block.get('tool_use_id'))}"
            )
            findings.keep("orphan_result", place, problem, 'wire.orphan_outputs = "text"')
    _lint_unanswered(waiting, findings)


def _lint_unanswered(waiting: dict[str, str], findings: Findings) -> None:
    for id, path in waiting.items():
        findings.keep(
            "unanswered_call", path, f"the message right after it has no `tool_result` for the call {as_json(id)}"
        )


def _lint_order(messages: list[tuple[str, dict[str, Any]]], findings: Findings) -> None:
    if messages and messages[0][1].get("role") == "assistant":
        findings.keep("order", messages[0][0], "the first message is the user's")
    for (_, before), (path, message) in pairwise(messages):
        if before.get("role") == message.get("role"):
            problem = f"two messages of the {message.get('role')} follow each other; some servers want them in turns"
            findings.keep("order", path, problem, certain=False)


def _lint_settings(body: dict[str, Any], findings: Findings) -> None:
    thinking = body.get("thinking")
    thinks = isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")
    if "temperature" in body and "top_p" in body:
        problem = "newer models take `temperature` or `top_p`, not both"
        findings.keep("combination", "top_p", problem, "wire.both_samplings = false", certain=False)
    if thinks and body.get("temperature", 1) != 1:
        findings.keep("combination", "temperature", "with thinking, the temperature is 1")
    if thinks and "top_k" in body:
        findings.keep("combination", "top_k", "with thinking there is no `top_k`")
    choice = body.get("tool_choice")
    if choice is not None and not isinstance(choice, dict):
        findings.keep(
            "discriminator",
            "tool_choice",
            f"a choice is an object with a type (auto, any, tool, none), not {as_json(choice)}",
        )
    if isinstance(choice, dict) and thinks and choice.get("type") in ("any", "tool"):
        findings.keep("combination", "tool_choice", "with thinking, no tool can be forced")


def _blocks(message: dict[str, Any], path: str, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return (
        member for member in iter_objects(message.get("content"), f"{path}.content") if member[1].get("type") == kind
    )


FROM_SERVERS: Final = (
    *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
    *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result"),
)
BLOCKS: Final[dict[str, tuple[str, ...]]] = {
    "user": ("text", "image", "document", "search_result", "container_upload", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use", *FROM_SERVERS),
}
SYSTEM: Final = ('wire.system = "user"', 'wire.system = "top"')
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
