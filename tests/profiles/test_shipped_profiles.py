"""The profiles that come with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.profiles.requests import requests

import antiphon
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.profiles import load_profile, profile_names
from antiphon.profiles.profile import WIRE_TYPES
from antiphon.protocol.request import Request

PROVIDERS = (
    "anthropic",
    "azure",
    "bedrock",
    "cerebras",
    "cohere",
    "deepseek",
    "fireworks",
    "groq",
    "lm studio",
    "mistral",
    "ollama",
    "openai",
    "openrouter",
    "sglang",
    "vercel",
    "vllm",
)


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_loads_and_says_where_its_facts_come_from(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert ". Source: " in profile.about
    assert isinstance(profile.wire, WIRE_TYPES[profile.dialect])


@pytest.mark.parametrize("name", profile_names())
@settings(max_examples=30)
@given(request_=requests())
def test_a_shipped_profile_prepares_any_request_and_again_without_change(name: str, request_: Request) -> None:
    profile = load_profile(name)
    prepared, _ = profile.apply_quirks(request_)
    again, losses = profile.apply_quirks(prepared)
    assert again is prepared
    assert list(losses) == []


def test_the_general_profiles_hold_what_their_dialect_has_by_itself_or_less() -> None:
    assert load_profile("open-responses").wire == ResponsesWire()
    chat = load_profile("chat").wire
    assert isinstance(chat, ChatWire)
    assert set(chat.fields) < set(ChatWire().fields)


def test_the_apis_maker_keeps_state_and_refuses_what_only_the_specification_has() -> None:
    maker = load_profile("openai").wire
    assert isinstance(maker, ResponsesWire)
    assert maker.stateful
    assert set(maker.lacks) <= set(Request.__struct_fields__)


def test_provider_names_stand_in_profiles_and_nowhere_else() -> None:
    """What differs between servers is data; code that knows a provider by name, even in a comment, is in the wrong room."""
    source = Path(antiphon.__file__).parent
    pattern = re.compile("|".join(PROVIDERS), re.IGNORECASE)
    found = [
        f"{file.relative_to(source.parent)}:{number}: {line.strip()}"
        for file in sorted(source.rglob("*.py"))
        if source / "profiles" not in file.parents
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], (
        "provider names outside profiles/; say what the server does instead of who it is:\n" + "\n".join(found)
    )
