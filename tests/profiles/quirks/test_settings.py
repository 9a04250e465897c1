"""Settings that some servers refuse."""

from __future__ import annotations

import pytest
from tests.profiles.quirk_runs import run_quirk

from antiphon.profiles.quirks.settings import ShortenUserOptions


def test_shorten_user_hashes_a_long_user() -> None:
    """REQ-6: one of the forms that coding agents send; the same user has the same hash."""
    name = '{"device_id":"' + "5" * 64 + '","session_id":"8e2f"}'
    first, losses = run_quirk("shorten_user", ShortenUserOptions(), input="hi", user=name)
    assert len(first["user"]) == 64
    assert losses == {"user": "a user of 100 characters"}
    assert run_quirk("shorten_user", ShortenUserOptions(), input="hi", user=name)[0] == first
    assert run_quirk("shorten_user", ShortenUserOptions(), input="hi", user=name + "x")[0] != first


def test_shorten_user_has_a_configurable_limit() -> None:
    assert len(run_quirk("shorten_user", ShortenUserOptions(limit=32), input="hi", user="u" * 33)[0]["user"]) == 32
    assert run_quirk("shorten_user", ShortenUserOptions(limit=128), input="hi", user="u" * 128) == (
        {"input": "hi", "user": "u" * 128},
        {},
    )


@pytest.mark.parametrize("user", [{}, {"user": ""}, {"user": None}, {"user": "u" * 64}])
def test_shorten_user_keeps_short_users(user: dict[str, str | None]) -> None:
    assert run_quirk("shorten_user", ShortenUserOptions(), input="hi", **user) == ({"input": "hi", **user}, {})
