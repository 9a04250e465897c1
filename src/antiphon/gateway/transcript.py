"""A conversation as plain text that a model can summarize: messages, calls and outputs. Pure.

Calls and outputs become text, so that no server's rules for them apply; media become placeholders. Long items are cut
in the middle. If the whole is still too long, the oldest items are dropped.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from antiphon.dialects.common.placeholders import placeholder_for, type_of
from antiphon.dialects.common.tool_errors import mark_failure_in_text
from antiphon.gateway.conversation_steps import is_permanent, is_summary
from antiphon.gateway.token_estimate import estimate_text
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


def make_transcript(instructions: str | None, items: list[ItemParam], room: int | None) -> Transcript:
    """The transcript in at most `room` tokens. Permanent items are not in it: they are kept verbatim."""
    shown = [item for item in items if not is_permanent(item)]
    media = sum(map(_media_in, shown))
    head = [f"[instructions to the assistant, still in force]\n{_cut(instructions, BRIEF)}"] if instructions else []
    blocks: list[str] = []
    for longest in LONGEST:
        blocks = [block for item in shown if (block := _format_item(item, longest))]
        if room is None or _tokens([*head, *blocks]) <= room:
            return Transcript("\n\n".join([*head, *blocks]), 0, media)
    left_out = 0
    assert room is not None  # with None, the first attempt fits
    while len(blocks) > 1 and _tokens([*head, *blocks]) > room:
        gone = max(1, len(blocks) // 8)  # in batches: each check takes time linear in the text
        left_out += gone
        del blocks[:gone]
    note = [f"[{left_out} older items omitted: they do not fit]"] if left_out else []
    return Transcript("\n\n".join([*head, *note, *blocks]), left_out, media)


def _tokens(blocks: list[str]) -> int:
    return sum(estimate_text(block) + 1 for block in blocks)


def _format_item(item: ItemParam, longest: int) -> str:
    match item:
        case MessageParam():
            who = "summary of the earlier conversation" if is_summary(item) else item.role
            return f"[{who}]\n{_cut(_words(item.content), longest)}"
        case FunctionCallParam():
            return f"[tool call of the assistant: {item.name}, id {item.call_id}]\n{_cut(item.arguments, longest)}"
        case CustomToolCallParam():
            return f"[tool call of the assistant: {item.name}, id {item.call_id}]\n{_cut(item.input, longest)}"
        case FunctionCallOutputParam() | CustomToolCallOutputParam():
            return f"[result of tool call {item.call_id}]\n{_cut(_words(mark_failure_in_text(item).output), longest)}"
        case ReasoningParam():
            thoughts = _words([*item.summary, *(item.content or ())])
            return f"[reasoning of the assistant]\n{_cut(thoughts, BRIEF)}" if thoughts else ""
        case CompactionParam() | CompactionTrigger():  # of another server; cannot be read
            return ""
        case _:
            return f"[{type_of(item)}]\n{_cut(codec.encode(item).decode(), BRIEF)}"


def _words(content: str | list[Any]) -> str:
    return content if isinstance(content, str) else "\n".join(map(_part, content))


def _part(part: Any) -> str:
    match part:
        case InputText() | OutputTextParam() | Text() | SummaryText() | ReasoningText():
            return part.text
        case Refusal():
            return part.refusal
        case ToolUse() | ToolResult():
            return codec.encode(part).decode()
        case _:
            return placeholder_for(part)


def _media_in(item: ItemParam) -> int:
    content = getattr(item, "content", None) or getattr(item, "output", None)
    return sum(not isinstance(part, WORDS) for part in content) if isinstance(content, list) else 0


def _cut(text: str, longest: int) -> str:
    """The beginning and the end of a long text: the beginning says what it is, the end has the result."""
    if len(text) <= longest:
        return text
    start, end = longest * 2 // 3, longest // 3
    return f"{text[:start]}\n[… {len(text) - start - end} characters omitted …]\n{text[-end:]}"


WORDS: Final = (InputText, OutputTextParam, Text, SummaryText, ReasoningText, Refusal, ToolUse, ToolResult)
LONGEST: Final = (16_000, 4_000, 1_000)  # characters of one item; the first limit that fits is used
BRIEF: Final = 2_000
