"""`ResponseNormalizer` turns the output of any server of this API into a well-formed response.

It decides which item an event belongs to, announces the items in the server's order, and closes them. `item_content`
writes their content. This module does not decode or frame events.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames, ToolRef
from antiphon.dialects.responses.errors import decode_error, error_in_answer
from antiphon.dialects.responses.item_content import ItemContent
from antiphon.dialects.responses.item_tracker import (
    ItemKind,
    ItemTracker,
    UpstreamItem,
    final_form,
    item_kind,
    must_be_carried,
)
from antiphon.dialects.responses.response_wire import (
    ABSENT_JSON,
    ServerItem,
    ServerResponse,
    decode_struct,
    usage_to_hub,
)
from antiphon.dialects.responses.server_form import ServerForm
from antiphon.dialects.responses.tools_out import NativeNames
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import (
    ContentPartDone,
    ItemAdded,
    ItemDone,
    StreamEvent,
    SummaryPartDone,
    TerminalEvent,
    UnknownEvent,
)
from antiphon.protocol.items import Item, Phase
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import id_of, may_fail, status_of, with_id_and_status
from antiphon.protocol.output_limits import PART_OVERHEAD_BYTES, UNLIMITED, OutputLimitExceeded
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus, ResponseStatus
from antiphon.protocol.writer import ResponseWriter

#: The type of a hub event, the key of its item, and the index of its part.
EventPlace = tuple[type, int | None, int | None]


class ResponseNormalizer:
    """Normalizes one response of a server that may break the protocol."""

    def __init__(self, request: Request, initial_response: Response, stamps: Stamps, wire: ResponsesWire) -> None:
        self.losses = Losses()
        self.error: ApiError | None = None  # the error that the response failed with
        self.events: list[StreamEvent] = []
        self.tracker = ItemTracker()
        self.writer = ResponseWriter(initial_response, self.events.append, stamps)
        self._new_id = stamps.new_id
        self._wire = wire
        reasoning = initial_response.reasoning
        wants_summary = reasoning is not None and reasoning.summary is not None
        self.content = ItemContent(self.writer, self.losses, wire.maker, stamps.new_id, wants_summary=wants_summary)
        self.form = ServerForm(request, initial_response, wire, self.content.seal)
        self.item_of_event: UpstreamItem | None = None  # the item of the event that is being read
        self._max_output_tokens = request.max_output_tokens or None
        is_flat = wire.extension_tools == "flatten"
        self._flat_names = (
            ToolNames.for_request(request, PLAIN_NAMES.limited(wire.max_name_length)) if is_flat else None
        )
        self._native_names = NativeNames.for_request(request, wire.max_name_length)
        self._initial_form = ABSENT_JSON
        self._unannounced_items: list[UpstreamItem] = []
        self._unsettled: list[UpstreamItem] = []
        self._item_by_index: dict[int, UpstreamItem] = {}  # by the hub's output index

    # Beginning

    def on_created(self, response: ServerResponse, raw: Raw) -> None:
        """STR-1: announce the response once, even if the server announces it several times."""
        if self.writer.has_started:
            self.on_in_progress(response, raw)
        elif response.status == ResponseStatus.QUEUED or self.writer.response.status == ResponseStatus.QUEUED:
            self.on_queued(raw)
        else:
            self._take_response_form(raw)
            self.writer.create()

    def on_in_progress(self, response: ServerResponse, raw: Raw) -> None:
        if response.status == ResponseStatus.QUEUED:
            self.on_queued(raw)
        elif not self.writer.is_in_progress:
            self._take_response_form(raw)
            self.writer.start()

    def on_queued(self, raw: Raw) -> None:
        if not self.writer.has_started:
            self._take_response_form(raw)
            self.writer.queue()

    def _take_response_form(self, raw: Raw) -> None:
        """Take the settings that the server sent. A stream starts with the same response twice."""
        if raw != self._initial_form:
            self._initial_form = raw
            self.writer.set_response(self.form.response(self.writer.response, raw))

    # Items

    def on_item_added(self, raw: Raw, index: int | None) -> None:
        """Track an item that the server announces. It is announced to the client once it can be."""
        server_item = decode_struct(raw, ServerItem)
        kind = "whole" if must_be_carried(server_item) else item_kind(server_item)
        if kind is None:
            self.losses.add("output", "an item without a type", "it cannot be translated")
            return
        item = self.tracker.find_announced(kind, server_item.id, index) or self._track_item(kind, server_item, index)
        item.announced_by_server = True
        item.added_raw = raw
        self.item_of_event = item
        self._merge_identity(item, server_item)
        if kind == "whole" and not item.announced_to_client and not item.pending_actions:
            item.pending_actions.append((self._add_whole_item, (raw,)))
        if kind == "reasoning" and server_item.encrypted_content:
            self.run_when_announced(item, self.content.set_encrypted_content, server_item.encrypted_content)
        self._announce_ready_items()

    def on_item_done(self, raw: Raw, index: int | None) -> None:
        """STR-4: take the final form of an item."""
        server_item = decode_struct(raw, ServerItem)
        kind = item_kind(server_item)
        if kind is None:
            self.losses.add("output", "an item without a type", "it cannot be translated")
            return
        final = final_form(kind, server_item, index)
        item = self.tracker.find_for_final_form(final)
        if item is None:
            item = self._track_item(final.kinds[-1], server_item, index)
        elif item.finished_by_server:
            return
        self.item_of_event = item
        self._end_item(item, server_item, raw)

    def item_for_delta(self, kind: ItemKind, id: str | None, index: int | None) -> UpstreamItem | None:
        """Return the item that a delta belongs to. A missing item is created. None if the item is done."""
        item = self.tracker.find_for_delta(kind, id, index)
        if item is None:
            item = self.tracker.add(kind, TYPE_OF_KIND[kind], id, index)
            item.has_confirmed_id = id is not None
            self._unannounced_items.append(item)
            self._announce_ready_items()
        elif item.finished_by_server:
            self.content.report_loss(item, "", "output after the end of the item", "the item has ended (ITEM-4)")
            return None
        self.item_of_event = item
        return item

    def run_when_announced(self, item: UpstreamItem, action: Callable[..., None], *arguments: Any) -> None:
        """Run `action` now, or as soon as the item is announced to the client."""
        if item.announced_to_client:
            action(item, *arguments)
        else:
            self.writer.count_bytes(
                PART_OVERHEAD_BYTES + sum(len(argument) for argument in arguments if isinstance(argument, str | Raw))
            )
            item.pending_actions.append((action, arguments))

    def on_call_name(self, item: UpstreamItem, name: str | None) -> None:
        """Set the name of a call that was announced without one."""
        if name:
            item.name = item.name or name
            self._announce_ready_items()

    # Everything else

    def on_unknown_event(self, kind: str, members: dict[str, Any], id: str | None, index: int | None) -> None:
        """ITEM-5: forward an event of unknown type, with the hub's ids and indexes."""
        item = self.tracker.find_of_any_kind(id, index)
        if item is None:
            self.writer.emit_unknown_event(kind, members)
        else:
            self.run_when_announced(item, self._forward_event, kind, members)

    # Ending

    def on_response_ended(self, response: ServerResponse, status: str, error: ApiError | None = None) -> None:
        """End the response by its terminal event, or read a whole response. `error` came in an earlier event."""
        server_error = decode_error(response.error)
        if error is None and server_error is not None and status != ResponseStatus.INCOMPLETE:
            error = error_in_answer(server_error)
        if error is None and status in FAILED_STATUSES:
            error = UpstreamFault(f"the response of the upstream is {status}")
        self._merge_listed_items(response.output or [])
        usage = usage_to_hub(response.usage)
        if error is not None:
            self.fail(error, usage)
        elif status == ResponseStatus.INCOMPLETE or self._was_cut_by_limit(usage):
            reason = response.incomplete_details.reason if response.incomplete_details else None
            self._close_all(ItemStatus.INCOMPLETE)
            self.writer.end_incomplete(reason or "max_output_tokens", usage)
        else:
            self.complete(usage)

    def complete(self, usage: Usage | None = None) -> None:
        self._close_all(ItemStatus.COMPLETED)
        self.writer.complete(usage)

    def fail(self, error: ApiError, usage: Usage | None = None) -> None:
        self.error = error.without_traceback()
        self._close_all(ItemStatus.FAILED)
        self.writer.fail(error, usage)

    def end_incomplete(self, reason: str) -> None:
        """End a response that exceeds its size limit as incomplete. Pending output is dropped."""
        with suppress(OutputLimitExceeded):
            self._close_all(ItemStatus.INCOMPLETE)
        self.writer.limits = UNLIMITED
        self.writer.end_incomplete(reason)

    @property
    def has_only_finished_items(self) -> bool:
        """Whether there are items, and the server finished all of them."""
        return bool(self.tracker.items) and all(item.finished_by_server for item in self.tracker.items)

    # Form

    def in_server_form(
        self, event: StreamEvent, forms: dict[EventPlace, dict[str, Raw]], last_response: Raw
    ) -> StreamEvent:
        """Return the event in the form in which the server sent it. `forms` has the members of the server's events."""
        if isinstance(event, UnknownEvent):
            return event
        item = self._item_by_index.get(getattr(event, "output_index", -1))
        index = getattr(event, "content_index", getattr(event, "summary_index", None))
        members = forms.pop((type(event), item.key if item is not None else None, index), None)
        if members is not None:
            event = self.form.event(event, members)
        elif item is not None and isinstance(event, ContentPartDone | SummaryPartDone):
            event = self.form.part_event(event, item.done_raw)  # the server sent the part in the item only
        if isinstance(event, TerminalEvent):
            return replace(event, response=self.form.response(event.response, last_response))
        if item is not None and isinstance(event, ItemAdded | ItemDone) and event.item is not None:
            raw = item.added_raw if isinstance(event, ItemAdded) else item.done_raw
            if raw is not None:
                sent_item = self.form.item(event.item, raw)
                if isinstance(event, ItemDone):
                    self.writer.replace_finished_item(event.output_index, sent_item)
                return replace(event, item=sent_item)
        return event

    # Announcing

    def _track_item(self, kind: ItemKind, server_item: ServerItem, index: int | None) -> UpstreamItem:
        item = self.tracker.add(kind, server_item.type or TYPE_OF_KIND[kind], server_item.id, index)
        self._unannounced_items.append(item)
        return item

    def _merge_identity(self, item: UpstreamItem, server_item: ServerItem) -> None:
        item.id = item.id or server_item.id
        item.name = item.name or server_item.name
        item.call_id = item.call_id or server_item.call_id
        item.namespace = item.namespace or server_item.namespace
        item.phase = self._phase(server_item) or item.phase
        if item.name and server_item.name and server_item.name != item.name:
            self.content.report_loss(
                item, ".name", f"the name {server_item.name!r}", f"the call started with the name {item.name!r} (STR-2)"
            )

    def _phase(self, server_item: ServerItem) -> Phase | None:
        match server_item.phase:
            case "commentary" | "final_answer" | None as phase:
                return phase
            case unknown:
                self.losses.add(
                    "output", f"the phase {unknown!r}", "it is neither commentary nor final_answer (ITEM-7)"
                )
                return None

    def _announce_ready_items(self) -> None:
        """Announce items in the server's order. A call waits for its name and call id (TOOL-3)."""
        while self._unannounced_items:
            item = self._unannounced_items[0]
            if item.kind in ("call", "custom") and not (item.name and item.call_id):
                return
            self._announce(self._unannounced_items.pop(0))

    def _announce_remaining_items(self) -> None:
        """Announce the rest at the end. A call without a call id gets one; a call without a name is dropped."""
        unannounced, self._unannounced_items = self._unannounced_items, []
        for item in unannounced:
            if item.kind in ("call", "custom"):
                item.call_id = item.call_id or item.id or self._new_id("call")
                if not item.name:
                    self.losses.add("output", "a call without a name", "it cannot be executed (TOOL-3)")
                    continue
            self._announce(item)

    def _announce(self, item: UpstreamItem) -> None:
        if self._wire.cut == "by_usage":
            self._close_unsettled(
                ItemStatus.COMPLETED
            )  # the previous item is not the last one, so it was not truncated
        if item.kind == "message":
            self.writer.open_message(item.key, id=item.id, phase=item.phase or UNSET)
        elif item.kind == "reasoning":
            self.writer.open_reasoning(item.key, id=item.id)
        elif item.kind != "whole":
            self._announce_call(item)
        if item.kind != "whole":
            self._record_hub_position(item)
        item.announced_to_client = True
        pending_actions, item.pending_actions = item.pending_actions, []
        for action, arguments in pending_actions:
            action(item, *arguments)

    def _announce_call(self, item: UpstreamItem) -> None:
        called = ToolRef("custom" if item.kind == "custom" else "function", item.name or "", item.namespace)
        if self._flat_names is None:
            called = called._replace(name=self._native_names.original_name(called.name, called.namespace))
        elif item.kind == "call":
            called = self._flat_names.original_tool(called.name)
            item.freeform_input = FreeformInput() if called.kind == "custom" else None
        announce = self.writer.open_custom_call if called.kind == "custom" else self.writer.open_call
        announce(item.key, name=called.name, namespace=called.namespace, call_id=item.call_id or "", id=item.id)
        if item.freeform_input is None:
            item.pieces = self.writer.call_pieces(item.key)

    def _record_hub_position(self, item: UpstreamItem) -> None:
        """Store the hub's id and output index of the item that was announced last."""
        added = self.events[-1]
        assert isinstance(added, ItemAdded)
        assert added.item is not None
        item.hub_id, item.hub_index = id_of(added.item) or "", added.output_index
        self._item_by_index[item.hub_index] = item

    def _add_whole_item(self, item: UpstreamItem, raw: Raw) -> None:
        item.announced_form = self.content.whole_item(item, raw)
        self.writer.open_item(item.key, item.announced_form)
        self._record_hub_position(item)

    # Ending items

    def _end_item(self, item: UpstreamItem, server_item: ServerItem, raw: Raw) -> None:
        self._merge_identity(item, server_item)
        item.finished_by_server = True
        item.done_raw = raw
        if item.kind in ("call", "custom") and item.name:
            item.call_id = item.call_id or item.id or self._new_id("call")
        self.run_when_announced(item, self._finish_item, server_item, raw)
        self._announce_ready_items()

    def _finish_item(self, item: UpstreamItem, server_item: ServerItem, raw: Raw) -> None:
        """Write what the final form adds to the streamed output, then close the item."""
        if item.kind == "whole":
            if not self.writer.is_open(item.key):
                self._add_whole_item(item, raw)
            item.final_form = self.content.whole_item(item, self.content.as_announced(item, raw))
        else:
            self.content.merge_final_form(item, server_item)
            self.content.end_freeform_input(item)
            self.content.end_summary(item)
            self.content.keep_extra_fields(item, raw)
        item.has_final_form = True
        if server_item.status == ItemStatus.INCOMPLETE or self._wire.cut == "by_usage":
            self._unsettled.append(item)  # ITEM-3: the end of the response decides whether the item is incomplete
        else:
            self._close_item(item, ItemStatus.COMPLETED)

    def _close_unsettled(self, status: ItemStatus) -> None:
        """Close the unsettled items. If the response does not complete, the writer closes them (ITEM-3)."""
        unsettled, self._unsettled = self._unsettled, []
        for item in unsettled:
            self._close_item(item, status)

    def _close_item(self, item: UpstreamItem, status: ItemStatus) -> None:
        if item.final_form is not None:
            self._close_whole_item(item, item.final_form, status)
        elif status is ItemStatus.COMPLETED:
            self.writer.close_item(item.key)

    def _close_whole_item(self, item: UpstreamItem, final: Item, status: ItemStatus) -> None:
        """Close an item that is carried whole, with its own status where the protocol allows that."""
        final_status = status_of(final)
        is_last = item.hub_index == self.writer.item_count - 1
        is_allowed = status is ItemStatus.FAILED or (status is ItemStatus.INCOMPLETE and is_last)
        if (final_status == ItemStatus.INCOMPLETE and not is_allowed) or (
            final_status == ItemStatus.FAILED and not may_fail(final)
        ):
            self.content.report_loss(
                item,
                ".status",
                f"the status {final_status!r}",
                "the response continues after the item (ITEM-2, ITEM-3)",
            )
            final_status = ItemStatus.COMPLETED
        self.writer.finish_item(item.key, with_id_and_status(final, item.hub_id, final_status))

    def _close_all(self, status: ItemStatus) -> None:
        self._announce_remaining_items()
        for item in self.tracker.items:
            self.content.end_freeform_input(item)
            self.content.end_summary(item)
        self._close_unsettled(status)

    def _merge_listed_items(self, output: list[Raw]) -> None:
        """Merge the items that the terminal event lists: new items, and additions to streamed items."""
        listed = [
            (raw, item, kind)
            for raw in output
            for item in (decode_struct(raw, ServerItem),)
            if (kind := item_kind(item)) is not None
        ]
        if len(listed) < len(output):
            self.losses.add("output", "an item without a type", "it cannot be translated")
        finals = [final_form(kind, item, index) for index, (_, item, kind) in enumerate(listed)]
        for (raw, server_item, _), final, tracked_item in zip(
            listed, finals, self.tracker.match_final_forms(finals), strict=True
        ):
            if tracked_item is None or not tracked_item.finished_by_server:
                self._end_item(tracked_item or self._track_item(final.kinds[-1], server_item, None), server_item, raw)
            elif tracked_item.kind != "whole":
                self.run_when_announced(tracked_item, self.content.merge_final_form, server_item)

    def _was_cut_by_limit(self, usage: Usage | None) -> bool:
        """REQ-3: whether the usage shows a truncated response, for servers that report it as completed."""
        if self._wire.cut == "told" or self._max_output_tokens is None or usage is None:
            return False
        return usage.output_tokens >= self._max_output_tokens

    def _forward_event(self, item: UpstreamItem, kind: str, members: dict[str, Any]) -> None:
        position = {"item_id": item.hub_id, "output_index": item.hub_index}
        self.writer.emit_unknown_event(kind, {name: position.get(name, member) for name, member in members.items()})


TYPE_OF_KIND: Final[dict[ItemKind, str]] = {
    "message": "message",
    "reasoning": "reasoning",
    "call": "function_call",
    "custom": "custom_tool_call",
    "whole": "message",  # without a type, only an item with a role is carried
}
FAILED_STATUSES: Final = frozenset({ResponseStatus.FAILED.value, ResponseStatus.CANCELLED.value})
