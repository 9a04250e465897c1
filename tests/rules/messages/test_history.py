"""`rules/messages/history`: roles, the order of turns, calls and results, thoughts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.messages.checking import violations
from tests.testing.messages.test_rules import (
    ANSWER,
    CALL,
    CALLED,
    RESULT,
    RESULTS,
    SYSTEM,
    TEXT,
    USER,
    body_with,
)

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "content of another type": (body_with({"role": "user", "content": 1}), [("value", "messages.0.content", True)]),
    "an answer of another type at the end": (
        body_with(USER, {"role": "assistant", "content": 1}),
        [("value", "messages.1.content", True)],
    ),
    "messages without any role": (
        body_with({"content": "a"}, 1),
        [("missing_field", "messages.0.role", True), ("value", "messages.1", True)],
    ),
    "a broken block before thoughts are expected": (
        {
            **body_with(USER, {"role": "assistant", "content": [{"type": "thinking"}, CALL]}, RESULTS),
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        [
            ("reasoning", "messages.1.content.0.thinking.thinking", True),
            ("reasoning", "messages.1.content.0.thinking.signature", True),
        ],
    ),
    "results alone, with thinking": (
        {**body_with(RESULTS), "thinking": {"type": "enabled", "budget_tokens": 1024}},
        [("orphan_result", "messages.0.content.0", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_rules_of_a_server_are_options() -> None:
    assert violations(body_with(USER, USER), alternating=False) == []
    assert violations(body_with(USER, SYSTEM), system_messages=True) == []
    assert violations(body_with(USER, SYSTEM, SYSTEM, ANSWER, USER), system_messages=True) == [
        ("order", "messages.1", True),
        ("order", "messages.2", True),
    ]


# Diagnosis and the fake server disagreed on these bodies.


def test_system_message_is_refused_by_older_models() -> None:
    """Diagnosis took it for certain; newer models accept it after a message of the user."""
    assert violations(body_with(USER, SYSTEM)) == [("role", "messages.1.role", False)]


def test_result_after_text_does_not_answer_its_call() -> None:
    """Diagnosis looked for the result anywhere in the message."""
    assert violations(body_with(USER, CALLED, {"role": "user", "content": [TEXT, RESULT]})) == [
        ("unanswered_call", "messages.1.content.0", True)
    ]
