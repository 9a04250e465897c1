"""Describe roles and part types that are not allowed, recognise those of another dialect, and check cache marks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.protocol.suggestions import did_you_mean
from antiphon.rules.report import Report, Rule, as_json


class Description(Struct, frozen=True):
    """A rule, and what is wrong in our words."""

    rule: Rule
    problem: str


def describe_role(role: Any, allowed: Collection[str]) -> Description:
    """Describe a role that is not allowed."""
    if role is None:
        return Description("missing_field", f"a message has a role: one of {', '.join(allowed)}")
    hint = ROLES_ELSEWHERE.get(role, "") if isinstance(role, str) else ""
    return Description("role", f"{as_json(role)} is no role here: expected one of {', '.join(allowed)}{hint}")


def describe_part(part: Any, allowed: Sequence[str]) -> Description:
    """Describe a content part whose type is not allowed."""
    kind = type_of(part)
    if not kind:
        return Description("discriminator", f"a part is an object with a type, not {as_json(part)}")
    if kind in TEXT_TYPES:
        expected = next((word for word in allowed if word in TEXT_TYPES), allowed[0])
        return Description("content_type", f"`{kind}` is {TEXT_TYPES[kind]}; here text has the type `{expected}`")
    hint = did_you_mean(kind, allowed)
    return Description("discriminator", f"`{kind}` is no part type here: expected one of {', '.join(allowed)}{hint}")


def part_type_path(part: Any, path: str) -> str:
    """Return the path of a part's type; the path of the part if it is no object."""
    return f"{path}.type" if isinstance(part, dict) else path


def type_of(value: Any) -> str:
    """Return the `type` of an object; empty if it has none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def texts_in(content: Any) -> list[str]:
    """Return the texts of a message's content (a string or parts); empty for any other value."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def check_cache_mark(mark: Any, path: str, report: Report, *, is_allowed: bool) -> None:
    """Check the `prompt_cache_breakpoint` of a part."""
    exact_path = f"{path}.{CACHE_MARK}"
    # The reference has the field on parts of the input only; unknown members of other parts are refused.
    if not is_allowed:
        problem = "only parts of the input have cache marks"
        report.add("unknown_field", exact_path, f"unknown parameter {exact_path!r}", problem, is_certain=False)
        return
    # `mode` is always `explicit`; `ttl` is one of two lifetimes.
    match mark:
        case None:
            return
        case {"mode": "explicit", **rest} if rest.keys() <= {"ttl"} and rest.get("ttl") in MARK_LIFETIMES:
            return
    problem = f"a cache mark has the mode `explicit` and a ttl of 30m or 12h, not {as_json(mark)}"
    report.add("value", exact_path, "this is no cache breakpoint", problem, is_certain=False)


CACHE_MARK: Final = "prompt_cache_breakpoint"
MARK_LIFETIMES: Final = (None, "30m", "12h")
TEXT_TYPES: Final = {
    "text": "the word of the chat and messages dialects for text",
    "input_text": "the word of the responses dialect for text to the model",
    "output_text": "the word of the responses dialect for text of the model",
}
ROLES_ELSEWHERE: Final = {
    "tool": "; `tool` is a role of the chat dialect, where results are messages",
    "function": "; `function` is the older name of `tool` in the chat dialect",
    "developer": "; servers that do not know `developer` know `system`",
    "system": "; system text has its own field here",
    "assistant": "; the assistant's role is `model` here",
    "model": "; `model` is a role of the gemini dialect, called `assistant` elsewhere",
}
