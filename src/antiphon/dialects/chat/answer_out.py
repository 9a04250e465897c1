"""Translates hub events into pieces of a chat message. A response that is not streamed joins the pieces (STR-14).

All output goes into one message (E-3): texts in their order, refusals, calls, and reasoning in its own fields. Output
that Chat cannot hold is reported as a loss.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from antiphon.dialects.chat.reasoning import excludes_reasoning
from antiphon.dialects.chat.response_wire import (
    AnnotationOut,
    ChoiceOut,
    CitationOut,
    CompletionDetailsOut,
    CustomPiece,
    DetailOut,
    FunctionPiece,
    LogProbsOut,
    MessagePiece,
    PromptDetailsOut,
    TokenOut,
    ToolCallPiece,
    UsageOut,
)
from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.answer_losses import AnswerLosses
from antiphon.dialects.common.message_separator import MessageSeparator
from antiphon.dialects.common.reasoning_texts import TEXT_PART, ReasoningParagraphs, reasoning_texts
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames, key_of_call, tools_of_request
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.content import (
    Annotation,
    InputText,
    LogProb,
    OutputText,
    Refusal,
    Text,
    UnknownAnnotation,
)
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    ContentPartAdded,
    CustomInputDelta,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    SummaryPartAdded,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.items import (
    CustomToolCall,
    FunctionCall,
    Item,
    Message,
    Reasoning,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import CustomTool


class _AnnouncedCall(NamedTuple):
    """The index and the form that a call was announced with."""

    number: int
    form: Literal["function", "custom", "one_string"]


class AnswerFromHub:
    """Translates one response for one client."""

    def __init__(self, request: Request, losses: Losses) -> None:
        self._losses = losses
        self._answer_losses = AnswerLosses(losses)
        self._names = ToolNames.for_request(request, PLAIN_NAMES)
        self._custom_names = {tool.name for tool in tools_of_request(request) if isinstance(tool, CustomTool)}
        self._calls: dict[int, _AnnouncedCall] = {}  # by output index
        self._streamed_indexes: set[int] = set()  # output indexes of items whose content was streamed
        self._paragraphs = ReasoningParagraphs()
        self._shows_reasoning = not excludes_reasoning(request)
        self._separator = MessageSeparator()
        self._pending_sealed: list[str] = []  # encrypted reasoning that is sent with the next message or call
        self._detail_count = 0
        #: Citations are sent together at the end, because clients read only one list of them.
        self._annotations: list[Any] = []

    def feed(self, event: StreamEvent) -> ChoiceOut | None:
        """Return the piece for an event, if any."""
        match event:
            case OutputTextDelta():
                return _text_piece(event.delta, event.logprobs or [])
            case ReasoningDelta():
                return self._reasoning_piece(event.delta, TEXT_PART)
            case SummaryTextDelta():
                return self._reasoning_piece(event.delta, (event.output_index, event.summary_index))
            case RefusalDelta():
                return ChoiceOut(delta=MessagePiece(refusal=event.delta))
            case ArgumentsDelta() | CustomInputDelta():
                self._streamed_indexes.add(event.output_index)
                return self._arguments_piece(event.output_index, event.delta)
            case AnnotationAdded() if event.annotation is not None:
                self._annotations.append(_annotation_from_hub(event.annotation))
            case ContentPartAdded():
                self._streamed_indexes.add(event.output_index)
                gap = self._separator.before_part(event.output_index, event.part)
                return _text_piece(gap, []) if gap else None
            case SummaryPartAdded():
                self._streamed_indexes.add(event.output_index)
            case ItemAdded() if event.item is not None:
                return self._begin_item(event.output_index, event.item)
            case ItemDone() if event.item is not None:
                return self._end_item(event.output_index, event.item)
            case UnknownEvent():
                self._answer_losses.report_event(event)
        return None

    def flush(self) -> MessagePiece:
        """Return the pending reasoning and annotations at the end."""
        annotations, self._annotations = self._annotations, []
        return MessagePiece(reasoning_details=self._take_sealed(), annotations=annotations or UNSET)

    def finish_reason(self, response: Response) -> str:
        """REQ-3: return the finish reason."""
        report_unknown_fields(response, "response", self._losses)
        complete_reason = "tool_calls" if self._calls else "stop"
        return self._answer_losses.incomplete_reason(response, FINISH_REASONS, "length") or complete_reason

    def _begin_item(self, index: int, item: Item) -> ChoiceOut | None:
        match item:
            case Message():
                details = self._take_sealed()
                return ChoiceOut(delta=MessagePiece(reasoning_details=details)) if details else None
            case Reasoning():
                return None
            case FunctionCall():
                name = self._names.client_name(key_of_call(item))
                return self._announce_call(index, item, FunctionPiece(name=name, arguments=""), "function")
            case CustomToolCall() if item.name in self._custom_names and not item.namespace:
                return self._announce_call(index, item, CustomPiece(name=item.name, input=""), "custom")
            case CustomToolCall():
                # A tool that the client did not offer as custom is called as a function with one string.
                name = self._names.client_name(key_of_call(item))
                return self._announce_call(
                    index, item, FunctionPiece(name=name, arguments=freeform_tools.ARGUMENTS_PREFIX), "one_string"
                )
            case _:
                self._answer_losses.report_item(index, item)
                return None

    def _end_item(self, index: int, item: Item) -> ChoiceOut | None:
        """End an item. Its content is sent now if it was not streamed."""
        was_streamed = index in self._streamed_indexes
        self._answer_losses.report_item_fields(index, item)
        match item:
            case FunctionCall() if not was_streamed:
                return self._arguments_piece(index, item.arguments)
            case CustomToolCall():
                is_whole = item.status != ItemStatus.INCOMPLETE
                return self._arguments_piece(index, "" if was_streamed else item.input, is_last=is_whole)
            case Message() if not was_streamed:
                return self._whole_message(index, item)
            case Reasoning():
                if item.encrypted_content:
                    self._pending_sealed.append(item.encrypted_content)
                if not was_streamed:
                    return self._whole_reasoning(index, item)
        return None

    def _announce_call(
        self,
        index: int,
        call: FunctionCall | CustomToolCall,
        piece: FunctionPiece | CustomPiece,
        form: Literal["function", "custom", "one_string"],
    ) -> ChoiceOut:
        call_index = len(self._calls)
        self._calls[index] = _AnnouncedCall(call_index, form)
        if isinstance(piece, CustomPiece):
            call_piece = ToolCallPiece(index=call_index, id=call.call_id, type="custom", custom=piece)
        else:
            call_piece = ToolCallPiece(index=call_index, id=call.call_id, type="function", function=piece)
        return ChoiceOut(delta=MessagePiece(reasoning_details=self._take_sealed(call.call_id), tool_calls=[call_piece]))

    def _arguments_piece(self, index: int, text: str, is_last: bool = False) -> ChoiceOut | None:
        call_index, form = self._calls[index]
        if form == "one_string":
            text = freeform_tools.wrap_delta(text) + (freeform_tools.ARGUMENTS_SUFFIX if is_last else "")
        if not text:
            return None
        if form == "custom":
            return _calls(ToolCallPiece(index=call_index, custom=CustomPiece(input=text)))
        return _calls(ToolCallPiece(index=call_index, function=FunctionPiece(arguments=text)))

    def _reasoning_piece(self, text: str, part: Hashable) -> ChoiceOut | None:
        """Return reasoning text. Chat has one string for all of it; each summary part is a paragraph."""
        if not self._shows_reasoning:
            return None
        return ChoiceOut(delta=MessagePiece(reasoning_content=self._paragraphs.separate(text, part)))

    def _take_sealed(self, call_id: str | UnsetType = UNSET) -> list[DetailOut] | UnsetType:
        """RSN-2: return the encrypted reasoning as details, which clients send back unread."""
        if not self._pending_sealed:
            return UNSET
        sealed, self._pending_sealed = self._pending_sealed, []
        first = self._detail_count
        self._detail_count += len(sealed)
        return [DetailOut(id=call_id, data=data, index=first + offset) for offset, data in enumerate(sealed)]

    def _whole_reasoning(self, index: int, item: Reasoning) -> ChoiceOut | None:
        pieces = [
            piece
            for text, part in reasoning_texts(index, item, self._answer_losses.report_part)
            if (piece := self._reasoning_piece(text, part))
        ]
        return join_pieces(pieces) if pieces else None

    def _whole_message(self, index: int, item: Message) -> ChoiceOut | None:
        if self._answer_losses.report_other_role(index, item):
            return None
        pieces: list[ChoiceOut] = []
        for part in item.content:
            self._answer_losses.report_part_fields(index, part)
            match part:
                case OutputText():
                    gap = self._separator.before_part(index, part)
                    pieces.append(_text_piece(gap + part.text, part.logprobs or []))
                    self._annotations += map(_annotation_from_hub, part.annotations)
                case Text(text=text) | InputText(text=text):
                    pieces.append(_text_piece(text, []))
                case Refusal():
                    pieces.append(ChoiceOut(delta=MessagePiece(refusal=part.refusal)))
                case _:
                    self._answer_losses.report_part(index, part)
        return join_pieces(pieces) if pieces else None


def join_pieces(pieces: list[ChoiceOut]) -> ChoiceOut:
    """Join the pieces of one message."""
    deltas = [piece.delta for piece in pieces if piece.delta]
    logprobs = [token for piece in pieces if piece.logprobs for token in piece.logprobs.content]
    return ChoiceOut(
        delta=MessagePiece(
            content=_join_texts([delta.content for delta in deltas]),
            reasoning_content=_join_texts([delta.reasoning_content for delta in deltas]),
            reasoning_details=[detail for delta in deltas for detail in delta.reasoning_details or ()] or UNSET,
            refusal=_join_texts([delta.refusal for delta in deltas]),
            annotations=[annotation for delta in deltas for annotation in delta.annotations or ()] or UNSET,
            tool_calls=_join_calls([call for delta in deltas for call in delta.tool_calls or ()]) or UNSET,
        ),
        logprobs=LogProbsOut(content=logprobs) if logprobs else None,
    )


def usage_from_hub(usage: Usage) -> UsageOut:
    written = usage.input_tokens_details.cache_write_tokens
    return UsageOut(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptDetailsOut(
            cached_tokens=usage.input_tokens_details.cached_tokens,
            cache_write_tokens=UNSET if written is None else written,
        ),
        completion_tokens_details=CompletionDetailsOut(reasoning_tokens=usage.output_tokens_details.reasoning_tokens),
    )


def _text_piece(text: str, logprobs: list[LogProb]) -> ChoiceOut:
    return ChoiceOut(delta=MessagePiece(content=text), logprobs=_logprobs_from_hub(logprobs) if logprobs else None)


def _calls(call: ToolCallPiece) -> ChoiceOut:
    return ChoiceOut(delta=MessagePiece(tool_calls=[call]))


def _logprobs_from_hub(logprobs: list[LogProb]) -> LogProbsOut:
    return LogProbsOut(
        content=[
            TokenOut(
                token=token.token,
                logprob=token.logprob,
                bytes=token.bytes or None,
                top_logprobs=[
                    TokenOut(token=top.token, logprob=top.logprob, bytes=top.bytes or None)
                    for top in token.top_logprobs
                ],
            )
            for token in logprobs
        ]
    )


def _annotation_from_hub(annotation: Annotation) -> Any:
    """Translate a citation to its nested form. Other kinds are kept."""
    if isinstance(annotation, UnknownAnnotation):
        return annotation.raw
    return AnnotationOut(
        url_citation=CitationOut(
            start_index=annotation.start_index,
            end_index=annotation.end_index,
            url=annotation.url,
            title=annotation.title,
        )
    )


def _join_texts(texts: list[str | None | UnsetType]) -> str | UnsetType:
    non_empty = [text for text in texts if text]
    return "".join(non_empty) if non_empty else UNSET


def _join_calls(pieces: list[ToolCallPiece]) -> list[ToolCallPiece]:
    """Join the pieces of calls. Complete calls have no index."""
    by_index: dict[int | UnsetType, list[ToolCallPiece]] = {}
    for piece in pieces:
        by_index.setdefault(piece.index, []).append(piece)
    return [_join_call(parts) for parts in by_index.values()]


def _join_call(pieces: list[ToolCallPiece]) -> ToolCallPiece:
    first = pieces[0]
    if first.custom:
        joined_input = "".join(piece.custom.input or "" for piece in pieces if piece.custom)
        return ToolCallPiece(
            id=first.id, type=first.type, custom=CustomPiece(name=first.custom.name, input=joined_input)
        )
    name = first.function.name if first.function else UNSET
    arguments = "".join(piece.function.arguments or "" for piece in pieces if piece.function)
    return ToolCallPiece(id=first.id, type=first.type, function=FunctionPiece(name=name, arguments=arguments))


FINISH_REASONS: Final[dict[str, str]] = {
    "max_output_tokens": "length",
    "max_output_bytes": "length",
    "max_output_items": "length",
    "content_filter": "content_filter",
}
