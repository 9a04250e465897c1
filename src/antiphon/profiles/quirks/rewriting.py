"""Helpers of the quirks: rewrite the items of a request, and render content as text.

A function that changes nothing returns its argument, so a quirk that does not apply makes no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.common.placeholders import type_of
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    ContentParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolUse,
)
from antiphon.protocol.items import ItemParam, MessageParam, MessageRole
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class NoOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of quirks without options."""


def with_items(request: Request, items: list[ItemParam]) -> Request:
    """Return the request with these items as its input."""
    return request if are_identical(items, request.input) else replace(request, input=items)


def change_items(request: Request, change: Callable[[str, ItemParam], ItemParam | None]) -> Request:
    """Change or remove each item of the input. A string input is a user message and stays a string."""
    if not isinstance(request.input, list):
        return request
    new_items = [change(f"input[{index}]", item) for index, item in enumerate(request.input)]
    return with_items(request, [item for item in new_items if item is not None])


def change_messages(
    request: Request, change: Callable[[str, MessageParam], MessageParam], *roles: MessageRole
) -> Request:
    """Change each message with one of these roles."""
    return change_items(
        request,
        lambda path, item: change(path, item) if isinstance(item, MessageParam) and item.role in roles else item,
    )


def with_content(message: MessageParam, content: str | list[ContentParam]) -> MessageParam:
    """Return the message with this content, as a `MessageParam`, because only there content may be a string."""
    if are_identical(content, message.content):
        return message
    return MessageParam(
        role=message.role,
        content=content,
        id=message.id,
        status=message.status,
        phase=message.phase,
        extra=message.extra,
    )


def are_identical(left: object, right: object) -> bool:
    """Whether both are the same object, or lists of the same objects."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            left_member is right_member for left_member, right_member in zip(left, right, strict=True)
        )
    return left is right


def content_as_text(content: str | Sequence[ContentParam], path: str, losses: Losses, *, separator: str) -> str:
    """Return the content as one text. Other parts are described in text, or reported as losses."""
    if isinstance(content, str):
        return content
    texts = [part_as_text(part, f"{path}[{index}]", losses) for index, part in enumerate(content)]
    return separator.join(text for text in texts if text)


def part_as_text(part: ContentParam, path: str, losses: Losses) -> str:
    """Return one part as text."""
    match part:
        case InputText() | OutputTextParam() | Text() | SummaryText() | ReasoningText():
            report_dropped_fields(part, path, losses)
            return part.text
        case Refusal():
            report_dropped_fields(part, path, losses)
            losses.add(path, "the mark that a text is a refusal", "it is sent as plain text")
            return part.refusal
        case ToolUse():
            losses.add(path, "the form of a tool call in a message", "it is sent as text")
            return call_as_text(part.name, msgspec.json.encode(part.input).decode(), part.id)
        case _:
            losses.add(path, f"a part of type {type_of(part)!r}", "only text is allowed here")
            return ""


def report_dropped_fields(
    shape: Shape, path: str, losses: Losses, *, fields: tuple[str, ...] = ("annotations", "logprobs")
) -> None:
    """Report the fields that are lost when only the text of a shape is kept: `fields`, and unknown fields."""
    for name in (*(name for name in fields if getattr(shape, name, None)), *(shape.extra or ())):
        losses.add(f"{path}.{name}", f"the field {name!r}", "the API has no equivalent")


def call_as_text(name: str, arguments: str, call_id: str) -> str:
    """Return a call in the exact text form of D-2."""
    return f"[Tool Call: {name}({arguments or NO_ARGUMENTS}) -> call_id: {call_id}]"


def result_as_text(call_id: str, value: str) -> str:
    """Return a result in the exact text form of D-2."""
    return f"[Tool Result for {call_id}]: {value}"


NO_ARGUMENTS: Final = "{}"
