"""The finding type, and the resolution of paths in a request body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

Rule = Literal[
    "discriminator",
    "content_type",
    "tool_form",
    "missing_field",
    "unknown_field",
    "orphan_result",
    "unanswered_call",
    "long_id",
    "role",
    "order",
    "schema",
    "name",
    "value",
    "combination",
    "media",
    "reasoning",
    "unsupported",
]


class Finding(Struct, frozen=True, kw_only=True):
    """One part of a request body that a server may refuse."""

    rule: Rule
    #: For example `input[2].content[0].type`; empty for the body as a whole.
    path: str
    #: The value at the path, and what is allowed there.
    problem: str
    #: True if every server of the dialect should refuse it; False if only some servers do.
    certain: bool = True
    #: Profile settings with which the gateway corrects it: `quirks: name`, or `wire.name = value`.
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        sure = "would" if self.certain else "may"
        mend = f"; a profile with {' or '.join(self.settings)} {sure} mend it" if self.settings else ""
        return f"{self.path or 'the body'}: {self.problem}{mend}"


class Findings(list[Finding]):
    """The findings for one body, in the order of the checks."""

    def add(self, rule: Rule, path: str, problem: str, *settings: str, certain: bool = True) -> None:
        self.append(Finding(rule=rule, path=path, problem=problem, settings=settings, certain=certain))


def iter_objects(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the members of a list that are objects, each with its path. Yield nothing if `value` is not a list."""
    for at, member in enumerate(value if isinstance(value, list) else ()):
        if isinstance(member, dict):
            yield f"{path}[{at}]", member


def as_json(value: Any) -> str:
    """Encode a value as JSON, cut to `MAX_EXCERPT` characters."""
    try:
        text = msgspec.json.encode(value).decode()
    except ValueError:  # a lone surrogate, or nesting that is too deep
        return "something"
    return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}…"


def paths_overlap(one: str, other: str) -> bool:
    """Whether the paths are equal, or one is a prefix of the other."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}[")) if short else False


def resolve_server_path(place: str, body: Mapping[str, Any]) -> tuple[str, Any]:
    """Convert a path as a server spells it (`messages.0.content.1.text.detail`, `body -> input -> 0`,
    `contents[0].inline_data`) to a path in this body. Return the path and its value, or `MISSING`."""
    here: Any = body
    path = ""
    steps = _steps(place)
    for at, step in enumerate(steps):
        if isinstance(here, list) and step.isdecimal() and int(step) < len(here):
            here, path = here[int(step)], f"{path}[{step}]"
            continue
        name = _member(here, step, is_last=at == len(steps) - 1)
        if name is not None:
            here, path = here[name], f"{path}.{name}" if path else name
        elif not (isinstance(here, dict) and step in (here.get("type"), *TYPE_STEPS)):
            # Servers put the type of a value between two steps; such a step is skipped.
            path = f"{path}[{step}]" if step.isdecimal() else f"{path}.{step}" if path else step
            here = MISSING
    return path, here


def to_camel_case(name: str) -> str:
    """Convert `inline_data` to `inlineData`."""
    return UNDERSCORE.sub(lambda match: match[1].upper(), name)


def _member(here: Any, step: str, *, is_last: bool) -> str | None:
    """Return the name of the member that a step means: in snake case, in camel case, or by position."""
    if not isinstance(here, dict):
        return None
    if step.isdecimal() and int(step) < len(here) and step not in here:
        return str(list(here)[int(step)])
    spelled = next((name for name in (step, to_camel_case(step)) if name in here), None)
    return spelled if spelled is None or is_last or isinstance(here[spelled], dict | list) else None


def _steps(place: str) -> list[str]:
    steps = [bracketed or plain for bracketed, plain in STEP.findall(place.replace(" -> ", ".").replace("/", "."))]
    return steps[1:] if steps[:1] in (["body"], ["GenerateContentRequest"]) else steps


class _Missing:
    """Marks a path without a value; null is a value."""


MISSING: Final = _Missing()
MAX_EXCERPT: Final = 80
UNDERSCORE: Final = re.compile(r"_([a-z0-9])")
STEP: Final = re.compile(r"\[['\"]?+([^\[\]'\"]*+)['\"]?+\]|([^.\[\]]++)")
TYPE_STEPS: Final = ("custom", "function", "base64", "url", "enabled", "value")
