"""Names of models: what a pattern matches, and what a rule makes of a name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.config.models import ModelRule, is_pattern, renamed


def rule(asked: str, told: str) -> ModelRule:
    return ModelRule(from_=asked, to=told)


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
def test_a_star_stands_for_anything_and_nothing_else_is_a_wildcard(pattern: str, name: str, fits: bool) -> None:
    assert renamed(pattern, name) == (name if fits else None)


@settings(max_examples=30)
@given(pattern=st.text("ab*", max_size=8), name=st.text("ab", max_size=12))
def test_patterns_match_what_the_regular_expression_with_the_same_meaning_matches(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name)
    assert (renamed(pattern, name) is not None) == (expected is not None)


@pytest.mark.parametrize(
    ("asked", "told", "name", "becomes"),
    [
        ("fast", "mock-1", "fast", "mock-1"),
        ("fast", "mock-1", "faster", None),
        ("lab/*", "*", "lab/mock-1", "mock-1"),
        ("lab/*", "*", "lab/meta/mock-1", "meta/mock-1"),
        ("lab/*", "x-*-y", "lab/1", "x-1-y"),
        ("gpt-*", "mock-1", "gpt-anything", "mock-1"),
        ("*a*b*", "one", "xaxbx", "one"),
        ("lab/*", "*", "other/mock-1", None),
    ],
)
def test_a_rule_renames(asked: str, told: str, name: str, becomes: str | None) -> None:
    assert renamed(rule(asked, told), name) == becomes


def test_a_long_name_takes_no_longer_than_it_is() -> None:
    """The name is the client's: a pattern with many stars must not be a way to keep us busy."""
    assert renamed("*a" * 30 + "b", "a" * 100_000) is None


def test_a_pattern_is_what_has_a_star() -> None:
    assert is_pattern("gpt-*")
    assert not is_pattern("gpt[4]?")
