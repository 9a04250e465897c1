"""The profiles that come with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.profiles.requests import requests

import antiphon
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.profiles import load_profile, profile_names
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
    "openai",
    "openrouter",
    "sglang",
    "vercel",
    "vllm",
)


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profile_loads_and_names_its_sources(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert ". Source: " in profile.about
    assert isinstance(profile.wire, SERVER_DIALECTS[profile.dialect].wire_type)


@pytest.mark.slow
@pytest.mark.parametrize("name", profile_names())
@settings(max_examples=30)
@given(request_=requests())
def test_shipped_profile_is_idempotent_for_any_request(name: str, request_: Request) -> None:
    profile = load_profile(name)
    prepared, _ = profile.apply_quirks(request_)
    again, losses = profile.apply_quirks(prepared)
    assert again is prepared
    assert list(losses) == []


def test_general_profiles_match_or_restrict_their_dialect() -> None:
    assert load_profile("open-responses").wire == ResponsesWire()
    chat = load_profile("chat").wire
    assert isinstance(chat, ChatWire)
    assert set(chat.fields) < set(ChatWire().fields)


def test_openai_profile_is_stateful_and_lacks_only_request_fields() -> None:
    maker = load_profile("openai").wire
    assert isinstance(maker, ResponsesWire)
    assert maker.stateful
    assert set(maker.lacks) <= set(Request.__struct_fields__)


def test_provider_names_occur_only_in_profiles() -> None:
    """Differences between servers are data; code that contains a provider's name, even in a comment, is in the wrong
    package."""
    source = Path(antiphon.__file__).parent
    pattern = re.compile("|".join(PROVIDERS), re.IGNORECASE)
    matches = [
        f"{file.relative_to(source.parent)}:{number}: {line.strip()}"
        for file in sorted(source.rglob("*.py"))
        if source / "profiles" not in file.parents
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert matches == [], (
        "provider names outside profiles/; say what the server does instead of who it is:\n" + "\n".join(matches)
    )
