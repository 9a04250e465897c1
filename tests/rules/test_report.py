"""`rules/report`: what a report receives, and values as JSON."""

from __future__ import annotations

import pytest
from tests.rules.judging import Collected, Refused, Refusing

from antiphon.rules import Report
from antiphon.rules.report import as_json


def test_violation_without_a_problem_has_the_words_of_the_provider() -> None:
    report = Collected()
    report.add("value", "a", "no good")
    report.add(
        "value", "a", "no good", "the value is 1", param="b", code=None, is_certain=False, settings=("quirks: x",)
    )
    first, second = report.violations
    assert (first.problem, first.param, first.code, first.is_certain) == ("no good", "a", "invalid_value", True)
    assert (second.problem, second.param, second.code, second.settings) == ("the value is 1", "b", None, ("quirks: x",))


def test_report_without_bounds_allows_everything_and_ignores_suspicions() -> None:
    report = Refusing()
    report.suspect("value", "a", "who knows")
    assert list(report.walk([1, 2])) == [1, 2]
    assert report.may_check_schema("a" * 10_000)
    with pytest.raises(Refused, match="no good"):
        report.add("value", "a", "no good")


def test_report_needs_a_receiver() -> None:
    with pytest.raises(TypeError, match="receive"):
        Report()  # type: ignore[abstract]


def test_values_are_shown_in_part() -> None:
    assert as_json({"a": 1}) == '{"a":1}'
    assert as_json("x" * 100).endswith("…")
    assert as_json("\ud800") == "something"
