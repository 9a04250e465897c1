"""The matrix in the documentation equals what the tests expect."""

from __future__ import annotations

import pytest
from tests.matrix.expected import BEGIN, DIALECTS, END, PAGE, RULES, Cell, section, written
from tests.matrix.scenarios import SCENARIOS

pytestmark = pytest.mark.without_coverage


def test_dialects_page_shows_the_tested_matrix() -> None:
    """F-4. `python -m tests.matrix.expected` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
    assert page == written(page)


def test_matrix_has_every_pair_and_every_scenario() -> None:
    """F-1."""
    rows = [line.split(" | ") for line in section().splitlines() if "→" in line]
    assert len(rows) == 1 + len(DIALECTS) ** 2
    assert {len(row) for row in rows} == {1 + len(SCENARIOS)}


def test_every_matrix_rule_applies_to_a_cell() -> None:
    cells = [Cell(client, server, scenario) for client in DIALECTS for server in DIALECTS for scenario in SCENARIOS]
    assert [rule.name for rule in RULES if not any(map(rule.when, cells))] == []
