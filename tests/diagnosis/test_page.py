"""`docs/debugging-a-400.md` shows what `antiphon explain` says, names every rule, and its profile loads (C-6)."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import get_args

from antiphon.cli import explain
from antiphon.cli.entry import make_parser
from antiphon.diagnosis import Rule
from antiphon.profiles import load_profile, parse_profile

PAGE = (Path(__file__).parents[2] / "docs" / "debugging-a-400.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert match
    return match[1]


def test_the_example_says_what_the_page_says() -> None:
    out = io.StringIO()
    stdin = io.BytesIO(block("json").encode())
    assert explain.run(make_parser().parse_args(["explain"]), out, io.StringIO(), stdin=stdin, environ={}) == 1
    assert out.getvalue().partition("perhaps")[0] == block("text")


def test_every_rule_is_in_the_table() -> None:
    table = PAGE.partition("## What is looked for")[2].partition("\n\nWhat is **wrong**")[0]
    assert {rule for line in table.splitlines() for rule in re.findall(r"`(\w+)`", line.partition(" | ")[0])} == set(
        get_args(Rule)
    )


def test_the_profile_of_the_page_loads() -> None:
    parse_profile(block("toml"), "my-server", find_parent=load_profile)
