"""`common/model_names`: patterns of model names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.dialects.common.model_names import matched_part, matches_any


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("mock-1", "mock-1", True),
        ("mock-1", "mock-10", False),
        ("mock-*", "mock-", True),
        ("mock-*", "mock-1", True),
        ("mock-*", "Mock-1", False),
        ("*", "anything at all\nof two lines", True),
        ("*-mini", "gpt-mini", True),
        ("gpt-*-mini", "gpt-mini", False),
        ("*/*", "a/b", True),
        ("*/*", "ab", False),
        ("*llama*70b*", "meta-llama-3-70b-it", True),
        ("*llama*70b*", "70b-llama", False),
        ("aba*aba", "aba", False),
        ("sonnet[1m]", "sonnet[1m]", True),
        ("sonnet[1m]", "sonnet1", False),
        ("gpt-?", "gpt-4", False),
    ],
)
def test_pattern_star_is_the_only_wildcard(pattern: str, name: str, fits: bool) -> None:
    assert matches_any(name, [pattern]) is fits


@settings(max_examples=30)
@given(pattern=st.text("ab*", max_size=8), name=st.text("ab", max_size=12))
def test_pattern_matches_like_the_equivalent_regular_expression(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name)
    assert matches_any(name, [pattern]) == (expected is not None)


def test_pattern_takes_linear_time_on_a_long_name() -> None:
    """The client chooses the name: a pattern with many stars must not cost much time."""
    assert not matches_any("a" * 100_000, ["*a" * 30 + "b"])


def test_matched_part_is_the_text_of_the_star() -> None:
    assert matched_part("lab/*", "lab/mock-1") == "mock-1"
    assert matched_part("lab/*", "mock-1") is None


def test_matches_any_of_several_patterns() -> None:
    assert matches_any("gpt-4o", ["o3*", "gpt-4*"])
    assert not matches_any("gpt-5", ["o3*", "gpt-4*"])
    assert not matches_any("gpt-5", [])
