"""Differences of JSON values have a path and a kind of change."""

from __future__ import annotations

from typing import Any

import pytest
from tests.recorded_traffic.json_diff import compare_json


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {}, [("a", "missing")]),
        ({}, {"a": 1}, [("a", "added")]),
        ({"a": None}, {}, [("a", "missing null")]),
        ({}, {"a": []}, [("a", "added empty")]),
        ({"a": True}, {"a": 1}, [("a", "boolean → number")]),
        ({"a": "x"}, {"a": ["x"]}, [("a", "string → list")]),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 3}, {"b": 4}]}, [("a[].b", "changed")]),
        ({"a": [1]}, {"a": [1, 2]}, [("a", "length")]),
        ({"t": {"parameters": {"x": 1}}}, {"t": {"parameters": {"y": 1}}}, [("t.parameters.*", "changed")]),
    ],
)
def test_differences_are_found_by_path(before: Any, after: Any, expected: list[tuple[str, str]]) -> None:
    assert [delta[:2] for delta in compare_json(before, after)] == expected
