"""Keys are taken in turn; resting ones only if no other is left."""

from __future__ import annotations

import pytest

from antiphon.gateway.routing.keys import KeyRing


def test_keys_are_taken_in_turn() -> None:
    ring = KeyRing(3)
    assert [ring.take(0.0) for _ in range(4)] == [0, 1, 2, 0]


def test_resting_key_is_taken_only_if_no_other_is_left() -> None:
    ring = KeyRing(2)
    ring.rest(0, 10.0, 100.0)
    assert [ring.take(100.0) for _ in range(2)] == [1, 1]
    assert ring.resting(100.0) == [0]
    assert ring.take(100.0, {1}) == 0
    assert ring.take(100.0, {0, 1}) is None
    assert ring.resting(110.0) == []


@pytest.mark.parametrize("count", [0, 1])
def test_lone_key_is_always_taken(count: int) -> None:
    ring = KeyRing(count)
    ring.rest(0, 10.0, 100.0)
    assert ring.take(100.0) == 0
    assert ring.take(100.0, {0}) is None
