"""`Grammar` checks any sequence of events against the protocol (STR-1 … STR-12, ITEM-2 … ITEM-6).

`grammar_tables` defines which events are allowed in each stage; `grammar_items` checks each item and each part.
Checking continues after a violation and never raises. Each mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.protocol.base import is_extension_type
from antiphon.protocol.events import (
    CallEvent,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    PartEvent,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TerminalEvent,
    UnknownEvent,
)
from antiphon.protocol.grammar_items import (
    ItemState,
    Violation,
    ViolationReport,
    event_type,
    first_difference,
)
from antiphon.protocol.grammar_tables import (
    EXPECTED_IN_RESPONSE_STAGE,
    HOSTED_EVENT_PREFIXES,
    RESPONSE_GRAMMAR,
    ROW_OF_RESPONSE_STAGE,
    STATUS_OF_EVENT,
    ItemStage,
    ResponseStage,
    next_stage,
)
from antiphon.protocol.open_items import id_of, status_of, without_seal
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus, ResponseStatus

__all__ = ["Grammar", "Violation", "find_violations"]


def find_violations(events: Iterable[StreamEvent]) -> list[Violation]:
    """All violations in a whole stream."""
    grammar = Grammar()
    violations = [violation for event in events for violation in grammar.feed(event)]
    return violations + grammar.finish()


class Grammar:
    """Checks one stream. `judges_foreign_items` is false for a gateway, which passes on the types that a server invents
    (ITEM-5), and the status of items that the server's own tools made."""

    def __init__(self, *, judges_foreign_items: bool = True) -> None:
        self._judges_foreign_items = judges_foreign_items
        self._report = ViolationReport(ignored_rows=() if judges_foreign_items else ("ITEM-5",))
        self._stage = ResponseStage.NOT_CREATED
        self._expected_number = 0
        self._response_id: str | None = None
        self._items_by_index: dict[int, ItemState] = {}
        self._items: list[ItemState] = []  # all items, also two with the same index

    def feed(self, event: StreamEvent) -> list[Violation]:
        """The violations of this event, given the events before it."""
        self._report.sequence = event.sequence_number
        if self._stage is ResponseStage.ENDED:
            self._report.add(
                "STR-7", "response", f"unexpected {event_type(event)} after the terminal event; expected only [DONE]"
            )
            return self._report.take_violations()
        self._check_number(event)
        self._advance_stage(event)
        match event:
            case ResponseEvent():
                self._judge_response(event)
            case ItemAdded():
                self._announce_item(event)
            case ItemDone():
                self._item_at(event).finish(event)
            case UnknownEvent():
                self._judge_unknown(event)
            case ErrorEvent():
                pass
            case _:
                self._item_at(event).feed(event)
        return self._report.take_violations()

    def finish(self) -> list[Violation]:
        """The violations of a stream that ends here."""
        self._report.sequence = None
        if self._stage is ResponseStage.NOT_CREATED:
            self._report.add("STR-1", "response", "the stream ended without any event; expected response.created")
        elif self._stage is not ResponseStage.ENDED:
            expected = "response.completed, response.incomplete or response.failed"
            self._report.add("STR-7", "response", f"the stream ended without a terminal event; expected {expected}")
            self._judge_open_items("the stream ended")
        return self._report.take_violations()

    def _check_number(self, event: StreamEvent) -> None:
        if event.sequence_number != self._expected_number:
            self._report.add(
                "STR-5",
                "response",
                f"{event_type(event)} has sequence_number {event.sequence_number}; expected {self._expected_number}: "
                "numbers start at 0 and rise by 1 with every event, extension events included",
            )
        self._expected_number = event.sequence_number + 1

    def _advance_stage(self, event: StreamEvent) -> None:
        stage = self._stage
        self._stage, is_legal = next_stage(RESPONSE_GRAMMAR, stage, event)
        if not is_legal:
            expected = EXPECTED_IN_RESPONSE_STAGE[stage]
            self._report.add(
                ROW_OF_RESPONSE_STAGE[stage], "response", f"unexpected {event_type(event)}; expected {expected}"
            )

    # The response

    def _judge_response(self, event: ResponseEvent) -> None:
        name, response = event_type(event), event.response
        row = "STR-7" if isinstance(event, TerminalEvent) else "STR-1"
        statuses = STATUS_OF_EVENT[type(event)]
        if response.status not in statuses:
            expected = " or ".join(repr(status.value) for status in statuses)
            self._report.add(row, "response.status", f"{name} has {response.status!r}; expected {expected}")
        if self._response_id is not None and response.id != self._response_id:
            self._report.add(
                row, "response.id", f"{name} has {response.id!r}; expected {self._response_id!r}, as in earlier events"
            )
        self._response_id = response.id
        if isinstance(event, TerminalEvent):
            self._judge_end(event, name)

    def _judge_end(self, event: TerminalEvent, name: str) -> None:
        response = event.response
        if isinstance(event, ResponseFailed) and response.error is None and response.status != ResponseStatus.CANCELLED:
            self._report.add("STR-8", "response.error", f"{name} has none; expected an error with its code and message")
        if isinstance(event, ResponseIncomplete) and response.incomplete_details is None:
            self._report.add("ITEM-3", "response.incomplete_details", f"{name} has none; expected a reason")
        self._judge_open_items(f"unexpected {name}")
        self._judge_output(response, name)
        if not isinstance(event, ResponseFailed):
            self._judge_incomplete_items(isinstance(event, ResponseIncomplete), name)

    def _judge_open_items(self, event_description: str) -> None:
        for item in self._items:
            if item.stage is not ItemStage.DONE:
                self._report.add(
                    "STR-4",
                    item.path,
                    f"{event_description} while the item is open; expected response.output_item.done before it",
                )

    def _judge_output(self, response: Response, name: str) -> None:
        """STR-6, STR-7: the terminal event contains the full response, with each item as in its done event."""
        item_count, streamed_count = len(response.output), len(self._items)
        if item_count != streamed_count:
            self._report.add(
                "STR-7",
                "response.output",
                f"{name} has {item_count} items; expected the {streamed_count} that were streamed",
            )
            return
        for item, final_item in zip(self._items_in_order(), response.output, strict=True):
            if item.final_item is not None:
                # A server may seal the same reasoning anew in each event.
                difference = first_difference(without_seal(item.final_item), without_seal(final_item))
                if difference:
                    self._report.add("STR-6", item.path, f"{name} differs from response.output_item.done: {difference}")

    def _judge_incomplete_items(self, is_incomplete: bool, name: str) -> None:
        """ITEM-3: checks the items of a response that did not fail."""
        for item in self._items_in_order()[:-1] if is_incomplete else self._items:
            if item.final_item is not None and status_of(item.final_item) == ItemStatus.INCOMPLETE:
                expected = "only in the last item" if is_incomplete else "in none, or response.incomplete"
                self._report.add(
                    "ITEM-3",
                    item.path,
                    f"the item has the status 'incomplete' before {name}; expected that {expected}",
                )

    def _items_in_order(self) -> list[ItemState]:
        return sorted(self._items, key=lambda item: item.index)

    # Items

    def _announce_item(self, event: ItemAdded) -> None:
        item = self._items_by_index.get(event.output_index)
        id = id_of(event.item) if event.item is not None else None
        if item is None or (item.is_announced and item.id != id):
            self._judge_id(event, id)
            item = self._add_item(self._judge_index(event, item))
        item.announce(event)

    def _judge_index(self, event: ItemAdded, existing_item: ItemState | None) -> int:
        """The index of the item: its own, or the next free one if another item is open there."""
        index, expected = event.output_index, max(self._items_by_index, default=-1) + 1
        if existing_item is not None:
            self._report.add(
                "STR-2",
                existing_item.path,
                f"the index belongs to {existing_item.id!r}; expected output_index {expected} for the next",
            )
            return index if existing_item.stage is ItemStage.DONE else expected
        if index > expected or index < 0:
            self._report.add(
                "STR-2", f"output[{index}]", f"the next item is here; expected output_index {expected}, without gaps"
            )
        return index

    def _judge_id(self, event: ItemAdded, id: str | None) -> None:
        """ITEM-6"""
        owner = next((item for item in self._items if id and item.id == id), None)
        if owner is not None:
            self._report.add(
                "ITEM-6",
                f"output[{event.output_index}]",
                f"the id {id!r} belongs to {owner.path}; expected a unique id",
            )

    def _item_at(self, event: ItemDone | PartEvent | CallEvent) -> ItemState:
        item = self._items_by_index.get(event.output_index)
        if item is None:
            path = f"output[{event.output_index}]"
            self._report.add(
                "STR-2", path, f"unexpected {event_type(event)}; expected response.output_item.added before it"
            )
            item = self._add_item(event.output_index)
            item.assume_announced()
        return item

    def _add_item(self, index: int) -> ItemState:
        item = self._items_by_index[index] = ItemState(self._report, index, self._judges_foreign_items)
        self._items.append(item)
        return item

    # Unknown events

    def _judge_unknown(self, event: UnknownEvent) -> None:
        """ITEM-5"""
        kind = event.kind
        if not is_extension_type(kind) and not kind.startswith(HOSTED_EVENT_PREFIXES):
            self._report.add("ITEM-5", kind, "the event type is unknown; expected a known type or the form slug:name")
