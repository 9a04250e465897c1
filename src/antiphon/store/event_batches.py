"""Packs several events into one row: their concatenated bytes, and the size of each. Does not decode them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct


class EventBatch(Struct, frozen=True, kw_only=True):
    """Consecutive events; `first_number` is the number of the first."""

    first_number: int
    sizes: bytes  # decimal, a space after each, so that batches can be concatenated
    content: bytes


def pack_events(first_number: int, events: Sequence[bytes]) -> EventBatch:
    sizes = b"%d " * len(events) % tuple(map(len, events))
    return EventBatch(first_number=first_number, sizes=sizes, content=b"".join(events))


def unpack_events_after(after: int, batch: EventBatch) -> list[bytes]:
    """Returns the events whose number is greater than `after`."""
    return list(islice(_split_events(batch), max(0, after + 1 - batch.first_number), None))


def events_to_append(first_number: int, events: Sequence[bytes], next_event: int) -> Sequence[bytes]:
    """Returns the events that are not stored yet. `first_number` is the number of the first event given, `next_event`
    of the first that is not stored."""
    if first_number > next_event:
        raise ValueError(f"gap in the events: expected number {next_event}, got number {first_number}")
    return events[next_event - first_number :]


def _split_events(batch: EventBatch) -> Iterator[bytes]:
    end = 0
    for size in map(int, batch.sizes.split()):
        start, end = end, end + size
        yield batch.content[start:end]
