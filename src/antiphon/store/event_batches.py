"""Events that are kept together: their bytes in a row, and how long each of them is. What they say is nobody's business here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct


class EventBatch(Struct, frozen=True, kw_only=True):
    """Events that follow each other, the first of them of some number."""

    first: int
    sizes: bytes  # in decimal, with a space after each, so that several batches in a row are one
    content: bytes


def pack_events(first: int, events: Sequence[bytes]) -> EventBatch:
    return EventBatch(first=first, sizes=b"".join([b"%d " % len(event) for event in events]), content=b"".join(events))


def unpack_events_after(after: int, kept: EventBatch) -> list[bytes]:
    """Those whose number is greater."""
    return list(islice(_events(kept), max(0, after + 1 - kept.first), None))


def events_to_append(first: int, events: Sequence[bytes], next_event: int) -> Sequence[bytes]:
    """Of events that are to be kept from `first` on, those that are not kept yet, where `next_event` is the first that is not."""
    if first > next_event:
        raise ValueError(f"events from number {first} on came where number {next_event} is the next: there would be a gap")
    return events[next_event - first :]


def _events(kept: EventBatch) -> Iterator[bytes]:
    end = 0
    for size in map(int, kept.sizes.split()):
        start, end = end, end + size
        yield kept.content[start:end]
