"""Writes docs/coverage.md from measured coverage: lines, branches and per cent of every package.

`make coverage` runs all tests and then this tool. Packages that need no socket must be covered completely. Every other
package may lose at most one point against the figure on the page; if one loses more, the page is not written.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple

import coverage

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "coverage.md"
SOURCE: Final = "src/antiphon/"
TOLERANCE: Final = 1.0  # points
HEAD: Final = """# Coverage

How much of each package the tests reach: executable lines, branches, and the covered share of both together. `make coverage`
measures all tests, with the processes that they start, and writes this page.

`make test` requires 100 % of the packages marked "complete". They need no socket. `make coverage` also fails if another
package has lost more than one point against this page. Processes that a test kills leave no figures behind.

| package | lines | branches | covered | required |
|---|--:|--:|--:|---|
"""


class Row(NamedTuple):
    """The figures of one package, or of one module that is counted for itself."""

    name: str
    lines: int
    branches: int
    percent: float
    is_complete: bool  # whether every branch must be covered


def main() -> None:
    rows = make_rows(_measure(), tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8")))
    published = published_figures(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    if failures := find_failures(rows, published):
        sys.exit("\n".join(failures))
    PAGE.write_text(page(rows), encoding="utf-8")


def make_rows(report: dict[str, Any], project: dict[str, Any]) -> list[Row]:
    """One row for each package, and one for each module that `[tool.coverage.report] omit` leaves out of its package."""
    settings = project["tool"]["coverage"]
    omitted = settings["report"]["omit"]
    complete = {name.removeprefix("antiphon.") for name in settings["run"]["source"]}
    files: dict[str, list[dict[str, int]]] = {}
    for path, file in report["files"].items():
        files.setdefault(_row_name(path, omitted), []).append(file["summary"])
    return [_row(name, files[name], is_complete=name in complete) for name in sorted(files)]


def _row_name(path: str, omitted: Iterable[str]) -> str:
    module = path.removeprefix(SOURCE).removesuffix(".py")
    if any(fnmatch(path, pattern) for pattern in omitted):
        return module
    package, separator, _ = module.partition("/")
    return package if separator or package in ("errors", "sse") else "antiphon"


def _row(name: str, summaries: list[dict[str, int]], *, is_complete: bool) -> Row:
    def total(field: str) -> int:
        return sum(summary[field] for summary in summaries)

    possible = total("num_statements") + total("num_branches")
    covered = total("covered_lines") + total("covered_branches")
    percent = math.floor(1000 * covered / possible) / 10 if possible else 100.0
    return Row(name, total("num_statements"), total("num_branches"), percent, is_complete)


def published_figures(text: str) -> dict[str, float]:
    """The per cent of each package on a page."""
    return {
        name: float(percent) for name, percent in re.findall(r"^\| `(\S+)` \|.*\| ([\d.]+) % \|", text, re.MULTILINE)
    }


def find_failures(rows: Iterable[Row], published: dict[str, float]) -> list[str]:
    """One message for each package whose coverage is too low."""
    failures = []
    for row in rows:
        required = 100.0 if row.is_complete else published.get(row.name, 0.0) - TOLERANCE
        if row.percent < required:
            failures.append(f"coverage of {row.name} is {row.percent} %: expected {required:.1f} % or more")
    return failures


def page(rows: Iterable[Row]) -> str:
    """The text of the page."""
    lines = [
        f"| `{row.name}` | {row.lines:,} | {row.branches:,} | {row.percent} % | {'complete' if row.is_complete else ''} |\n"
        for row in rows
    ]
    return HEAD + "".join(lines)


def _measure() -> dict[str, Any]:
    """The report of coverage.py on its data file, with the omitted modules."""
    measured = coverage.Coverage()
    measured.load()
    with tempfile.NamedTemporaryFile() as file:
        measured.json_report(outfile=file.name, omit=[])
        report: dict[str, Any] = json.loads(Path(file.name).read_bytes())
    return report


if __name__ == "__main__":
    main()
