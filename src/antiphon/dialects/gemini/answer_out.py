"""Translates hub events to pieces of a gemini candidate. A stream sends each piece; a whole answer joins them (STR-14).

A call is sent whole when it is done. Sealed reasoning becomes the signature of the next part (RSN-2), or of an empty
part if no part follows or another signature is pending. Thoughts are sent only to clients that asked for them, as the
API does. Unsupported content is reported as a loss.
"""

from __future__ import annotations

import base64
from collections.abc import Hashable
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.answer_losses import AnswerLosses
from antiphon.dialects.common.call_arguments import arguments_as_object, wrap_arguments
from antiphon.dialects.common.message_separator import MessageSeparator
from antiphon.dialects.common.reasoning_texts import TEXT_PART, ReasoningParagraphs, reasoning_texts
from antiphon.dialects.common.tool_names import GEMINI_NAMES, ToolKind, ToolNames
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.gemini.content_out import native_part
from antiphon.dialects.gemini.response_wire import (
    AnswerContentOut,
    AnswerFunctionCallOut,
    AnswerPartOut,
    CandidateOut,
    CitationMetadataOut,
    CitationSourceOut,
    LogprobsResultOut,
    TokenOut,
    TopCandidatesOut,
    UsageOut,
)
from antiphon.dialects.gemini.wire import PREFIX
from antiphon.protocol.content import (
    Content,
    InputText,
    LogProb,
    OutputText,
    Refusal,
    Text,
    UnknownAnnotation,
)
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
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
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning, UnknownItem
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus

AnyAnswerPart = AnswerPartOut | dict[str, Raw]


