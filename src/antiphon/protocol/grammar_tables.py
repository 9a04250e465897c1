"""The grammar of a stream as tables: the life cycle of a response, of each output index, and of each part of an item.

Each table maps a stage to the events that are allowed there and to the stage that follows each of them. An event
without an entry is a violation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from antiphon.protocol.content import OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    UnknownEvent,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, HostedItem, Message, Reasoning
from antiphon.protocol.status import ResponseStatus


class ResponseStage(IntEnum):
    """The stage of a response."""

    NOT_CREATED = 0
    CREATED = 1
    QUEUED = 2
    IN_PROGRESS = 3
    FAILING = 4
    ENDED = 5


class ItemStage(IntEnum):
    """The stage of an output index. Only calls have the two `ARGUMENTS` stages."""

    ABSENT = 0
    ANNOUNCED = 1
    ARGUMENTS_OPEN = 2
    ARGUMENTS_DONE = 3
    DONE = 4


class PartStage(IntEnum):
    """The stage of a part. `WHOLE` is an open part of a kind that has no deltas."""

    ABSENT = 0
    OPEN = 1
    WHOLE = 2
    CONTENT_DONE = 3
    CLOSED = 4


_Stage = TypeVar("_Stage", ResponseStage, ItemStage, PartStage)


def next_stage(table: Mapping[_Stage, Mapping[type, _Stage]], stage: _Stage, event: StreamEvent) -> tuple[_Stage, bool]:
    """The stage after an event, and whether the event is allowed in the current stage.

    After a violation the result is the later of the current stage and the stage that the event leads to elsewhere.
    """
    kind = type(event)
    following_stage = table[stage].get(kind)
    if following_stage is not None:
        return following_stage, True
    later_stage = next((transitions[kind] for transitions in table.values() if kind in transitions), stage)
    return max(stage, later_stage), False


class StreamedKind(NamedTuple):
    """The two events that carry the content of a streamed kind of part."""

    delta: type
    done: type


STREAMED_KINDS: Final[dict[type, StreamedKind]] = {
    OutputText: StreamedKind(OutputTextDelta, OutputTextDone),
    Refusal: StreamedKind(RefusalDelta, RefusalDone),
    ReasoningText: StreamedKind(ReasoningDelta, ReasoningDone),
    SummaryText: StreamedKind(SummaryTextDelta, SummaryTextDone),
}
KIND_OF_EVENT: Final[dict[type, type]] = {
    AnnotationAdded: OutputText,
    **{event: part for part, kind in STREAMED_KINDS.items() for event in kind},
}
PART_ADDED_EVENTS: Final = (ContentPartAdded, SummaryPartAdded)
PART_DONE_EVENTS: Final = (ContentPartDone, SummaryPartDone)
CONTENT_DELTA_EVENTS: Final = tuple(kind.delta for kind in STREAMED_KINDS.values())
CONTENT_DONE_EVENTS: Final = tuple(kind.done for kind in STREAMED_KINDS.values())
CALL_DELTA_EVENTS: Final = (ArgumentsDelta, CustomInputDelta)
CALL_DONE_EVENTS: Final = (ArgumentsDone, CustomInputDone)
PART_EVENTS: Final = (
    *PART_ADDED_EVENTS,
    *CONTENT_DELTA_EVENTS,
    AnnotationAdded,
    *CONTENT_DONE_EVENTS,
    *PART_DONE_EVENTS,
)
OUTPUT_EVENTS: Final = (ItemAdded, *PART_EVENTS, *CALL_DELTA_EVENTS, *CALL_DONE_EVENTS, ItemDone, UnknownEvent)

# The life cycle of a response (STR-1, STR-7, STR-8).
RESPONSE_GRAMMAR: Final[dict[ResponseStage, dict[type, ResponseStage]]] = {
    ResponseStage.NOT_CREATED: {ResponseCreated: ResponseStage.CREATED},
    ResponseStage.CREATED: {ResponseQueued: ResponseStage.QUEUED, ResponseInProgress: ResponseStage.IN_PROGRESS},
    ResponseStage.QUEUED: {
        ResponseInProgress: ResponseStage.IN_PROGRESS,
        ErrorEvent: ResponseStage.FAILING,
        ResponseFailed: ResponseStage.ENDED,
    },
    ResponseStage.IN_PROGRESS: {
        **dict.fromkeys(OUTPUT_EVENTS, ResponseStage.IN_PROGRESS),
        ErrorEvent: ResponseStage.FAILING,
        ResponseCompleted: ResponseStage.ENDED,
        ResponseIncomplete: ResponseStage.ENDED,
        ResponseFailed: ResponseStage.ENDED,
    },
    ResponseStage.FAILING: {ResponseFailed: ResponseStage.ENDED},
    ResponseStage.ENDED: {},
}
ROW_OF_RESPONSE_STAGE: Final[dict[ResponseStage, str]] = {
    ResponseStage.NOT_CREATED: "STR-1",
    ResponseStage.CREATED: "STR-1",
    ResponseStage.QUEUED: "STR-1",
    ResponseStage.IN_PROGRESS: "STR-1",
    ResponseStage.FAILING: "STR-8",
}
EXPECTED_IN_RESPONSE_STAGE: Final[dict[ResponseStage, str]] = {
    ResponseStage.NOT_CREATED: "response.created before anything else",
    ResponseStage.CREATED: "response.in_progress or response.queued after response.created",
    ResponseStage.QUEUED: "response.in_progress, or error and response.failed, after response.queued",
    ResponseStage.IN_PROGRESS: "output, error or a terminal event: the response is in progress already",
    ResponseStage.FAILING: "response.failed after error",
}
STATUS_OF_EVENT: Final[dict[type, tuple[ResponseStatus, ...]]] = {
    ResponseCreated: (ResponseStatus.IN_PROGRESS, ResponseStatus.QUEUED),
    ResponseQueued: (ResponseStatus.QUEUED,),
    ResponseInProgress: (ResponseStatus.IN_PROGRESS,),
    ResponseCompleted: (ResponseStatus.COMPLETED,),
    ResponseIncomplete: (ResponseStatus.INCOMPLETE,),
    ResponseFailed: (ResponseStatus.FAILED, ResponseStatus.CANCELLED),  # there is no event for a cancelled response
}

# The life cycle of an output index (STR-2, STR-4, STR-9, ITEM-4).
ITEM_GRAMMAR: Final[dict[ItemStage, dict[type, ItemStage]]] = {
    ItemStage.ABSENT: {ItemAdded: ItemStage.ANNOUNCED},
    ItemStage.ANNOUNCED: {
        **dict.fromkeys(PART_EVENTS, ItemStage.ANNOUNCED),
        **dict.fromkeys(CALL_DELTA_EVENTS, ItemStage.ARGUMENTS_OPEN),
        **dict.fromkeys(CALL_DONE_EVENTS, ItemStage.ARGUMENTS_DONE),
        ItemDone: ItemStage.DONE,
    },
    ItemStage.ARGUMENTS_OPEN: {
        **dict.fromkeys(CALL_DELTA_EVENTS, ItemStage.ARGUMENTS_OPEN),
        **dict.fromkeys(CALL_DONE_EVENTS, ItemStage.ARGUMENTS_DONE),
    },
    ItemStage.ARGUMENTS_DONE: {ItemDone: ItemStage.DONE},
    ItemStage.DONE: {},
}
ROW_OF_ITEM_STAGE: Final[dict[ItemStage, str]] = {
    ItemStage.ABSENT: "STR-2",
    ItemStage.ANNOUNCED: "STR-2",
    ItemStage.ARGUMENTS_OPEN: "STR-9",
    ItemStage.ARGUMENTS_DONE: "STR-9",
    ItemStage.DONE: "ITEM-4",
}
EXPECTED_IN_ITEM_STAGE: Final[dict[ItemStage, str]] = {
    ItemStage.ABSENT: "response.output_item.added before it",
    ItemStage.ANNOUNCED: "content of the item or response.output_item.done: it was announced before",
    ItemStage.ARGUMENTS_OPEN: (
        "response.function_call_arguments.done (or response.custom_tool_call_input.done) after the deltas"
    ),
    ItemStage.ARGUMENTS_DONE: "response.output_item.done: the arguments are complete",
    ItemStage.DONE: "nothing more at this output_index: the item is done",
}

# The life cycle of a part (STR-3, STR-10). Annotations may follow the done event of the text.
PART_GRAMMAR: Final[dict[PartStage, dict[type, PartStage]]] = {
    PartStage.ABSENT: dict.fromkeys(PART_ADDED_EVENTS, PartStage.OPEN),
    PartStage.OPEN: {
        **dict.fromkeys(CONTENT_DELTA_EVENTS, PartStage.OPEN),
        AnnotationAdded: PartStage.OPEN,
        **dict.fromkeys(CONTENT_DONE_EVENTS, PartStage.CONTENT_DONE),
    },
    PartStage.WHOLE: dict.fromkeys(PART_DONE_EVENTS, PartStage.CLOSED),
    PartStage.CONTENT_DONE: {
        AnnotationAdded: PartStage.CONTENT_DONE,
        **dict.fromkeys(PART_DONE_EVENTS, PartStage.CLOSED),
    },
    PartStage.CLOSED: {},
}
ROW_OF_PART_LIST: Final = {"content": "STR-3", "summary": "STR-10"}

# The item types that an event may belong to. An item of unknown type may have any event.
ITEM_TYPES_OF_EVENT: Final[dict[type, tuple[Any, ...]]] = {
    **dict.fromkeys(PART_EVENTS, (Message, Reasoning)),
    **dict.fromkeys((SummaryPartAdded, SummaryTextDelta, SummaryTextDone, SummaryPartDone), (Reasoning,)),
    ArgumentsDelta: (FunctionCall,),
    ArgumentsDone: (FunctionCall,),
    CustomInputDelta: (CustomToolCall,),
    CustomInputDone: (CustomToolCall,),
}
ROW_OF_EVENT: Final[dict[type, str]] = {
    **dict.fromkeys(PART_EVENTS, "STR-3"),
    **dict.fromkeys((ReasoningDelta, ReasoningDone), "STR-10"),
    **dict.fromkeys((SummaryPartAdded, SummaryTextDelta, SummaryTextDone, SummaryPartDone), "STR-10"),
    **dict.fromkeys((RefusalDelta, RefusalDone, AnnotationAdded), "STR-11"),
    **dict.fromkeys((*CALL_DELTA_EVENTS, *CALL_DONE_EVENTS), "STR-9"),
}
# Fields that may not change after the announcement, unless they were announced empty.
IMMUTABLE_FIELDS: Final = ("role", "name", "call_id", "namespace")
EMPTY_VALUES: Final[tuple[Any, ...]] = (None, "", [], {})
# ITEM-5: events of hosted tools are named after their items.
HOSTED_EVENT_PREFIXES: Final = tuple(f"response.{cls.__struct_config__.tag}" for cls in HostedItem.__args__)
