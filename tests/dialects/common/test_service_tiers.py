"""Names of the service tier in answers."""

from __future__ import annotations

import pytest

from antiphon.dialects.common.service_tiers import tier_from_hub, tier_to_hub


@pytest.mark.parametrize(("tier", "word"), [("default", "standard"), ("priority", "priority"), ("flex", "flex")])
def test_tier_has_the_name_of_the_other_api(tier: str, word: str) -> None:
    assert (tier_from_hub(tier), tier_to_hub(word), tier_to_hub(word.upper()).lower()) == (word, tier, tier)


@pytest.mark.parametrize("tier", ["auto", None])
def test_tier_that_is_not_decided_has_no_name(tier: str | None) -> None:
    assert tier_from_hub(tier) is None
