"""Names of the service tier in answers: the hub and the Chat API say `default` for what other APIs call `standard`."""

from __future__ import annotations

from typing import Final


def tier_from_hub(tier: str | None) -> str | None:
    """The tier for a client; None if the answer does not say which tier served it."""
    return None if tier == UNDECIDED else WORD_OF_TIER.get(tier, tier)


def tier_to_hub(word: str) -> str:
    """The tier of a server in the hub's words."""
    return TIER_OF_WORD.get(word.lower(), word)


UNDECIDED: Final = "auto"
WORD_OF_TIER: Final[dict[str | None, str]] = {"default": "standard"}
TIER_OF_WORD: Final = {"standard": "default"}
