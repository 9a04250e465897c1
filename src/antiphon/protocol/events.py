"""The 24 events of a stream (B-2), those of custom tools, and a type for unknown events (ITEM-5).

Every event has a sequence number (STR-5). The hub uses the names of the specification; `REASONING_TEXT_EVENTS` maps the
other names of reasoning events, which are accepted too. The `responses` dialect decides which names a client gets.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown
from antiphon.protocol.content import Annotation, Content, LogProb
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response


class Event(Shape, frozen=True, kw_only=True):
    sequence_number: int


class ResponseEvent(Event, frozen=True, kw_only=True):
    response: Response


class ResponseCreated(ResponseEvent, frozen=True, kw_only=True, tag="response.created"):
    """STR-1: first."""


class ResponseQueued(ResponseEvent, frozen=True, kw_only=True, tag="response.queued"):
    """STR-1: waiting for its turn."""


class ResponseInProgress(ResponseEvent, frozen=True, kw_only=True, tag="response.in_progress"):
    """STR-1: before any output."""


class ResponseCompleted(ResponseEvent, frozen=True, kw_only=True, tag="response.completed"):
    """STR-7: terminal."""


class ResponseFailed(ResponseEvent, frozen=True, kw_only=True, tag="response.failed"):
    """STR-7: terminal."""


class ResponseIncomplete(ResponseEvent, frozen=True, kw_only=True, tag="response.incomplete"):
    """STR-7: terminal."""


class ItemAdded(Event, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item of the output begins."""

    output_index: int
    item: Item | None


class ItemDone(Event, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item of the output is complete."""

    output_index: int
    item: Item | None


class _EventInItem(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class _EventInPart(_EventInItem, frozen=True, kw_only=True):
    content_index: int


class _EventInSummary(_EventInItem, frozen=True, kw_only=True):
    summary_index: int


class ContentPartAdded(_EventInPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    """A part of the content of an item begins."""

    part: Content


class ContentPartDone(_EventInPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    """A part of the content of an item is complete."""

    part: Content


class OutputTextDelta(_EventInPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """The next piece of a text."""

    delta: str
    logprobs: list[LogProb] | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


class TextRun(Struct, frozen=True, gc=False):
    """Consecutive deltas of one output text, which a fast upstream sent at once. Used only inside the gateway:
    `events` expands it."""

    sequence_number: int  # of the first
    item_id: str
    output_index: int
    content_index: int
    deltas: list[str]

    def events(self) -> list[OutputTextDelta]:
        """The events that this run replaces."""
        return [
            OutputTextDelta(
                sequence_number=number,
                item_id=self.item_id,
                output_index=self.output_index,
                content_index=self.content_index,
                delta=delta,
                logprobs=[],
            )
            for number, delta in enumerate(self.deltas, self.sequence_number)
        ]


class OutputTextDone(_EventInPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    """A text is complete."""

    text: str
    logprobs: list[LogProb] | UnsetType = UNSET


class AnnotationAdded(_EventInPart, frozen=True, kw_only=True, tag="response.output_text.annotation.added"):
    """An annotation was added to a part of a text."""

    annotation_index: int
    annotation: Annotation | None


class RefusalDelta(_EventInPart, frozen=True, kw_only=True, tag="response.refusal.delta"):
    """The next piece of a refusal."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class RefusalDone(_EventInPart, frozen=True, kw_only=True, tag="response.refusal.done"):
    """A refusal is complete."""

    refusal: str


class ReasoningDelta(_EventInPart, frozen=True, kw_only=True, tag="response.reasoning.delta"):
    """The next piece of reasoning."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningDone(_EventInPart, frozen=True, kw_only=True, tag="response.reasoning.done"):
    """A part of reasoning is complete."""

    text: str


class SummaryPartAdded(_EventInSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_part.added"):
    """A part of a summary of reasoning begins."""

    part: Content


class SummaryPartDone(_EventInSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_part.done"):
    """A part of a summary of reasoning is complete."""

    part: Content


class SummaryTextDelta(_EventInSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_text.delta"):
    """The next piece of a summary of reasoning."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class SummaryTextDone(_EventInSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_text.done"):
    """The text of a part of a summary of reasoning is complete."""

    text: str


class ArgumentsDelta(_EventInItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """The next piece of the arguments of a function call."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class ArgumentsDone(_EventInItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """The arguments of a function call are complete."""

    arguments: str
    name: str | UnsetType = UNSET  # beyond the specification: some clients read it


class CustomInputDelta(_EventInItem, frozen=True, kw_only=True, tag="response.custom_tool_call_input.delta"):
    """The next piece of the input of a custom tool call."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class CustomInputDone(_EventInItem, frozen=True, kw_only=True, tag="response.custom_tool_call_input.done"):
    """The input of a custom tool call is complete."""

    input: str


class ErrorEvent(Event, frozen=True, kw_only=True, tag="error"):
    """STR-8: before `response.failed`, once a stream has begun."""

    error: ErrorPayload


class UnknownEvent(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """An event of unknown type. Its raw bytes contain its sequence number too."""

    sequence_number: int


StreamEvent = (
    ResponseCreated
    | ResponseQueued
    | ResponseInProgress
    | ResponseCompleted
    | ResponseFailed
    | ResponseIncomplete
    | ItemAdded
    | ItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | AnnotationAdded
    | RefusalDelta
    | RefusalDone
    | ReasoningDelta
    | ReasoningDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryTextDelta
    | SummaryTextDone
    | ArgumentsDelta
    | ArgumentsDone
    | CustomInputDelta
    | CustomInputDone
    | ErrorEvent
    | UnknownEvent
)
TerminalEvent = ResponseCompleted | ResponseFailed | ResponseIncomplete
DeltaEvent = OutputTextDelta | RefusalDelta | ReasoningDelta | SummaryTextDelta | ArgumentsDelta | CustomInputDelta
SummaryPartEvent = SummaryPartAdded | SummaryPartDone | SummaryTextDelta | SummaryTextDone
ContentPartEvent = (
    ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | AnnotationAdded
    | RefusalDelta
    | RefusalDone
    | ReasoningDelta
    | ReasoningDone
)
PartEvent = ContentPartEvent | SummaryPartEvent
CallEvent = ArgumentsDelta | ArgumentsDone | CustomInputDelta | CustomInputDone
# The type on the wire, by class.
TYPE_OF_EVENT: Final[dict[type, str]] = {
    cls: str(cls.__struct_config__.tag) for cls in StreamEvent.__args__ if cls is not UnknownEvent
}
RESPONSE_EVENTS: Final[frozenset[type]] = frozenset(cls for cls in TYPE_OF_EVENT if issubclass(cls, ResponseEvent))
# STR-10: the reasoning event names that most clients and servers use → the names of the specification.
REASONING_TEXT_EVENTS: Final = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}
#: The member that has the whole text of a part or a call, by the type of the event that ends it.
DONE_TEXT_FIELDS: Final[dict[type, str]] = {
    OutputTextDone: "text",
    ReasoningDone: "text",
    SummaryTextDone: "text",
    RefusalDone: "refusal",
    ArgumentsDone: "arguments",
    CustomInputDone: "input",
}
