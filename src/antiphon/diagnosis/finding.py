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
        verb = "would" if self.certain else "may"
        advice = f"; a profile with {' or '.join(self.settings)} {verb} correct it" if self.settings else ""
        return f"{self.path or 'the body'}: {self.problem}{advice}"


class Findings(Report):
    """Collects the violations of one body, up to a bound. A check that exceeds its bounds ends with `BoundsExceeded`.

    The gateway diagnoses a body on its event loop, so the number of findings, of values and of schemas is bounded.
    """

    def __init__(self, body: Mapping[str, Any], *, has_server_paths: bool) -> None:
        self.items: list[Finding] = []
        self._body = body
        self._has_server_paths = has_server_paths
        self._remaining_values = MAX_VALUES
        self._remaining_schemas = MAX_SCHEMAS

    def receive(self, violation: Violation) -> None:
        self.keep(violation.rule, violation.path, violation.problem, *violation.settings, certain=violation.is_certain)

    def suspect(self, rule: Rule, path: str, problem: str, *, settings: tuple[str, ...] = ()) -> None:
        self.keep(rule, path, problem, *settings, certain=False)

    def walk(self, values: Iterable[T]) -> Iterator[T]:
        for value in values:
            self._remaining_values -= 1
            if self._remaining_values < 0:
                raise BoundsExceeded
            yield value

    def may_check_schema(self, path: str) -> bool:
        self._remaining_schemas -= 1
        return self._remaining_schemas >= 0 and len(path) < MAX_PATH_LENGTH

    def keep(self, rule: Rule, path: str, problem: str, *settings: str, certain: bool = True) -> None:
        body_path = resolve_server_path(path, self._body)[0] if self._has_server_paths else path
        finding = Finding(rule=rule, path=body_path, problem=problem, settings=settings, certain=certain)
        if finding not in self.items[-1:]:
            self.items.append(finding)
        if len(self.items) == MAX_COLLECTED_FINDINGS:
            raise BoundsExceeded


class BoundsExceeded(Exception):
    """A body has more findings or values than are checked."""


def paths_overlap(left: str, right: str) -> bool:
    """Return whether the paths are equal, or one leads through the other."""
    short, long = sorted((left, right), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}[")) if short else False


def resolve_server_path(server_path: str, body: Mapping[str, Any]) -> tuple[str, Any]:
    """Resolve a path as a server spells it: `messages.0.content.1.text.detail`, `body -> input -> 0`,
    `contents[0].inline_data`. Return the path in this body and its value, `MISSING` if there is none."""
    value: Any = body
    path = ""
    steps = _split_path(server_path)
    for index, step in enumerate(steps):
        next_step = steps[index + 1] if index + 1 < len(steps) else None
        name = _member_name(value, step, next_step)
        if isinstance(value, list) and _is_index(step, value):
            value, path = value[int(step)], f"{path}[{step}]"
        elif name is not None:
            value, path = value[name], f"{path}.{name}" if path else name
        elif isinstance(value, dict) and step == "0":
            path = f"{path}[0]"  # gemini servers take a single value for a list of one
        elif not (isinstance(value, dict) and next_step is not None and step in (value.get("type"), *TYPE_STEPS)):
            # Servers put the type of a value between two steps; these steps are not in the body.
            path = f"{path}[{step}]" if step.isdecimal() else f"{path}.{step}" if path else step
            value = MISSING
    return path, value


def _member_name(value: Any, step: str, next_step: str | None) -> str | None:
    """Return the name of the member that a step means: in either spelling, or `[number].value`."""
    if not isinstance(value, dict):
        return None
    if next_step == "value" and _is_index(step, value) and step not in value:
        return str(next(islice(value, int(step), None)))
    name = next((name for name in (step, to_camel_case(step), to_snake_case(step)) if name in value), None)
    return name if name is None or next_step is None or isinstance(value[name], dict | list) else None


def _is_index(step: str, members: Sized) -> bool:
    return step.isdecimal() and len(step) < MAX_INDEX_DIGITS and int(step) < len(members)


def _split_path(server_path: str) -> list[str]:
    steps = [
        bracketed or plain for bracketed, plain in STEP.findall(server_path.replace(" -> ", ".").replace("/", "."))
    ]
    return steps[1:] if steps[:1] in (["body"], ["GenerateContentRequest"]) else steps


class _Missing:
    """Nothing, which is not null."""


MISSING: Final = _Missing()
MAX_COLLECTED_FINDINGS: Final = 500
MAX_SCHEMAS: Final = 2000
MAX_VALUES: Final = 20_000  # messages, parts, calls and tools
MAX_INDEX_DIGITS: Final = 10  # of an index
MAX_PATH_LENGTH: Final = 1000  # characters: names may have any length
STEP: Final = re.compile(r"\[['\"]?+([^\[\]'\"]*+)['\"]?+\]|([^.\[\]]++)")
TYPE_STEPS: Final = ("custom", "function", "base64", "url", "enabled", "value")
