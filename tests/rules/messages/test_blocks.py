"""`rules/messages/blocks`: members, places and media of single blocks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import findings_of, refusal_of
from tests.rules.messages.checking import violations
from tests.testing.messages.test_rules import (
    CALL,
    CALLED,
    RESULT,
    TEXT,
    USER,
    body_with,
    full,
    user,
)

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "several faults in one block": (
        user({"type": "tool_result", "is_error": 1, "more": 2}),
        [
            ("missing_field", "messages.0.content.0.tool_result.tool_use_id", True),
            ("unknown_field", "messages.0.content.0.tool_result.more", True),
        ],
    ),
    "a document of an unknown source": (
        user({"type": "document", "source": {"type": "bucket"}}),
        [("discriminator", "messages.0.content.0.document.source.type", True)],
    ),
    "an image without data": (
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
        [("missing_field", "messages.0.content.0.image.source.base64.data", True)],
    ),
    "an error that is no boolean, and no content": (
        body_with(USER, CALLED, {"role": "user", "content": [{**RESULT, "is_error": 1, "content": {}}]}),
        [
            ("value", "messages.2.content.0.tool_result.is_error", True),
            ("value", "messages.2.content.0.tool_result.content", True),
        ],
    ),
    "a broken block inside an error": (
        body_with(USER, CALLED, {"role": "user", "content": [{**RESULT, "is_error": True, "content": [1]}]}),
        [("discriminator", "messages.2.content.0.tool_result.content.0", True)],
    ),
    "marks of wrong types": (
        {
            **user({**TEXT, "cache_control": 1}),
            "system": [{**TEXT, "cache_control": {"type": "ephemeral", "ttl": []}}],
        },
        [
            ("value", "system.0.text.cache_control", True),
            ("value", "messages.0.content.0.text.cache_control", True),
        ],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


# Diagnosis and the fake server disagreed on these bodies.


def test_long_call_id_is_accepted() -> None:
    """Diagnosis refused ids of more than 64 characters; servers accept 128 and more."""
    id = "t" * 129
    body = full(
        body_with(
            USER,
            {**CALLED, "content": [{**CALL, "id": id}]},
            {"role": "user", "content": [{**RESULT, "tool_use_id": id}]},
        )
    )
    assert refusal_of("messages", body) is None
    assert [found for found in findings_of("messages", body) if found.certain] == []
