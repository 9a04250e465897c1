"""The page of coverage: its rows, and the figures that each package must reach."""

from __future__ import annotations

from typing import Any

import pytest
from tools.coverage_page import PAGE, Row, find_failures, make_rows, page, published_figures

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
    Row("antiphon", 4, 0, 0.0, is_complete=False),
    Row("api", 16, 4, 85.0, is_complete=False),
    Row("gateway", 5, 0, 100.0, is_complete=True),
    Row("gateway/background_runner", 3, 0, 66.6, is_complete=False),
    Row("producer", 0, 0, 100.0, is_complete=False),
    Row("sse", 10, 4, 100.0, is_complete=True),
]


def test_rows_are_packages_and_modules_that_are_omitted_from_them() -> None:
    assert make_rows(REPORT, PROJECT) == ROWS


def test_figures_of_a_page_are_those_of_its_rows() -> None:
    text = page(ROWS)
    assert published_figures(text) == {row.name: row.percent for row in ROWS}
    assert "| `api` | 16 | 4 | 85.0 % |  |\n" in text
    assert "| `sse` | 10 | 4 | 100.0 % | complete |\n" in text


@pytest.mark.parametrize(
    ("percent", "published", "is_complete", "failures"),
    [
        (100.0, 100.0, True, []),
        (99.9, 99.9, True, ["coverage of api is 99.9 %: expected 100.0 % or more"]),
        (84.0, 85.0, False, []),
        (83.9, 85.0, False, ["coverage of api is 83.9 %: expected 84.0 % or more"]),
        (0.0, None, False, []),
    ],
)
def test_package_that_lost_more_than_one_point_is_a_failure(
    percent: float, published: float | None, is_complete: bool, failures: list[str]
) -> None:
    figures = {} if published is None else {"api": published}
    assert find_failures([Row("api", 16, 4, percent, is_complete)], figures) == failures


def test_published_page_has_figures() -> None:
    figures = published_figures(PAGE.read_text(encoding="utf-8"))
    assert figures["protocol"] == 100.0
    assert len(figures) > 15
