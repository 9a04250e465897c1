"""`docs/usage.md` names every counter and every grouping (C-5)."""

from __future__ import annotations

from pathlib import Path

from antiphon.store.usage import COUNTER_NAMES
from antiphon.store.usage_sums import GROUPINGS

PAGE = (Path(__file__).parents[2] / "docs" / "usage.md").read_text(encoding="utf-8")


def test_page_names_every_counter_and_grouping() -> None:
    assert [name for name in COUNTER_NAMES if f"`{name}`" not in PAGE] == []
    assert [by for by in GROUPINGS if f"`--by {by}`" not in PAGE] == []
