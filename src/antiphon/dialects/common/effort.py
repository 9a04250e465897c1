"""Maps the hub's reasoning efforts to the token budgets that some servers use instead (RSN-4)."""

from __future__ import annotations

from typing import Final

from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningEffort

#: The budgets are those of servers that have both forms; `none` is a budget of zero.
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
    """The lowest effort whose budget is at least `budget`."""
    return next((word for word, tokens in EFFORT_BUDGETS.items() if budget <= tokens), "max")


def nearest_effort(effort: ReasoningEffort, supported: tuple[ReasoningEffort, ...]) -> ReasoningEffort:
    """The supported effort nearest to `effort`; of two equally near ones, the higher."""
    position = EFFORT_ORDER.index(effort)
    return min(supported, key=lambda word: (abs(EFFORT_ORDER.index(word) - position), -EFFORT_ORDER.index(word)))


def supported_effort(
    effort: ReasoningEffort, supported: tuple[ReasoningEffort, ...], losses: Losses, path: str = "reasoning.effort"
) -> ReasoningEffort:
    """The effort itself if it is supported, else the nearest supported one, which is a loss."""
    nearest = nearest_effort(effort, supported)
    if nearest != effort:
        losses.add(path, f"the effort {effort!r}", f"{nearest!r} is the nearest supported value")
    return nearest


#: The efforts by the words that clients send, which are the hub's.
EFFORT_OF_WORD: Final[dict[str, ReasoningEffort]] = {word: word for word in EFFORT_BUDGETS}
EFFORT_ORDER: Final[tuple[ReasoningEffort, ...]] = tuple(EFFORT_BUDGETS)
