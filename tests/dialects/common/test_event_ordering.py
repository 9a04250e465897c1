"""Interleaved items, delivered one after the other."""

from __future__ import annotations

from antiphon.dialects.common.event_ordering import EventSequencer
from antiphon.protocol.events import ArgumentsDelta, ItemAdded, ItemDone, StreamEvent


def begin(at: int) -> StreamEvent:
    return ItemAdded(sequence_number=0, output_index=at, item=None)


def piece(at: int, text: str) -> StreamEvent:
    return ArgumentsDelta(sequence_number=0, item_id="", output_index=at, delta=text)


def end(at: int) -> StreamEvent:
    return ItemDone(sequence_number=0, output_index=at, item=None)


def test_sequencer_holds_events_of_later_items_until_earlier_ones_end() -> None:
    """STR-9: no event is lost, and none waits longer than necessary."""
    order = EventSequencer(lambda event: getattr(event, "output_index"), (ItemAdded,), (ItemDone,))  # noqa: B009
    steps = [
        begin(0),
        begin(1),
        piece(1, "b"),
        begin(2),
        end(2),
        piece(0, "a"),
        end(0),
        piece(1, "c"),
        end(1),
        begin(3),
        end(3),
    ]
    events = [order.feed(step) for step in steps]
    assert events == [
        [begin(0)],
        [],
        [],
        [],
        [],
        [piece(0, "a")],
        [end(0), begin(1), piece(1, "b")],
        [piece(1, "c")],
        [end(1), begin(2), end(2)],
        [begin(3)],
        [end(3)],
    ]
