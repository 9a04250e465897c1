"""`rules/content`: descriptions of roles and part types that are not allowed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected

from antiphon.rules.content import (
    check_cache_mark,
    describe_part,
    describe_role,
    part_type_path,
    texts_in,
    type_of,
)


@pytest.mark.parametrize(
    ("role", "rule", "words"),
    [
        (None, "missing_field", "one of user, assistant"),
        ("tool", "role", "a role of the chat dialect"),
        ("bot", "role", '"bot" is no role here: expected one of user, assistant'),
        (["user"], "role", '["user"] is no role here'),
    ],
)
def test_role_of_another_dialect_is_recognised(role: Any, rule: str, words: str) -> None:
    found = describe_role(role, ("user", "assistant"))
    assert found.rule == rule
    assert words in found.problem


@pytest.mark.parametrize(
    ("part", "rule", "words"),
    [
        ("hi", "discriminator", 'a part is an object with a type, not "hi"'),
        ({"type": 1}, "discriminator", "a part is an object with a type"),
        ({"type": "text"}, "content_type", "here text has the type `input_text`"),
        ({"type": "input_imge"}, "discriminator", "did you mean 'input_image'?"),
    ],
)
def test_part_type_of_another_dialect_is_recognised(part: Any, rule: str, words: str) -> None:
    found = describe_part(part, ("input_image", "input_text"))
    assert found.rule == rule
    assert words in found.problem


def test_text_type_is_described_without_a_type_for_text() -> None:
    assert describe_part({"type": "text"}, ("image",)).problem.endswith("here text has the type `image`")


@pytest.mark.parametrize(
    ("mark", "rules"),
    [
        (None, []),
        ({"mode": "explicit"}, []),
        ({"mode": "explicit", "ttl": "12h"}, []),
        ({"mode": "explicit", "ttl": "1h"}, ["value"]),
        ({"mode": "implicit"}, ["value"]),
        ({"mode": "explicit", "scope": "x"}, ["value"]),
        (True, ["value"]),
    ],
)
def test_form_of_a_cache_mark_is_checked(mark: Any, rules: list[str]) -> None:
    """E-4."""
    report = Collected()
    check_cache_mark(mark, "input[0].content[0]", report, is_allowed=True)
    assert [violation.rule for violation in report.violations] == rules


def test_cache_mark_on_output_is_refused() -> None:
    """E-4."""
    report = Collected()
    check_cache_mark({"mode": "explicit"}, "input[0].content[0]", report, is_allowed=False)
    assert [(violation.rule, violation.path) for violation in report.violations] == [
        ("unknown_field", "input[0].content[0].prompt_cache_breakpoint")
    ]


def test_path_of_a_part_leads_to_its_type() -> None:
    assert part_type_path({}, "a[0]") == "a[0].type"
    assert part_type_path("hi", "a[0]") == "a[0]"


def test_values_of_other_types_have_no_type_and_no_texts() -> None:
    assert [type_of(value) for value in (None, {}, {"type": 1}, {"type": "a"})] == ["", "", "", "a"]
    assert texts_in("a") == texts_in([{"text": "a"}, {"text": 1}, 1]) == ["a"]
    assert texts_in(None) == []
