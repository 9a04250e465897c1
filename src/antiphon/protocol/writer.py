"""`ResponseWriter` produces all events of a response: it numbers events, and opens and closes items (STR-1 … STR-12).

The caller addresses an item by its own key, so that several items can be open and the caller need not know output
indexes. Messages and reasoning items contain parts. A part has a key if the sender numbers its parts; without keys, the
next kind of content closes the current part. The output always obeys the grammar: on failure every open item is closed
first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, assert_never

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.errors import ApiError, InvalidTransition
from antiphon.protocol.base import is_extension_type
from antiphon.protocol.content import Annotation, LogProb, OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.errors import Error, ErrorPayload, error_payload
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
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.items import Item, Phase, UnknownItem
from antiphon.protocol.open_items import (
    OpenCustomCall,
    OpenFunctionCall,
    OpenItem,
    OpenMessage,
    OpenPart,
    OpenReasoning,
    OpenToolCall,
    OpenWholeItem,
    PartKind,
    StreamedPart,
    TextPieces,
    id_of,
    status_of,
    with_id_and_status,
)
from antiphon.protocol.output_limits import (
    BYTES_REASON,
    ITEMS_REASON,
    PART_OVERHEAD_BYTES,
    UNLIMITED,
    OutputLimitExceeded,
)
from antiphon.protocol.response import IncompleteDetails, Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import (
    ITEM_TRANSITIONS,
    RESPONSE_TRANSITIONS,
    ItemStatus,
    ResponseStatus,
    refused_transition,
)

Emit = Callable[[StreamEvent], None]
_OpenItemType = TypeVar("_OpenItemType", bound=OpenItem)


class ResponseWriter:
    """Writes one response, from `response.created` to its terminal event.

    Content that exceeds `limits` raises `OutputLimitExceeded` before any of it is stored. The caller then ends the
    response as incomplete.
    """

    def __init__(self, initial_response: Response, emit: Emit, stamps: Stamps) -> None:
        self._response = initial_response
        self._emit = emit
        self._new_id, self._now = stamps
        self._next_number = 0
        self._status: ResponseStatus | None = None
        self._is_only_created = False  # `response.in_progress` follows
        self._output: list[Item | None] = []
        self._open_items: dict[Hashable, OpenItem] = {}
        self._closed_keys: set[Hashable] = set()
        self._used_ids: set[str] = set()
        self.limits = UNLIMITED
        self.reasoning_part: PartKind = ReasoningText  # the kind of part that `add_reasoning` writes
        self._counted_bytes = 0

    # State

    @property
    def response(self) -> Response:
        """The response so far, with the items that are done."""
        return replace(self._response, output=[item for item in self._output if item is not None])

    @property
    def has_started(self) -> bool:
        return self._status is not None

    @property
    def is_in_progress(self) -> bool:
        """Whether `response.in_progress` was emitted, and no terminal event."""
        return self._status is ResponseStatus.IN_PROGRESS and not self._is_only_created

    @property
    def has_ended(self) -> bool:
        return self._status is not None and self._status.is_terminal

    @property
    def open_keys(self) -> list[Hashable]:
        """The keys of open items, in the order in which they were announced."""
        return list(self._open_items)

    @property
    def item_count(self) -> int:
        """The number of announced items."""
        return len(self._output)

    @property
    def announced_items(self) -> list[Item]:
        """The announced items in their order. An open item has the content that it has so far."""
        open_items = {item.index: item.build(ItemStatus.IN_PROGRESS) for item in self._open_items.values()}
        return [open_items[at] if item is None else item for at, item in enumerate(self._output)]

    def is_open(self, key: Hashable) -> bool:
        return key in self._open_items

    def was_closed(self, key: Hashable) -> bool:
        return key in self._closed_keys

    def count_bytes(self, size: int) -> None:
        """Counts bytes that are stored for this response, here or by the reader that calls the writer."""
        total = self._counted_bytes + size
        if total > self.limits.max_bytes:
            raise OutputLimitExceeded(BYTES_REASON)
        self._counted_bytes = total

    def update_response(self, **changes: Any) -> None:
        """Sets fields that the upstream sends late (service tier, usage, metadata)."""
        if self.has_ended:
            raise InvalidTransition(
                f"the response is {self._status}: its {', '.join(changes)} cannot change any more (STR-7)"
            )
        self._response = replace(self._response, **changes)

    def set_response(self, response: Response) -> None:
        """Replaces the fields of the response before it starts. Its status and output are set later."""
        self._response = response

    def replace_finished_item(self, index: int, item: Item) -> None:
        """Replaces an item that is done by the form of it that was sent."""
        self._output[index] = item

    # Beginning

    def create(self) -> None:
        """STR-1: emits `response.created` alone, if the caller knows when the response is in progress."""
        self._begin_response(ResponseStatus.IN_PROGRESS)
        self._is_only_created = True

    def queue(self) -> None:
        """STR-1: emits `response.created` and `response.queued`."""
        self._begin_response(ResponseStatus.QUEUED)
        self._emit(ResponseQueued(sequence_number=self._take_number(), response=self._response))

    def start(self) -> None:
        """STR-1: emits `response.created` if needed, and `response.in_progress`. The first content calls this by
        itself."""
        if self._status is None and self._response.status == ResponseStatus.QUEUED:
            self.queue()
        if self._status is None:
            self._begin_response(ResponseStatus.IN_PROGRESS)
        elif not self._is_only_created:
            self._set_status(ResponseStatus.IN_PROGRESS)
        self._is_only_created = False
        self._emit(ResponseInProgress(sequence_number=self._take_number(), response=self._response))

    # Messages

    def open_message(self, key: Hashable, *, id: str | None = None, phase: Phase | UnsetType = UNSET) -> None:
        """Announces a message (STR-2). The first content calls this by itself."""
        self._announce_item(key, OpenMessage(self._claim_id("msg", id), phase))

    def add_text(
        self, key: Hashable, delta: str, *, part_key: Hashable = None, logprobs: list[LogProb] | None = None
    ) -> None:
        """Adds output text. This is the hot path of every stream."""
        item = self._open_items.get(key)
        if item is None:
            self.open_message(key)
            item = self._open_items[key]
        open_part = item.current_part if part_key is None else item.parts.get((OutputText, part_key))
        if open_part is None or open_part.kind is not OutputText:
            open_part = self._open_part(item, OutputText, part_key)
        if not delta and not logprobs:
            return
        # The same as `count_bytes`, without a call.
        total = self._counted_bytes + (len(delta) if delta.isascii() else _text_size(delta))
        if total > self.limits.max_bytes:
            raise OutputLimitExceeded(BYTES_REASON)
        self._counted_bytes = total
        if logprobs:
            self.count_bytes(len(msgspec.json.encode(logprobs)))
            open_part.logprobs += logprobs
        open_part.pieces.append(delta)
        number = self._next_number
        self._next_number = number + 1
        self._emit(
            OutputTextDelta(
                sequence_number=number,
                item_id=item.id,
                output_index=item.index,
                content_index=open_part.index,
                delta=delta,
                logprobs=logprobs or [],
            )
        )

    def add_text_run(self, key: Hashable, deltas: list[str]) -> TextRun | None:
        """Adds several deltas of output text to an open message at once.

        Returns them as one `TextRun` and emits nothing. Returns None, and does nothing, if no output text is open.
        """
        item = self._open_items.get(key)
        part = item.current_part if item is not None else None
        if item is None or part is None or part.kind is not OutputText:
            return None
        text = "".join(deltas)
        self.count_bytes(_text_size(text))
        part.pieces.append(text)
        number = self._next_number
        self._next_number = number + len(deltas)
        return TextRun(number, item.id, item.index, part.index, deltas)

    def open_text(self, key: Hashable) -> str:
        """The text so far of the open part of an item; empty if no part is open."""
        part = self._open_items[key].current_part
        return "" if part is None else part.pieces.join()

    def part_pieces(self, key: Hashable, kind: PartKind, part_key: Hashable) -> TextPieces:
        """The text of an open part, for a reader that needs it. It grows with the part, and stays when the part is
        closed."""
        return self._open_items[key].parts[(kind, part_key)].pieces

    def add_refusal(self, key: Hashable, delta: str, *, part_key: Hashable = None) -> None:
        """STR-11: adds text of a refusal."""
        if key not in self._open_items:
            self.open_message(key)
        self._add_delta(key, Refusal, delta, part_key)

    def add_annotation(self, key: Hashable, annotation: Annotation, *, part_key: Hashable = None) -> None:
        """STR-11: adds an annotation of the output text."""
        if key not in self._open_items:
            self.open_message(key)
        item = self._open_items[key]
        open_part = self._get_or_open_part(item, OutputText, part_key)
        self.count_bytes(PART_OVERHEAD_BYTES + len(msgspec.json.encode(annotation)))
        index = len(open_part.annotations)
        open_part.annotations.append(annotation)
        self._emit(
            AnnotationAdded(
                sequence_number=self._take_number(),
                item_id=item.id,
                output_index=item.index,
                content_index=open_part.index,
                annotation_index=index,
                annotation=annotation,
            )
        )

    def set_phase(self, key: Hashable, phase: Phase) -> None:
        """ITEM-7: sets a phase that arrives after the message was announced."""
        self._get_open_item(key, OpenMessage).phase = phase

    # Reasoning

    def open_reasoning(self, key: Hashable, *, id: str | None = None) -> None:
        """Announces a reasoning item. The first content calls this by itself."""
        self._announce_item(key, OpenReasoning(self._claim_id("rs", id)))

    def add_reasoning(self, key: Hashable, delta: str, *, part_key: Hashable = None) -> None:
        """STR-10: adds reasoning text, as a part of the kind `reasoning_part`."""
        if key not in self._open_items:
            self.open_reasoning(key)
        self._add_delta(key, self.reasoning_part, delta, part_key)

    def add_summary(self, key: Hashable, delta: str, *, part_key: Hashable = None) -> None:
        """STR-10: adds text of a reasoning summary."""
        if key not in self._open_items:
            self.open_reasoning(key)
        self._add_delta(key, SummaryText, delta, part_key)

    def set_encrypted_content(self, key: Hashable, content: str) -> None:
        """RSN-1: sets the encrypted reasoning, which is sent when the item is done."""
        if key not in self._open_items:
            self.open_reasoning(key)
        self.count_bytes(_text_size(content))
        self._get_open_item(key, OpenReasoning).encrypted_content = content

    # Calls

    def open_call(
        self, key: Hashable, *, name: str, call_id: str, id: str | None = None, namespace: str | None = None
    ) -> None:
        """Announces a function call. Its name must be complete (TOOL-3)."""
        self._announce_item(key, OpenFunctionCall(self._claim_id("fc", id), name, call_id, namespace))

    def add_arguments(self, key: Hashable, delta: str) -> None:
        """STR-9: adds text to the arguments of a call."""
        item = self._get_open_item(key, OpenFunctionCall)
        if delta:
            self.count_bytes(len(delta) if delta.isascii() else _text_size(delta))
            item.pieces.append(delta)
            self._emit(
                ArgumentsDelta(
                    sequence_number=self._take_number(), item_id=item.id, output_index=item.index, delta=delta
                )
            )

    def open_custom_call(
        self, key: Hashable, *, name: str, call_id: str, id: str | None = None, namespace: str | None = None
    ) -> None:
        """Announces a call of a custom tool."""
        self._announce_item(key, OpenCustomCall(self._claim_id("ctc", id), name, call_id, namespace))

    def add_custom_input(self, key: Hashable, delta: str) -> None:
        """Adds text to the input of a custom tool call."""
        item = self._get_open_item(key, OpenCustomCall)
        if delta:
            self.count_bytes(_text_size(delta))
            item.pieces.append(delta)
            self._emit(
                CustomInputDelta(
                    sequence_number=self._take_number(), item_id=item.id, output_index=item.index, delta=delta
                )
            )

    def call_pieces(self, key: Hashable) -> TextPieces:
        """The arguments or input of an open call, for a reader that needs them. They grow with the call."""
        return self._get_open_item(key, OpenToolCall).pieces

    # Other items and events

    def open_item(self, key: Hashable, item: Item) -> None:
        """Announces an item that is not streamed in parts: an extension, a call of a hosted tool, a compaction."""
        open_item = OpenWholeItem(self._claim_id("item", id_of(item)), item)
        open_item.size = len(msgspec.json.encode(item))
        self.count_bytes(open_item.size)
        self._announce_item(key, open_item)

    def finish_item(self, key: Hashable, item: Item) -> None:
        """Closes an item that was announced with `open_item`, with its final content."""
        open_item = self._get_open_item(key, OpenWholeItem)
        size = len(msgspec.json.encode(item))
        self.count_bytes(max(0, size - open_item.size))
        open_item.size = size
        open_item.finish(item)
        self.close_item(key)

    def add_whole_item(self, key: Hashable, item: Item) -> None:
        """Announces and closes an item that arrives at once."""
        self.open_item(key, item)
        self.finish_item(key, item)

    def set_extra_fields(self, key: Hashable, extra: dict[str, Raw]) -> None:
        """Sets the unknown fields of an item that is streamed in parts (ITEM-5). They are sent when it is done."""
        item = self._get_open_item(key, OpenItem)
        if isinstance(item, OpenWholeItem):
            raise InvalidTransition(
                f"the key {key!r} names an open {item.name}: set its unknown fields in the item itself"
            )
        self.count_bytes(sum(map(len, extra.values())))
        item.extra = extra

    def open_extension_item(self, key: Hashable, kind: str, members: dict[str, Any]) -> None:
        """Announces an extension item. Its type must be `slug:name` (B-3)."""
        id = self._claim_id(_slug_of(kind), None)
        body = {**members, "type": kind, "id": id, "status": ItemStatus.IN_PROGRESS}
        self._announce_item(key, OpenWholeItem(id, UnknownItem(kind=kind, raw=Raw(msgspec.json.encode(body)))))

    def emit_extension_event(self, kind: str, members: dict[str, Any]) -> None:
        """Emits an extension event. Its type must be `slug:name` (B-3). It is numbered like any other event (STR-5)."""
        _slug_of(kind)
        self.emit_unknown_event(kind, members)

    def emit_unknown_event(self, kind: str, members: dict[str, Any], *, key: Hashable = None) -> None:
        """Emits an event of unknown type with our numbers (ITEM-5); `key` is the open item that it belongs to."""
        self._ensure_running()
        number = self._take_number()
        numbered_members: dict[str, Any] = {**members, "type": kind, "sequence_number": number}
        item = self._open_items.get(key)
        if item is not None:
            numbered_members |= {"item_id": item.id, "output_index": item.index}
        self._emit(UnknownEvent(kind=kind, raw=Raw(msgspec.json.encode(numbered_members)), sequence_number=number))

    # Ending

    def end_part(
        self,
        key: Hashable,
        kind: PartKind | None = None,
        part_key: Hashable = None,
        *,
        final_part: StreamedPart | None = None,
    ) -> None:
        """Closes the current part of an open item, or the part with this kind and key, if there is one (STR-3).
        `final_part` is the part with members that were not streamed."""
        item = self._get_open_item(key, OpenItem)
        open_part = item.current_part if kind is None else item.parts.get((kind, part_key))
        if open_part is not None:
            self._close_part(item, open_part, final_part)

    def close_item(
        self, key: Hashable, status: ItemStatus = ItemStatus.COMPLETED, *, final_item: Item | None = None
    ) -> None:
        """STR-4: closes an item and emits its final content. `final_item` is the item with members that were not
        streamed."""
        item = self._get_open_item(key, OpenItem)
        if status not in ITEM_TRANSITIONS[ItemStatus.IN_PROGRESS]:
            raise refused_transition(ItemStatus.IN_PROGRESS, status)
        if status is ItemStatus.FAILED and not item.may_fail:
            raise InvalidTransition(
                f"a {item.name} cannot fail, only extension items can; it is completed or incomplete (ITEM-2)"
            )
        for open_part in list(item.parts.values()):
            self._close_part(item, open_part)
        self._emit_call_done(item)
        del self._open_items[key]
        self._closed_keys.add(key)
        if final_item is None:
            final_item = item.build(status)
        else:
            final_item = with_id_and_status(final_item, item.id, status_of(final_item))
        self._output[item.index] = final_item
        self._emit(ItemDone(sequence_number=self._take_number(), output_index=item.index, item=final_item))

    def complete(self, usage: Usage | None = None) -> None:
        """Ends the response as completed. Open items are completed."""
        self._ensure_running()
        self._refuse_incomplete_items(len(self._output))
        for key in list(self._open_items):
            self.close_item(key)
        self._end_response(ResponseStatus.COMPLETED, usage, completed_at=self._now())

    def end_incomplete(self, reason: str, usage: Usage | None = None) -> None:
        """ITEM-3, REQ-3: ends the response as incomplete. Only its last item may be incomplete."""
        self._ensure_running()
        last_index = len(self._output) - 1
        self._refuse_incomplete_items(last_index)
        for key, item in list(self._open_items.items()):
            self.close_item(key, ItemStatus.INCOMPLETE if item.index == last_index else ItemStatus.COMPLETED)
        self._end_response(ResponseStatus.INCOMPLETE, usage, incomplete_details=IncompleteDetails(reason=reason))

    def fail(self, error: ApiError, usage: Usage | None = None) -> None:
        """ITEM-3, STR-8: every open item closes as incomplete, then `error`, then `response.failed`."""
        self._ensure_running()
        for key in list(self._open_items):
            self.close_item(key, ItemStatus.INCOMPLETE)
        self._emit(ErrorEvent(sequence_number=self._take_number(), error=error_payload(error)))
        self._end_response(ResponseStatus.FAILED, usage, error=Error(code=error.code, message=error.message))

    def end_as(self, response: Response) -> None:
        """Ends with the fields of a given response (for a replay). The output is what was written here."""
        self._ensure_running()
        if self._open_items or response.status not in TERMINAL_EVENT_OF_STATUS:
            problem = (
                f"items are open: {self.open_keys}" if self._open_items else f"{response.status} has no terminal event"
            )
            raise InvalidTransition(f"the response cannot end as {response.id} did: {problem} (STR-7)")
        status = ResponseStatus(response.status)
        if status is not ResponseStatus.FAILED:
            self._refuse_incomplete_items(len(self._output) - (status is ResponseStatus.INCOMPLETE))
        elif response.error is not None:  # STR-8
            payload = ErrorPayload(
                type="server_error", code=response.error.code, message=response.error.message, param=None
            )
            self._emit(ErrorEvent(sequence_number=self._take_number(), error=payload))
        self._response = response
        self._end_response(status, None)

    # Private helpers

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number = number + 1
        return number

    def _begin_response(self, status: ResponseStatus) -> None:
        if self._status is not None:
            raise InvalidTransition(f"the response has already started: it is {self._status.value}")
        self._status = status
        self._response = replace(self._response, status=status, output=[])
        self._emit(ResponseCreated(sequence_number=self._take_number(), response=self._response))

    def _set_status(self, status: ResponseStatus) -> None:
        assert self._status is not None
        if status not in RESPONSE_TRANSITIONS[self._status]:
            raise refused_transition(self._status, status)
        self._status = status
        self._response = replace(self._response, status=status)

    def _ensure_running(self) -> None:
        if self._status is None or self._status is ResponseStatus.QUEUED or self._is_only_created:
            self.start()
        if self._status is not ResponseStatus.IN_PROGRESS:
            raise InvalidTransition(f"the response is {self._status}: nothing can follow (STR-7)")

    def _end_response(self, status: ResponseStatus, usage: Usage | None, **changes: Any) -> None:
        self._set_status(status)
        if usage is not None:
            changes["usage"] = usage
        self._response = replace(self.response, **changes)
        self._emit(TERMINAL_EVENT_OF_STATUS[status](sequence_number=self._take_number(), response=self._response))

    def _refuse_incomplete_items(self, end: int) -> None:
        for index, item in enumerate(self._output[:end]):
            if item is not None and status_of(item) == ItemStatus.INCOMPLETE:
                raise InvalidTransition(
                    f"output[{index}] is incomplete: only the last item of a response that does not fail may be "
                    "incomplete, and then the response must be incomplete; end it with end_incomplete() or fail() "
                    "(ITEM-3)"
                )

    def _claim_id(self, prefix: str, preferred: str | None) -> str:
        """ITEM-6: ids are unique. An id that the upstream uses twice is replaced the second time."""
        id = preferred or self._new_id(prefix)
        while id in self._used_ids:
            id = self._new_id(prefix)
        self._used_ids.add(id)
        return id

    def _announce_item(self, key: Hashable, item: OpenItem) -> None:
        self._ensure_running()
        if key in self._open_items or key in self._closed_keys:
            raise InvalidTransition(f"the item {key!r} was announced before (ITEM-4)")
        if len(self._output) >= self.limits.max_items:
            raise OutputLimitExceeded(ITEMS_REASON)
        item.index = len(self._output)
        self._output.append(None)
        self._open_items[key] = item
        announced_item = item.build(ItemStatus.IN_PROGRESS)
        self._emit(ItemAdded(sequence_number=self._take_number(), output_index=item.index, item=announced_item))

    def _get_open_item(self, key: Hashable, kind: type[_OpenItemType]) -> _OpenItemType:
        item = self._open_items.get(key)
        if isinstance(item, kind):
            return item
        if item is not None:
            actual = f"an open {item.name}"
        else:
            actual = (
                "an item that was closed already (ITEM-4)"
                if key in self._closed_keys
                else "no item: none was announced under it"
            )
        raise InvalidTransition(f"the key {key!r} names {actual}; expected an open {kind.name}")

    def _get_or_open_part(self, item: OpenItem, kind: PartKind, part_key: Hashable) -> OpenPart:
        open_part = item.current_part if part_key is None else item.parts.get((kind, part_key))
        if open_part is None or open_part.kind is not kind:
            open_part = self._open_part(item, kind, part_key)
        return open_part

    def _open_part(self, item: OpenItem, kind: PartKind, part_key: Hashable) -> OpenPart:
        finished_parts = item.parts_of_kind(kind)
        self.count_bytes(PART_OVERHEAD_BYTES)
        if item.current_part is not None and part_key is None:
            self._close_part(item, item.current_part)  # STR-3: without keys, one part ends where the next begins
        open_part = OpenPart(kind, (kind, part_key), len(finished_parts))
        finished_parts.append(None)
        item.parts[open_part.key] = open_part
        if part_key is None:
            item.current_part = open_part
        index, empty_part = open_part.index, open_part.build()
        if kind is SummaryText:
            self._emit(
                SummaryPartAdded(
                    sequence_number=self._take_number(),
                    item_id=item.id,
                    output_index=item.index,
                    summary_index=index,
                    part=empty_part,
                )
            )
        else:
            self._emit(
                ContentPartAdded(
                    sequence_number=self._take_number(),
                    item_id=item.id,
                    output_index=item.index,
                    content_index=index,
                    part=empty_part,
                )
            )
        return open_part

    def _add_delta(self, key: Hashable, kind: PartKind, delta: str, part_key: Hashable) -> None:
        item = self._open_items[key]
        open_part = self._get_or_open_part(item, kind, part_key)
        if not delta:
            return
        self.count_bytes(len(delta) if delta.isascii() else _text_size(delta))
        open_part.pieces.append(delta)
        number = self._next_number
        self._next_number = number + 1
        item_id, output_index, part_index = item.id, item.index, open_part.index
        if kind is ReasoningText:
            self._emit(
                ReasoningDelta(
                    sequence_number=number,
                    item_id=item_id,
                    output_index=output_index,
                    content_index=part_index,
                    delta=delta,
                )
            )
        elif kind is Refusal:
            self._emit(
                RefusalDelta(
                    sequence_number=number,
                    item_id=item_id,
                    output_index=output_index,
                    content_index=part_index,
                    delta=delta,
                )
            )
        else:
            self._emit(
                SummaryTextDelta(
                    sequence_number=number,
                    item_id=item_id,
                    output_index=output_index,
                    summary_index=part_index,
                    delta=delta,
                )
            )

    def _close_part(self, item: OpenItem, open_part: OpenPart, final_part: StreamedPart | None = None) -> None:
        """STR-3: emits the done event of the content, then that of the part."""
        del item.parts[open_part.key]
        if item.current_part is open_part:
            item.current_part = None
        final_part = final_part or open_part.build()
        item.parts_of_kind(open_part.kind)[open_part.index] = final_part
        position: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        match final_part:
            case SummaryText(text=text):
                position["summary_index"] = open_part.index
                self._emit(SummaryTextDone(sequence_number=self._take_number(), text=text, **position))
                self._emit(SummaryPartDone(sequence_number=self._take_number(), part=final_part, **position))
                return
            case OutputText(text=text):
                position["content_index"] = open_part.index
                logprobs = list(open_part.logprobs)
                self._emit(
                    OutputTextDone(sequence_number=self._take_number(), text=text, logprobs=logprobs, **position)
                )
            case Refusal(refusal=text):
                position["content_index"] = open_part.index
                self._emit(RefusalDone(sequence_number=self._take_number(), refusal=text, **position))
            case ReasoningText(text=text):
                position["content_index"] = open_part.index
                self._emit(ReasoningDone(sequence_number=self._take_number(), text=text, **position))
            case _ as never:
                assert_never(never)
        self._emit(ContentPartDone(sequence_number=self._take_number(), part=final_part, **position))

    def _emit_call_done(self, item: OpenItem) -> None:
        """STR-9: emits the complete arguments."""
        match item:
            case OpenCustomCall():
                self._emit(
                    CustomInputDone(
                        sequence_number=self._take_number(),
                        item_id=item.id,
                        output_index=item.index,
                        input=item.pieces.join(),
                    )
                )
            case OpenFunctionCall():
                self._emit(
                    ArgumentsDone(
                        sequence_number=self._take_number(),
                        item_id=item.id,
                        output_index=item.index,
                        arguments=item.pieces.join(),
                        name=item.tool_name,
                    )
                )


def _slug_of(kind: str) -> str:
    if not is_extension_type(kind):
        raise InvalidTransition(f"invalid extension type {kind!r}: expected slug:name, such as acme:progress (B-3)")
    return kind.partition(":")[0]


def _text_size(text: str) -> int:
    """The length of a text in UTF-8. An unpaired surrogate counts as three bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


TERMINAL_EVENT_OF_STATUS: Final[dict[ResponseStatus, Callable[..., StreamEvent]]] = {
    ResponseStatus.COMPLETED: ResponseCompleted,
    ResponseStatus.INCOMPLETE: ResponseIncomplete,
    ResponseStatus.FAILED: ResponseFailed,
}
