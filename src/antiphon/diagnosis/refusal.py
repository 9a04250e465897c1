"""Explain the refusal of a server from its error text and the request body: the path, its value and the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from antiphon.diagnosis.finding import MISSING, Finding, paths_overlap, resolve_server_path
from antiphon.diagnosis.lint import decode_object, lint_dialect_rules
from antiphon.diagnosis.settings import keep_useful_settings
from antiphon.diagnosis.traits import find_traits
from antiphon.dialects.dialect import ServerDialectName
from antiphon.profiles import Profile
from antiphon.protocol.codec import decode_json
from antiphon.redaction import MAX_NAME_LENGTH, MAX_SEARCHED_LENGTH
from antiphon.rules import Rule
from antiphon.rules.report import as_json

MAX_FINDINGS: Final = 12  # findings
MAX_SENTENCE_LENGTH: Final = 400  # characters of a sentence
MAX_PATHS: Final = 50
MAX_MESSAGES: Final = 50  # sentences, of which a refusal has one or one for each place


class RefusalText(Struct, frozen=True):
    """A parsed refusal: paths in the body as the server spells them, and the error messages."""

    paths: list[str]
    text: str


def diagnose(
    dialect: ServerDialectName, body: bytes, status: int, error_text: str, profile: Profile | None = None
) -> list[Finding]:
    """Return the reasons why a server refused a body, the likeliest first; empty if the status is not 400 or 422."""
    request_body = decode_object(body) if status in (400, 422) else None
    if request_body is None:
        return []
    refusal = parse_refusal(error_text)
    rule_findings = lint_dialect_rules(request_body, body, dialect)
    certain_findings = [finding for finding in rule_findings if finding.certain]
    traits = find_traits(request_body, dialect)
    located_values = [resolve_server_path(path, request_body) for path in refusal.paths]
    rule: Rule = next((rule for rule, pattern in RULE_EXPRESSIONS if pattern.search(refusal.text)), "value")
    matching_findings = [
        finding for finding in rule_findings if any(paths_overlap(finding.path, path) for path, _ in located_values)
    ]
    matching_findings = matching_findings or [
        finding for finding in certain_findings if finding.rule == rule != "value"
    ]
    trait_findings = [
        trait.finding
        for trait in traits
        if any(trait.finding.path == path or paths_overlap(trait.finding.path, path) for path, _ in located_values)
        or trait.kind.error_pattern.search(refusal.text)
    ]
    findings = matching_findings if matching_findings else trait_findings
    if not matching_findings:
        findings = [*findings, *_findings_for_paths(located_values, rule, findings)]
    findings = (
        [*findings, *certain_findings]
        if findings
        else [*certain_findings, *rule_findings, *(trait.finding for trait in traits)]
    )
    return keep_useful_settings(list(dict.fromkeys(findings))[:MAX_FINDINGS], dialect, profile)


def named_findings(
    dialect: ServerDialectName, body: bytes, status: int, error_text: str, profile: Profile | None = None
) -> list[Finding]:
    """Return the findings about what the server named, for the client's error; `diagnose` also has suspects.

    A finding is named by its path. Only if the server names no path, the kind of its refusal decides.
    """
    request_body = decode_object(body) if status in (400, 422) else None
    if request_body is None:
        return []
    refusal = parse_refusal(error_text)
    paths = [path for path, _ in (resolve_server_path(path, request_body) for path in refusal.paths)]
    exact_paths = [path for path in paths if not isinstance(request_body.get(path), list)]
    rule = next((rule for rule, pattern in RULE_EXPRESSIONS if pattern.search(refusal.text)), "value")
    findings = [
        finding
        for finding in lint_dialect_rules(request_body, body, dialect)
        if (
            _is_named(finding, exact_paths)
            if exact_paths
            else finding.rule == rule != "value" and (finding.certain or _names_member(refusal.text, finding.path))
        )
    ]
    findings += [
        trait.finding
        for trait in find_traits(request_body, dialect)
        if (_is_named(trait.finding, exact_paths) if exact_paths else trait.kind.names_refusal(refusal.text))
    ]
    return keep_useful_settings(list(dict.fromkeys(findings))[:MAX_FINDINGS], dialect, profile)


def _is_named(finding: Finding, paths: list[str]) -> bool:
    return any(paths_overlap(finding.path, path) for path in paths)


def _names_member(text: str, path: str) -> bool:
    """Whether a text has the name of the member at the end of a path."""
    name = path.rpartition(".")[2].partition("[")[0]
    return name in WORD.findall(text)


def summary_sentence(findings: list[Finding]) -> str:
    """Return the first finding that adds to the server's own error, as a sentence; empty if none does."""
    for finding in findings:
        if finding.settings or (finding.certain and not finding.problem.startswith(SERVER_POINTS_TO)):
            text = f"Diagnosis: {finding}."
            return text if len(text) <= MAX_SENTENCE_LENGTH else f"{text[:MAX_SENTENCE_LENGTH]}…"
    return ""


