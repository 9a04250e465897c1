"""Events that are kept together come apart again as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.store.event_batches import EventBatch, events_to_append, pack_events, unpack_events_after

events = st.lists(st.binary(max_size=5), max_size=6)


@settings(max_examples=50)
@given(events, events, st.integers(0, 3), st.integers(-2, 12))
def test_batches_in_a_row_are_one_batch(some: list[bytes], more: list[bytes], first: int, after: int) -> None:
    one, two = pack_events(first, some), pack_events(first + len(some), more)
    joined = EventBatch(first_number=first, sizes=one.sizes + two.sizes, content=one.content + two.content)
    numbered = dict(enumerate([*some, *more], first))
    assert unpack_events_after(after, joined) == [event for number, event in numbered.items() if number > after]


def test_what_is_there_already_is_not_missing() -> None:
    assert events_to_append(3, [b"3", b"4", b"5"], 3) == [b"3", b"4", b"5"]
    assert events_to_append(3, [b"3", b"4", b"5"], 5) == [b"5"]
    assert events_to_append(3, [b"3", b"4", b"5"], 9) == []


def test_a_gap_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="from number 3 on came where number 2 is the next"):
        events_to_append(3, [], 2)
