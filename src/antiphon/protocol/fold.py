"""`fold_events` builds a response from a stream of events; `replay_response` turns a response into a stream of events.

The fold takes the output from item events and all other fields from the newest response event. It does not check the
events; `grammar` does. The response can be read at any time, also when the stream was cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Final, assert_never, cast

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.errors import InvalidTransition
from antiphon.protocol.content import Annotation, Content, LogProb, OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseEvent,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    TerminalEvent,
    UnknownEvent,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.open_items import StreamedPart, id_of, status_of, type_of
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus, ResponseStatus
from antiphon.protocol.writer import TERMINAL_EVENT_OF_STATUS, ResponseWriter


def fold_events(events: Iterable[StreamEvent]) -> Response:
    """Builds the response of a stream, as far as the stream goes."""
    reader = ResponseFold()
    for event in events:
        reader.feed(event)
    return reader.response


def replay_response(response: Response, *, was_queued: bool = False) -> list[StreamEvent]:
    """Builds a stream of events for this response.

    A response that has not ended gets no terminal event, and its items in progress stay open. The same holds for a
    cancelled response, because no terminal event exists for it. An item that the writer cannot stream in parts (other
    kinds of parts) is sent as a whole. `was_queued`: the response was queued before it was in progress,
    which the response itself does not record.
    """
    events: list[StreamEvent] = []
    numbers = count(1)
    # Items keep their ids. An item with a missing or duplicate id gets one that is the same in every replay.
    stamps = Stamps(lambda prefix: f"{prefix}_{response.id}_{next(numbers)}", lambda: response.created_at)
    initial_response = replace(response, completed_at=None, incomplete_details=None, error=None, usage=None)
    writer = ResponseWriter(initial_response, events.append, stamps)
    if was_queued or response.status == ResponseStatus.QUEUED:
        writer.queue()
    if response.status != ResponseStatus.QUEUED:
        writer.start()
    has_ended = response.status in TERMINAL_EVENT_OF_STATUS
    for key, item in enumerate(response.output):
        is_open = not has_ended and status_of(item) == ItemStatus.IN_PROGRESS
        _replay_item(writer, key, item, is_open)
    if has_ended:
        writer.end_as(response)
    return events


class ResponseFold:
    """Builds the response of one stream, event by event."""

    def __init__(self) -> None:
        self._latest_response: Response | None = None
        self._has_ended = False
        self._items: dict[int, _FoldedItem] = {}

    def feed(self, event: StreamEvent) -> None:
        match event:
            case ResponseEvent():
                self._latest_response = event.response
                self._has_ended = isinstance(event, TerminalEvent)
            case ItemAdded() | ItemDone():
                self._item_at(event.output_index).set_item(event)
            case ErrorEvent() | UnknownEvent():
                pass
            case _:
                self._item_at(event.output_index).feed(event)

    @property
    def response(self) -> Response:
        """The response so far. Items that are not done have the content received so far."""
        if self._latest_response is None:
            raise InvalidTransition(
                "there is no response yet: none of the events was a response event such as response.created"
            )
        output: dict[int, Item] = {}
        for index, folded_item in self._items.items():
            item = folded_item.build()
            if item is not None:
                output[index] = item
        for index, item in enumerate(self._latest_response.output):
            streamed_item = self._items.get(index)
            # Some servers send an item only in the terminal event, or never send its done event. The terminal event may
            # have another form of the same item, such as reasoning that is sealed anew.
            if index not in output or (
                self._has_ended
                and streamed_item is not None
                and (not streamed_item.is_done or _is_same_item(output[index], item))
            ):
                output[index] = item
        return replace(self._latest_response, output=[output[index] for index in sorted(output)])

    def _item_at(self, index: int) -> _FoldedItem:
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _FoldedItem()
        return item


class _FoldedItem:
    """An announced item, and the content received since."""

    def __init__(self) -> None:
        self.item: Item | None = None
        self.is_done = False
        self._contents: dict[int, _FoldedPart] = {}
        self._summaries: dict[int, _FoldedPart] = {}
        self._call_pieces: list[str] = []

    def set_item(self, event: ItemAdded | ItemDone) -> None:
        if event.item is not None and not self.is_done:
            self.item = event.item
            self.is_done = isinstance(event, ItemDone)

    def feed(self, event: PartEvent | CallEvent) -> None:
        match event:
            case ArgumentsDelta() | CustomInputDelta():
                self._call_pieces.append(event.delta)
            case ArgumentsDone():
                self._call_pieces = [event.arguments]
            case CustomInputDone():
                self._call_pieces = [event.input]
            case SummaryPartAdded() | SummaryPartDone() | SummaryTextDelta() | SummaryTextDone():
                self._summaries.setdefault(event.summary_index, _FoldedPart()).feed(event)
            case _:
                self._contents.setdefault(event.content_index, _FoldedPart()).feed(event)

    def build(self) -> Item | None:
        """Builds the item from what was received so far."""
        item = self.item
        if self.is_done:
            return item
        match item:
            case Message():
                return replace(item, content=_merge_parts(self._contents, item.content))
            case Reasoning():
                contents = _merge_parts(self._contents, item.content or [])
                return replace(
                    item, content=contents or item.content, summary=_merge_parts(self._summaries, item.summary)
                )
            case FunctionCall():
                return replace(item, arguments="".join(self._call_pieces) or item.arguments)
            case CustomToolCall():
                return replace(item, input="".join(self._call_pieces) or item.input)
            case _:
                return item


class _FoldedPart:
    """An announced part, and the content received since."""

    def __init__(self) -> None:
        self._part: Content | None = None
        self._text_pieces: list[str] = []
        self._annotations: list[Annotation] = []
        self._logprobs: list[LogProb] = []

    def feed(self, event: PartEvent) -> None:
        match event:
            case ContentPartAdded() | SummaryPartAdded():
                self._part = event.part
                return
            case ContentPartDone() | SummaryPartDone():
                self._part = event.part
                self._text_pieces, self._annotations, self._logprobs = [], [], []
                return
            case OutputTextDelta():
                self._text_pieces.append(event.delta)
                self._logprobs += event.logprobs or ()
            case RefusalDelta() | ReasoningDelta() | SummaryTextDelta():
                self._text_pieces.append(event.delta)
            case OutputTextDone():
                self._text_pieces = [event.text]
                self._logprobs = event.logprobs or self._logprobs
            case RefusalDone():
                self._text_pieces = [event.refusal]
            case ReasoningDone() | SummaryTextDone():
                self._text_pieces = [event.text]
            case AnnotationAdded():
                if event.annotation is not None:
                    self._annotations.append(event.annotation)
            case _ as never:
                assert_never(never)
        if self._part is None:  # some servers send no part events
            self._part = EMPTY_PART[type(event)]

    def build(self) -> Content:
        """Builds the part from what was received so far."""
        assert self._part is not None
        part, text = self._part, "".join(self._text_pieces)
        match part:
            case OutputText():
                annotations = [*part.annotations, *self._annotations]
                return replace(
                    part, text=text or part.text, annotations=annotations, logprobs=self._logprobs or part.logprobs
                )
            case Refusal():
                return replace(part, refusal=text or part.refusal)
            case ReasoningText() | SummaryText():
                return replace(part, text=text or part.text)
            case _:
                return part


def _is_same_item(streamed_item: Item, item: Item) -> bool:
    return id_of(streamed_item) == id_of(item) and type_of(streamed_item) == type_of(item)


def _merge_parts(parts: dict[int, _FoldedPart], announced_parts: list[Content]) -> list[Content]:
    """Merges streamed parts into the parts that were announced with the item, by index."""
    contents = {**dict(enumerate(announced_parts)), **{index: part.build() for index, part in parts.items()}}
    return [contents[index] for index in sorted(contents)]


def _replay_item(writer: ResponseWriter, key: int, item: Item, is_open: bool) -> None:
    is_streamed = _can_be_sent_in_parts(item, is_open)
    match item:
        case Message() if is_streamed:
            writer.open_message(key, id=item.id, phase=item.phase or UNSET)
            _replay_parts(writer, key, item.content, is_open)
        case Reasoning() if is_streamed:
            writer.open_reasoning(key, id=item.id)
            _replay_parts(writer, key, item.summary, is_open)
            _replay_parts(writer, key, item.content or [], is_open)
            if isinstance(item.encrypted_content, str):
                writer.set_encrypted_content(key, item.encrypted_content)
        case FunctionCall() if is_streamed:
            writer.open_call(key, name=item.name, call_id=item.call_id, id=item.id, namespace=item.namespace or None)
            writer.add_arguments(key, item.arguments)
        case CustomToolCall() if is_streamed:
            writer.open_custom_call(
                key, name=item.name, call_id=item.call_id, id=item.id, namespace=item.namespace or None
            )
            writer.add_custom_input(key, item.input)
        case _:
            writer.open_item(key, item)
            if not is_open:
                writer.finish_item(key, item)
            return
    if not is_open:
        writer.close_item(key, ItemStatus(status_of(item) or ItemStatus.COMPLETED), final_item=item)


def _can_be_sent_in_parts(item: Item, is_open: bool) -> bool:
    """Whether the writer can stream this item in parts. An open item must not have members that only its end has."""
    match item:
        case Message(role="assistant"):
            is_streamable = all(isinstance(part, OutputText | Refusal) for part in item.content)
            is_plain = item.phase is not None and all(map(_has_only_streamed_fields, item.content))
        case Reasoning():
            parts = [*item.summary, *(item.content or ())]
            is_streamable = all(isinstance(part, SummaryText) for part in item.summary) and all(
                isinstance(part, ReasoningText) for part in item.content or ()
            )
            is_plain = (
                isinstance(item.status, ItemStatus)
                and item.encrypted_content is UNSET
                and (item.content is UNSET or bool(item.content))
                and all(map(_has_only_streamed_fields, parts))
            )
        case FunctionCall() | CustomToolCall():
            is_streamable, is_plain = True, bool(item.namespace) or item.namespace is UNSET
        case _:
            return False
    return is_streamable and (not is_open or (is_plain and not item.extra))


def _has_only_streamed_fields(part: Content) -> bool:
    return not getattr(part, "extra", UNSET) and not (isinstance(part, OutputText) and part.logprobs is UNSET)


def _replay_parts(writer: ResponseWriter, key: int, parts: list[Content], is_open: bool) -> None:
    for part_index, part in enumerate(cast(list[StreamedPart], parts)):
        match part:
            case OutputText():
                writer.add_text(key, part.text, part_key=part_index, logprobs=part.logprobs or None)
                for annotation in part.annotations:
                    writer.add_annotation(key, annotation, part_key=part_index)
            case Refusal():
                writer.add_refusal(key, part.refusal, part_key=part_index)
            case ReasoningText():
                writer.add_reasoning(key, part.text, part_key=part_index)
            case SummaryText():
                writer.add_summary(key, part.text, part_key=part_index)
            case _ as never:
                assert_never(never)
        if not is_open:
            writer.end_part(key, type(part), part_index, final_part=part)


EMPTY_PART: Final[dict[type, Content]] = {
    **dict.fromkeys((OutputTextDelta, OutputTextDone, AnnotationAdded), OutputText(text="", annotations=[])),
    **dict.fromkeys((RefusalDelta, RefusalDone), Refusal(refusal="")),
    **dict.fromkeys((ReasoningDelta, ReasoningDone), ReasoningText(text="")),
    **dict.fromkeys((SummaryTextDelta, SummaryTextDone), SummaryText(text="")),
}
