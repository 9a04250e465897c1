"""`common/effort`: levels, budgets, and the nearest level (RSN-4)."""

from __future__ import annotations

from typing import get_args

import pytest

from antiphon.dialects.common.effort import EFFORT_BUDGETS, EFFORT_ORDER, effort_of, nearest_effort, supported_effort
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningEffort

WORDS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)


def test_every_effort_level_has_a_budget_in_order() -> None:
    """RSN-4: a higher level has a larger budget."""
    assert set(EFFORT_ORDER) == set(WORDS)
    assert list(EFFORT_BUDGETS.values()) == sorted(EFFORT_BUDGETS.values())


@pytest.mark.parametrize("word", WORDS)
def test_budget_of_a_level_maps_back_to_it(word: ReasoningEffort) -> None:
    """RSN-4."""
    assert effort_of(EFFORT_BUDGETS[word]) == word


@pytest.mark.parametrize(
    ("budget", "word"), [(-1, "none"), (1, "minimal"), (1025, "low"), (12_289, "high"), (98_305, "max"), (10**9, "max")]
)
def test_budget_between_two_levels_maps_to_the_higher(budget: int, word: str) -> None:
    """RSN-4."""
    assert effort_of(budget) == word


@pytest.mark.parametrize(
    ("asked", "supported", "expected"),
    [
        ("xhigh", ("low", "medium", "high"), "high"),
        ("max", ("low", "high"), "high"),
        ("none", ("minimal", "high"), "minimal"),
        ("medium", ("low", "high"), "high"),  # equally near, and higher
        ("medium", ("medium",), "medium"),
    ],
)
def test_nearest_effort_returns_the_nearest_level(
    asked: ReasoningEffort, supported: tuple[ReasoningEffort, ...], expected: str
) -> None:
    """RSN-4."""
    assert nearest_effort(asked, supported) == expected


def test_unsupported_effort_becomes_the_nearest_one_and_is_a_loss() -> None:
    """RSN-4."""
    losses = Losses()
    assert supported_effort("low", ("low", "high"), losses) == "low"
    assert not losses
    assert supported_effort("max", ("low", "high"), losses) == "high"
    assert supported_effort("none", ("low", "high"), losses, "output_config.effort") == "low"
    assert [loss.path for loss in losses] == ["reasoning.effort", "output_config.effort"]
