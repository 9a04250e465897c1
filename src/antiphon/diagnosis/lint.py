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
    request_body = decode_object(body)
    if request_body is None:
        return [Finding(rule="value", path="", problem="this is no JSON object")]
    findings = lint_dialect_rules(request_body, body, dialect)
    findings += [
        trait.finding
        for trait in find_traits(request_body, dialect)
        if not any(paths_overlap(trait.finding.path, finding.path) for finding in findings)
    ]
    certain_findings = [finding for finding in findings if finding.certain]
    return keep_useful_settings(
        [*certain_findings, *(finding for finding in findings if not finding.certain)], dialect, profile
    )


def lint_dialect_rules(request_body: dict[str, Any], body: bytes, dialect: Dialect) -> list[Finding]:
    """Return what the rules of a dialect find in a body."""
    findings = Findings(request_body, has_server_paths=dialect in ("messages", "gemini"))
    with suppress(BoundsExceeded):
        CHECKS[dialect](request_body, findings)
        _check_by_gateway(body, dialect, findings)
    return findings.items


def decode_object(body: bytes) -> dict[str, Any] | None:
    try:
        return decode_json(body, type=dict[str, Any])
    except ValueError:
        return None


def guess_dialect(request_body: dict[str, Any]) -> Dialect:
    """Return the dialect in which a body is probably written."""
    if "contents" in request_body:
        return "gemini"
    if "messages" not in request_body:
        return "responses"
    tools = request_body.get("tools")
    has_messages_marks = (
        request_body.keys() & MESSAGES_ONLY_FIELDS
        or any(isinstance(tool, dict) and "input_schema" in tool for tool in (tools if isinstance(tools, list) else ()))
        or any(mark in msgspec.json.encode(request_body["messages"]) for mark in MESSAGES_BLOCK_TYPES)
    )
    return "messages" if has_messages_marks else "chat"


def _check_chat(request_body: dict[str, Any], report: Report) -> None:
    check_model(request_body, report)
    check_fields(request_body, chat_rules.FIELDS, report)
    chat_rules.check(request_body, report)


def _check_responses(request_body: dict[str, Any], report: Report) -> None:
    check_model(request_body, report)
    check_fields(request_body, responses_rules.FIELDS, report)
    responses_rules.check(request_body, report)


def _check_messages(request_body: dict[str, Any], report: Report) -> None:
    messages_rules.check_model(request_body, report)
    messages_rules.check(request_body, report)


def _check_by_gateway(body: bytes, dialect: Dialect, findings: Findings) -> None:
    """Report the error that the gateway itself returns to a client.

    Only in the responses dialect it is certain that servers refuse the body too: the gateway implements its
    specification."""
    try:
        READERS[dialect](body)
    except ClientFault as error:
        path = error.param or ""
        if not any(paths_overlap(path, finding.path) for finding in findings.items if finding.certain):
            problem = error.message.removeprefix(f"{path}: ")
            findings.keep(RULES_BY_ERROR_CODE.get(error.code, "value"), path, problem, certain=dialect == "responses")


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
RULES_BY_ERROR_CODE: Final[dict[str, Rule]] = {"missing_field": "missing_field", "orphan_tool_output": "orphan_result"}
MESSAGES_ONLY_FIELDS: Final = frozenset({"system", "stop_sequences", "thinking", "output_config"})
MESSAGES_BLOCK_TYPES: Final = (b'"tool_use"', b'"tool_result"', b'"thinking"')