def parse_refusal(error_text: str) -> RefusalText:
    """Parse an error of any form: an object with a message and a param, FastAPI's list of details, or plain text."""
    try:
        error = decode_json(error_text)
    except ValueError:
        error = error_text
    paths: list[str] = []
    messages: list[str] = []
    for name, value in _error_strings(error, ""):
        if len(paths) >= MAX_PATHS or len(messages) >= MAX_MESSAGES:
            break
        if name in ("param", "field", "loc"):
            paths.append(value[:MAX_NAME_LENGTH])
        elif name in ("", "message", "msg", "detail", "error", "description"):
            value = value[:MAX_SEARCHED_LENGTH]
            messages.append(value)
            paths += [f"{path}.{name}" for name, path in UNKNOWN_NAME.findall(value)]
            paths += [next(filter(None, path)) for path in SERVER_PATH.findall(UNKNOWN_NAME.sub("", value))]
    return RefusalText(list(dict.fromkeys(paths))[:MAX_PATHS], " ".join(messages)[:MAX_SEARCHED_LENGTH])


def _error_strings(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the strings in an error, each with the name of its member. A path that is a list becomes one string."""
    if depth > MAX_DEPTH:
        return
    match value:
        case str() if value:
            yield name, value
        case list() if name == "loc":
            yield name, ".".join(map(str, value))
        case list():
            for member in value:
                yield from _error_strings(member, name, depth + 1)
        case dict():
            for member_name, member in value.items():
                yield from _error_strings(member, member_name, depth + 1)


def _findings_for_paths(located_values: list[tuple[str, Any]], rule: Rule, findings: list[Finding]) -> list[Finding]:
    """Return one finding for each path that the server names and no other finding covers."""
    uncovered = [
        (path, value)
        for path, value in located_values
        if not any(paths_overlap(path, finding.path) for finding in findings)
    ]
    return [
        Finding(
            rule=rule,
            path=path,
            problem=f"{SERVER_POINTS_TO}, where {'nothing' if value is MISSING else as_json(value)} stands",
        )
        for path, value in uncovered
    ]


WORD: Final = re.compile(r"\w+")
SERVER_POINTS_TO: Final = "the server points to it"
MAX_DEPTH: Final = 8
# `messages.0.content: …`, `'contents[0].parts'`, `"input[1].id"`, `GenerateContentRequest.tools[0].x: …`,
# `Unknown name "x"`. Servers written in Go begin an error with the name of the package that decodes.
SERVER_PATH: Final = re.compile(
    r"^(?!json:|time:)([a-z_]++(?:\.[\w$-]++)*+):\s"
    r"|[`'\"]([a-z_]\w*+(?:\[\d++\]|\.\w++)++)[`'\"]"
    r"|(?<![\w.\[\]])GenerateContentRequest\.([\w.\[\]]++):"
    r"|\b((?:input|messages|contents|tools)(?:\[\d++\]|\.\d++)(?:\[[\w$]++\]|\.[\w$]++)*+)"
    r"|(?:Unknown name|parameter|argument|field|property):? [`'\"](\w++)[`'\"]"
    r"|(?:unrecognized request argument|Missing required parameter)[a-z ]{0,40}: '?([\w.\[\]]++)",
    re.MULTILINE,
)
UNKNOWN_NAME: Final = re.compile(r"Unknown name \"(\w+)\" at '([^']+)'")
RULE_PATTERNS: Final[tuple[tuple[Rule, str], ...]] = (
    ("long_id", r"too long|maximum length|at most \d+ characters|max_length|above_max_length"),
    (
        "unknown_field",
        r"unknown (?:name|field|parameter|argument)|unrecognized|extra (?:inputs|fields)|cannot find field"
        r"|additional propert",
    ),
    ("discriminator", r"input tag|discriminator|expected tags|known type|union_tag|unknown type"),
    (
        "orphan_result",
        r"tool_call_id|tool_use_id|no tool call|function response|tool_result.{0,40}without|preceding message",
    ),
    ("unanswered_call", r"no tool (?:output|message)|without `?tool_result|function call turn"),
    ("role", r"\broles?\b"),
    ("schema", r"schema"),
    ("reasoning", r"thinking|reasoning|signature|encrypted"),
    ("media", r"\b(?:image|audio|video|file|media|base64|mime)"),
    ("missing_field", r"missing|required|must be specified|must provide"),
    ("name", r"pattern|\bname\b"),
    ("combination", r"only allowed|cannot both|together|may only be|must be (?:unset|greater)|only one of"),
    ("unsupported", r"unsupported|not supported|does not support"),
)
RULE_EXPRESSIONS: Final = tuple((rule, re.compile(pattern, re.IGNORECASE)) for rule, pattern in RULE_PATTERNS)
