"""`gateway/client_dialect`: the dialect of a path, and whether it is the path of a turn."""

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
def test_path_determines_the_dialect_and_whether_it_is_a_turn(path: str, dialect: str, asks: bool) -> None:
    assert dialect_at_path(path).name == dialect
    assert is_turn_path(path) is asks
