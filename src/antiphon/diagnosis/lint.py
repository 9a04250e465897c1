"""Check a body without a server: what violates its dialect, and what only some servers accept."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from antiphon.diagnosis.finding import BoundsExceeded, Finding, Findings, paths_overlap
from antiphon.diagnosis.settings import keep_useful_settings
from antiphon.diagnosis.traits import find_traits
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.errors import ClientFault
from antiphon.profiles import Profile
from antiphon.protocol.codec import decode_json
from antiphon.rules import Rule
from antiphon.rules.table import RULES


def lint_body(body: bytes, dialect: ServerDialectName, profile: Profile | None = None) -> list[Finding]:
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


def lint_dialect_rules(request_body: dict[str, Any], body: bytes, dialect: ServerDialectName) -> list[Finding]:
    """Return what the rules of a dialect find in a body."""
    findings = Findings(request_body, has_server_paths=RULES[dialect].has_server_paths)
    with suppress(BoundsExceeded):
        RULES[dialect].check(request_body, findings)
        _check_by_gateway(body, dialect, findings)
    return findings.items


def decode_object(body: bytes) -> dict[str, Any] | None:
    try:
        return decode_json(body, type=dict[str, Any])
    except ValueError:
        return None


def guess_dialect(request_body: dict[str, Any]) -> ServerDialectName:
    """Return the dialect in which a body is probably written."""
    if "contents" in request_body:
        return "gemini"
    if isinstance(request_body.get("prompt"), str) or request_body.keys() & OLLAMA_ONLY_FIELDS:
        return "ollama"
    if "messages" not in request_body:
        return "responses"
    tools = request_body.get("tools")
    has_messages_marks = (
        request_body.keys() & MESSAGES_ONLY_FIELDS
        or any(isinstance(tool, dict) and "input_schema" in tool for tool in (tools if isinstance(tools, list) else ()))
        or any(mark in msgspec.json.encode(request_body["messages"]) for mark in MESSAGES_BLOCK_TYPES)
    )
    return "messages" if has_messages_marks else "chat"


def _check_by_gateway(body: bytes, dialect: ServerDialectName, findings: Findings) -> None:
    """Report the error that the gateway itself returns to a client.

    Only in the hub's dialect it is certain that servers refuse the body too: the gateway implements its
    specification."""
    try:
        CLIENT_DIALECTS[dialect].request_to_hub(body)
    except ClientFault as error:
        path = error.param or ""
        if not any(paths_overlap(path, finding.path) for finding in findings.items if finding.certain):
            problem = error.message.removeprefix(f"{path}: ")
            findings.keep(
                RULES_BY_ERROR_CODE.get(error.code, "value"), path, problem, certain=SERVER_DIALECTS[dialect].is_hub
            )


RULES_BY_ERROR_CODE: Final[dict[str, Rule]] = {"missing_field": "missing_field", "orphan_tool_output": "orphan_result"}
#: `prompt` is a field of Responses too, as the object of a stored prompt.
OLLAMA_ONLY_FIELDS: Final = frozenset({"options", "keep_alive", "think"})
MESSAGES_ONLY_FIELDS: Final = frozenset({"system", "stop_sequences", "thinking", "output_config"})
MESSAGES_BLOCK_TYPES: Final = (b'"tool_use"', b'"tool_result"', b'"thinking"')
