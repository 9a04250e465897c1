"""Tests of the support table in docs/dialects.md, which is computed by running the translators."""

from __future__ import annotations

from typing import Any

import pytest
from tools.dialect_features import Feature
from tools.dialects_page import (
    BEGIN,
    END,
    PAGE,
    VanishedError,
    Verdict,
    carries_stream_error,
    contains,
    judge,
    page,
)

from antiphon.dialects.registry import SERVER_DIALECT_NAMES
from antiphon.protocol.losses import Loss

FEATURE = Feature("a field", {"chat": {"field": 1}}, mark="MARK", note="in other words")
LOSS = Loss("field", "the field", "there is no place for it")


@pytest.mark.without_coverage
@pytest.mark.slow
def test_table_equals_the_output_of_the_translators() -> None:
    """F-4, REQ-5, REQ-6: a feature that is lost in silence fails this test, too."""
    text = PAGE.read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    assert page(text) == text, "stale: run `PYTHONPATH=src:. python tools/dialects_page.py`"


@pytest.mark.parametrize(
    ("output", "losses", "verdict"),
    [
        (b'{"field":1}', [], Verdict("carried")),
        (b'{"field":1}', [LOSS], Verdict("approximated", "the field (there is no place for it)")),
        (b'{"other":"MARK"}', [LOSS], Verdict("approximated", "in other words")),
        (b'{"other":"MARK"}', [], Verdict("approximated", "in other words")),
        (b"{}", [LOSS], Verdict("lost")),
        (b"{}", [Loss("field", "image omitted: x")], Verdict("lost", "a note in the text replaces it")),
    ],
)
def test_verdict_follows_from_the_result_and_the_losses(output: bytes, losses: list[Loss], verdict: Verdict) -> None:
    assert judge(FEATURE, output, FEATURE.fields["chat"], losses) == verdict


def test_absence_of_a_text_may_show_a_feature_in_another_form() -> None:
    feature = Feature("no tools", {"chat": {"choice": "none"}}, absent_mark="tools", note="no tools are offered")
    assert judge(feature, b'{"other":1}', None, []) == Verdict("approximated", "no tools are offered")
    with pytest.raises(VanishedError):
        judge(feature, b'{"tools":[]}', None, [])


def test_silent_loss_raises_vanished_error() -> None:
    """F-4."""
    with pytest.raises(VanishedError, match="a field"):
        judge(FEATURE, b"{}", FEATURE.fields["chat"], [])


@pytest.mark.parametrize(
    ("output", "expected", "is_contained"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 2}, {"a": 1}, False),
        ([1, {"a": [0, 1]}, 2], [{"a": [1]}, 2], True),
        ([2, 1], [1, 2], False),
        ('{ "a" : 1 }', '{"a":1}', True),
        ([{"type": "text", "text": "Hi"}], "Hi", True),
        ([{"type": "text", "text": "Ho"}], "Hi", False),
        (None, [1], False),
    ],
)
def test_contains_requires_the_expected_values_in_order(output: Any, expected: Any, is_contained: bool) -> None:
    assert contains(output, expected) is is_contained


@pytest.mark.parametrize("source", SERVER_DIALECT_NAMES)
@pytest.mark.parametrize("target", SERVER_DIALECT_NAMES)
def test_failed_stream_fails_in_every_dialect_with_the_servers_message(source: Any, target: Any) -> None:
    """STR-8."""
    assert carries_stream_error(source, target)
