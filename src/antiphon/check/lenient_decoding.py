"""Reads what a server sent by the hub's own strict shapes, and goes on where they refuse: every flaw is named, not the first alone.

A field that is missing or of the wrong type is noted and a value that fits stands in for it, so that what comes after it can still
be judged. Only what is no JSON object, or of no known kind at all, cannot be read.
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
    """A place in a JSON object, and what is wrong there."""

    path: str
    message: str


def decode_with_problems(
    data: bytes, decode: Callable[[bytes], _Shape], stand_ins: dict[str, Any] | None = None
) -> tuple[_Shape | None, list[ShapeProblem]]:
    """`data` as a shape if it can be read at all, and what is wrong with it.

    `stand_ins` are values for fields by their name, tried before those that stand in for any field.
    """
    problems: list[ShapeProblem] = []
    value = _object(data)
    if value is None:
        return None, [ShapeProblem("", f"wanted a JSON object, got {data[:60]!r}")]
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
            # Nothing stands in for the type of the whole: what it is would be our invention.
            if path in ("", "type") or stand_in is _NOTHING or not _put(value, path, deepcopy(stand_in)):
                return None, problems


def join_problems(problems: list[ShapeProblem]) -> str:
    """Several things wrong with one object, in one sentence."""
    told = "; ".join(problem.message for problem in problems[:MOST])
    return told if len(problems) <= MOST else f"{told}; likewise {', '.join(each.path for each in problems[MOST:])}"


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
    """Sets the place that the path names; whether there is such a place."""
    steps: list[str | int] = [int(index) if index else name for name, index in STEP.findall(path)]
    try:
        for step in steps[:-1]:
            value = value[step]
        value[steps[-1]] = stand_in
    except (LookupError, TypeError):
        return False
    return True


MOST: Final = 3  # of the problems of one object that are told in full
_NOTHING: Final = object()
STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
# Something for every type that the shapes have: the first that is taken stands in.
STAND_INS: Final[tuple[Any, ...]] = (None, "", 0, [], False, {"type": "text"}, {}, "assistant", "response", "disabled", "completed")