class AnswerFromHub:
    """Translates one answer for one client."""

    def __init__(self, request: Request, losses: Losses) -> None:
        #: Sealed reasoning that the next part will carry as its signature.
        self.pending_signature = ""
        self._losses = losses
        self._answer_losses = AnswerLosses(losses)
        self._names = ToolNames.for_request(request, GEMINI_NAMES)
        self._shows_thoughts = bool(request.reasoning and request.reasoning.summary)
        self._streamed_indexes: set[int] = set()  # output indexes of items that were sent piece by piece
        self._paragraphs = ReasoningParagraphs()
        self._separator = MessageSeparator()
        self._citations: list[CitationSourceOut] = []
        self._text_length = 0  # bytes of complete text so far, because citations count bytes
        self._is_refusal = False

    def feed(self, event: StreamEvent) -> CandidateOut | None:
        """The piece for an event, if any."""
        match event:
            case OutputTextDelta():
                return self._text_piece(event.delta, event.logprobs or [])
            case ReasoningDelta():
                return _candidate_piece(self._thought_parts(event.delta, TEXT_PART))
            case SummaryTextDelta():
                return _candidate_piece(self._thought_parts(event.delta, (event.output_index, event.summary_index)))
            case RefusalDelta():
                return self._refusal_piece(event.delta)
            case ContentPartAdded():
                self._streamed_indexes.add(event.output_index)
                return self._gap_piece(event.output_index, event.part)
            case SummaryPartAdded():
                self._streamed_indexes.add(event.output_index)
            case ContentPartDone():
                self._collect_citations(event.part)
            case ItemAdded() if event.item is not None:
                self._check_item(event.output_index, event.item)
            case ItemDone() if event.item is not None:
                return self._end_item(event.output_index, event.item)
            case UnknownEvent():
                self._answer_losses.report_event(event)
        return None

    def final_candidate(self, response: Response) -> CandidateOut:
        """The piece with the finish reason. It has an empty part: clients reject a candidate without parts."""
        return CandidateOut(
            content=AnswerContentOut(parts=[AnswerPartOut(text="", thought_signature=self._take_signature())]),
            finish_reason=self._finish_reason(response),
            citation_metadata=CitationMetadataOut(citation_sources=self._citations) if self._citations else UNSET,
        )

    def _finish_reason(self, response: Response) -> str:
        """REQ-3. A refusal becomes SAFETY: the API has no finish reason for it."""
        report_unknown_fields(response, "response", self._losses)
        complete_reason = "SAFETY" if self._is_refusal else "STOP"
        return self._answer_losses.incomplete_reason(response, FINISH_REASONS, "OTHER") or complete_reason

    # Items

    def _check_item(self, index: int, item: Item) -> None:
        is_supported = isinstance(item, Message | Reasoning | FunctionCall | CustomToolCall) or _is_native_item(item)
        if not is_supported:
            self._answer_losses.report_item(index, item)

    def _end_item(self, index: int, item: Item) -> CandidateOut | None:
        """End an item. An item that was not streamed is sent now."""
        self._answer_losses.report_item_fields(index, item)
        match item:
            case FunctionCall() | CustomToolCall():
                return self._call_piece(index, item)
            case Message():
                return None if index in self._streamed_indexes else self._whole_message(index, item)
            case Reasoning():
                thoughts = [] if index in self._streamed_indexes else self._whole_reasoning(index, item)
                return _candidate_piece([*thoughts, *self._keep_signature(item.encrypted_content or "")])
            case UnknownItem() if _is_native_item(item):
                self._separator.end_text()
                own, signature = native_part(item), self._take_signature()
                return _candidate_piece(
                    [{**own, "thoughtSignature": Raw(msgspec.json.encode(signature))} if signature else own]
                )
            case _:
                return None

    def _call_piece(self, index: int, call: FunctionCall | CustomToolCall) -> CandidateOut | None:
        arguments = self._arguments_or_none(index, call)
        if arguments is None:
            self._losses.add(f"output[{index}]", f"the call of {call.name!r}", "it is truncated")
            return None
        self._separator.end_text()
        kind: ToolKind = "function" if isinstance(call, FunctionCall) else "custom"
        name = self._names.client_name((kind, call.name, call.namespace or None))
        function_call = AnswerFunctionCallOut(id=call.call_id, name=name, args=arguments)
        return _candidate_piece([AnswerPartOut(function_call=function_call, thought_signature=self._take_signature())])

    def _arguments_or_none(self, index: int, call: FunctionCall | CustomToolCall) -> Raw | None:
        """The arguments as an object; None if the call was cut."""
        was_cut = call.status == ItemStatus.INCOMPLETE
        if isinstance(call, CustomToolCall):
            return None if was_cut else Raw(freeform_tools.wrap_input(call.input).encode())
        arguments = arguments_as_object(call.arguments) if call.arguments.strip() or not was_cut else None
        if arguments is None and not was_cut:
            self._losses.add(
                f"output[{index}].arguments", "arguments that are not a JSON object", "they are wrapped in one"
            )
            return wrap_arguments(call.arguments)
        return arguments

    def _whole_message(self, index: int, item: Message) -> CandidateOut | None:
        if self._answer_losses.report_other_role(index, item):
            return None
        pieces: list[CandidateOut | None] = []
        for part in item.content:
            self._answer_losses.report_part_fields(index, part)
            match part:
                case OutputText():
                    pieces.append(self._gap_piece(index, part))
                    pieces.append(self._text_piece(part.text, part.logprobs or []))
                    self._collect_citations(part)
                case Text(text=text) | InputText(text=text):
                    pieces.append(self._text_piece(text, []))
                case Refusal():
                    pieces.append(self._refusal_piece(part.refusal))
                case _:
                    self._answer_losses.report_part(index, part)
        return join_candidates([piece for piece in pieces if piece is not None])

    def _whole_reasoning(self, index: int, item: Reasoning) -> list[AnyAnswerPart]:
        thoughts = reasoning_texts(index, item, self._answer_losses.report_part)
        return [answer_part for text, part in thoughts for answer_part in self._thought_parts(text, part)]

    # Parts

    def _text_piece(self, text: str, logprobs: list[LogProb]) -> CandidateOut | None:
        if not text and not logprobs:
            return None
        piece = _candidate_piece([AnswerPartOut(text=text, thought_signature=self._take_signature())])
        return (
            msgspec.structs.replace(piece, logprobs_result=_logprobs_from_hub(logprobs))
            if piece and logprobs
            else piece
        )

    def _gap_piece(self, index: int, part: Content) -> CandidateOut | None:
        """The blank line before a text, if the text begins another message. It carries no signature."""
        gap = self._separator.before_part(index, part)
        self._text_length += len(gap)
        return _candidate_piece([AnswerPartOut(text=gap)] if gap else [])

    def _refusal_piece(self, text: str) -> CandidateOut | None:
        self._is_refusal = True
        self._text_length += len(text.encode())
        return self._text_piece(text, [])

    def _thought_parts(self, text: str, part: Hashable) -> list[AnyAnswerPart]:
        """A thought part. Each part of a summary starts a new paragraph."""
        if not self._shows_thoughts or not text:
            return []
        self._separator.end_text()
        return [
            *self._pending_signature_part(),
            AnswerPartOut(text=self._paragraphs.separate(text, part), thought=True),
        ]

    def _keep_signature(self, sealed: str) -> list[AnyAnswerPart]:
        """Keep the seal of a reasoning item for the next part. Returns a part for an already pending signature."""
        if not sealed:
            return []
        parts = self._pending_signature_part()
        self.pending_signature = base64.b64encode(sealed.encode()).decode()
        return parts

    def _pending_signature_part(self) -> list[AnyAnswerPart]:
        """The pending signature on an empty part: before a thought, or before another signature."""
        return (
            [AnswerPartOut(text="", thought=True, thought_signature=self._take_signature())]
            if self.pending_signature
            else []
        )

    def _take_signature(self) -> str | UnsetType:
        signature, self.pending_signature = self.pending_signature, ""
        return signature or UNSET

    def _collect_citations(self, part: Content) -> None:
        """STR-11: collect the sources of a text, sent at the end. Positions count bytes of the whole text."""
        if not isinstance(part, OutputText):
            return
        for annotation in part.annotations:
            if isinstance(annotation, UnknownAnnotation):
                self._losses.add(
                    "annotations", f"an annotation of type {annotation.kind!r}", "the API has no equivalent"
                )
                continue
            start, end = (
                self._text_length + len(part.text[:index].encode())
                for index in (annotation.start_index, annotation.end_index)
            )
            self._citations.append(
                CitationSourceOut(start_index=start, end_index=end, uri=annotation.url, title=annotation.title)
            )
        self._text_length += len(part.text.encode())


