"""Hub events → an editor's response parts (A-8, C-4): text and thinking piece by piece, calls whole, their arguments assembled.

Images and files that stand in an answer are data parts. A call that was cut is not delivered: the editor would run it. What the
editor has no place for is reported.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.reasoning_texts import TEXT_PART, reasoning_texts
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.vscode.response_lines import (
    DataPart,
    DoneLine,
    ResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UsageOut,
)
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    Content,
    InputFile,
    InputImage,
    InputText,
    OutputText,
    Refusal,
    Text,
)
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    SummaryPartAdded,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.items import FunctionCall, ImageGenerationCall, Item, Message, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.status import ItemStatus


class AnswerFromHub:
    """Tells one editor of one answer."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._streamed: set[int] = set()  # output indexes of items that were told piece by piece
        self._last_thought: tuple[str, Hashable] = ("", None)  # whose it was, and which part of it

    def feed(self, event: StreamEvent) -> list[ResponsePart]:
        """The parts that an event brings."""
        match event:
            case OutputTextDelta():
                if event.logprobs:
                    self._no_place(f"output[{event.output_index}].logprobs", "log probabilities")
                return _text(event.delta)
            case RefusalDelta():
                return _text(event.delta)
            case ReasoningDelta():
                return self._thought(event.delta, event.item_id, TEXT_PART)
            case SummaryTextDelta():
                return self._thought(event.delta, event.item_id, event.summary_index)
            case ContentPartAdded() | SummaryPartAdded():
                self._streamed.add(event.output_index)
            case ContentPartDone():
                self._lose_annotations(event.part, event.output_index)
            case ItemDone() if event.item is not None:
                return self._end(event.output_index, event.item)
            case UnknownEvent():
                self._no_place("events", f"an event of type {event.kind!r}")
        return []

    def done_line(self, response: Response) -> DoneLine:
        """REQ-3: how it ended."""
        report_unknown_fields(response, "response", self._losses)
        details = response.incomplete_details
        return DoneLine(
            response_id=response.id,
            model=response.model,
            status=response.status,
            reason=details.reason if details else UNSET,
            usage=_usage(response.usage) if response.usage else UNSET,
        )

    # Items

    def _end(self, at: int, item: Item) -> list[ResponsePart]:
        """An item is done. One that was not told piece by piece is told now."""
        if isinstance(item, Shape):
            report_unknown_fields(item, f"output[{at}]", self._losses)
        match item:
            case FunctionCall():
                return self._call(at, item)
            case Message():
                if item.phase:
                    self._no_place(f"output[{at}].phase", "the phase of a message")
                return (
                    []
                    if at in self._streamed
                    else [part for content in item.content for part in self._whole_part(at, content)]
                )
            case Reasoning():
                return [*([] if at in self._streamed else self._whole_reasoning(at, item)), *_seal(item)]
            case ImageGenerationCall(result=str() as image):
                return [DataPart(mime_type="image/png", data=image)]
            case _:
                self._no_place(f"output[{at}]", f"an item of type {type_of(item)!r}")
                return []

    def _call(self, at: int, call: FunctionCall) -> list[ResponsePart]:
        was_cut = call.status == ItemStatus.INCOMPLETE
        arguments = call.arguments.strip() or ("" if was_cut else "{}")
        try:
            decode_json(arguments, type=dict[str, Raw])
        except ValueError:
            if was_cut:
                self._losses.add(f"output[{at}]", f"the call of {call.name}", "it was cut")
                return []
            self._losses.add(f"output[{at}].arguments", "arguments that are no JSON object", "they were put into one")
            arguments = msgspec.json.encode({"arguments": call.arguments}).decode()
        return [ToolCallPart(call_id=call.call_id, name=call.name, input=Raw(arguments.encode()))]

    def _whole_part(self, at: int, part: Content) -> list[ResponsePart]:
        if isinstance(part, Shape):
            report_unknown_fields(part, f"output[{at}].content", self._losses)
        self._lose_annotations(part, at)
        match part:
            case OutputText(text=text) | Text(text=text) | InputText(text=text) | Refusal(refusal=text):
                return _text(text)
            case InputImage(image_url=str() as url) | InputFile(file_data=str() as url) if data := DATA_URL.fullmatch(
                url
            ):
                return [DataPart(mime_type=data[1], data=data[2])]
            case _:
                self._no_place_for(at, part)
                return []

    def _whole_reasoning(self, at: int, item: Reasoning) -> list[ResponsePart]:
        thoughts = reasoning_texts(at, item, self._no_place_for)
        return [thinking for text, part in thoughts for thinking in self._thought(text, item.id, part)]

    def _thought(self, text: str, id: str, part: Hashable) -> list[ResponsePart]:
        """Each part of a summary is a paragraph of its own."""
        if not text:
            return []
        last, self._last_thought = self._last_thought, (id, part)
        gap = "\n\n" if last[0] == id and last[1] != part else ""
        return [ThinkingPart(value=gap + text, id=id)]

    # Losses

    def _lose_annotations(self, part: Content, at: int) -> None:
        if isinstance(part, OutputText) and part.annotations:
            self._no_place(f"output[{at}].annotations", "what a text rests on")

    def _no_place_for(self, at: int, part: Content) -> None:
        self._no_place(f"output[{at}].content", f"a part of type {type_of(part)!r}")

    def _no_place(self, path: str, what: str) -> None:
        self._losses.add(path, what, "an editor's response has no place for it")


def join_parts(parts: list[ResponsePart]) -> list[ResponsePart]:
    """The parts of a whole answer: pieces of one text, and of one thought, are one part (STR-14)."""
    whole: list[ResponsePart] = []
    for part in parts:
        last: Any = whole[-1] if whole else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            whole[-1] = TextPart(value=last.value + part.value)
        elif isinstance(part, ThinkingPart) and isinstance(last, ThinkingPart) and last.id == part.id:
            whole[-1] = ThinkingPart(value=last.value + part.value, id=part.id, metadata=part.metadata)
        else:
            whole.append(part)
    return whole


def _text(text: str) -> list[ResponsePart]:
    return [TextPart(value=text)] if text else []


def _seal(item: Reasoning) -> list[ResponsePart]:
    sealed = item.encrypted_content
    return [ThinkingPart(value="", id=item.id, metadata={"signature": sealed})] if sealed else []


def _usage(usage: Usage) -> UsageOut:
    return UsageOut(
        input_tokens=usage.input_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        total_tokens=usage.total_tokens,
    )


DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
