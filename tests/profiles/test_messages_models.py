"""The table of models in the profile `messages`, which `anthropic` inherits, against the strict server's own list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.messages.test_models import EFFORTS, TAKEN, THINKING
from tests.testing.requests import error_of, make_request

from antiphon.dialects import messages
from antiphon.dialects.messages.wire import MessagesWire, model_thinking
from antiphon.profiles import load_profile
from antiphon.protocol.request import ReasoningConfigParam, ReasoningEffort, Request
from antiphon.testing.messages.rules import MessagesLimits
from antiphon.testing.messages.server import MessagesBehavior

PROFILES = ("anthropic", "messages")
OFF = ("disabled", "between_tools")
MODELS = [model for model in TAKEN if model.startswith("claude-")]
OTHER_NAMES = {
    "claude-opus-4-20250514": "claude-opus-4-1",
    "claude-opus-4@20250514": "claude-opus-4-1",
    "claude-opus-4": "claude-opus-4-1",
    "claude-opus-4-1-20250805": "claude-opus-4-1",
    "claude-sonnet-4-5@20250929": "claude-haiku-4-5",
    "claude-opus-4.6": "claude-opus-4-6",
    "claude-opus-4.7": "claude-opus-4-7",
    "claude-haiku-4.5": "claude-haiku-4-5",
    "claude-sonnet-4": "claude-haiku-4-5",
    "claude-3-opus-20240229": "claude-3-5-haiku-latest",
    "claude-haiku-6": "claude-opus-4-7",
}
TOOLS: list[dict[str, Any]] = [{"name": "look", "input_schema": {"type": "object"}}]


def wire_of(profile: str) -> MessagesWire:
    wire = load_profile(profile).wire
    assert isinstance(wire, MessagesWire)
    return wire


def refusal(body: bytes) -> dict[str, Any]:
    server = MessagesBehavior(MessagesLimits(system_messages=True))
    return error_of(server.find_refusal(make_request(body, some_version="2023-06-01")))


def sent_by_client(profile: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a Messages client as an accepting server receives it."""
    request, _ = messages.request_to_hub(json.dumps(body).encode())
    encoded, _ = messages.request_from_hub(request, wire_of(profile))
    assert refusal(encoded) == {}
    decoded: dict[str, Any] = json.loads(encoded)
    return decoded


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Bodies with any thinking and any effort, as long as the two are compatible."""
    body: dict[str, Any] = {
        "max_tokens": draw(st.sampled_from([1, 2000, 64_000])),
        "messages": [{"role": "user", "content": "hi"}],
    }
    body["model"] = draw(st.sampled_from([*MODELS, *OTHER_NAMES]))
    kind = draw(st.sampled_from([None, *THINKING]))
    if kind == "enabled":
        body["thinking"] = {"type": kind, "budget_tokens": draw(st.integers(1024, 32_000))}
        body["max_tokens"] = max(body["max_tokens"], body["thinking"]["budget_tokens"] + 1)
    elif kind is not None:
        body["thinking"] = THINKING[kind]
    effort = draw(st.sampled_from([None, *EFFORTS]))
    if effort is not None and not (kind in OFF and effort in ("xhigh", "max")):
        body["output_config"] = {"effort": effort}
    if draw(st.booleans()):
        body |= {"tools": TOOLS, "tool_choice": {"type": draw(st.sampled_from(["auto", "any"]))}}
    return body


@given(body=bodies())
def test_thinking_and_effort_of_a_messages_client_are_accepted_by_the_model(body: dict[str, Any]) -> None:
    """RSN-4: the same to servers of both profiles."""
    one, other = (sent_by_client(profile, body) for profile in PROFILES)
    assert (one.get("thinking"), one.get("output_config")) == (other.get("thinking"), other.get("output_config"))


@pytest.mark.without_coverage
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("model", MODELS)
def test_supported_thinking_and_effort_are_kept(profile: str, model: str) -> None:
    """RSN-4."""
    kinds, efforts = TAKEN[model]
    body = {"model": model, "max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}]}
    for kind in kinds & THINKING.keys():
        if kind != "disabled" or kinds - set(OFF):  # `disabled` need not be sent to a model without thinking
            assert sent_by_client(profile, {**body, "thinking": THINKING[kind]})["thinking"] == THINKING[kind]
    for effort in efforts:
        assert sent_by_client(profile, {**body, "output_config": {"effort": effort}})["output_config"] == {
            "effort": effort
        }


@given(
    model=st.sampled_from([*MODELS, *OTHER_NAMES]),
    effort=st.sampled_from(["none", "minimal", *EFFORTS]),
    limit=st.sampled_from([16, 2000, 64_000]),
    profile=st.sampled_from(PROFILES),
)
def test_effort_of_other_clients_is_accepted_by_the_model(
    model: str, effort: ReasoningEffort, limit: int, profile: str
) -> None:
    """RSN-4."""
    request = Request(model=model, input="hi", max_output_tokens=limit, reasoning=ReasoningConfigParam(effort=effort))
    assert refusal(messages.request_from_hub(request, wire_of(profile))[0]) == {}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_spelling_of_a_model_matches_its_row(profile: str) -> None:
    wire = wire_of(profile)
    assert {name: model_thinking(wire, name) for name in OTHER_NAMES} == {
        name: model_thinking(wire, like) for name, like in OTHER_NAMES.items()
    }


def test_unlisted_models_use_the_default_of_the_profile() -> None:
    assert model_thinking(wire_of("anthropic"), "our-model").thinking[0] == "adaptive"
    assert model_thinking(wire_of("messages"), "our-model").thinking[0] == "enabled"
