"""`profiles/known_clients`: API-6."""

from __future__ import annotations

import pytest

from antiphon.profiles.known_clients import known_clients, style_of


@pytest.mark.parametrize(
    ("agent", "style"),
    [
        ("OpenAI/Python 3.49.0", "older"),
        ("AsyncOpenAI/Python 3.49.0", "older"),
        ("codex_exec/0.166.0 (Linux)", "older"),
        ("ai/6.0 ai-sdk/openai/3.0 runtime/node.js", "older"),
        ("ai/6.0 ai-sdk/open-responses/1.0", "standard"),
        ("curl/8.5", "standard"),
        ("", "standard"),
    ],
)
def test_a_known_client_gets_the_style_it_reads(agent: str, style: str) -> None:
    """API-6."""
    assert style_of(agent) == style


def test_every_row_of_the_table_can_be_reached() -> None:
    for client in known_clients():
        assert style_of(f"x {client.agent}1.0") == client.style
