"""`rules/gemini/request`: tools and settings, and the rules of models and versions."""

from __future__ import annotations

from tests.rules.gemini.checking import SCHEMA, violations
from tests.rules.judging import refusal_of
from tests.testing.gemini.test_rules import (
    config,
    full,
    function,
    part,
    thinks,
)


def test_models_have_rules_of_their_own() -> None:
    level, budget = thinks(thinkingLevel="LOW"), thinks(thinkingBudget=0)
    assert violations(level, model="gemini-2.5-flash") == [
        ("reasoning", "generation_config.thinking_config.thinking_level", False)
    ]
    assert violations(level, model="gemini-3-flash") == []
    assert violations(budget, model="gemini-2.5-pro") == [
        ("reasoning", "generation_config.thinking_config.thinking_budget", False)
    ]
    both = {**function(), **config(responseMimeType="application/json")}
    assert violations(both, model="gemini-3-pro") == violations(both, json_with_tools=True) == []


# Diagnosis and the fake server disagreed on these bodies.


def test_rules_of_older_versions_are_not_certain() -> None:
    """Only the fake server knew them."""
    assert violations(function(parameters={"type": "object"})) == [("schema", f"{SCHEMA}.properties", False)]
    assert violations(part({"inlineData": {"mimeType": "image/gif", "data": "AAAA"}})) == [
        ("media", "contents[0].parts[0].inline_data.mime_type", False)
    ]
    both = {**function(), **config(responseMimeType="application/json")}
    assert violations(both) == [("combination", "generation_config.response_mime_type", False)]
    assert refusal_of("gemini", full(both)) is not None
