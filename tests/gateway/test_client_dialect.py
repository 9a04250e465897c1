"""`gateway/client_dialect`: which dialect a path belongs to, and whether a model is asked there."""

from __future__ import annotations

import pytest

from antiphon.gateway.client_dialect import dialect_at_path, is_turn_path


@pytest.mark.parametrize(
    ("path", "dialect", "asks"),
    [
        ("/v1/responses", "responses", True),
        ("/v1/chat/completions", "chat", True),
        ("/v1/messages", "messages", True),
        ("/v1/messages/count_tokens", "messages", False),
        ("/v1/vscode/chat", "vscode", True),
        ("/v1beta/models/m:generateContent", "gemini", True),
        ("/v1/models/m:streamGenerateContent", "gemini", True),
        ("/v1/models/m:countTokens", "gemini", False),
        ("/v1/models", "responses", False),
        ("/nowhere", "responses", False),
    ],
)
def test_paths(path: str, dialect: str, asks: bool) -> None:
    assert dialect_at_path(path).name == dialect
    assert is_turn_path(path) is asks
