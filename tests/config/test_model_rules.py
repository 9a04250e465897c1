"""Model rules: how a rule maps a model name."""

from __future__ import annotations

import pytest

from antiphon.config.model_rules import ModelRule, is_pattern, upstream_model_name


def rule(asked: str, target: str) -> ModelRule:
    return ModelRule(from_=asked, to=target)


@pytest.mark.parametrize(
    ("asked", "target", "name", "becomes"),
    [
        ("fast", "mock-1", "fast", "mock-1"),
        ("fast", "mock-1", "faster", None),
        ("lab/*", "*", "lab/mock-1", "mock-1"),
        ("lab/*", "*", "lab/meta/mock-1", "meta/mock-1"),
        ("lab/*", "x-*-y", "lab/1", "x-1-y"),
        ("gpt-*", "mock-1", "gpt-anything", "mock-1"),
        ("*a*b*", "one", "xaxbx", "one"),
        ("lab/*", "*", "other/mock-1", None),
    ],
)
def test_rule_renames_the_model(asked: str, target: str, name: str, becomes: str | None) -> None:
    assert upstream_model_name(rule(asked, target), name) == becomes


def test_rule_without_target_keeps_the_name() -> None:
    assert upstream_model_name("gpt-*", "gpt-4") == "gpt-4"
    assert upstream_model_name("gpt-*", "mock-1") is None


def test_name_with_a_star_is_a_pattern() -> None:
    assert is_pattern("gpt-*")
    assert not is_pattern("gpt[4]?")
