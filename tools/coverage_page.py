"""Generates docs/coverage.md from measured coverage: lines, branches and the covered percentage of every package.

`make coverage` runs all tests and then this tool. The packages of `[tool.coverage.run] source` must be covered
completely: if one is not, the tool fails and leaves the page as it is. For all others it publishes the figures.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple

import coverage

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "coverage.md"
SOURCE: Final = "src/antiphon/"
HEAD: Final = """# Coverage

How much of each package the tests reach: executable lines, branches, and the covered percentage of both together.
`make coverage` runs all tests, measures them and the processes that they start, and writes this page.

Packages that need no socket must be covered completely; `make test` checks that too. A module of such a package that
does need sockets has a row of its own. A process that a test kills leaves no figures.

| package | lines | branches | covered | required |
|---|--:|--:|--:|--:|
"""


class Row(NamedTuple):
    """The figures of one package, or of one module that is not counted in its package."""

    name: str
    lines: int
    branches: int
    percent: float  # rounded down, so that only complete coverage is 100
    must_be_complete: bool


def main() -> None:
    rows = make_rows(_read_report(), tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8")))
    if problems := find_problems(rows):
        sys.exit("\n".join(problems))
    PAGE.write_text(page(rows), encoding="utf-8")


def make_rows(report: dict[str, Any], project: dict[str, Any]) -> list[Row]:
    """Returns one row per package, and one per module that `[tool.coverage.report] omit` excludes from its package.

    `report` is a JSON report of coverage.py, and `project` the content of pyproject.toml.
    """
    settings = project["tool"]["coverage"]
    complete_packages = {name.removeprefix("antiphon.") for name in settings["run"]["source"]}
    summaries: dict[str, list[dict[str, int]]] = {}
    for path, file in report["files"].items():
        name = _row_name(path, complete_packages, settings["report"]["omit"])
        summaries.setdefault(name, []).append(file["summary"])
    return [_make_row(name, summaries[name], name in complete_packages) for name in sorted(summaries)]


def find_problems(rows: Iterable[Row]) -> list[str]:
    """Returns one message for each package that must be covered completely and is not."""
    return [
        f"coverage of {row.name} is {row.percent} %: expected 100 %"
        for row in rows
        if row.must_be_complete and row.percent < 100
    ]


def page(rows: Iterable[Row]) -> str:
    """Returns the text of the page."""
    return HEAD + "".join(
        f"| `{row.name}` | {row.lines:,} | {row.branches:,} | {row.percent:.1f} % "
        f"| {'100 %' if row.must_be_complete else ''} |\n"
        for row in rows
    )


def _row_name(path: str, complete_packages: Collection[str], omitted_patterns: Iterable[str]) -> str:
    module = path.removeprefix(SOURCE).removesuffix(".py")
    if any(fnmatch(path, pattern) for pattern in omitted_patterns):
        return module
    package, separator, _ = module.partition("/")
    return package if separator or package in complete_packages else "antiphon"


def _make_row(name: str, summaries: list[dict[str, int]], must_be_complete: bool) -> Row:
    def total(field: str) -> int:
        return sum(summary[field] for summary in summaries)

    possible = total("num_statements") + total("num_branches")
    covered = total("covered_lines") + total("covered_branches")
    percent = math.floor(1000 * covered / possible) / 10 if possible else 100.0
    return Row(name, total("num_statements"), total("num_branches"), percent, must_be_complete)


def _read_report() -> dict[str, Any]:
    """Returns the JSON report of coverage.py on its data file, including the omitted modules."""
    measurement = coverage.Coverage()
    measurement.load()
    with tempfile.NamedTemporaryFile() as file:
        measurement.json_report(outfile=file.name, omit=[])
        report: dict[str, Any] = json.loads(Path(file.name).read_bytes())
    return report


if __name__ == "__main__":
    main()
