"""Packing and unpacking of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.store.event_batches import EventBatch, events_to_append, pack_events, unpack_events_after

events = st.lists(st.binary(max_size=5), max_size=6)


@settings(max_examples=50)
@given(events, events, st.integers(0, 3), st.integers(-2, 12))
def test_consecutive_batches_unpack_like_one_batch(
    some: list[bytes], more: list[bytes], first: int, after: int
) -> None:
    one, two = pack_events(first, some), pack_events(first + len(some), more)
    joined = EventBatch(first_number=first, sizes=one.sizes + two.sizes, content=one.content + two.content)
    numbered = dict(enumerate([*some, *more], first))
    assert unpack_events_after(after, joined) == [event for number, event in numbered.items() if number > after]


def test_events_to_append_skips_stored_events() -> None:
    assert events_to_append(3, [b"3", b"4", b"5"], 3) == [b"3", b"4", b"5"]
    assert events_to_append(3, [b"3", b"4", b"5"], 5) == [b"5"]
    assert events_to_append(3, [b"3", b"4", b"5"], 9) == []


def test_events_to_append_raises_for_a_gap() -> None:
    with pytest.raises(ValueError, match="expected number 2, got number 3"):
        events_to_append(3, [], 2)
