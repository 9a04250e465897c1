"""docs/dialects.md describes the translators: its table is computed by running them, and nothing in it is lost in
silence."""

from __future__ import annotations

from typing import Any

import pytest
from tools.dialect_features import Feature
from tools.dialects_page import (
    BEGIN,
    DIALECTS,
    END,
    PAGE,
    VanishedError,
    Verdict,
    broken_stream,
    contains,
    judged,
    page,
)

from antiphon.protocol.losses import Loss

FEATURE = Feature("a field", {"chat": {"field": 1}}, mark="MARK", how="in other words")
LOSS = Loss("field", "the field", "there is no place for it")


def test_table_equals_the_output_of_the_translators() -> None:
    """F-4, REQ-5, REQ-6: a feature that is lost in silence fails this test, too."""
    text = PAGE.read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    assert page(text) == text, "stale: run `PYTHONPATH=src:. python tools/dialects_page.py`"


@pytest.mark.parametrize(
    ("made", "losses", "verdict"),
    [
        (b'{"field":1}', [], Verdict("carried")),
        (b'{"field":1}', [LOSS], Verdict("approximated", "the field (there is no place for it)")),
        (b'{"other":"MARK"}', [LOSS], Verdict("approximated", "in other words")),
        (b'{"other":"MARK"}', [], Verdict("approximated", "in other words")),
        (b"{}", [LOSS], Verdict("lost")),
        (b"{}", [Loss("field", "image omitted: x")], Verdict("lost", "a note in the text replaces it")),
    ],
)
def test_verdict_follows_from_the_result_and_the_losses(made: bytes, losses: list[Loss], verdict: Verdict) -> None:
    assert judged(FEATURE, made, FEATURE.said["chat"], losses) == verdict


def test_silent_loss_raises_vanished_error() -> None:
    """F-4."""
    with pytest.raises(VanishedError, match="a field"):
        judged(FEATURE, b"{}", FEATURE.said["chat"], [])


@pytest.mark.parametrize(
    ("made", "wanted", "is_there"),
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
def test_contains_requires_the_expected_values_in_order(made: Any, wanted: Any, is_there: bool) -> None:
    assert contains(made, wanted) is is_there


@pytest.mark.parametrize(("source", "target"), [(source, target) for source in DIALECTS for target in DIALECTS])
def test_failed_stream_fails_in_every_dialect_with_the_servers_message(source: Any, target: Any) -> None:
    """STR-8."""
    assert broken_stream(source, target)
