"""Seals of servers that a client sends back without an envelope: servers of its dialect get them, others do not (RSN-3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.dialect import ClientDialectName, ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECT_NAMES, SERVER_DIALECTS

SEAL = "c2VhbA=="
MESSAGES_BLOCKS = [
    {"type": "thinking", "thinking": "Hm.", "signature": SEAL},
    {"type": "redacted_thinking", "data": SEAL},
    {"type": "text", "text": "Done."},
]
CHAT_DETAILS = [
    {"type": "reasoning.summary", "summary": "short"},
    {"type": "reasoning.text", "text": "Hm.", "signature": SEAL, "index": 1},
    {"type": "reasoning.encrypted", "data": SEAL, "id": "x", "index": 2},
]
GEMINI_PARTS = [
    {"text": "Hm.", "thought": True, "thoughtSignature": SEAL},
    {"text": "Done.", "thoughtSignature": SEAL},
]
BODIES: dict[ClientDialectName, dict[str, Any]] = {
    "messages": {
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": MESSAGES_BLOCKS},
            {"role": "user", "content": [{"type": "text", "text": "more"}]},
        ],
    },
    "chat": {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Done.", "reasoning_details": CHAT_DETAILS},
            {"role": "user", "content": "more"},
        ]
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": GEMINI_PARTS},
            {"role": "user", "parts": [{"text": "more"}]},
        ]
    },
}


@pytest.mark.parametrize("client", BODIES)
@pytest.mark.parametrize("server", SERVER_DIALECT_NAMES)
def test_seal_is_sent_to_servers_of_its_dialect_only(client: ClientDialectName, server: ServerDialectName) -> None:
    request, losses = CLIENT_DIALECTS[client].request_to_hub(json.dumps(BODIES[client]).encode())
    assert list(losses) == []
    sent, losses = SERVER_DIALECTS[server].request_from_hub(request, SERVER_DIALECTS[server].wire_type())
    if client == server:
        history = "contents" if client == "gemini" else "messages"
        assert json.loads(sent)[history] == BODIES[client][history]
        assert list(losses) == []
    else:
        assert SEAL.encode() not in sent
        assert "input[1]" in [loss.path for loss in losses]
