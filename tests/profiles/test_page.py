"""`docs/profiles.md` names what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from antiphon.dialects.messages.wire import MessagesWire, model_thinking
from antiphon.profiles import QUIRKS, load_profile, parse_profile, profile_names

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")


def _rows(heading: str) -> list[list[str]]:
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]


def test_every_shipped_profile_is_on_the_page_with_its_dialect() -> None:
    told = {name: row[1] for row in _rows("Shipped profiles") for name in re.findall(r"`([^`]+)`", row[0])}
    assert told == {name: load_profile(name).dialect for name in profile_names()}


def test_every_quirk_is_on_the_page() -> None:
    assert {name for row in _rows("Quirks") for name in re.findall(r"`([^`]+)`", row[0])} == set(QUIRKS)


def test_the_profile_on_the_page_loads() -> None:
    text = next(block for block in re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL) if "extends" in block)
    profile = parse_profile(text, "lab", find_parent=load_profile)
    assert (profile.key_header, profile.headers) == ("x-lab-key", tomllib.loads(text)["headers"])


def test_the_models_on_the_page_have_the_rows_that_they_are_said_to_have() -> None:
    wire = load_profile("anthropic").wire
    assert isinstance(wire, MessagesWire)
    rows = [row for row in _rows("Differences between models") if row[0].startswith("`claude-")]
    told = {name: re.findall(r"`([^`]+)`", row[1]) for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert told == {name: list(model_thinking(wire, name).thinking) for name in told}
    assert len(rows) == len(wire.models) - 2  # the last two have their names in words
