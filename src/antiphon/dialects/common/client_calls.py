"""Calls of tools that the client itself runs, in the answer of a server that called a function instead: converts whole
responses and streams.

A call is converted when it is complete, because its item has no partial form. Events after its start wait until then.
Before the first call of a deferred tool, the search that loads it is written. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.client_tools import ClientTools, DeferredKey, arguments_of_tool
from antiphon.dialects.dialect import EventsToHub
from antiphon.errors import ApiError
from antiphon.protocol.events import (
    RESPONSE_EVENTS,
    ArgumentsDelta,
    ArgumentsDone,
    ItemAdded,
    ItemDone,
    StreamEvent,
    UnknownEvent,
)
from antiphon.protocol.items import (
    ApplyPatchCall,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
    ShellCall,
    ToolSearchCall,
    ToolSearchOutput,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus


class CallConverter:
    """Converts the items of one answer."""

    def __init__(self, tools: ClientTools, stamps: Stamps, losses: Losses) -> None:
        self._kind_of_function = tools.kind_of_function
        self._deferred_tools = dict(tools.deferred_tools)
        self._new_id = stamps.new_id
        self._losses = losses

    def is_client_call(self, item: Item | None) -> bool:
        return isinstance(item, FunctionCall) and not item.namespace and item.name in self._kind_of_function

    def convert_call(self, call: FunctionCall, index: int) -> Item:
        """The call as the item of its tool. A call with other arguments stays a function call, which is a loss."""
        kind = self._kind_of_function[call.name]
        arguments = arguments_of_tool(kind, call.arguments)
        if arguments is None or call.status is not ItemStatus.COMPLETED:
            self._losses.add(
                f"output[{index}]",
                f"the form of a call of {kind!r}",
                "its arguments are not those of the tool",
            )
            return call
        match kind:
            case "apply_patch":
                return ApplyPatchCall(
                    id=self._new_id("apc"), call_id=call.call_id, status="completed", operation=arguments
                )
            case "shell":
                environment = {"type": "local"}
                return ShellCall(
                    id=self._new_id("sh"),
                    call_id=call.call_id,
                    status="completed",
                    action=arguments,
                    environment=environment,
                )
            case "local_shell":
                return LocalShellCall(
                    id=self._new_id("lsh"), call_id=call.call_id, status="completed", action=arguments
                )
            case _:
                return ToolSearchCall(
                    id=self._new_id("tsc"),
                    call_id=call.call_id,
                    status="completed",
                    execution="client",
                    arguments=arguments,
                )

    def take_search(self, item: Item | None) -> list[Item]:
        """The search that comes before the first call of a deferred tool; empty for any other item."""
        if not isinstance(item, FunctionCall | CustomToolCall) or not self._deferred_tools:
            return []
        key: DeferredKey = (
            "custom" if isinstance(item, CustomToolCall) else "function",
            item.namespace or None,
            item.name,
        )
        tool = self._deferred_tools.pop(key, None)
        if tool is None:
            return []
        return [
            ToolSearchCall(
                id=self._new_id("tsc"),
                call_id=None,
                execution="server",
                status="completed",
                arguments={"paths": [key[1] or key[2]]},
            ),
            ToolSearchOutput(
                id=self._new_id("tso"), call_id=None, execution="server", status="completed", tools=[tool]
            ),
        ]

    def convert_output(self, output: list[Item]) -> list[Item]:
        """The items of a whole answer."""
        converted: list[Item] = []
        for item in output:
            converted += self.take_search(item)
            if isinstance(item, FunctionCall) and self.is_client_call(item):
                converted.append(self.convert_call(item, len(converted)))
            else:
                converted.append(item)
        return converted


class ConvertedEvents:
    """The reader of a stream whose calls are converted."""

    def __init__(self, reader: EventsToHub, tools: ClientTools, stamps: Stamps) -> None:
        self._reader = reader
        self._own_losses = Losses()
        self._calls = CallConverter(tools, stamps, self._own_losses)
        self._waiting_events: list[StreamEvent] = []
        self._open_calls: set[int] = set()  # output indexes of calls that are not complete
        self._converted_calls: dict[int, Item] = {}  # by output index
        self._searches: dict[int, list[Item]] = {}  # before the item with this output index
        self._number_shift = 0

    @property
    def error(self) -> ApiError | None:
        return self._reader.error

    @property
    def losses(self) -> Losses:
        losses = Losses()
        losses.extend(self._reader.losses)
        losses.extend(self._own_losses)
        return losses

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        return self._convert(self._reader.feed(frame))

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        return self._convert(self._reader.finish(error))

    def limit_output(self, limits: OutputLimits) -> None:
        self._reader.limit_output(limits)

    def end_incomplete(self, reason: str) -> list[StreamEvent]:
        return self._convert(self._reader.end_incomplete(reason))

    def _convert(self, events: list[StreamEvent]) -> list[StreamEvent]:
        converted: list[StreamEvent] = []
        for event in events:
            if isinstance(event, ItemAdded) and self._calls.is_client_call(event.item):
                self._open_calls.add(event.output_index)
            elif isinstance(event, ItemDone) and event.output_index in self._open_calls:
                self._open_calls.remove(event.output_index)
                self._convert_call(event)
            self._waiting_events.append(event)
            if not self._open_calls:
                for waiting_event in self._waiting_events:
                    converted += self._convert_event(waiting_event)
                self._waiting_events = []
        return converted

    def _convert_call(self, event: ItemDone) -> None:
        assert isinstance(event.item, FunctionCall)
        call = self._calls.convert_call(event.item, self._shift_index(event.output_index))
        if call is not event.item:
            self._converted_calls[event.output_index] = call

    def _convert_event(self, event: StreamEvent) -> Iterator[StreamEvent]:
        index: int | None = getattr(event, "output_index", None)
        call = None if index is None else self._converted_calls.get(index)
        if call is not None and isinstance(event, ArgumentsDelta | ArgumentsDone):
            self._number_shift -= 1
            return
        if isinstance(event, ItemAdded):
            yield from self._write_search(event)
        changes: dict[str, Any] = {"sequence_number": event.sequence_number + self._number_shift}
        if index is not None:
            changes["output_index"] = self._shift_index(index)
        if call is not None and isinstance(event, ItemAdded | ItemDone):
            changes["item"] = call if isinstance(event, ItemDone) else replace(call, status="in_progress")
        elif type(event) in RESPONSE_EVENTS:
            response: Response = getattr(event, "response")  # noqa: B009
            changes["response"] = replace(response, output=self._convert_output(response.output))
        elif isinstance(event, UnknownEvent):
            changes["raw"] = self._renumber(event, changes["sequence_number"])
        yield replace(event, **changes)

    def _write_search(self, event: ItemAdded) -> Iterator[StreamEvent]:
        search = self._calls.take_search(event.item)
        if not search:
            return
        first_index = self._shift_index(event.output_index)
        self._searches[event.output_index] = search
        for offset, item in enumerate(search):
            number, index = event.sequence_number + self._number_shift, first_index + offset
            yield ItemAdded(sequence_number=number, output_index=index, item=replace(item, status="in_progress"))
            yield ItemDone(sequence_number=number + 1, output_index=index, item=item)
            self._number_shift += 2

    def _shift_index(self, index: int) -> int:
        return index + SEARCH_ITEMS * bisect_right(sorted(self._searches), index)

    def _convert_output(self, output: list[Item]) -> list[Item]:
        converted: list[Item] = []
        for index, item in enumerate(output):
            converted += [*self._searches.get(index, ()), self._converted_calls.get(index, item)]
        return converted

    def _renumber(self, event: UnknownEvent, number: int) -> Raw:
        members: dict[str, Any] = {**event.raw_members(), "sequence_number": number}
        if "output_index" in members:
            index = msgspec.json.decode(members["output_index"])
            members["output_index"] = self._shift_index(index) if type(index) is int else index
        return Raw(msgspec.json.encode(members))


SEARCH_ITEMS: Final = 2  # a call and its output
