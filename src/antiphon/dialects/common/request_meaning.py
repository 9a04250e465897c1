"""What a request means to the hub, so that two forms of one request can be compared.

Null, default and absent members mean the same, and so do a text and a list with that text. The order of tools means
nothing. Unknown members of items, parts and tools mean nothing, except marks that a profile may remove. Unknown
settings keep their meaning.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.content import InputText, OutputTextParam, Text
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.request import Request, TextFormat
from antiphon.protocol.tools import FunctionToolParam


def meaning_of(request: Request, *, joins_messages: bool = False) -> dict[str, Any]:
    """The settings, items and tools of a request as plain values. With `joins_messages`, consecutive messages of one
    role mean the same as one message."""
    if joins_messages and isinstance(request.input, list):
        request = replace(request, input=_join_messages(request.input))
    members = _members(request)
    members |= {name: msgspec.json.decode(raw) for name, raw in (request.extra or {}).items()}
    members["tools"] = sorted(members.get("tools") or (), key=msgspec.json.encode)
    if instructions := members.pop("instructions", None):
        system = {"type": "message", "role": "system", "content": instructions}
        members["input"] = [system, *_items(members.get("input"))]
    return {name: value for name, value in members.items() if value not in EMPTY and (name, value) not in DEFAULTS}


def _items(input: Any) -> list[Any]:
    return [{"type": "message", "role": "user", "content": input}] if isinstance(input, str) else input or []


def _join_messages(items: list[ItemParam]) -> list[ItemParam]:
    joined: list[ItemParam] = []
    for item in items:
        last = joined[-1] if joined else None
        if isinstance(last, MessageParam) and isinstance(item, MessageParam) and _can_join(last, item):
            joined[-1] = replace(last, content=[*last.content, *item.content])
        else:
            joined.append(item)
    return joined


def _can_join(first: MessageParam, second: MessageParam) -> bool:
    has_parts = isinstance(first.content, list) and isinstance(second.content, list)
    return has_parts and replace(first, content="") == replace(second, content="")


def _meaning(value: Any) -> Any:
    match value:
        case list():
            return _list_meaning(value)
        case Unknown():
            return msgspec.json.decode(value.raw)
        case Shape():
            extra = {name: raw for name, raw in (value.extra or {}).items() if name in MARKS}
            return _members(value) | {name: msgspec.json.decode(raw) for name, raw in extra.items()}
        case _:
            return value


def _members(value: Shape) -> dict[str, Any]:
    members = {name: getattr(value, name) for name in value.__struct_fields__ if name != "extra"}
    if isinstance(value, FunctionToolParam):
        members["parameters"] = NO_PARAMETERS | (members["parameters"] or {})
        members["strict"] = members["strict"] or False
        members["description"] = members["description"] or UNSET
        members["defer_loading"] = members["defer_loading"] or False
    meaningful = {
        name: _meaning(member)
        for name, member in members.items()
        if member is not UNSET and member is not None and not isinstance(member, TextFormat)
    }
    tag = value.__struct_config__.tag
    return meaningful | {"type": tag} if tag else meaningful


def _list_meaning(values: list[Any]) -> Any:
    """Plain texts are joined, as servers join them that accept only one text."""
    if values and all(_is_plain_text(value) for value in values):
        return "\n".join(value.text for value in values)
    return [_meaning(value) for value in values]


def _is_plain_text(value: Any) -> bool:
    if not isinstance(value, InputText | Text | OutputTextParam) or MARKS.intersection(value.extra or ()):
        return False
    return not isinstance(value, OutputTextParam) or not value.annotations


EMPTY: Final[tuple[Any, ...]] = ({}, [])
DEFAULTS: Final = (("parallel_tool_calls", True), ("top_logprobs", 0))
NO_PARAMETERS: Final = {"type": "object", "properties": {}}
#: Unknown members with a meaning: the failure of a tool, and marks for a server's prompt cache.
MARKS: Final = frozenset({"is_error", "cache_control", "prompt_cache_breakpoint"})
