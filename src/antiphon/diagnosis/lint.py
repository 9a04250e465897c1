"""A body by itself: what is against its dialect whoever serves it, and what stands in it that only some servers take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.diagnosis.finding import BoundsExceeded, Finding, Findings, paths_overlap
from antiphon.diagnosis.gemini import lint_gemini
from antiphon.diagnosis.settings import keep_useful_settings
from antiphon.diagnosis.tools import lint_tools
from antiphon.diagnosis.traits import find_traits
from antiphon.dialects import chat, gemini, messages, responses
from antiphon.dialects.chat.wire import RequestIn as ChatRequest
from antiphon.dialects.messages.request_in import RequestIn as MessagesRequest
from antiphon.errors import ClientFault
from antiphon.profiles import Dialect, Profile
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request
from antiphon.protocol.suggestions import did_you_mean
from antiphon.rules import Report, Rule
from antiphon.rules import chat as chat_rules
from antiphon.rules import messages as messages_rules
from antiphon.rules import responses as responses_rules
from antiphon.rules.report import as_json
from antiphon.rules.settings import check_fields, check_model


def lint_body(body: bytes, dialect: Dialect, profile: Profile | None = None) -> list[Finding]:
    """Findings that need no server: first definite faults, then fields that some servers refuse. `profile` is what the body was
    written for: a setting that it has is not offered."""
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
    """What the rules of a dialect find in a body."""
    findings = Findings(read, spelled_by_server=dialect == "messages")
    with suppress(BoundsExceeded):
        if dialect in CHECKS:
            CHECKS[dialect](read, findings)
        else:
            _lint(read, dialect, findings)
        _lint_values(body, dialect, findings)
    return findings.found


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


def _lint(read: dict[str, Any], dialect: Dialect, findings: Findings) -> None:
    if dialect != "gemini" and not (isinstance(read.get("model"), str) and read["model"]):
        findings.keep("missing_field", "model", "a request names its model")
    _lint_fields(read, dialect, findings)
    LINTS[dialect](read, findings)
    lint_tools(read, dialect, findings)
    _lint_ranges(read, dialect, findings)


def decode_object(body: bytes) -> dict[str, Any] | None:
    try:
        return decode_json(body, type=dict[str, Any])
    except ValueError:
        return None


def guess_dialect(read: dict[str, Any]) -> Dialect:
    """The dialect that a body was probably written in."""
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


def _lint_fields(read: dict[str, Any], dialect: Dialect, findings: Findings) -> None:
    field_names = FIELDS.get(dialect, frozenset())
    unknown = (name for name in read if field_names and name not in field_names)
    for name in islice(unknown, MOST_FIELDS):
        message = f"the dialect has no such field{did_you_mean(name, field_names)}; strict servers refuse it"
        findings.keep("unknown_field", name, message, certain=dialect == "messages")


def _lint_ranges(read: dict[str, Any], dialect: Dialect, findings: Findings) -> None:
    settings = read.get("generationConfig", {}) if dialect == "gemini" else read
    for name, (least, most) in RANGES[dialect].items():
        value = settings.get(name) if isinstance(settings, dict) else None
        if isinstance(value, int | float) and not least <= value <= most:
            path = f"generationConfig.{name}" if dialect == "gemini" else name
            findings.keep("value", path, f"{as_json(value)} is not between {least} and {most}")


def _lint_values(body: bytes, dialect: Dialect, findings: Findings) -> None:
    """What the gateway itself would say of a client that sent this."""
    try:
        READERS[dialect](body)
    except ClientFault as error:
        path = error.param or ""
        if not any(paths_overlap(path, finding.path) for finding in findings.found if finding.certain):
            problem = error.message.removeprefix(f"{path}: ")
            findings.keep(RULES.get(error.code, "value"), path, problem, certain=dialect not in ("chat", "messages"))


def _names(shape: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(shape)) - {"antiphon:raw_fields"}


CHECKS: Final[dict[Dialect, Callable[[dict[str, Any], Report], None]]] = {
    "chat": _check_chat,
    "responses": _check_responses,
    "messages": _check_messages,
}
LINTS: Final[dict[Dialect, Callable[[dict[str, Any], Findings], None]]] = {
    "gemini": lint_gemini,
}
READERS: Final[dict[Dialect, Callable[[bytes], Any]]] = {
    "chat": chat.request_to_hub,
    "responses": responses.request_to_hub,
    "messages": messages.request_to_hub,
    "gemini": gemini.request_to_hub,
}
RULES: Final[dict[str, Rule]] = {"missing_field": "missing_field", "orphan_tool_output": "orphan_result"}
# Of the gemini dialect the readers know.
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
MOST_FIELDS: Final = 50  # of unknown fields: to look for the name that was meant takes long
MESSAGES_ALONE: Final = frozenset({"system", "stop_sequences", "thinking", "output_config"})
MESSAGES_BLOCKS: Final = (b'"tool_use"', b'"tool_result"', b'"thinking"')
