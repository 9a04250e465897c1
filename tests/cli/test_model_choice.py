"""The models that a gateway serves, and which of them a command uses."""

from __future__ import annotations

import pytest

from antiphon.cli.model_choice import ServedModels, describe_patterns, suggest_model
from antiphon.client import Model


def _served(*names: str, patterns: tuple[str, ...] = ()) -> ServedModels:
    return ServedModels([Model(id=name) for name in names], list(patterns))


@pytest.mark.parametrize(
    ("served", "hint"),
    [
        (_served("mock-1"), "; did you mean 'mock-1'?"),
        (_served("mock-1", patterns=("gpt-*",)), "; did you mean 'mock-1'?"),
        (_served(), ""),
        (_served("zzz", patterns=("claude-*",)), ""),
    ],
)
def test_suggestion_is_a_listed_model(served: ServedModels, hint: str) -> None:
    assert suggest_model("mock-l", served) == hint


def test_suggestion_is_a_model_of_a_provider_that_is_served() -> None:
    assert suggest_model("gtp-5.5", _served(patterns=("gpt-*",))) == "; did you mean 'gpt-5.5'?"
    assert suggest_model("gtp-5.5", _served(patterns=("claude-*",))) == ""


def test_patterns_in_a_message_are_bounded() -> None:
    text = describe_patterns(_served(patterns=tuple(f"p{number}-*" for number in range(20))))
    assert text.startswith("choose one that matches p0-*, p1-*, ")
    assert text.endswith("p7-*, … with --model")
