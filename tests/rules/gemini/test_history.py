"""`rules/gemini/history`: roles, turns, parts, calls and results that must match."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.gemini.checking import violations
from tests.testing.gemini.test_rules import (
    F_SAYS,
    G_SAYS,
    MODEL,
    USER,
    F,
    G,
    body_with,
    full,
    identified,
    model,
    model_request,
    part,
    user,
)

from antiphon.testing.gemini.rules import GeminiLimits
from antiphon.testing.gemini.server import GeminiBehavior

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "two faults of one part": (
        part({"text": "", "fileData": {}}),
        [
            ("combination", "contents[0].parts[0]", True),
            ("missing_field", "contents[0].parts[0]", True),
            ("media", "contents[0].parts[0].file_data.file_uri", True),
        ],
    ),
    "a role of another dialect": (body_with({**USER, "role": "system"}, USER), [("role", "contents[0].role", True)]),
    "a result too many": (
        body_with(USER, model(F), user(F_SAYS, G_SAYS)),
        [("orphan_result", "contents[2].parts[1]", True)],
    ),
    "results of nothing": (
        body_with(user(F_SAYS, G_SAYS)),
        [("orphan_result", "contents[0].parts[0]", True), ("orphan_result", "contents[0].parts[1]", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_alternation_and_the_last_word_are_options() -> None:
    assert violations(body_with(USER, USER)) == []
    assert violations(body_with(USER, USER), alternation=True) == [("order", "contents[1]", False)]
    assert violations(body_with(USER, MODEL), last_word=False) == []


def test_calls_of_the_turn_in_progress_are_signed() -> None:
    signed = {**F, "thoughtSignature": "AAAA"}
    old_turn = (USER, model(F), user(F_SAYS), MODEL)
    assert violations(body_with(*old_turn, USER, model(signed, G), user(F_SAYS, G_SAYS)), model="gemini-3-pro") == []
    assert violations(body_with(USER, model(F), user(F_SAYS)), model="gemini-3-pro") == [
        ("reasoning", "contents[1].parts[0].thought_signature", True)
    ]
    assert violations(body_with(user({"inlineData": {"mimeType": "image/png", "data": "AAAA"}})), signatures=True) == []


# Diagnosis and the fake server disagreed on these bodies.


def test_call_at_the_end_waits_for_its_result() -> None:
    """The fake server took it if the model may have the last word."""
    assert violations(body_with(USER, model(F))) == [
        ("order", "contents[1]", False),
        ("unanswered_call", "contents[1].parts[0]", True),
    ]
    server = GeminiBehavior(GeminiLimits(last_word=False))
    assert server.find_refusal(model_request(full(body_with(USER, model(F))))) is not None
    assert server.find_refusal(model_request(full(body_with(USER, MODEL)))) is None


def test_results_are_matched_by_their_ids() -> None:
    """Diagnosis passed over results with ids."""
    calls, results = (
        model(identified(F, "1"), identified(G, "2")),
        user(identified(F_SAYS, "1"), identified(G_SAYS, "3")),
    )
    assert violations(body_with(USER, calls, results)) == [("orphan_result", "contents[2].parts[1]", True)]
