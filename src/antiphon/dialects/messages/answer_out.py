"""Translates hub events to the blocks of a message, strictly one block after the other (`EventSequencer`).

Reasoning becomes a thinking block with the sealed reasoning as its signature, or a redacted block if it has no text.
Each text and each refusal becomes a text block, each call a `tool_use` block. Empty content makes no block, because
servers refuse empty blocks in the history. Unsupported content is reported as a loss.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.answer_losses import AnswerLosses
from antiphon.dialects.common.call_arguments import arguments_as_object
from antiphon.dialects.common.event_ordering import EventSequencer
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.reasoning_texts import TEXT_PART, ReasoningParagraphs, reasoning_texts
from antiphon.dialects.common.service_tiers import tier_from_hub
from antiphon.dialects.common.tool_names import MESSAGES_NAMES, ToolNames, key_of_call
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.messages.content_out import citation_from_hub
from antiphon.dialects.messages.response_wire import (
    AnswerBlockOut,
    AnswerRedactedThinkingBlock,
    AnswerTextBlock,
    AnswerThinkingBlock,
    AnswerToolUseBlock,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    CitationsDeltaOut,
    DeltaOut,
    FinalDeltaOut,
    InputJsonDeltaOut,
    OutputDetailsOut,
    SignatureDeltaOut,
    TextDeltaOut,
    ThinkingDeltaOut,
    UsageOut,
)
from antiphon.dialects.messages.wire import (
    CACHE_CREATION_FIELD,
    PREFIX,
    STOP_REASON_FIELD,
    STOP_SEQUENCE_FIELD,
    block_from_item,
)
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    Annotation,
    Content,
    InputText,
    OutputText,
    Refusal,
    Text,
    UrlCitation,
)
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    ContentPartEvent,
    CustomInputDelta,
    CustomInputDone,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning, UnknownItem
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus


class OpenTextBlock(NamedTuple):
    """The text that is being sent: its position in the hub, and its block."""

    output_index: int
    content_index: int
    block_index: int


class AnswerFromHub:
    """Translates one answer for one client."""

    def __init__(self, request: Request, losses: Losses) -> None:
        #: The text whose deltas go directly into the open block.
        self.open_text: OpenTextBlock | None = None
        self._losses = losses
        self._answer_losses = AnswerLosses(losses)
        self._names = ToolNames.for_request(request, MESSAGES_NAMES)
        self._items = EventSequencer(_item_key, (ItemAdded,), (ItemDone,))
        self._parts = EventSequencer(
            _part_key, (ContentPartAdded, SummaryPartAdded), (ContentPartDone, SummaryPartDone)
        )
        self._block_index = 0  # the index of the open block, or of the next one
        self._is_open = False
        self._is_streamed = False  # whether the item was sent piece by piece
        self._paragraphs = ReasoningParagraphs()
        self._call_count = 0
        self._has_refused = False

    def feed(self, event: StreamEvent) -> list[BlockEvent]:
        """The block events for an event, and for events that waited for it."""
        if type(event) is UnknownEvent:
            self._answer_losses.report_event(event)
            return []
        if not hasattr(event, "output_index"):
            return []
        return [piece for item_event in self._items.feed(event) for piece in self._write_item_event(item_event)]

    def final_delta(self, response: Response) -> FinalDeltaOut:
        """REQ-3: the stop reason."""
        extra = response.extra or {}
        for name, raw in extra.items():
            if not name.startswith(PREFIX):
                report_unknown_fields(Shape(extra={name: raw}), "response", self._losses)
        sequence = msgspec.json.decode(extra.get(STOP_SEQUENCE_FIELD, b"null"))
        return FinalDeltaOut(stop_reason=self._stop_reason(response, extra, sequence), stop_sequence=sequence)

    def _stop_reason(self, response: Response, extra: dict[str, Raw], sequence: str | None) -> str:
        if STOP_REASON_FIELD in extra:
            return str(msgspec.json.decode(extra[STOP_REASON_FIELD]))
        incomplete_reason = self._answer_losses.incomplete_reason(response, STOP_REASONS, "max_tokens")
        if incomplete_reason is not None:
            return incomplete_reason
        if self._has_refused:
            return "refusal"
        if self._call_count:
            return "tool_use"
        return "end_turn" if sequence is None else "stop_sequence"

    def _write_item_event(self, event: StreamEvent) -> list[BlockEvent]:
        if type(event) is ArgumentsDelta:
            return self._arguments_delta(event.delta)
        match event:
            case ItemAdded():
                return [] if event.item is None else self._begin_item(event.item, event.output_index)
            case ItemDone():
                return [] if event.item is None else self._end_item(event.item, event.output_index)
            case CustomInputDelta():
                return self._arguments_delta(freeform_tools.wrap_delta(event.delta))
            case ArgumentsDone() | CustomInputDone():
                return []
            case _:
                self._is_streamed = True
                return [piece for part_event in self._parts.feed(event) for piece in self._write_part_event(part_event)]

    def _write_part_event(self, event: StreamEvent) -> list[BlockEvent]:
        if type(event) is ReasoningDelta:
            return self._thinking_delta(event.delta, TEXT_PART)
        match event:
            case OutputTextDelta():
                if event.logprobs:
                    self._report_logprobs(event.output_index)
                pieces = self._text_delta(event.delta)
                if self._is_open:
                    self.open_text = OpenTextBlock(event.output_index, event.content_index, self._block_index)
                return pieces
            case RefusalDelta():
                return self._refusal_delta(event.delta)
            case AnnotationAdded():
                return [] if event.annotation is None else self._citation_delta(event.annotation, event.output_index)
            case ContentPartDone(part=OutputText() as part):
                self._report_partial_citations(part, event.output_index)
                return self._close_block()
            case ContentPartDone(part=Refusal()):
                return self._close_block()
            case SummaryTextDelta():
                return self._thinking_delta(event.delta, (event.output_index, event.summary_index))
            case _:
                return []

    # Items

    def _begin_item(self, item: Item, index: int) -> list[BlockEvent]:
        self._is_streamed = False
        match item:
            case FunctionCall():
                return self._open_call(item, self._names.client_name(key_of_call(item)))
            case CustomToolCall():
                name = self._names.client_name(key_of_call(item))
                return [
                    *self._open_call(item, name),
                    self._block_delta(InputJsonDeltaOut(partial_json=freeform_tools.ARGUMENTS_PREFIX)),
                ]
            case Message() | Reasoning():
                self._paragraphs = ReasoningParagraphs()
            case UnknownItem() if block_from_item(item) is not None:
                pass
            case _:
                self._answer_losses.report_item(index, item)
        return []

    def _end_item(self, item: Item, index: int) -> list[BlockEvent]:
        """End an item. An item that was not streamed is sent now."""
        self._answer_losses.report_item_fields(index, item)
        match item:
            case FunctionCall():
                pieces = [] if self._is_streamed else self._arguments_delta(item.arguments)
                if arguments_as_object(item.arguments) is None:
                    self._losses.add(
                        f"output[{index}].arguments",
                        "arguments that are not a JSON object",
                        "the API accepts only objects",
                    )
                return pieces + self._close_block()
            case CustomToolCall():
                return self._end_custom(item)
            case Reasoning():
                return self._end_reasoning(item, index)
            case Message():
                return [] if self._is_streamed else self._write_whole_message(item, index)
            case UnknownItem():
                block = block_from_item(item)
                return [] if block is None else [self._open_block(block), *self._close_block()]
            case _:
                return []

    def _open_call(self, call: FunctionCall | CustomToolCall, name: str) -> list[BlockEvent]:
        self._call_count += 1
        return [self._open_block(AnswerToolUseBlock(id=call.call_id, name=name, input={}))]

    def _arguments_delta(self, piece: str) -> list[BlockEvent]:
        self._is_streamed = True
        return [self._block_delta(InputJsonDeltaOut(partial_json=piece))] if piece else []

    def _end_custom(self, call: CustomToolCall) -> list[BlockEvent]:
        pieces = [] if self._is_streamed else self._arguments_delta(freeform_tools.wrap_delta(call.input))
        if call.status != ItemStatus.INCOMPLETE:  # a call that was cut must not look complete
            pieces += self._arguments_delta(freeform_tools.ARGUMENTS_SUFFIX)
        return pieces + self._close_block()

    def _end_reasoning(self, item: Reasoning, index: int) -> list[BlockEvent]:
        """RSN-2: the sealed reasoning is the signature, directly before the end of the block."""
        pieces = [] if self._is_streamed else self._write_whole_reasoning(item, index)
        sealed = item.encrypted_content or ""
        if sealed and not self._is_open:
            return [*pieces, self._open_block(AnswerRedactedThinkingBlock(data=sealed)), *self._close_block()]
        if sealed:
            pieces.append(self._block_delta(SignatureDeltaOut(signature=sealed)))
        return pieces + self._close_block()

    def _write_whole_reasoning(self, item: Reasoning, index: int) -> list[BlockEvent]:
        thoughts = reasoning_texts(index, item, self._answer_losses.report_part)
        return [piece for text, part in thoughts for piece in self._thinking_delta(text, part)]

    def _write_whole_message(self, item: Message, index: int) -> list[BlockEvent]:
        if self._answer_losses.report_other_role(index, item):
            return []
        return [piece for part in item.content for piece in self._write_whole_part(part, index)]

    def _write_whole_part(self, part: Content, index: int) -> list[BlockEvent]:
        self._answer_losses.report_part_fields(index, part)
        match part:
            case OutputText():
                if part.logprobs:
                    self._report_logprobs(index)
                self._report_partial_citations(part, index)
                pieces = self._text_delta(part.text)
                pieces += [
                    piece for annotation in part.annotations for piece in self._citation_delta(annotation, index)
                ]
                return pieces + self._close_block()
            case Text(text=text) | InputText(text=text):
                return self._text_delta(text) + self._close_block()
            case Refusal(refusal=refusal):
                return self._refusal_delta(refusal) + self._close_block()
            case _:
                self._answer_losses.report_part(index, part)
                return []

    # Blocks

    def _text_delta(self, piece: str) -> list[BlockEvent]:
        return (
            [*self._open_if_closed(AnswerTextBlock(text="")), self._block_delta(TextDeltaOut(text=piece))]
            if piece
            else []
        )

    def _refusal_delta(self, piece: str) -> list[BlockEvent]:
        self._has_refused = True
        return self._text_delta(piece)

    def _citation_delta(self, annotation: Annotation, index: int) -> list[BlockEvent]:
        citation = citation_from_hub(annotation)
        if citation is None:
            self._losses.add(
                f"output[{index}].annotations",
                f"an annotation of type {type_of(annotation)!r}",
                "the API has no equivalent",
            )
            return []
        return [
            *self._open_if_closed(AnswerTextBlock(text="")),
            self._block_delta(CitationsDeltaOut(citation=citation)),
        ]

    def _thinking_delta(self, piece: str, part: Hashable) -> list[BlockEvent]:
        """A thinking delta. An item's reasoning is one text, in which each part of a summary starts a new paragraph."""
        if not piece:
            return []
        return [
            *self._open_if_closed(AnswerThinkingBlock(thinking="", signature="")),
            self._block_delta(ThinkingDeltaOut(thinking=self._paragraphs.separate(piece, part))),
        ]

    def _open_if_closed(self, block: AnswerBlockOut) -> list[BlockEvent]:
        return [] if self._is_open else [self._open_block(block)]

    def _open_block(self, block: AnswerBlockOut) -> BlockEvent:
        self._is_open = True
        return BlockStart(index=self._block_index, content_block=block)

    def _block_delta(self, delta: DeltaOut) -> BlockEvent:
        return BlockDelta(index=self._block_index, delta=delta)

    def _close_block(self) -> list[BlockEvent]:
        if not self._is_open:
            return []
        self.open_text, self._is_open, self._block_index = None, False, self._block_index + 1
        return [BlockStop(index=self._block_index - 1)]

    # Losses

    def _report_logprobs(self, index: int) -> None:
        self._losses.add(f"output[{index}].logprobs", "log probabilities", "the API has no equivalent")

    def _report_partial_citations(self, part: OutputText, index: int) -> None:
        whole_text = (0, len(part.text))
        for annotation in part.annotations:
            if isinstance(annotation, UrlCitation) and (annotation.start_index, annotation.end_index) != whole_text:
                self._losses.add(
                    f"output[{index}].annotations", "the range of a citation", "it applies to the whole block"
                )


