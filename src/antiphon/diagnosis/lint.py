"""Check a body without a server: what violates its dialect, and what only some servers accept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from antiphon.diagnosis.finding import BoundsExceeded, Finding, Findings, paths_overlap
from antiphon.diagnosis.settings import keep_useful_settings
from antiphon.diagnosis.traits import find_traits
from antiphon.dialects import chat, gemini, messages, responses
from antiphon.errors import ClientFault
from antiphon.profiles import Dialect, Profile
from antiphon.protocol.nesting import decode_json
from antiphon.rules import Report, Rule
from antiphon.rules import chat as chat_rules
from antiphon.rules import gemini as gemini_rules
from antiphon.rules import messages as messages_rules
from antiphon.rules import responses as responses_rules
from antiphon.rules.settings import check_fields, check_model


def lint_body(body: bytes, dialect: Dialect, profile: Profile | None = None) -> list[Finding]:
    """Return what is wrong with a body, first what every server should refuse.

    `profile` is the profile for which the body was written: settings that it has are not suggested."""
    read = decode_object(body)
    if read is None:
        return [Finding(rule="value", path="", problem="this is no JSON object")]
    findings = lint_dialect_rules(read, body, dialect)
    findings += [
        trait.finding
        for trait in find_traits(read, dialect)
        if not any(paths_overlap(trait.finding.path, f.path) for f in findings)
    ]
    wrong = [finding for finding in findings if finding.certain]
    return keep_useful_settings([*wrong, *(finding for finding in findings if not finding.certain)], dialect, profile)


def lint_dialect_rules(read: dict[str, Any], body: bytes, dialect: Dialect) -> list[Finding]:
    """Return what the rules of a dialect find in a body."""
    findings = Findings(read, spelled_by_server=dialect in ("messages", "gemini"))
    with suppress(BoundsExceeded):
        CHECKS[dialect](read, findings)
        _read_as_gateway(body, dialect, findings)
    return findings.items


def decode_object(body: bytes) -> dict[str, Any] | None:
    try:
        return decode_json(body, type=dict[str, Any])
    except ValueError:
        return None


def guess_dialect(read: dict[str, Any]) -> Dialect:
    """Return the dialect in which a body is probably written."""
    if "contents" in read:
        return "gemini"
    if "messages" not in read:
        return "responses"
    tools = read.get("tools")
    marks = (
        read.keys() & MESSAGES_ALONE
        or any(isinstance(tool, dict) and "input_schema" in tool for tool in (tools if isinstance(tools, list) else ()))
        or any(mark in msgspec.json.encode(read["messages"]) for mark in MESSAGES_BLOCKS)
    )
    return "messages" if marks else "chat"


def _check_chat(read: dict[str, Any], report: Report) -> None:
    check_model(read, report)
    check_fields(read, chat_rules.FIELDS, report)
    chat_rules.check(read, report)


def _check_responses(read: dict[str, Any], report: Report) -> None:
    check_model(read, report)
    check_fields(read, responses_rules.FIELDS, report)
    responses_rules.check(read, report)


def _check_messages(read: dict[str, Any], report: Report) -> None:
    messages_rules.check_model(read, report)
    messages_rules.check(read, report)


def _read_as_gateway(body: bytes, dialect: Dialect, findings: Findings) -> None:
    """Report the error that the gateway itself returns to a client.

    Only in the responses dialect it is certain that servers refuse the body too: the gateway implements its
    specification."""
    try:
        READERS[dialect](body)
    except ClientFault as error:
        path = error.param or ""
        if not any(paths_overlap(path, finding.path) for finding in findings.items if finding.certain):
            problem = error.message.removeprefix(f"{path}: ")
            findings.keep(RULES.get(error.code, "value"), path, problem, certain=dialect == "responses")


CHECKS: Final[dict[Dialect, Callable[[dict[str, Any], Report], None]]] = {
    "chat": _check_chat,
    "responses": _check_responses,
    "messages": _check_messages,
    "gemini": gemini_rules.check,
}
READERS: Final[dict[Dialect, Callable[[bytes], Any]]] = {
    "chat": chat.request_to_hub,
    "responses": responses.request_to_hub,
    "messages": messages.request_to_hub,
    "gemini": gemini.request_to_hub,
}
RULES: Final[dict[str, Rule]] = {"missing_field": "missing_field", "orphan_tool_output": "orphan_result"}
MESSAGES_ALONE: Final = frozenset({"system", "stop_sequences", "thinking", "output_config"})
MESSAGES_BLOCKS: Final = (b'"tool_use"', b'"tool_result"', b'"thinking"')
