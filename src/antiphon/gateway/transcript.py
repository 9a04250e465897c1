"""A conversation as plain text that a model can summarize: messages, calls and outputs. Pure.

Calls and outputs become text, so that no server's rules for them apply; media become placeholders. Long items are cut
in the middle. If the whole is still too long, the oldest items are dropped.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from antiphon.dialects.common.placeholders import placeholder_for, type_of
from antiphon.dialects.common.token_estimate import estimate_text
from antiphon.dialects.common.tool_errors import mark_failure_in_text
from antiphon.gateway.conversation_steps import is_permanent, is_summary
from antiphon.protocol import codec
from antiphon.protocol.content import (
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolResult,
    ToolUse,
)
from antiphon.protocol.items import (
    CompactionParam,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
)


class Transcript(NamedTuple):
    text: str
    omitted_items: int  # number of oldest items left out
    media_parts: int  # parts replaced by placeholders


def make_transcript(instructions: str | None, items: list[ItemParam], token_limit: int | None) -> Transcript:
    """The transcript in at most `token_limit` tokens. Permanent items are not in it: they are kept verbatim."""
    transcript_items = [item for item in items if not is_permanent(item)]
    media_parts = sum(map(_count_media, transcript_items))
    instruction_blocks = (
        [f"[instructions to the assistant, still in force]\n{_cut_middle(instructions, SHORT_ITEM_LIMIT)}"]
        if instructions
        else []
    )
    blocks: list[str] = []
    for max_characters in ITEM_LIMITS:
        blocks = [block for item in transcript_items if (block := _format_item(item, max_characters))]
        if token_limit is None or _count_tokens([*instruction_blocks, *blocks]) <= token_limit:
            return Transcript("\n\n".join([*instruction_blocks, *blocks]), 0, media_parts)
    omitted_items = 0
    assert token_limit is not None  # with None, the first attempt fits
    while len(blocks) > 1 and _count_tokens([*instruction_blocks, *blocks]) > token_limit:
        batch_size = max(1, len(blocks) // 8)  # in batches: each check takes time linear in the text
        omitted_items += batch_size
        del blocks[:batch_size]
    omission_blocks = [f"[{omitted_items} older items omitted: they do not fit]"] if omitted_items else []
    return Transcript("\n\n".join([*instruction_blocks, *omission_blocks, *blocks]), omitted_items, media_parts)


def _count_tokens(blocks: list[str]) -> int:
    return sum(estimate_text(block) + 1 for block in blocks)


def _format_item(item: ItemParam, max_characters: int) -> str:
    match item:
        case MessageParam():
            author = "summary of the earlier conversation" if is_summary(item) else item.role
            return _format_block(author, _text_of_content(item.content), max_characters)
        case FunctionCallParam(arguments=text) | CustomToolCallParam(input=text):
            return _format_block(f"tool call of the assistant: {item.name}, id {item.call_id}", text, max_characters)
        case FunctionCallOutputParam() | CustomToolCallOutputParam():
            output = _text_of_content(mark_failure_in_text(item).output)
            return _format_block(f"result of tool call {item.call_id}", output, max_characters)
        case ReasoningParam():
            reasoning = _text_of_content([*item.summary, *(item.content or ())])
            return _format_block("reasoning of the assistant", reasoning, SHORT_ITEM_LIMIT) if reasoning else ""
        case CompactionParam() | CompactionTrigger():  # of another server; cannot be read
            return ""
        case _:
            return _format_block(type_of(item), codec.encode(item).decode(), SHORT_ITEM_LIMIT)


def _format_block(title: str, text: str, max_characters: int) -> str:
    return f"[{title}]\n{_cut_middle(text, max_characters)}"


def _text_of_content(content: str | list[Any]) -> str:
    return content if isinstance(content, str) else "\n".join(map(_text_of_part, content))


def _text_of_part(part: Any) -> str:
    match part:
        case InputText() | OutputTextParam() | Text() | SummaryText() | ReasoningText():
            return part.text
        case Refusal():
            return part.refusal
        case ToolUse() | ToolResult():
            return codec.encode(part).decode()
        case _:
            return placeholder_for(part)


def _count_media(item: ItemParam) -> int:
    content = getattr(item, "content", None) or getattr(item, "output", None)
    return sum(not isinstance(part, TEXT_PARTS) for part in content) if isinstance(content, list) else 0


def _cut_middle(text: str, max_characters: int) -> str:
    """The beginning and the end of a long text: the beginning says what it is, the end has the result."""
    if len(text) <= max_characters:
        return text
    start, end = max_characters * 2 // 3, max_characters // 3
    return f"{text[:start]}\n[… {len(text) - start - end} characters omitted …]\n{text[-end:]}"


TEXT_PARTS: Final = (InputText, OutputTextParam, Text, SummaryText, ReasoningText, Refusal, ToolUse, ToolResult)
ITEM_LIMITS: Final = (16_000, 4_000, 1_000)  # characters of one item; the first limit that fits is used
SHORT_ITEM_LIMIT: Final = 2_000