def usage_from_hub(response: Response) -> UsageOut:
    """The service tier and the token counts.

    A message always has usage, so unknown usage is zeros, or null where the API allows it. The input
    count of this API excludes tokens read from and written to the cache.
    """
    usage, tier = response.usage, tier_from_hub(response.service_tier)
    if usage is None:
        return UsageOut(
            input_tokens=0,
            cache_creation_input_tokens=None,
            cache_read_input_tokens=0,
            output_tokens=0,
            service_tier=tier or UNSET,
        )
    details = usage.input_tokens_details
    written = details.cache_write_tokens
    thoughts = usage.output_tokens_details.reasoning_tokens
    return UsageOut(
        input_tokens=max(0, usage.input_tokens - details.cached_tokens - (written or 0)),
        cache_creation_input_tokens=written if isinstance(written, int) else None,
        cache_read_input_tokens=details.cached_tokens,
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetailsOut(thinking_tokens=thoughts) if thoughts else UNSET,
        cache_creation=(details.extra or {}).get(CACHE_CREATION_FIELD, UNSET),
        service_tier=tier or UNSET,
    )


def _item_key(event: Any) -> Hashable:
    index: int = event.output_index
    return index


def _part_key(event: Any) -> Hashable:
    return ("content", event.content_index) if isinstance(event, ContentPartEvent) else ("summary", event.summary_index)


STOP_REASONS: Final[dict[str, str]] = {
    "max_output_tokens": "max_tokens",
    "max_output_bytes": "max_tokens",
    "max_output_items": "max_tokens",
    "content_filter": "refusal",
}
