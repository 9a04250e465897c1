"""Check a request body without a server: violations of its dialect, and parts that only some servers accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.diagnosis.chat import lint_chat
from antiphon.diagnosis.finding import Finding, Findings, Rule, as_json, paths_overlap
from antiphon.diagnosis.gemini import lint_gemini
from antiphon.diagnosis.messages import lint_messages
from antiphon.diagnosis.responses import lint_responses
from antiphon.diagnosis.settings import keep_useful_settings
from antiphon.diagnosis.tools import lint_tools
from antiphon.diagnosis.traits import find_traits
from antiphon.dialects import chat, gemini, messages, responses
from antiphon.dialects.chat.wire import RequestIn as ChatRequest
from antiphon.dialects.messages.request_in import RequestIn as MessagesRequest
from antiphon.errors import ClientFault
from antiphon.profiles import Dialect, Profile
from antiphon.profiles.suggestions import did_you_mean
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request


def lint_body(body: bytes, dialect: Dialect, profile: Profile | None = None) -> list[Finding]:
    """Return all findings for a body: first what every server refuses, then what some servers refuse. `profile` is the
    profile that the body was written for: settings that it already has are not suggested."""
    request_body = decode_object(body)
    if request_body is None:
        return [Finding(rule="value", path="", problem="the body is not a JSON object")]
    findings = lint_dialect_rules(request_body, body, dialect)
    findings += [
        trait.finding
        for trait in find_traits(request_body, dialect)
        if not any(paths_overlap(trait.finding.path, f.path) for f in findings)
    ]
    wrong = [finding for finding in findings if finding.certain]
    return keep_useful_settings([*wrong, *(finding for finding in findings if not finding.certain)], dialect, profile)


def lint_dialect_rules(request_body: dict[str, Any], body: bytes, dialect: Dialect) -> Findings:
    """Return the violations of the rules of a dialect in a body."""
    findings = Findings()
    if dialect != "gemini" and not (isinstance(request_body.get("model"), str) and request_body["model"]):
        findings.add("missing_field", "model", "a request names its model")
    _lint_fields(request_body, dialect, findings)
    LINTS[dialect](request_body, findings)
    lint_tools(request_body, dialect, findings)
    _lint_ranges(request_body, dialect, findings)
    _lint_values(body, dialect, findings)
    return findings


def decode_object(body: bytes) -> dict[str, Any] | None:
    try:
        return decode_json(body, type=dict[str, Any])
    except ValueError:
        return None


def guess_dialect(request_body: dict[str, Any]) -> Dialect:
    """Return the dialect that a body is probably written in."""
    if "contents" in request_body:
        return "gemini"
    if "messages" not in request_body:
        return "responses"
    tools = request_body.get("tools")
    marks = (
        request_body.keys() & MESSAGES_ALONE
        or any(isinstance(tool, dict) and "input_schema" in tool for tool in (tools if isinstance(tools, list) else ()))
        or any(mark in msgspec.json.encode(request_body["messages"]) for mark in MESSAGES_BLOCKS)
    )
    return "messages" if marks else "chat"


def _lint_fields(request_body: dict[str, Any], dialect: Dialect, findings: Findings) -> None:
    field_names = FIELDS.get(dialect, frozenset())
    for name in request_body:
        if field_names and name not in field_names:
            problem = f"the dialect has no such field{did_you_mean(name, field_names)}; strict servers refuse it"
            findings.add("unknown_field", name, problem, certain=dialect == "messages")


def _lint_ranges(request_body: dict[str, Any], dialect: Dialect, findings: Findings) -> None:
    settings = request_body.get("generationConfig", {}) if dialect == "gemini" else request_body
    for name, (least, most) in RANGES[dialect].items():
        value = settings.get(name) if isinstance(settings, dict) else None
        if isinstance(value, int | float) and not least <= value <= most:
            path = f"generationConfig.{name}" if dialect == "gemini" else name
            findings.add("value", path, f"{as_json(value)} is not between {least} and {most}")


def _lint_values(body: bytes, dialect: Dialect, findings: Findings) -> None:
    """Report the error with which the gateway itself would refuse the body."""
    try:
        READERS[dialect](body)
    except ClientFault as error:
        path = error.param or ""
        if not any(paths_overlap(path, finding.path) for finding in findings if finding.certain):
            findings.add(RULES.get(error.code, "value"), path, error.message.removeprefix(f"{path}: "))


def _names(shape: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(shape)) - {"antiphon:raw_fields"}


LINTS: Final[dict[Dialect, Callable[[dict[str, Any], Findings], None]]] = {
    "chat": lint_chat,
    "responses": lint_responses,
    "messages": lint_messages,
    "gemini": lint_gemini,
}
READERS: Final[dict[Dialect, Callable[[bytes], Any]]] = {
    "chat": chat.request_to_hub,
    "responses": responses.request_to_hub,
    "messages": messages.request_to_hub,
    "gemini": gemini.request_to_hub,
}
RULES: Final[dict[str, Rule]] = {"missing_field": "missing_field", "orphan_tool_output": "orphan_result"}
# Gemini is absent: its reader reports unknown fields.
FIELDS: Final[dict[Dialect, frozenset[str]]] = {
    "chat": _names(ChatRequest)
    | {"stop", "seed", "logit_bias", "modalities", "audio", "prediction", "top_k", "web_search_options"},
    "responses": _names(Request) | {"prompt", "moderation"},
    "messages": _names(MessagesRequest)
    | {"cache_control", "container", "inference_geo", "speed", "mcp_servers", "diagnostics"},
}
RANGES: Final[dict[Dialect, dict[str, tuple[int, int]]]] = {
    "chat": {
        "temperature": (0, 2),
        "top_p": (0, 1),
        "presence_penalty": (-2, 2),
        "frequency_penalty": (-2, 2),
        "n": (1, 128),
    },
    "responses": {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)},
    "messages": {"temperature": (0, 1), "top_p": (0, 1), "max_tokens": (1, 2**31)},
    "gemini": {"temperature": (0, 2), "topP": (0, 1), "candidateCount": (1, 8)},
}
MESSAGES_ALONE: Final = frozenset({"system", "stop_sequences", "thinking", "output_config"})
MESSAGES_BLOCKS: Final = (b'"tool_use"', b'"tool_result"', b'"thinking"')
