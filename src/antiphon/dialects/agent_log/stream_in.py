"""Translates the output lines of a command-line agent, and its thread events, into an Open Responses answer (B-5, B-7).

Messages, reasoning and tool calls become items of the hub; everything else becomes an extension, `slug:kind` (B-3). A
snapshot that extends the previous one is written as a delta. Any other snapshot is written again in full, because sent
text cannot be withdrawn. Lines that are not events, such as output that a tool prints by mistake, are losses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec
from msgspec import Raw

from antiphon.dialects.agent_log.wire import (
    AgentMessageItem,
    AgentUsage,
    ItemCompleted,
    ItemEvent,
    ItemStarted,
    ItemUpdated,
    McpToolCallItem,
    OtherEvent,
    ReasoningItem,
    ThreadCompleted,
    ThreadError,
    ThreadEvent,
    ThreadItem,
    ThreadStarted,
    ThreadWire,
    ToolInvocationItem,
    ToolOutputItem,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    decode_thread_event,
    item_kind,
    item_members,
)
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.base import is_extension_type
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import FunctionCallOutput, UnknownItem
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.writer import ResponseWriter


class EventsToHub:
    """Translates the lines of one turn. Events without a hub equivalent become extensions named `<slug>:…`, where the
    slug names the agent."""

    def __init__(self, request: Request, initial_response: Response, stamps: Stamps, wire: ThreadWire) -> None:
        del request  # part of the common signature; unused here
        self._events = EventCollector()
        self._thread = ThreadToHub(ResponseWriter(initial_response, self._events, stamps), wire)

    @property
    def losses(self) -> Losses:
        return self._thread.losses

    @property
    def error(self) -> ApiError | None:
        """The error of a failed turn."""
        return self._thread.error

    def feed(self, line: bytes) -> list[StreamEvent]:
        """The events of one line."""
        event = decode_thread_event(line)
        if event is None:
            self.losses.add("stream", "a line", f"it is not an event: {line[:60].decode(errors='replace')}")
        else:
            self._thread.feed(event)
        return self._events.take()

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """Ends the lines. A turn that has not ended fails."""
        self._thread.finish(error)
        return self._events.take()


class ThreadToHub:
    """Writes one turn of an agent. Events after its end are losses."""

    def __init__(self, writer: ResponseWriter, wire: ThreadWire) -> None:
        self.losses = Losses()
        self.error: ApiError | None = None
        self._writer = writer
        self._wire = wire
        self._written: dict[Hashable, str] = {}  # the written text or arguments of open items
        self._call_ids: dict[str, str] = {}  # by the id of the invocation item
        self._last_error = ""  # the last error that did not end the turn

    def feed(self, event: ThreadEvent) -> None:
        if self._writer.has_ended:
            if type(event) is not ThreadCompleted:
                self.losses.add(_event_name(event), "the event", "the turn had ended")
            return
        match event:
            # The most frequent events come first: a failed class pattern takes six times as long as a match.
            case ItemUpdated() | ItemCompleted() | ItemStarted():
                self._write_item(event)
            case ThreadStarted() | TurnStarted():
                if not self._writer.has_started:
                    self._writer.start()
            case TurnCompleted(usage=usage) | ThreadCompleted(subtype="success", usage=usage):
                self._writer.complete(usage_to_hub(usage) if usage else None)
            case TurnFailed(usage=usage):
                self._fail(ApiError(event.why, type="model_error", code="agent_failed"), usage)
            case ThreadError(message=message):
                self._last_error = message
                self._forward_event("error", {"message": message})
            case ThreadCompleted():
                self._fail(self._unfinished_error())
            case _:
                self._forward_event(event.kind, event.members)

    def finish(self, error: ApiError | None = None) -> None:
        """Ends the events. A turn that has not ended fails."""
        if not self._writer.has_ended:
            self._fail(error or self._unfinished_error())

    def _fail(self, error: ApiError, usage: AgentUsage | None = None) -> None:
        self.error = error.without_traceback()
        self._writer.fail(error, usage_to_hub(usage) if usage else None)

    def _unfinished_error(self) -> ApiError:
        last = f"; last error: {self._last_error}" if self._last_error else ""
        return UpstreamFault(f"the agent stopped before the end of its turn{last}", code="upstream_disconnected")

    def _forward_event(self, kind: str, members: dict[str, Any]) -> None:
        """Writes an event that the hub has no type for as an extension event."""
        if self._wire.include_extensions and (name := self._extension_name(kind)):
            self._writer.emit_unknown_event(name, members)

    def _extension_name(self, kind: str) -> str:
        name = kind if is_extension_type(kind) else f"{self._wire.slug}:{kind}"
        if is_extension_type(name):
            return name
        self.losses.add(repr(kind), "the event or item", "an extension cannot have this name")
        return ""

    # Items

    def _write_item(self, event: ItemEvent) -> None:
        item, is_done = event.item, type(event) is ItemCompleted
        if self._writer.was_closed(item.id):
            self.losses.add(f"item {item.id}", "an update", "the item had ended")
            return
        match item:
            case AgentMessageItem(text=text):
                if not self._writer.is_open(item.id):
                    self._writer.open_message(item.id)
                self._write_snapshot(item, text, self._writer.add_text)
            case ReasoningItem(text=text):
                if not self._wire.include_reasoning:
                    return
                if not self._writer.is_open(item.id):
                    self._writer.open_reasoning(item.id)
                self._write_snapshot(item, text, self._writer.add_reasoning)
            case ToolInvocationItem() | ToolOutputItem() | McpToolCallItem():
                if self._wire.map_tool_calls:
                    self._write_tool(item, is_done)
                return
            case _:
                self._write_other(item, is_done)
                return
        if is_done:
            self._close_item(item)

    def _write_snapshot(self, item: ThreadItem, text: str, write: Callable[[Hashable, str], None]) -> None:
        written = self._written.get(item.id, "")
        if not text.startswith(written):
            self.losses.add(
                f"item {item.id}", "a change of the text", "the earlier text was delivered; the new text follows it"
            )
            self._writer.end_part(item.id)
            written = ""
        if len(text) > len(written):
            write(item.id, text[len(written) :])
        self._written[item.id] = text

    def _close_item(self, item: ThreadItem, status: str | None = None) -> None:
        if extra := self._extra(item, status):
            self._writer.set_extra_fields(item.id, extra)
        self._written.pop(item.id, None)
        self._writer.close_item(item.id)

    def _extra(self, item: ThreadItem, status: str | None) -> dict[str, Raw]:
        """The fields that the hub's item does not have, with the agent's slug. ITEM-2: they include the status of a
        failed tool."""
        extra_members = dict(item.extra_members)
        if status not in (None, "completed", "in_progress", "started"):
            extra_members["status"] = status
        return {f"{self._wire.slug}:{name}": Raw(msgspec.json.encode(value)) for name, value in extra_members.items()}

    def _write_tool(self, item: ToolInvocationItem | ToolOutputItem | McpToolCallItem, is_done: bool) -> None:
        match item:
            case ToolInvocationItem():
                self._write_call(item, item.tool_name, item.tool_call_id or item.id, item.arguments, is_done)
            case McpToolCallItem():
                self._write_call(item, item.name, item.id, item.arguments, is_done)
                outcome = item.result if item.error is None else item.error
                if is_done and outcome is not None:
                    self._write_output((item.id, "output"), item.id, outcome, {})
            case _:
                call_id = item.tool_call_id or self._call_ids.get(item.call_id, item.call_id)
                if is_done:
                    self._write_output(item.id, call_id, item.output, self._extra(item, item.status))

    def _write_call(
        self, item: ToolInvocationItem | McpToolCallItem, name: str, call_id: str, arguments: Any, is_done: bool
    ) -> None:
        if not self._writer.is_open(item.id):
            self._call_ids[item.id] = call_id
            self._writer.open_call(item.id, name=name, call_id=call_id)
        if arguments is not None or is_done:
            self._write_arguments(item.id, _as_text(arguments if arguments is not None else {}))
        if is_done:
            self._close_item(item, item.status)

    def _write_arguments(self, key: str, arguments: str) -> None:
        if key not in self._written:
            self._written[key] = arguments
            self._writer.add_arguments(key, arguments)
        elif self._written[key] != arguments:
            self.losses.add(f"item {key}", "changed arguments", "the first arguments were already delivered")

    def _write_output(self, key: Hashable, call_id: str, output: Any, extra: dict[str, Raw]) -> None:
        output_item = FunctionCallOutput(
            id="", call_id=call_id, output=_as_text(output), status=ItemStatus.COMPLETED, extra=extra or msgspec.UNSET
        )
        self._writer.add_whole_item(key, output_item)

    def _write_other(self, item: ThreadItem, is_done: bool) -> None:
        if not self._wire.include_extensions or not (kind := self._extension_name(item_kind(item))):
            return
        members = item_members(item)
        if not self._writer.is_open(item.id):
            self._writer.open_extension_item(item.id, kind, members)
        if is_done:
            status = members.get("status")
            final_status = (
                STATUS_OF_WORD.get(status, ItemStatus.COMPLETED) if isinstance(status, str) else ItemStatus.COMPLETED
            )
            final = Raw(msgspec.json.encode({**members, "type": kind, "status": final_status}))
            self._writer.finish_item(item.id, UnknownItem(kind=kind, raw=final))


def usage_to_hub(usage: AgentUsage) -> Usage:
    """B-7: the agent's counters as the hub's usage."""
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cached_input_tokens, cache_write_tokens=None),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_output_tokens),
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _event_name(event: ThreadEvent) -> str:
    return event.kind if isinstance(event, OtherEvent) else str(event.__struct_config__.tag)


# The ITEM-2 status for an agent's status of a command, a patch or a search.
STATUS_OF_WORD: Final = {"failed": ItemStatus.FAILED, "declined": ItemStatus.FAILED, "cancelled": ItemStatus.FAILED}
