"""`common/effort`: words, budgets, and the nearest word (RSN-4)."""

from __future__ import annotations

from typing import get_args

import pytest

from antiphon.dialects.common.effort import EFFORT_BUDGETS, EFFORT_ORDER, effort_of, nearest_effort
from antiphon.protocol.request import ReasoningEffort

WORDS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)


def test_every_word_has_its_budget_and_its_place() -> None:
    """RSN-4: harder is more."""
    assert set(EFFORT_ORDER) == set(WORDS)
    assert list(EFFORT_BUDGETS.values()) == sorted(EFFORT_BUDGETS.values())


@pytest.mark.parametrize("word", WORDS)
def test_a_words_own_budget_is_that_word_again(word: ReasoningEffort) -> None:
    """RSN-4."""
    assert effort_of(EFFORT_BUDGETS[word]) == word


@pytest.mark.parametrize(
    ("budget", "word"), [(-1, "none"), (1, "minimal"), (1025, "low"), (12_289, "high"), (98_305, "max"), (10**9, "max")]
)
def test_a_budget_between_two_words_is_the_harder(budget: int, word: str) -> None:
    """RSN-4."""
    assert effort_of(budget) == word


@pytest.mark.parametrize(
    ("asked", "known", "told"),
    [
        ("xhigh", ("low", "medium", "high"), "high"),
        ("max", ("low", "high"), "high"),
        ("none", ("minimal", "high"), "minimal"),
        ("medium", ("low", "high"), "high"),  # as near as the other, and harder
        ("medium", ("medium",), "medium"),
    ],
)
def test_the_nearest_word_is_told(asked: ReasoningEffort, known: tuple[ReasoningEffort, ...], told: str) -> None:
    """RSN-4."""
    assert nearest_effort(asked, known) == told
