"""The options `--part` and `--fast`, which select tests by their markers.

`--part through` selects the tests with the marker `without_coverage`, and `--part within` all others. `make test` runs
both parts, and only the first under coverage. `--fast` leaves out the tests with the markers `io` and `slow`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PYTESTMARK = re.compile(r"^pytestmark = (?:\[\n.*?^\]|.*?$)", re.MULTILINE | re.DOTALL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("within", "through"),
        help="through: tests with the marker without_coverage; within: all others",
    )
    parser.addoption("--fast", action="store_true", help="no tests with the markers io and slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that are left out as a whole are not even imported, which takes seconds."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if config.getoption("--part") == "through" and "without_coverage" not in text:
        return True
    line = PYTESTMARK.search(text)
    markers = re.findall(r"pytest\.mark\.(\w+)", line[0]) if line else []
    return True if _excluded_markers(config).intersection(markers) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    excluded = _excluded_markers(config)
    is_through = config.getoption("--part") == "through"
    left_out = [
        item
        for item in items
        if any(item.get_closest_marker(name) for name in excluded)
        or (is_through and not item.get_closest_marker("without_coverage"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _excluded_markers(config: pytest.Config) -> set[str]:
    excluded = {"io", "slow"} if config.getoption("--fast") else set()
    return excluded | {"without_coverage"} if config.getoption("--part") == "within" else excluded
