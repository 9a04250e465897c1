"""`docs/profiles.md` lists everything that exists."""

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


def test_page_lists_every_shipped_profile_with_its_dialect() -> None:
    listed = {name: row[1] for row in _rows("Shipped profiles") for name in re.findall(r"`([^`]+)`", row[0])}
    assert listed == {name: load_profile(name).dialect for name in profile_names()}


def test_page_lists_every_quirk() -> None:
    assert {name for row in _rows("Quirks") for name in re.findall(r"`([^`]+)`", row[0])} == set(QUIRKS)


def test_page_example_profile_loads() -> None:
    text = next(block for block in re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL) if "extends" in block)
    profile = parse_profile(text, "lab", find_parent=load_profile)
    assert (profile.key_header, profile.headers) == ("x-lab-key", tomllib.loads(text)["headers"])


def test_page_model_table_matches_the_profile() -> None:
    wire = load_profile("anthropic").wire
    assert isinstance(wire, MessagesWire)
    rows = [row for row in _rows("Differences between models") if row[0].startswith("`claude-")]
    listed = {name: re.findall(r"`([^`]+)`", row[1]) for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert listed == {name: list(model_thinking(wire, name).thinking) for name in listed}
    assert len(rows) == len(wire.models) - 2  # the last two are described in words
