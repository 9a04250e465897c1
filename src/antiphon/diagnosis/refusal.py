"""What a server disliked, from its own words and from what it was sent: where it points to, what stands there, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from antiphon.diagnosis.finding import MISSING, Finding, Rule, is_near, resolved, shown
from antiphon.diagnosis.lint import certain, object_in
from antiphon.diagnosis.settings import useful
from antiphon.diagnosis.traits import traits_of
from antiphon.dialects.common.upstream_errors import MAX_MATCHED, MAX_NAME
from antiphon.profiles import Dialect, Profile
from antiphon.protocol.nesting import decode_json

MOST: Final = 12  # findings
LONGEST: Final = 400  # characters of a sentence
MOST_PLACES: Final = 50
MOST_WORDS: Final = 50  # sentences, of which a refusal has one or one for each place


class Told(Struct, frozen=True):
    """What a refusal says: places in the body, as it spells them, and words."""

    places: list[str]
    words: str


def diagnose(dialect: Dialect, body: bytes, status: int, error_text: str, profile: Profile | None = None) -> list[Finding]:
    """Why a server refused a body, the likeliest reason first; nothing for what is no refusal of a body."""
    read = object_in(body) if status in (400, 422) else None
    if read is None:
        return []
    told = told_in(error_text)
    linted = certain(read, body, dialect)
    wrong = [finding for finding in linted if finding.certain]
    traits = traits_of(read, dialect)
    places = [resolved(place, read) for place in told.places]
    rule: Rule = next((rule for rule, pattern in MEANINGS if pattern.search(told.words)), "value")
    near = [finding for finding in linted if any(is_near(finding.path, path) for path, _ in places)]
    near = near or [finding for finding in wrong if finding.rule == rule != "value"]
    meant = [
        trait.finding
        for trait in traits
        if any(trait.finding.path == path or is_near(trait.finding.path, path) for path, _ in places)
        or trait.kind.words.search(told.words)
    ]
    found = near if near else meant
    if not near:
        found = [*found, *_pointed_at(places, rule, found)]
    found = [*found, *wrong] if found else [*wrong, *linted, *(trait.finding for trait in traits)]
    return useful(list(dict.fromkeys(found))[:MOST], dialect, profile)


def sentence(findings: list[Finding]) -> str:
    """The first thing that says more than the server did, for an error; empty if nothing does."""
    for finding in findings:
        if finding.settings or (finding.certain and not finding.problem.startswith(POINTING)):
            text = f"Diagnosis: {finding}."
            return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return ""


def told_in(error_text: str) -> Told:
    """An error in whatever form: an object with a message and a param, FastAPI's list of details, or a line of text."""
    try:
        read = decode_json(error_text)
    except ValueError:
        read = error_text
    places: list[str] = []
    words: list[str] = []
    for name, value in _members(read, ""):
        if len(places) >= MOST_PLACES or len(words) >= MOST_WORDS:
            break
        if name in ("param", "field", "loc"):
            places.append(value[:MAX_NAME])
        elif name in ("", "message", "msg", "detail", "error", "description"):
            value = value[:MAX_MATCHED]
            words.append(value)
            places += [f"{place}.{name}" for name, place in UNKNOWN_NAME.findall(value)]
            places += [next(filter(None, place)) for place in PLACE.findall(UNKNOWN_NAME.sub("", value))]
    return Told(list(dict.fromkeys(places))[:MOST_PLACES], " ".join(words)[:MAX_MATCHED])


def _members(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The strings in an error, each with the name of its member; a path that is a list comes as one string."""
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


def _pointed_at(places: list[tuple[str, Any]], rule: Rule, found: list[Finding]) -> list[Finding]:
    """Where the server points and no rule of ours does, what stands there."""
    pointed = [(path, value) for path, value in places if not any(is_near(path, finding.path) for finding in found)]
    return [
        Finding(rule=rule, path=path, problem=f"{POINTING}, where {'nothing' if value is MISSING else shown(value)} stands")
        for path, value in pointed
    ]


POINTING: Final = "the server points to it"
DEEPEST: Final = 8
# `messages.0.content: …`, `'contents[0].parts'`, `"input[1].id"`, `GenerateContentRequest.tools[0].x: …`, `Unknown name "x"`.
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
        r"unknown (?:name|field|parameter|argument)|unrecognized|extra (?:inputs|fields)|cannot find field|additional propert",
    ),
    ("discriminator", r"input tag|discriminator|expected tags|known type|union_tag|unknown type"),
    ("orphan_result", r"tool_call_id|tool_use_id|no tool call|function response|tool_result.{0,40}without|preceding message"),
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
