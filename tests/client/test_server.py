"""Address, headers and profile of a server."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.client.server import prepare_call, server_at
from antiphon.config import Timeouts
from antiphon.errors import ClientFault, ProfileError
from antiphon.profiles import load_profile


@pytest.mark.parametrize(
    ("url", "dialect", "base"),
    [
        ("http://host:8080", None, "http://host:8080/v1"),
        ("host:8080/", "chat", "http://host:8080/v1"),
        ("https://host/api/v3/", "responses", "https://host/api/v3"),
        (" https://host ", "gemini", "https://host/v1beta"),
    ],
)
def test_server_at_adds_a_missing_version_to_the_url(url: str, dialect: Any, base: str) -> None:
    assert server_at(url, None, dialect=dialect).base_url == base


def test_server_at_takes_dialect_and_headers_from_the_profile() -> None:
    """B-9: accepts a profile by name, by path or as an object."""
    server = server_at(
        "https://host", "secret", profile="anthropic", headers={"x-mine": "1"}, timeouts=Timeouts(idle=3)
    )
    assert (server.profile.dialect, server.headers["x-api-key"], server.headers["x-mine"]) == (
        "messages",
        "secret",
        "1",
    )
    assert "anthropic-version" in server.headers
    assert server.timeouts.idle == 3
    same = server_at("https://host", "secret", profile=load_profile("openai"))
    assert same.headers["authorization"] == "Bearer secret"
    assert same.stores_responses
    with pytest.raises(ProfileError):
        server_at("https://host", None, profile="nobody")
    with pytest.raises(ClientFault) as caught:
        server_at("https://host", None, profile="anthropic", dialect="chat")
    assert caught.value.param == "dialect"


def test_prepare_call_applies_quirks_and_reports_losses() -> None:
    """D-1: special rules of a server are data, as in the gateway."""
    server = server_at("https://host", None, profile="openai")
    prepared = prepare_call(server, {"model": "m", "input": "Hi.", "presence_penalty": 0.5})
    assert b"presence_penalty" not in prepared.body
    assert [loss.path for loss in prepared.losses] == ["presence_penalty"]
    assert prepared.url == "https://host/v1/responses"
