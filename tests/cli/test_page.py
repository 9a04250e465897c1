"""`docs/command-line.md` matches the output of `--help`."""

from __future__ import annotations

import os

import pytest
from tools.command_line_page import PAGE, page


@pytest.mark.parametrize("columns", [None, "40"])
def test_page_matches_the_help_of_every_command(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    # Python versions break usage lines in different places.
    assert page().split() == PAGE.read_text(encoding="utf-8").split(), "run `python tools/command_line_page.py`"
    assert os.environ.get("COLUMNS") == columns
