"""Translates a client's messages to hub items, in order: thoughts, texts, calls and results become separate items.

The signature of a thinking block is an envelope of this gateway, or the signature of a server of this dialect, which is
put into an envelope of its own (RSN-2). Neither is checked here.
"""

from __future__ import annotations

from typing import Any, assert_never

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.envelope import client_maker, seal_reasoning, unseal_reasoning
from antiphon.dialects.common.history import InstructionsAndItems
from antiphon.dialects.common.tool_errors import IS_ERROR
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.messages.content_in import block_to_hub, extra_fields_of, output_text_to_hub, prefixed
from antiphon.dialects.messages.wire import (
    SYSTEM_FIELD,
    MessageIn,
    PlainBlockIn,
    RedactedThinkingBlockIn,
    TextBlockIn,
    ThinkingBlockIn,
    ToolResultBlockIn,
    ToolUseBlockIn,
    block_to_item,
)
from antiphon.errors import MissingField
from antiphon.protocol import codec
from antiphon.protocol.content import (
    Content,
    ContentParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    ToolOutputContentParam,
    UnknownContent,
)
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    MessageRole,
    ReasoningParam,
)
from antiphon.protocol.losses import Losses


def history_to_hub(
    system: str | list[PlainBlockIn] | None | UnsetType, messages: list[MessageIn], losses: Losses
) -> InstructionsAndItems:
    """E-4: a system string becomes `instructions`; system blocks, which carry their own members, become a system
    message.
    """
    items: list[ItemParam] = []
    if system and not isinstance(system, str):
        items.append(MessageParam(role="system", content=[block_to_hub(block) for block in system]))
    for index, message in enumerate(messages):
        items += _items_of_message(message, f"messages[{index}]", losses)
    return InstructionsAndItems(system if isinstance(system, str) and system else UNSET, items)


def _items_of_message(message: MessageIn, path: str, losses: Losses) -> list[ItemParam]:
    """The items of a message. The message's own fields go to its last message item."""
    extra = prefixed(message.extra) | ({SYSTEM_FIELD: Raw(b"true")} if message.role == "system" else {}) or UNSET
    if isinstance(message.content, str):
        return [MessageParam(role=message.role, content=_text_to_hub(message.content, message.role), extra=extra)]
    if message.content is UNSET and message.role != "system":
        raise MissingField(f"{path}.content is missing: expected text or blocks", param=f"{path}.content")
    items: list[ItemParam] = []
    parts: list[ContentParam] = []
    for block in message.content or ():
        if isinstance(block, ThinkingBlockIn | RedactedThinkingBlockIn | ToolUseBlockIn | ToolResultBlockIn):
            item: ItemParam = _block_to_item(block)
        elif isinstance(block, UnknownContent) and message.role == "assistant":
            item = block_to_item(block.kind, block.raw)
        else:
            parts.append(_part_to_hub(block, message.role))
            continue
        if parts:
            items.append(MessageParam(role=message.role, content=parts))
            parts = []
        items.append(item)
    if parts or not message.content:
        items.append(MessageParam(role=message.role, content=parts, extra=extra))
    else:
        report_unknown_fields(message, path, losses)
    return items


def _text_to_hub(text: str, role: MessageRole) -> str | list[ContentParam]:
    """A string means the same as one text block."""
    return [OutputTextParam(text=text) if role == "assistant" else InputText(text=text)] if text else ""


def _part_to_hub(block: PlainBlockIn, role: MessageRole) -> ContentParam:
    return output_text_to_hub(block) if isinstance(block, TextBlockIn) and role == "assistant" else block_to_hub(block)


def _block_to_item(block: ThinkingBlockIn | RedactedThinkingBlockIn | ToolUseBlockIn | ToolResultBlockIn) -> ItemParam:
    match block:
        case ThinkingBlockIn(thinking=text):
            content: list[Content] | UnsetType = [ReasoningText(text=text)] if text else UNSET
            signature = block.signature or ""
            sealed = _seal(signature, {"thinking": text, "signature": signature}) if signature else UNSET
            extra = prefixed(block.extra) or UNSET
            return ReasoningParam(summary=[], content=content, encrypted_content=sealed, extra=extra)
        case RedactedThinkingBlockIn(data=data):
            extra = prefixed(block.extra) or UNSET
            return ReasoningParam(summary=[], encrypted_content=_seal(data, {"redacted": data}), extra=extra)
        case ToolUseBlockIn():
            arguments = codec.encode(block.input).decode()
            return FunctionCallParam(
                call_id=block.id, name=block.name, arguments=arguments, extra=extra_fields_of(block)
            )
        case ToolResultBlockIn():
            members = extra_fields_of(block, **{IS_ERROR: block.is_error or UNSET})
            return FunctionCallOutputParam(call_id=block.tool_use_id, output=_tool_output(block), extra=members)
        case _ as never:
            assert_never(never)


def _seal(seal: str, content: dict[str, Any]) -> str:
    """The envelope that a client sends back; else a new one with `content`, for any server of this dialect."""
    return seal if unseal_reasoning(seal) is not None else seal_reasoning(client_maker("messages"), content)


def _tool_output(block: ToolResultBlockIn) -> str | list[ToolOutputContentParam]:
    if isinstance(block.content, list):
        return [block_to_hub(part) for part in block.content]
    return block.content or ""
