"""Findings about a body, their collector, and paths in a body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec import Struct

from antiphon.rules import Report, Rule, Violation
from antiphon.rules.gemini.shapes import to_camel_case, to_snake_case

T = TypeVar("T")


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that a server refuses or may refuse."""

    rule: Rule
    #: Such as `input[2].content[0].type`; empty for the whole body.
    path: str
    #: The value, and what is expected there.
    problem: str
    #: Whether every server of the dialect should refuse it. If not, only some servers do.
    certain: bool = True
    #: The profile settings with which the gateway avoids it: `quirks: name`, or `wire.name = value`.
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        sure = "would" if self.certain else "may"
        mend = f"; a profile with {' or '.join(self.settings)} {sure} mend it" if self.settings else ""
        return f"{self.path or 'the body'}: {self.problem}{mend}"


class Findings(Report):
    """Collects the violations of one body, up to a bound. A check that exceeds its bounds ends with `BoundsExceeded`.

    The gateway diagnoses a body on its event loop, so the number of findings, of values and of schemas is bounded.
    """

    def __init__(self, body: Mapping[str, Any], *, spelled_by_server: bool) -> None:
        self.items: list[Finding] = []
        self._body = body
        self._spelled_by_server = spelled_by_server
        self._values_left = MAX_VALUES
        self._schemas_left = MOST_SCHEMAS

    def receive(self, violation: Violation) -> None:
        self.keep(violation.rule, violation.path, violation.problem, *violation.settings, certain=violation.certain)

    def suspect(self, rule: Rule, path: str, problem: str, *, settings: tuple[str, ...] = ()) -> None:
        self.keep(rule, path, problem, *settings, certain=False)

    def walk(self, values: Iterable[T]) -> Iterator[T]:
        for value in values:
            self._values_left -= 1
            if self._values_left < 0:
                raise BoundsExceeded
            yield value

    def may_check_schema(self, path: str) -> bool:
        self._schemas_left -= 1
        return self._schemas_left >= 0 and len(path) < MAX_PATH

    def keep(self, rule: Rule, path: str, problem: str, *settings: str, certain: bool = True) -> None:
        place = resolve_server_path(path, self._body)[0] if self._spelled_by_server else path
        finding = Finding(rule=rule, path=place, problem=problem, settings=settings, certain=certain)
        if finding not in self.items[-1:]:
            self.items.append(finding)
        if len(self.items) == MOST_FINDINGS:
            raise BoundsExceeded


class BoundsExceeded(Exception):
    """A body has more findings or values than are checked."""


def paths_overlap(one: str, other: str) -> bool:
    """Return whether the paths are equal, or one leads through the other."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}[")) if short else False


def resolve_server_path(place: str, body: Mapping[str, Any]) -> tuple[str, Any]:
    """Resolve a path as a server spells it: `messages.0.content.1.text.detail`, `body -> input -> 0`,
    `contents[0].inline_data`. Return the path in this body and its value, `MISSING` if there is none."""
    here: Any = body
    path = ""
    steps = _steps(place)
    for at, step in enumerate(steps):
        following = steps[at + 1] if at + 1 < len(steps) else None
        name = _member(here, step, following)
        if isinstance(here, list) and _is_index(step, here):
            here, path = here[int(step)], f"{path}[{step}]"
        elif name is not None:
            here, path = here[name], f"{path}.{name}" if path else name
        elif isinstance(here, dict) and step == "0":
            path = f"{path}[0]"  # gemini servers take a single value for a list of one
        elif not (isinstance(here, dict) and following is not None and step in (here.get("type"), *BETWEEN)):
            # Servers put the type of a value between two steps; these steps are not in the body.
            path = f"{path}[{step}]" if step.isdecimal() else f"{path}.{step}" if path else step
            here = MISSING
    return path, here


def _member(here: Any, step: str, following: str | None) -> str | None:
    """Return the name of the member that a step means: in either spelling, or `[number].value`."""
    if not isinstance(here, dict):
        return None
    if following == "value" and _is_index(step, here) and step not in here:
        return str(next(islice(here, int(step), None)))
    name = next((name for name in (step, to_camel_case(step), to_snake_case(step)) if name in here), None)
    return name if name is None or following is None or isinstance(here[name], dict | list) else None


def _is_index(step: str, members: Sized) -> bool:
    return step.isdecimal() and len(step) < MAX_DIGITS and int(step) < len(members)


def _steps(place: str) -> list[str]:
    steps = [bracketed or plain for bracketed, plain in STEP.findall(place.replace(" -> ", ".").replace("/", "."))]
    return steps[1:] if steps[:1] in (["body"], ["GenerateContentRequest"]) else steps


class _Missing:
    """Nothing, which is not null."""


MISSING: Final = _Missing()
MOST_FINDINGS: Final = 500
MOST_SCHEMAS: Final = 2000
MAX_VALUES: Final = 20_000  # messages, parts, calls and tools
MAX_DIGITS: Final = 10  # of an index
MAX_PATH: Final = 1000  # characters: names may have any length
STEP: Final = re.compile(r"\[['\"]?+([^\[\]'\"]*+)['\"]?+\]|([^.\[\]]++)")
BETWEEN: Final = ("custom", "function", "base64", "url", "enabled", "value")
