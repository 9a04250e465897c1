"""`rules/settings`: types and ranges, names, metadata, unknown fields."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected

from antiphon.rules.settings import (
    MAX_UNKNOWN_FIELDS,
    Range,
    check_fields,
    check_metadata,
    check_model,
    check_name,
    check_settings,
    check_user,
)


@pytest.mark.parametrize(
    ("wanted", "value", "code"),
    [
        (Range(0, 2, allows_fraction=True), 0.5, None),
        (Range(0, 2, allows_fraction=True), "1", "invalid_type"),
        (Range(0, 2, allows_fraction=True), 2.5, "invalid_value"),
        (Range(0, 2), 1.5, "invalid_type"),
        (Range(0, 2), True, "invalid_type"),
        (bool, False, None),
        (bool, 0, "invalid_type"),
        (("a", "b"), "b", None),
        (("a", "b"), "c", "invalid_value"),
        (str, None, None),
    ],
)
def test_settings_have_a_type_and_a_range(wanted: Any, value: Any, code: str | None) -> None:
    report = Collected()
    check_settings({"x": value}, {"x": wanted, "absent": bool}, report, "outer.")
    assert [(violation.path, violation.param, violation.code) for violation in report.violations] == (
        [] if code is None else [("outer.x", "x", code)]
    )


def test_unknown_fields_are_reported_up_to_a_bound() -> None:
    report = Collected()
    check_fields({"model": "m", "modell": 1, **{f"x{number}": 1 for number in range(99)}}, {"model"}, report)
    assert len(report.violations) == MAX_UNKNOWN_FIELDS
    assert report.violations[0].message == "unrecognized request argument: modell"
    assert report.violations[0].problem.endswith("did you mean 'model'?")


@pytest.mark.parametrize(("name", "rules"), [("f", []), (None, ["missing_field"]), ("a b", ["name"]), (1, ["name"])])
def test_names_match_their_pattern(name: Any, rules: list[str]) -> None:
    report = Collected()
    assert check_name(name, "p", report) == (not rules)
    assert [violation.rule for violation in report.violations] == rules


def test_model_user_and_metadata_are_checked() -> None:
    report = Collected()
    check_model({"model": ""}, report)
    check_model({"model": "m"}, report)
    check_user({"user": 1}, report)  # its type is a setting's
    check_user({"user": "u" * 65}, report)
    check_metadata({"metadata": [1]}, report)
    check_metadata({"metadata": {"a": 1, "b": "v"}}, report)
    check_metadata({}, report)
    assert [violation.path for violation in report.violations] == ["model", "user", "metadata", "metadata.a"]
