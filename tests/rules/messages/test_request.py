"""`rules/messages/request`: fields, settings and their combinations."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.messages.checking import violations
from tests.testing.messages.test_rules import (
    CITING,
    CLOSED,
    answers,
    format,
    user,
)

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "an output_config that is no object": ({"output_config": 1}, [("value", "output_config", True)]),
    "a format without a schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        [("missing_field", "output_config.format.schema", True)],
    ),
    "a system of another type": ({"system": 1}, [("value", "system", True)]),
    "a budget without a limit": (
        {"max_tokens": ..., "thinking": {"type": "enabled", "budget_tokens": 1}},
        [("missing_field", "max_tokens", True), ("value", "thinking.enabled.budget_tokens", True)],
    ),
    "thinking without a budget": (
        {"thinking": {"type": "enabled"}, "top_p": "a"},
        [("value", "top_p", True), ("missing_field", "thinking.enabled.budget_tokens", True)],
    ),
    "a field with a slip": ({"max_token": 1}, [("unknown_field", "max_token", True)]),
    "a body of the responses dialect": (
        {"messages": ..., "input": "hi"},
        [("missing_field", "messages", True), ("unknown_field", "input", True), ("missing_field", "messages", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_thinking_of_a_server_is_an_option() -> None:
    assert violations({"thinking": {"type": "adaptive"}}, thinking=("enabled",)) == [
        ("reasoning", "thinking.type", False)
    ]


def test_older_and_newer_name_of_the_format_exclude_each_other() -> None:
    older = {"output_format": format(CLOSED)["output_config"]["format"]}
    assert violations(older) == [("unknown_field", "output_format", False)]
    assert ("combination", "output_format", True) in violations({**format(CLOSED), **older})


def test_newest_version_has_no_sampling_and_no_citations_of_the_user() -> None:
    found = {"type": "search_result", "source": "s", "title": "t", "content": [CITING]}
    assert violations({**user(CITING, found), "temperature": 1}, is_newest=True) == [
        ("unknown_field", "temperature", True),
        ("value", "messages.0.content.0", True),
        ("value", "messages.0.content.1", True),
    ]
    assert violations(answers(CITING), is_newest=True) == []


def test_request_to_count_tokens_has_fewer_fields() -> None:
    assert violations({"max_tokens": ...}, is_count=True) == []
    assert violations({"stream": True}, is_count=True) == [
        ("unknown_field", "max_tokens", True),
        ("unknown_field", "stream", True),
    ]


def test_field_of_a_beta_is_known_with_its_header() -> None:
    assert violations({"context_management": {}}, betas="a-1,context-management-2025-06-27") == []


# Diagnosis and the fake server disagreed on these bodies.


@pytest.mark.parametrize("field", ["context_management", "mcp_servers", "compaction"])
def test_field_of_a_beta_needs_its_header(field: str) -> None:
    """Diagnosis took it for a field of the dialect, or for none; the header is not in the body."""
    assert violations({field: {}}) == [("unknown_field", field, False)]


def test_models_refuse_thinking_that_they_do_not_have() -> None:
    """Only the fake server knew the models; a server may offer others under these names."""
    assert violations({"model": "claude-3-5-haiku-latest", "thinking": {"type": "adaptive"}}) == [
        ("reasoning", "thinking.type", False)
    ]


def test_null_is_no_setting() -> None:
    """Diagnosis passed over it."""
    assert violations({"temperature": None}) == [("value", "temperature", True)]
