"""Every cited requirement has a row in docs/requirements.md, and every row that is done has a test that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest
from tests.sources import REPO, source_files
from tools.mission_page import PAGE, USAGE, find_tests_by_row, page, scope
from tools.requirement_rows import requirements

from antiphon.check.findings import SHOULD_ROWS

pytestmark = pytest.mark.without_coverage
ROWS = requirements()
NOT_DONE = {"TOOL-5"}
named_rows = cache(find_tests_by_row)
CITING = source_files(
    "src", "tests", "tools", "bench", "soak", "docs", "examples", "integrations", "README.md", "Makefile"
)
# Names of standards that look like ids of rows.
STANDARDS = {"AES-256", "SHA-256", "SSH-2", "PDF-1", "UTF-8", "UTF-16", "UTF-32"}


@pytest.mark.slow
@pytest.mark.parametrize("row", [id for id in ROWS if id not in NOT_DONE])
def test_row_is_named_by_a_test(row: str) -> None:
    assert named_rows().get(row), f"no test names {row} in its name or docstring"


@pytest.mark.slow
def test_unfinished_row_is_named_by_no_test_and_says_so() -> None:
    for row in NOT_DONE:
        assert row not in named_rows()
        assert f"No test names {row} yet." in (REPO / "docs" / "requirements.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_cited_rows_are_requirements() -> None:
    cited = {
        (id, path.relative_to(REPO).as_posix()) for path in CITING for id in _cited(path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 500
    assert sorted((id, path) for id, path in cited if id not in ROWS) == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Streams (STR-5 to STR-8, ITEM-2).", ["STR-5", "STR-8", "ITEM-2"]),
        ("def test_an_item_ends_once_ITEM_4() -> None:", ["ITEM-4"]),
        ("def test_text_is_sent_or_named_E5_F4() -> None:", ["E-5", "F-4"]),
        ("CHUNK_16 = HEAD_1", []),
        ('row="' + "XYZ" + '-99"', ["XYZ" + "-99"]),
        ("SSH-2.0, %PDF-1.7, UTF-8 and sk-ABC-123-x are no rows", []),
    ],
)
def test_row_citations_are_parsed(text: str, cited: list[str]) -> None:
    assert list(_cited(text)) == cited


def test_check_levels_match_the_requirements() -> None:
    assert {row.id for row in ROWS.values() if row.level == "S"} == SHOULD_ROWS


def test_every_row_of_the_scope_has_its_tests() -> None:
    assert [row.id for rows in scope().values() for row in rows] == list(USAGE)


@pytest.mark.slow
def test_mission_page_is_generated_from_the_tests() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `PYTHONPATH=. python tools/mission_page.py`"


def _cited(text: str) -> Iterator[str]:
    """Ids of rows: `STR-5` in text and in literals, `_STR_5` or `_STR5` in the name of a test."""
    ids = re.findall(r"(?<![\w-])[A-Z]{1,5}-\d+(?![\w-])", text)
    for name in re.findall(r"\bdef (test_\w+)", text):
        ids += [f"{letters}-{number}" for letters, number in re.findall(r"_([A-Z]{1,5})_?(\d+)(?=_|$)", name)]
    yield from (id for id in ids if id not in STANDARDS)
