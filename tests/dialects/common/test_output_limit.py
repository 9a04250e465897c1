"""The limits of output tokens that clients of each dialect may send, and what servers get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.common.original_form import keep_original_form
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.errors import InvalidValue, UnsupportedParameter

USER = {"role": "user", "content": "Hi"}
#: The path of the limit in a request of each dialect.
LIMITS = {
    "responses": "max_output_tokens",
    "chat": "max_tokens",
    "messages": "max_tokens",
    "gemini": "generationConfig.maxOutputTokens",
    "ollama": "options.num_predict",
}
#: The values that mean no limit.
UNLIMITED = [("chat", -1), ("ollama", -1), ("ollama", -2)]


def body_of(client: str, limit: Any) -> bytes:
    match client:
        case "responses":
            body: dict[str, Any] = {"model": "m", "input": "Hi"}
        case "gemini":
            body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
        case _:
            body = {"model": "m", "messages": [USER]}
    *outer, name = LIMITS[client].split(".")
    if outer:
        body[outer[0]] = {name: limit}
    else:
        body[name] = limit
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("client", "limit"),
    [
        *((client, limit) for client in LIMITS for limit in (2**31, -3, 20.5, "20", True)),
        *((client, 0) for client in LIMITS if client != "messages"),
        *((client, -1) for client in ("responses", "messages", "gemini")),
        ("chat", -2),
    ],
)
def test_invalid_limit_is_refused_with_its_path(client: Any, limit: Any) -> None:
    """REQ-8, ERR-3."""
    with pytest.raises(InvalidValue) as caught:
        CLIENT_DIALECTS[client].request_to_hub(body_of(client, limit))
    assert caught.value.param == LIMITS[client]
    assert "expected" in caught.value.message
    assert f"got {json.dumps(limit)}" in caught.value.message


@pytest.mark.parametrize("client", LIMITS)
@pytest.mark.parametrize("limit", [16, 2**31 - 1])
def test_valid_limit_is_read(client: Any, limit: int) -> None:
    assert CLIENT_DIALECTS[client].request_to_hub(body_of(client, limit))[0].max_output_tokens == limit


@pytest.mark.parametrize("server", SERVER_DIALECTS)
@pytest.mark.parametrize(("client", "limit"), UNLIMITED)
def test_no_limit_is_passed_on_within_the_dialect_only(client: Any, limit: int, server: Any) -> None:
    """REQ-8: no limit is what servers do without the field, so this is no loss."""
    original = body_of(client, limit)
    request, losses = CLIENT_DIALECTS[client].request_to_hub(original)
    body, more_losses = SERVER_DIALECTS[server].request_from_hub(request, SERVER_DIALECTS[server].wire_type())
    if client == server:
        body = keep_original_form(original, body, CLIENT_DIALECTS[client].request_to_hub)
    assert (f"{limit}".encode() in body) == (client == server)
    assert [*losses, *more_losses] == []


@pytest.mark.parametrize("server", SERVER_DIALECTS)
def test_limit_of_zero_reaches_only_messages_servers(server: Any) -> None:
    """`max_tokens: 0` fills a prompt cache."""
    request, _ = CLIENT_DIALECTS["messages"].request_to_hub(body_of("messages", 0))
    dialect = SERVER_DIALECTS[server]
    if server == "messages":
        assert json.loads(dialect.request_from_hub(request, dialect.wire_type())[0])["max_tokens"] == 0
        return
    with pytest.raises(UnsupportedParameter, match="max_tokens: expected at least 1, got 0") as caught:
        dialect.request_from_hub(request, dialect.wire_type())
    assert caught.value.param == "max_tokens"
