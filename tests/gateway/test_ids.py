"""`gateway/ids`: ids of responses and items."""

from __future__ import annotations

import pytest

from antiphon.gateway.ids import new_id
from antiphon.store.keys import is_generated_id


def test_ids_are_in_the_order_of_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are written together have neighbouring ids, also those of one second."""
    created: list[str] = []
    for milliseconds in range(50):
        nanoseconds = 1_795_000_000_000_000_000 + milliseconds * 1_048_576
        monkeypatch.setattr("antiphon.gateway.ids.time.time_ns", lambda at=nanoseconds: at)
        created.append(new_id("resp"))
    assert created == sorted(created)
    assert len({id[:13] for id in created}) == 50


@pytest.mark.parametrize("now", [0, 1_500_000, 1_795_000_000_999_000_000, 2**62, 2**70])
def test_id_has_the_same_form_at_any_time(now: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.gateway.ids.time.time_ns", lambda: now)
    first, second = new_id("resp"), new_id("resp")
    assert is_generated_id(first)
    assert first[:13] == second[:13]  # the time
    assert first != second
