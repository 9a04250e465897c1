"""The profiles that come with the package."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Raw
from tests.profiles.requests import requests

import antiphon
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.messages.wire import MessagesWire
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


@pytest.mark.without_coverage
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


#: Modules whose subject has such a name: a program and its variables, or a header that clients send.
NAMING_MODULES = {"cli/agents.py", "config/schema.py"}


@pytest.mark.slow
def test_provider_names_occur_only_in_profiles() -> None:
    """Differences between servers are data; code that contains a provider's name, even in a comment, is in the wrong
    package."""
    source = Path(antiphon.__file__).parent
    pattern = re.compile("|".join(PROVIDERS), re.IGNORECASE)
    matches = [
        f"{file.relative_to(source.parent)}:{number}: {line.strip()}"
        for file in sorted(source.rglob("*.py"))
        if source / "profiles" not in file.parents and file.relative_to(source).as_posix() not in NAMING_MODULES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert matches == [], (
        "provider names outside profiles/; say what the server does instead of who it is:\n" + "\n".join(matches)
    )


FIVE_FIELDS = ("top_k", "seed", "structured_outputs", "chat_template_kwargs", "repetition_penalty")
NOT_IN_GENERAL = "min_p"


def extra_fields_of(name: str) -> tuple[str, ...]:
    wire = load_profile(name).wire
    assert isinstance(wire, (ChatWire, ResponsesWire, MessagesWire))
    return wire.extra_fields


@pytest.mark.parametrize("name", [name for name in profile_names() if load_profile(name).dialect == "chat"])
@pytest.mark.parametrize("field", [*FIVE_FIELDS, NOT_IN_GENERAL, "made_up"])
def test_extra_field_of_a_responses_client_is_sent_if_listed_and_else_a_loss(name: str, field: str) -> None:
    """REQ-6, F-4."""
    profile = load_profile(name)
    request = Request(model="m", input="hi", extra={field: Raw(b'{"a": 1}')})
    body, losses = SERVER_DIALECTS["chat"].request_from_hub(request, profile.wire)
    is_listed = field in extra_fields_of(name)
    assert (field in json.loads(body)) == is_listed
    assert [loss.path for loss in losses] == ([] if is_listed else [field])


@pytest.mark.parametrize("name", ["chat", "vllm", "llama.cpp"])
def test_servers_that_ignore_unknown_fields_get_the_five_extra_fields(name: str) -> None:
    assert set(FIVE_FIELDS) <= set(extra_fields_of(name))


@pytest.mark.parametrize("name", ["deepseek", "groq", "mistral", "ollama", "openai", "azure", "anthropic"])
def test_servers_that_refuse_unknown_fields_get_no_extra_fields(name: str) -> None:
    assert list(extra_fields_of(name)) == []


@pytest.mark.parametrize("client_name", ["chat:top_k", "messages:top_k", "gemini:topK", "ollama:top_k"])
def test_top_k_of_every_client_reaches_llama_cpp(client_name: str) -> None:
    """REQ-7: its Responses API accepts it; others do not."""
    request = Request(model="m", input="hi", extra={client_name: Raw(b"5")})
    body, losses = SERVER_DIALECTS["responses"].request_from_hub(request, load_profile("llama.cpp").wire)
    assert (json.loads(body)["top_k"], list(losses)) == (5, [])
    body, losses = SERVER_DIALECTS["responses"].request_from_hub(request, load_profile("openai").wire)
    assert "top_k" not in json.loads(body)
    assert len(losses) == 1


def test_extra_field_that_two_clients_set_is_sent_once() -> None:
    """REQ-7: the client's own field has precedence over that of another dialect, which is a loss."""
    request = Request(model="m", input="hi", extra={"top_k": Raw(b"5"), "chat:top_k": Raw(b"6")})
    body, losses = SERVER_DIALECTS["responses"].request_from_hub(request, load_profile("llama.cpp").wire)
    assert (json.loads(body)["top_k"], [loss.path for loss in losses]) == (5, ["top_k"])


@pytest.mark.parametrize(
    ("name", "sent", "lost"),
    [
        ("gemini", {"generationConfig": {"seed": 7, "topK": 5}}, []),
        ("messages", {"top_k": 5}, ["seed"]),
        ("ollama-native", {"options": {"seed": 7, "top_k": 5}}, []),
    ],
)
def test_seed_and_top_k_of_a_responses_client_reach_servers_that_have_them(
    name: str, sent: dict[str, Any], lost: list[str]
) -> None:
    """REQ-5, F-4."""
    request = Request(model="m", input="hi", extra={"seed": Raw(b"7"), "top_k": Raw(b"5")})
    profile = load_profile(name)
    body, losses = SERVER_DIALECTS[profile.dialect].request_from_hub(request, profile.wire)
    assert sent.items() <= json.loads(body).items()
    assert [loss.path for loss in losses] == lost
