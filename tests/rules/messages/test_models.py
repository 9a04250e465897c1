"""`rules/messages/models`: which models refuse which thinking and which effort, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.testing.requests import error_of, make_request

from antiphon.testing.messages.rules import MessagesLimits
from antiphon.testing.messages.server import MessagesBehavior

THINKING: dict[str, dict[str, Any]] = {
    "adaptive": {"type": "adaptive"},
    "enabled": {"type": "enabled", "budget_tokens": 1024},
    "disabled": {"type": "disabled"},
    "between_tools": {"type": "between_tools"},
}
EFFORTS = ("low", "medium", "high", "xhigh", "max")
# The types and the words that each takes, by the API's guides on thinking and effort.
TAKEN: dict[str, tuple[set[str], set[str]]] = {
    "claude-fable-5-1": ({"adaptive"}, set(EFFORTS)),
    "claude-mythos-5": ({"adaptive"}, set(EFFORTS)),
    "claude-opus-5-5": ({"adaptive"}, set(EFFORTS)),
    "claude-mythos-preview": ({"adaptive", "enabled"}, {"low", "medium", "high", "max"}),
    "claude-sonnet-5-5": ({"adaptive", "between_tools"}, set(EFFORTS)),
    "claude-opus-5": ({"adaptive", "disabled"}, set(EFFORTS)),
    "claude-haiku-5-5": ({"adaptive", "disabled"}, set(EFFORTS)),
    "claude-opus-4-8": ({"adaptive", "disabled"}, set(EFFORTS)),
    "claude-opus-4-7": ({"adaptive", "disabled"}, set(EFFORTS)),
    "claude-sonnet-5": ({"adaptive", "disabled"}, set(EFFORTS)),
    "claude-opus-4-6": ({"adaptive", "enabled", "disabled"}, {"low", "medium", "high", "max"}),
    "claude-sonnet-4-6": ({"adaptive", "enabled", "disabled"}, {"low", "medium", "high", "max"}),
    "claude-opus-4-5-20251101": ({"enabled", "disabled"}, {"low", "medium", "high"}),
    "claude-sonnet-4-5-20250929": ({"enabled", "disabled"}, set()),
    "claude-haiku-4-5": ({"enabled", "disabled"}, set()),
    "claude-opus-4-1": ({"enabled", "disabled"}, set()),
    "claude-sonnet-4-20250514": ({"enabled", "disabled"}, set()),
    "claude-3-7-sonnet-latest": ({"enabled", "disabled"}, set()),
    "claude-3-5-haiku-latest": ({"disabled"}, set()),
    "mock-1": (set(THINKING), set(EFFORTS)),
}


def refusal(model: str, limits: MessagesLimits = MessagesLimits(), **settings: Any) -> str | None:  # noqa: B008
    body = {"model": model, "max_tokens": 4000, "messages": [{"role": "user", "content": "hi"}], **settings}
    found = error_of(MessagesBehavior(limits).find_refusal(make_request(body, some_version="2023-06-01")))
    assert found.get("status") in (None, 400)
    return found.get("message")


@pytest.mark.parametrize("model", TAKEN)
def test_thinking_of_a_type_that_the_model_does_not_take_is_refused(model: str) -> None:
    assert {kind for kind, thinking in THINKING.items() if refusal(model, thinking=thinking) is None} == TAKEN[model][0]


@pytest.mark.parametrize("model", TAKEN)
def test_effort_in_a_word_that_the_model_does_not_know_is_refused(model: str) -> None:
    assert {word for word in EFFORTS if refusal(model, output_config={"effort": word}) is None} == TAKEN[model][1]


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        # What the gateway's profiles sent: `adaptive` to older models, budgets to newer ones, every word to all.
        ("claude-haiku-4-5", {"thinking": THINKING["adaptive"]}, "adaptive thinking is not supported on this model"),
        (
            "claude-opus-4-7",
            {"thinking": THINKING["enabled"]},
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to '
            "control thinking behavior.",
        ),
        (
            "claude-sonnet-5-5",
            {"thinking": THINKING["disabled"]},
            '"thinking.type.disabled" is not supported for this model. Use "thinking.type.between_tools" for the lowest thinking '
            'setting, or "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.',
        ),
        ("claude-haiku-4-5", {"output_config": {"effort": "low"}}, "This model does not support the effort parameter."),
        (
            "claude-opus-4-6",
            {"output_config": {"effort": "xhigh"}},
            "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium.",
        ),
        (
            "claude-opus-5",
            {"output_config": {"effort": "max"}, "thinking": THINKING["disabled"]},
            "output_config.effort 'max' is not supported when thinking is disabled on this model. Use effort 'high' or below, or "
            "enable thinking.",
        ),
    ],
)
def test_a_model_refuses_in_the_providers_words(model: str, settings: dict[str, Any], words: str) -> None:
    assert refusal(model, **settings) == words


@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-sonnet-5"])
def test_the_highest_effort_without_thinking_is_taken_by_earlier_models(model: str) -> None:
    assert refusal(model, output_config={"effort": "max"}, thinking=THINKING["disabled"]) is None


def test_a_server_of_any_names_takes_the_types_that_it_is_given() -> None:
    limits = MessagesLimits(thinking=("enabled", "disabled"))
    assert (
        refusal("mock-1", limits, thinking=THINKING["adaptive"]) == "adaptive thinking is not supported on this model"
    )
    assert refusal("mock-1", limits, thinking=THINKING["enabled"]) is None