def join_candidates(pieces: list[CandidateOut]) -> CandidateOut | None:
    """Join pieces of one candidate into one piece; None if there are none."""
    if not pieces:
        return None
    parts: list[AnyAnswerPart] = []
    for part in [part for piece in pieces for part in piece.content.parts if part != EMPTY_PART]:
        if parts and (joined := _join_texts(parts[-1], part)) is not None:
            parts[-1] = joined
        else:
            parts.append(part)
    logprobs = [piece.logprobs_result for piece in pieces if piece.logprobs_result]
    return CandidateOut(
        content=AnswerContentOut(parts=parts or [EMPTY_PART]),
        finish_reason=pieces[-1].finish_reason,
        citation_metadata=pieces[-1].citation_metadata,
        logprobs_result=LogprobsResultOut(
            chosen_candidates=[token for result in logprobs for token in result.chosen_candidates],
            top_candidates=[top for result in logprobs for top in result.top_candidates],
        )
        if logprobs
        else UNSET,
    )


def usage_from_hub(response: Response) -> UsageOut | UnsetType:
    """REQ-4: the service tier and the token counts.

    The hub's output count includes thoughts, the API's does not. Both input counts include cached tokens.
    """
    usage = response.usage
    if usage is None:
        return UNSET
    thoughts = usage.output_tokens_details.reasoning_tokens
    return UsageOut(
        prompt_token_count=usage.input_tokens,
        candidates_token_count=max(usage.output_tokens - thoughts, 0),
        total_token_count=usage.total_tokens,
        cached_content_token_count=usage.input_tokens_details.cached_tokens or UNSET,
        thoughts_token_count=thoughts or UNSET,
        traffic_type=TRAFFIC_OF_TIER.get(response.service_tier, UNSET),
    )


def _candidate_piece(parts: list[AnyAnswerPart]) -> CandidateOut | None:
    return CandidateOut(content=AnswerContentOut(parts=parts)) if parts else None


def _is_native_item(item: Item) -> bool:
    return isinstance(item, UnknownItem) and item.kind.startswith(PREFIX)


def _join_texts(last: AnyAnswerPart, part: AnyAnswerPart) -> AnswerPartOut | None:
    """Join two pieces of one text; None if they cannot join. A signature precedes a text, and follows a thought."""
    if isinstance(last, dict) or isinstance(part, dict) or last.text is UNSET or part.text is UNSET:
        return None
    if last.thought is not part.thought or part.thought_signature or (last.thought and last.thought_signature):
        return None
    return msgspec.structs.replace(last, text=last.text + part.text)


def _logprobs_from_hub(logprobs: list[LogProb]) -> LogprobsResultOut:
    return LogprobsResultOut(
        chosen_candidates=[TokenOut(token=logprob.token, log_probability=logprob.logprob) for logprob in logprobs],
        top_candidates=[
            TopCandidatesOut(
                candidates=[TokenOut(token=top.token, log_probability=top.logprob) for top in logprob.top_logprobs]
            )
            for logprob in logprobs
        ],
    )


EMPTY_PART: Final = AnswerPartOut(text="")
FINISH_REASONS: Final[dict[str, str]] = {
    "max_output_tokens": "MAX_TOKENS",
    "max_output_bytes": "MAX_TOKENS",
    "max_output_items": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "malformed_function_call": "MALFORMED_FUNCTION_CALL",
    "unexpected_tool_call": "UNEXPECTED_TOOL_CALL",
    "tool_not_allowed": "UNEXPECTED_TOOL_CALL",
    "too_many_tool_calls": "TOO_MANY_TOOL_CALLS",
    "malformed_response": "MALFORMED_RESPONSE",
    "other": "OTHER",
}
#: The service tiers of an answer, in the words of this API. The default tier has no mark: the API omits it too.
TRAFFIC_OF_TIER: Final[dict[str | None, str]] = {
    "default": "ON_DEMAND",
    "priority": "ON_DEMAND_PRIORITY",
    "flex": "ON_DEMAND_FLEX",
}
