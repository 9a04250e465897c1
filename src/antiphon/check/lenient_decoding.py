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
from antiphon.protocol.codec import decode_json

_Shape = TypeVar("_Shape")


class ShapeProblem(NamedTuple):
    """A path in a JSON object, and the problem there."""

    path: str
    message: str


def decode_with_problems(
    data: bytes, decode: Callable[[bytes], _Shape], substitutes: dict[str, Any] | None = None
) -> tuple[_Shape | None, list[ShapeProblem]]:
    """Decode `data`, and return the value (None if it cannot be decoded) and the problems.

    `substitutes` are values by field name, tried before the general ones.
    """
    problems: list[ShapeProblem] = []
    value = _decode_object(data)
    if value is None:
        return None, [ShapeProblem("", f"expected a JSON object, got {data[:60]!r}")]
    remaining_substitutes: dict[str, Iterator[Any]] = {}
    while True:
        try:
            return decode(msgspec.json.encode(value)), problems
        except ApiError as error:
            path = error.param or ""
            if path not in remaining_substitutes:
                if not any(_is_inside(path, parent_path) for parent_path in remaining_substitutes):
                    problems.append(ShapeProblem(path, error.message))
                remaining_substitutes[path] = iter([*_named_substitutes(path, substitutes or {}), *SUBSTITUTES])
            substitute = next(remaining_substitutes[path], _NO_SUBSTITUTE)
            # The type of the object has no substitute: it would be a guess.
            if (
                path in ("", "type")
                or substitute is _NO_SUBSTITUTE
                or not _set_value(value, path, deepcopy(substitute))
            ):
                return None, problems


def join_problems(problems: list[ShapeProblem]) -> str:
    """Join the problems of one object into one sentence."""
    text = "; ".join(problem.message for problem in problems[:MAX_FULL_PROBLEMS])
    return (
        text
        if len(problems) <= MAX_FULL_PROBLEMS
        else f"{text}; the same for {', '.join(problem.path for problem in problems[MAX_FULL_PROBLEMS:])}"
    )


def _decode_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = decode_json(data)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _is_inside(path: str, parent_path: str) -> bool:
    return path.startswith((f"{parent_path}.", f"{parent_path}["))


def _named_substitutes(path: str, substitutes: dict[str, Any]) -> list[Any]:
    name = path.rpartition(".")[2]
    return [substitutes[name]] if name in substitutes else []


def _set_value(value: Any, path: str, substitute: Any) -> bool:
    """Set the value at the path; return whether the path exists."""
    steps: list[str | int] = [int(index) if index else name for name, index in STEP.findall(path)]
    try:
        for step in steps[:-1]:
            value = value[step]
        value[steps[-1]] = substitute
    except (LookupError, TypeError):
        return False
    return True


MAX_FULL_PROBLEMS: Final = 3  # problems of one object that are shown in full
_NO_SUBSTITUTE: Final = object()
STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
# Substitutes for every type of field; the first one that decodes is used.
SUBSTITUTES: Final[tuple[Any, ...]] = (
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
