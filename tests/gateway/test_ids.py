"""`gateway/ids`: ids of responses and items."""

from __future__ import annotations

import pytest

from antiphon.gateway.ids import new_id
from antiphon.store.keys import is_generated_id


def test_ids_are_in_the_order_of_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are written together have neighbouring ids, also those of one second."""
    created: list[str] = []
    for milliseconds in range(50):
        monkeypatch.setattr("antiphon.gateway.ids.time.time", lambda at=1_795_000_000.0005 + milliseconds / 1000: at)
        created.append(new_id("resp"))
    assert created == sorted(created)


@pytest.mark.parametrize("now", [0.0, 0.0015, 1_795_000_000.999, 2.0**32, 2.0**40])
def test_id_has_the_same_form_at_any_time(now: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.gateway.ids.time.time", lambda: now)
    first, second = new_id("resp"), new_id("resp")
    assert is_generated_id(first)
    assert first[:13] == second[:13]  # the time
    assert first != second
