"""Maps the hub's reasoning efforts to the token budgets that some servers use instead (RSN-4)."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningEffort, Request

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


def token_budget(request: Request) -> int | None:
    """The budget for reasoning that the client counted in tokens; None if it gave none, or left it to the model."""
    for field, member in BUDGET_MEMBERS.items():
        value = msgspec.json.decode((request.extra or {}).get(field, b"null"))
        budget = value.get(member) if isinstance(value, dict) else None
        if type(budget) is int and budget > 0:
            return budget
    return None


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


#: The fields of a client's request that count a budget in tokens, with the member that does.
BUDGET_MEMBERS: Final = {
    "messages:thinking": "budget_tokens",
    "gemini:thinkingConfig": "thinkingBudget",
    "chat:reasoning": "max_tokens",
}
#: The efforts by the words that clients send, which are the hub's.
EFFORT_OF_WORD: Final[dict[str, ReasoningEffort]] = {word: word for word in EFFORT_BUDGETS}
EFFORT_ORDER: Final[tuple[ReasoningEffort, ...]] = tuple(EFFORT_BUDGETS)
