"""The options `--part` and `--fast`, which select tests by their markers.

`--part through` selects the tests with the marker `without_coverage`, and `--part within` all others. `make test` runs
both parts, and only the first under coverage. `--part portable` leaves out only the tests with both markers `io` and
`without_coverage`; it is run on a second version of Python. `--fast` leaves out the tests with the markers `io` and
`slow`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PYTESTMARK = re.compile(r"^pytestmark = (?:\[\n.*?^\]|.*?$)", re.MULTILINE | re.DOTALL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("within", "through", "portable"),
        help="through: tests with the marker without_coverage; within: all others; portable: all but those with this "
        "marker and io",
    )
    parser.addoption("--fast", action="store_true", help="no tests with the markers io and slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that are left out as a whole are not even imported, which takes seconds."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if config.getoption("--part") == "through":
        return True if "without_coverage" not in text else None
    line = PYTESTMARK.search(text)
    markers = set(re.findall(r"pytest\.mark\.(\w+)", line[0])) if line else set()
    return True if _is_left_out(markers, config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_left_out = _is_left_out({marker.name for marker in item.iter_markers()}, config)
        (left_out if is_left_out else selected).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = selected


def _is_left_out(markers: set[str], config: pytest.Config) -> bool:
    if config.getoption("--fast") and markers & {"io", "slow"}:
        return True
    match config.getoption("--part"):
        case "within":
            return "without_coverage" in markers
        case "through":
            return "without_coverage" not in markers
        case "portable":
            return markers >= {"io", "without_coverage"}
        case _:
            return False
