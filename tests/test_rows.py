"""Every requirement that is called done has a test that names it, in its name, its docstring or a comment on it."""

from __future__ import annotations

import pytest
from tools.mission_page import PAGE, PARTS, named_by_tests, page


def _span(prefix: str, first: int, last: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(first, last + 1)]


ROWS = [
    *_span("HTTP", 1, 8),
    *_span("ITEM", 1, 8),
    *_span("STR", 1, 14),
    *_span("ERR", 1, 5),
    *_span("TOOL", 1, 4),
    "TOOL-6",
    "TOOL-7",
    *_span("REQ", 1, 8),
    *_span("CMP", 1, 3),
    *_span("PREV", 1, 5),
    *_span("WS", 1, 13),
    *_span("RSN", 1, 4),
    *_span("API", 1, 6),
    *(row for part in PARTS for row in part.rows),
]


NAMED = named_by_tests()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_named_by_a_test(row: str) -> None:
    assert NAMED.get(row), f"no test names {row} in its name or docstring"


def test_the_page_of_the_mission_is_what_the_tests_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `PYTHONPATH=. python tools/mission_page.py`"
