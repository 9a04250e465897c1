"""Compares two JSON values and reports differences by path. Items of a list share one path: `messages[].content`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Delta(NamedTuple):
    """One difference: what became of the value at a path.

    `change` is `missing` or `added`, the same of a `null` or an `empty` value, `changed`, `length`, or a change of the
    type such as `string → list`.
    """

    path: str
    change: str
    detail: str = ""  # short, for a reader of the report


def compare_json(before: Any, after: Any, path: str = "") -> list[Delta]:
    """The differences between two values, each path and change once."""
    return list({(delta.path, delta.change): delta for delta in _compare(before, after, path)}.values())


def _compare(before: Any, after: Any, path: str) -> list[Delta]:
    if isinstance(before, dict) and isinstance(after, dict):
        return _compare_objects(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return [Delta(path, "length", f"{len(before)} → {len(after)}")]
        pairs = zip(before, after, strict=True)
        return [delta for old, new in pairs for delta in _compare(old, new, f"{path}[]")]
    if before == after and _type(before) == _type(after):
        return []
    if _type(before) != _type(after):
        return [Delta(path, f"{_type(before)} → {_type(after)}", f"{_short(before)} → {_short(after)}")]
    return [Delta(path, "changed", f"{_short(before)} → {_short(after)}")]


def _compare_objects(before: dict[str, Any], after: dict[str, Any], path: str) -> list[Delta]:
    if path.endswith(USER_OBJECTS):  # names that a user chose
        return [] if before == after else [Delta(f"{path}.*", "changed", _first_path(before, after))]
    deltas: list[Delta] = []
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if path else name
        if name not in after:
            deltas.append(Delta(inner, f"missing{_emptiness(before[name])}", _short(before[name])))
        elif name not in before:
            deltas.append(Delta(inner, f"added{_emptiness(after[name])}", _short(after[name])))
        else:
            deltas += _compare(before[name], after[name], inner)
    return deltas


def _first_path(before: dict[str, Any], after: dict[str, Any]) -> str:
    return next(iter(_compare_objects(before, after, "")), Delta("", "")).path


def _emptiness(value: Any) -> str:
    if value is None:
        return " null"
    return " empty" if value in ("", [], {}) else ""


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list():
            return "list"
        case _:
            return "object"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else _type(value)
    return text if len(text) <= MAX_DETAIL else text[:MAX_DETAIL] + "…"


MAX_DETAIL: Final = 40
#: Members whose names are chosen by users: schemas, arguments, metadata.
USER_OBJECTS: Final = (
    *(".parameters", ".parametersJsonSchema", ".input_schema", ".schema", ".responseSchema", ".responseJsonSchema"),
    *(".args", "].input", ".content_block.input", ".functionResponse.response", ".metadata"),
)
