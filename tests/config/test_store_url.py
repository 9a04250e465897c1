"""Which URLs of a store are valid, and that a problem does not show the URL."""

from __future__ import annotations

import pytest

from antiphon.config.store_url import EXPECTED_URL, store_url_problem


@pytest.mark.parametrize(
    "url", [None, "off", "sqlite:///a.db", "sqlite:////tmp/a%3Fb.db", "postgresql://h/d", "postgres://h/d"]
)
def test_valid_url_has_no_problem(url: str | None) -> None:
    assert store_url_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://me:secret@host/db", "begins with mysql://"),
        ("secret", "is not a supported URL"),
        ("sec ret://x", "is not a supported URL"),
        ("sqlite://", "begins with sqlite:// but has no valid path"),
        ("sqlite:///secret.db?mode=ro", "begins with sqlite:// but has no valid path"),
    ],
)
def test_problem_names_the_scheme_and_what_is_expected(url: str, problem: str) -> None:
    assert store_url_problem(url) == f"{problem}; expected {EXPECTED_URL}"
    assert "secret" not in store_url_problem(url)
