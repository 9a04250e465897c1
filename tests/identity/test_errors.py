"""Errors of a server reach clients of its dialect with all their members, and clients of other dialects without them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.identity.source import MODEL
from tests.recorded_traffic.plain import plain_request
from tests.recorded_traffic.play import Outcome, Player, UpstreamAnswer
from tests.recorded_traffic.recording import DIALECTS
from tests.recorded_traffic.run import DEFAULTS

from antiphon.dialects.dialect import ServerDialectName

DETAILS = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaMetric": "tokens"}]}]
ERRORS: dict[ServerDialectName, dict[str, Any]] = {
    "chat": {"error": {"message": "Slow down", "code": 429, "metadata": {"provider": "x"}}, "user_id": "u"},
    "responses": {"error": {"message": "Slow down", "type": "tokens", "code": None, "metadata": {"provider": "x"}}},
    "messages": {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}, "request_id": "req_1"},
    "gemini": {"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED", "details": DETAILS}},
    "ollama": {"error": "Slow down", "model": "m"},
}


def play(client: ServerDialectName, server: ServerDialectName, status: int, body: dict[str, Any]) -> Outcome:
    async def run() -> Outcome:
        player = Player()
        answer = UpstreamAnswer(
            status=status, headers={"content-type": "application/json"}, pieces=[json.dumps(body).encode()]
        )
        try:
            return await player.play(plain_request(client, MODEL, is_stream=False), server, DEFAULTS[server], answer)
        finally:
            await player.close()

    return asyncio.run(run())


def leaves(value: Any) -> list[Any]:
    """The strings in a value."""
    match value:
        case dict():
            return [leaf for member in value.values() for leaf in leaves(member)]
        case list():
            return [leaf for member in value for leaf in leaves(member)]
        case _:
            return [value]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_error_keeps_the_members_of_the_server(dialect: ServerDialectName) -> None:
    outcome = play(dialect, dialect, 429, ERRORS[dialect])
    assert outcome.status == 429
    expected = [leaf for leaf in leaves(ERRORS[dialect]) if leaf not in (None, "tokens", 429)]
    assert set(expected) <= {*leaves(json.loads(outcome.body))}


@pytest.mark.parametrize("client", DIALECTS)
def test_error_for_another_dialect_has_only_members_of_that_dialect(client: ServerDialectName) -> None:
    server: ServerDialectName = "messages" if client == "chat" else "chat"
    body = play(client, server, 429, ERRORS[server]).body
    assert b"Slow down" in body
    assert b"req_1" not in body
    assert b"metadata" not in body.replace(b'"metadata":{}', b"")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_error_about_the_key_of_the_gateway_keeps_nothing(dialect: ServerDialectName) -> None:
    """ERR-4."""
    outcome = play(dialect, dialect, 401, {**ERRORS[dialect], "hint": "the key ends with 1234"})
    assert outcome.status == 502
    assert b"1234" not in outcome.body
