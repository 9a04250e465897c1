"""Every requirement that is called done has a test that names it, in its name, its docstring or a comment on it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def _span(prefix: str, first: int, last: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(first, last + 1)]


ROWS = [
    *_span("HTTP", 1, 8),
    *_span("ITEM", 1, 8),
    *_span("STR", 1, 14),
    *_span("ERR", 1, 5),
    *_span("TOOL", 1, 4),
    "TOOL-6",
    *_span("REQ", 1, 8),
    *_span("CMP", 1, 3),
    *_span("PREV", 1, 5),
    *_span("WS", 1, 13),
    "API-1",
    *_span("D", 1, 4),
    "RSN-1",
    *_span("B", 1, 4),
    "B-6",
    "B-9",
    "C-2",
    "C-3",
    *_span("E", 1, 6),
    "API-3",
    "API-5",
    "API-6",
    "F-3",
    "F-4",
]


def _rows_named_by_tests() -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                spelled = node.name.upper().replace("_", "-")
                words = f"{spelled} {ast.get_docstring(node) or ''}"
                for row in re.findall(r"\b([A-Z]{1,4}-\d+)\b", words):
                    named.setdefault(row, []).append(f"{path.name}::{node.name}")
    return named


NAMED = _rows_named_by_tests()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_named_by_a_test(row: str) -> None:
    assert NAMED.get(row), f"no test names {row} in its name or docstring"
