"""`[store] url`."""

from __future__ import annotations

import pytest

from antiphon.config.store_url import store_url_problem


@pytest.mark.parametrize(
    "url", [None, "off", "sqlite:///a.db", "sqlite:////var/a.db", "postgresql://db/antiphon", "postgres://db/antiphon"]
)
def test_valid_store_url_has_no_problem(url: str | None) -> None:
    assert store_url_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://anna:sesame@db", "begins with mysql://; "),
        ("anna:sesame@db", "is not a supported URL; "),
        ("", "is not a supported URL; "),
        ("sqlite:///", "begins with sqlite:// but has no valid path; "),
        ("sqlite://a.db", "begins with sqlite:// but has no valid path; "),
        ("sqlite:///a%00b", "begins with sqlite:// but has no valid path; "),
        ("sqlite:///a.db?x", "begins with sqlite:// but has no valid path; "),
    ],
)
def test_invalid_store_url_is_described_without_a_password(url: str, problem: str) -> None:
    message = store_url_problem(url)
    assert message.startswith(f"{problem}expected sqlite:///relative.db, ")
    assert "sesame" not in message
