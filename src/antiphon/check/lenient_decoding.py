"""Decode JSON with the hub's strict types and continue after errors, so that every problem is reported.

A missing or invalid field is reported and replaced by a value that fits. Only data that is not a JSON object, or has no
known type, cannot be decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from antiphon.errors import ApiError
from antiphon.protocol.nesting import decode_json

_Shape = TypeVar("_Shape")


class ShapeProblem(NamedTuple):
    """A path in a JSON object, and the problem there."""

    path: str
    message: str


def decode_with_problems(
    data: bytes, decode: Callable[[bytes], _Shape], stand_ins: dict[str, Any] | None = None
) -> tuple[_Shape | None, list[ShapeProblem]]:
    """Decode `data`, and return the value (None if it cannot be decoded) and the problems.

    `stand_ins` are substitutes by field name, tried before the general ones.
    """
    problems: list[ShapeProblem] = []
    value = _object(data)
    if value is None:
        return None, [ShapeProblem("", f"expected a JSON object, got {data[:60]!r}")]
    tried: dict[str, Iterator[Any]] = {}
    while True:
        try:
            return decode(msgspec.json.encode(value)), problems
        except ApiError as error:
            path = error.param or ""
            if path not in tried:
                if not any(_is_inside(path, other) for other in tried):
                    problems.append(ShapeProblem(path, error.message))
                tried[path] = iter([*_named(path, stand_ins or {}), *STAND_INS])
            stand_in = next(tried[path], _NOTHING)
            # The type of the object has no substitute: it would be a guess.
            if path in ("", "type") or stand_in is _NOTHING or not _put(value, path, deepcopy(stand_in)):
                return None, problems


def join_problems(problems: list[ShapeProblem]) -> str:
    """Join the problems of one object into one sentence."""
    text = "; ".join(problem.message for problem in problems[:MAX_FULL_PROBLEMS])
    return (
        text
        if len(problems) <= MAX_FULL_PROBLEMS
        else f"{text}; the same for {', '.join(each.path for each in problems[MAX_FULL_PROBLEMS:])}"
    )


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = decode_json(data)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _is_inside(path: str, other: str) -> bool:
    return path.startswith((f"{other}.", f"{other}["))


def _named(path: str, stand_ins: dict[str, Any]) -> list[Any]:
    name = path.rpartition(".")[2]
    return [stand_ins[name]] if name in stand_ins else []


def _put(value: Any, path: str, stand_in: Any) -> bool:
    """Set the value at the path; return whether the path exists."""
    steps: list[str | int] = [int(index) if index else name for name, index in STEP.findall(path)]
    try:
        for step in steps[:-1]:
            value = value[step]
        value[steps[-1]] = stand_in
    except (LookupError, TypeError):
        return False
    return True


MAX_FULL_PROBLEMS: Final = 3  # problems of one object that are shown in full
_NOTHING: Final = object()
STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
# Substitutes for every type of field; the first one that decodes is used.
STAND_INS: Final[tuple[Any, ...]] = (
    None,
    "",
    0,
    [],
    False,
    {"type": "text"},
    {},
    "assistant",
    "response",
    "disabled",
    "completed",
)
