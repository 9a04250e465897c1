"""The page of coverage: its rows, and the packages that must be covered completely."""

from __future__ import annotations

from typing import Any

import pytest
from tools.coverage_page import HEAD, Row, find_problems, make_rows, page

PROJECT: dict[str, Any] = {
    "tool": {
        "coverage": {
            "run": {"source": ["antiphon.sse", "antiphon.gateway"]},
            "report": {"omit": ["*/gateway/background_runner.py"]},
        }
    }
}


def _file(lines: int, covered_lines: int, branches: int = 0, covered_branches: int = 0) -> dict[str, Any]:
    summary = {"num_statements": lines, "covered_lines": covered_lines}
    return {"summary": {**summary, "num_branches": branches, "covered_branches": covered_branches}}


REPORT: dict[str, Any] = {
    "files": {
        "src/antiphon/__main__.py": _file(4, 0),
        "src/antiphon/sse.py": _file(10, 10, 4, 4),
        "src/antiphon/api/app.py": _file(10, 9, 4, 2),
        "src/antiphon/api/v1/models.py": _file(6, 6),
        "src/antiphon/gateway/turn.py": _file(5, 5),
        "src/antiphon/gateway/background_runner.py": _file(3, 2),
        "src/antiphon/producer/__init__.py": _file(0, 0),
    }
}
ROWS = [
    Row("antiphon", 4, 0, 0.0, must_be_complete=False),
    Row("api", 16, 4, 85.0, must_be_complete=False),
    Row("gateway", 5, 0, 100.0, must_be_complete=True),
    Row("gateway/background_runner", 3, 0, 66.6, must_be_complete=False),
    Row("producer", 0, 0, 100.0, must_be_complete=False),
    Row("sse", 10, 4, 100.0, must_be_complete=True),
]


def test_rows_are_packages_and_the_modules_that_are_omitted_from_them() -> None:
    assert make_rows(REPORT, PROJECT) == ROWS


def test_one_missed_line_of_many_is_not_complete_coverage() -> None:
    report = {"files": {"src/antiphon/sse.py": _file(100_000, 99_999)}}
    assert make_rows(report, PROJECT) == [Row("sse", 100_000, 0, 99.9, must_be_complete=True)]


def test_page_has_the_figures_of_every_row() -> None:
    rows = [Row("api", 1600, 4, 85.0, must_be_complete=False), Row("sse", 10, 4, 100.0, must_be_complete=True)]
    assert page(rows) == HEAD + "| `api` | 1,600 | 4 | 85.0 % |  |\n| `sse` | 10 | 4 | 100.0 % | 100 % |\n"


@pytest.mark.parametrize(
    ("percent", "must_be_complete", "problems"),
    [
        (100.0, True, []),
        (99.9, True, ["coverage of api is 99.9 %: expected 100 %"]),
        (99.9, False, []),
        (0.0, False, []),
    ],
)
def test_only_a_package_that_must_be_complete_is_a_problem(
    percent: float, must_be_complete: bool, problems: list[str]
) -> None:
    assert find_problems([Row("api", 16, 4, percent, must_be_complete)]) == problems
