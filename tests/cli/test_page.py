"""`docs/command-line.md` says what `--help` says."""

from __future__ import annotations

import os

import pytest
from tools.command_line_page import PAGE, page


@pytest.mark.parametrize("columns", [None, "40"])
def test_the_page_is_what_the_commands_say_of_themselves(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    # Python's own versions break lines of usage in different places.
    assert page().split() == PAGE.read_text(encoding="utf-8").split(), "run `python tools/command_line_page.py`"
    assert os.environ.get("COLUMNS") == columns
