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
from antiphon.profiles import Dialect, Profile
from antiphon.protocol.nesting import decode_json
from antiphon.redaction import MAX_NAME_LENGTH, MAX_SEARCHED_LENGTH
from antiphon.rules import Rule
from antiphon.rules.report import as_json

MAX_FINDINGS: Final = 12  # findings
MAX_SENTENCE_LENGTH: Final = 400  # characters of a sentence
MAX_PLACES: Final = 50
MAX_MESSAGES: Final = 50  # sentences, of which a refusal has one or one for each place


class RefusalText(Struct, frozen=True):
    """A parsed refusal: paths in the body as the server spells them, and the error messages."""

    places: list[str]
    words: str


def diagnose(
    dialect: Dialect, body: bytes, status: int, error_text: str, profile: Profile | None = None
) -> list[Finding]:
    """Return the reasons why a server refused a body, the likeliest first; empty if the status is not 400 or 422."""
    request_body = decode_object(body) if status in (400, 422) else None
    if request_body is None:
        return []
    refusal = parse_refusal(error_text)
    linted = lint_dialect_rules(request_body, body, dialect)
    wrong = [finding for finding in linted if finding.certain]
    traits = find_traits(request_body, dialect)
    places = [resolve_server_path(place, request_body) for place in refusal.places]
    rule: Rule = next((rule for rule, pattern in MEANINGS if pattern.search(refusal.words)), "value")
    near = [finding for finding in linted if any(paths_overlap(finding.path, path) for path, _ in places)]
    near = near or [finding for finding in wrong if finding.rule == rule != "value"]
    meant = [
        trait.finding
        for trait in traits
        if any(trait.finding.path == path or paths_overlap(trait.finding.path, path) for path, _ in places)
        or trait.kind.words.search(refusal.words)
    ]
    findings = near if near else meant
    if not near:
        findings = [*findings, *_findings_for_places(places, rule, findings)]
    findings = [*findings, *wrong] if findings else [*wrong, *linted, *(trait.finding for trait in traits)]
    return keep_useful_settings(list(dict.fromkeys(findings))[:MAX_FINDINGS], dialect, profile)


def summary_sentence(findings: list[Finding]) -> str:
    """Return the first finding that adds to the server's own error, as a sentence; empty if none does."""
    for finding in findings:
        if finding.settings or (finding.certain and not finding.problem.startswith(POINTED_AT)):
            text = f"Diagnosis: {finding}."
            return text if len(text) <= MAX_SENTENCE_LENGTH else f"{text[:MAX_SENTENCE_LENGTH]}…"
    return ""


def parse_refusal(error_text: str) -> RefusalText:
    """Parse an error of any form: an object with a message and a param, FastAPI's list of details, or plain text."""
    try:
        error = decode_json(error_text)
    except ValueError:
        error = error_text
    places: list[str] = []
    words: list[str] = []
    for name, value in _members(error, ""):
        if len(places) >= MAX_PLACES or len(words) >= MAX_MESSAGES:
            break
        if name in ("param", "field", "loc"):
            places.append(value[:MAX_NAME_LENGTH])
        elif name in ("", "message", "msg", "detail", "error", "description"):
            value = value[:MAX_SEARCHED_LENGTH]
            words.append(value)
            places += [f"{place}.{name}" for name, place in UNKNOWN_NAME.findall(value)]
            places += [next(filter(None, place)) for place in PLACE.findall(UNKNOWN_NAME.sub("", value))]
    return RefusalText(list(dict.fromkeys(places))[:MAX_PLACES], " ".join(words)[:MAX_SEARCHED_LENGTH])


def _members(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the strings in an error, each with the name of its member. A path that is a list becomes one string."""
    if depth > DEEPEST:
        return
    match value:
        case str() if value:
            yield name, value
        case list() if name == "loc":
            yield name, ".".join(map(str, value))
        case list():
            for member in value:
                yield from _members(member, name, depth + 1)
        case dict():
            for inner, member in value.items():
                yield from _members(member, inner, depth + 1)


def _findings_for_places(places: list[tuple[str, Any]], rule: Rule, findings: list[Finding]) -> list[Finding]:
    """Return one finding for each path that the server names and no other finding covers."""
    pointed = [
        (path, value) for path, value in places if not any(paths_overlap(path, finding.path) for finding in findings)
    ]
    return [
        Finding(
            rule=rule,
            path=path,
            problem=f"{POINTED_AT}, where {'nothing' if value is MISSING else as_json(value)} stands",
        )
        for path, value in pointed
    ]


POINTED_AT: Final = "the server points to it"
DEEPEST: Final = 8
# `messages.0.content: …`, `'contents[0].parts'`, `"input[1].id"`, `GenerateContentRequest.tools[0].x: …`,
# `Unknown name "x"`.
PLACE: Final = re.compile(
    r"^([a-z_]++(?:\.[\w$-]++)*+):\s"
    r"|[`'\"]([a-z_]\w*+(?:\[\d++\]|\.\w++)++)[`'\"]"
    r"|(?<![\w.\[\]])GenerateContentRequest\.([\w.\[\]]++):"
    r"|\b((?:input|messages|contents|tools)(?:\[\d++\]|\.\d++)(?:\[[\w$]++\]|\.[\w$]++)*+)"
    r"|(?:Unknown name|parameter|argument|field|property):? [`'\"](\w++)[`'\"]"
    r"|(?:unrecognized request argument|Missing required parameter)[a-z ]{0,40}: '?([\w.\[\]]++)",
    re.MULTILINE,
)
UNKNOWN_NAME: Final = re.compile(r"Unknown name \"(\w+)\" at '([^']+)'")
WORDS: Final[tuple[tuple[Rule, str], ...]] = (
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
MEANINGS: Final = tuple((rule, re.compile(pattern, re.IGNORECASE)) for rule, pattern in WORDS)
