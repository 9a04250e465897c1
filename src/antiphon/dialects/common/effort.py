"""How hard a model is to think: the hub's words, and the budgets in tokens that some servers take instead (RSN-4)."""

from __future__ import annotations

from typing import Final

from antiphon.protocol.request import ReasoningEffort

#: A budget is what the same word comes to on servers that have both; none at all is a budget of zero.
EFFORT_BUDGETS: Final[dict[ReasoningEffort, int]] = {
    "none": 0,
    "minimal": 1024,
    "low": 4096,
    "medium": 12_288,
    "high": 24_576,
    "xhigh": 49_152,
    "max": 98_304,
}


def effort_of(budget: int) -> ReasoningEffort:
    """The word for a budget: the least that is not below it."""
    return next((word for word, tokens in EFFORT_BUDGETS.items() if budget <= tokens), "max")


def nearest_effort(effort: ReasoningEffort, supported: tuple[ReasoningEffort, ...]) -> ReasoningEffort:
    """The word that comes nearest among those a server knows; the harder of two that are as near."""
    place = EFFORT_ORDER.index(effort)
    return min(supported, key=lambda word: (abs(EFFORT_ORDER.index(word) - place), -EFFORT_ORDER.index(word)))


EFFORT_ORDER: Final[tuple[ReasoningEffort, ...]] = tuple(EFFORT_BUDGETS)
