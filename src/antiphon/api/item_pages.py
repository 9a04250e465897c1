"""Renders items and pages of items for list endpoints. Some fields are included only on request (API-1, API-4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.api.operation import Schema, schema_ref
from antiphon.dialects import responses
from antiphon.protocol import codec
from antiphon.protocol.content import ContentParam, InputText, OutputText, OutputTextParam
from antiphon.protocol.items import (
    CodeInterpreterCall,
    FileSearchCall,
    ItemParam,
    MessageParam,
    ReasoningParam,
    WebSearchCall,
)
from antiphon.protocol.policy import ENCRYPTED_REASONING, LOGPROBS, Policy
from antiphon.protocol.request import Request
from antiphon.protocol.status import ItemStatus


def render_item(item: ItemParam, include: Collection[str]) -> Raw:
    """Renders an item. Messages get a status and content parts. RSN-2: encrypted reasoning is shown only on request."""
    match item:
        case ReasoningParam() if ENCRYPTED_REASONING not in include:
            item = replace(item, encrypted_content=UNSET)
        case MessageParam():
            parts = [_render_part(part, include) for part in _content_parts(item)]
            item = replace(item, content=parts, status=item.status or ItemStatus.COMPLETED)
        case WebSearchCall() | FileSearchCall() | CodeInterpreterCall():
            return Raw(codec.encode(Policy.for_request(Request(include=list(include))).trim_stored_item(item)))
    return Raw(codec.encode(responses.unseal_item(item)))


def render_page(items: Sequence[Raw], *, has_more: bool) -> bytes:
    """Renders a page of items as JSON."""
    body = {
        "object": "list",
        "data": items,
        "first_id": encoded_item_id(items[0]) if items else None,
        "last_id": encoded_item_id(items[-1]) if items else None,
        "has_more": has_more,
    }
    return codec.encode(body)


def encoded_item_id(encoded_item: Raw) -> Any:
    return msgspec.json.decode(encoded_item, type=dict[str, Any]).get("id")


def _content_parts(message: MessageParam) -> list[ContentParam]:
    content = message.content
    if not isinstance(content, str):
        return content
    return [
        OutputText(text=content, annotations=[], logprobs=[])
        if message.role == "assistant"
        else InputText(text=content)
    ]


def _render_part(part: ContentParam, include: Collection[str]) -> ContentParam:
    """STR-12: log probabilities are shown only on request."""
    return (
        replace(part, logprobs=[])
        if isinstance(part, OutputTextParam) and part.logprobs and LOGPROBS not in include
        else part
    )


PAGE_SCHEMA: Final[Schema] = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": schema_ref("ItemParam")},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    },
    "required": ["object", "data", "first_id", "last_id", "has_more"],
}
