"""The diagnosis of a refused turn: a sentence after the server's message, only where it helps (C-6)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport, target

from antiphon.errors import ApiError
from antiphon.gateway import turn as turn_module
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import prepare_request
from antiphon.protocol.codec import decode_request
from antiphon.protocol.stamps import Stamps

DEVELOPER = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def refused(message: str, status: int = 400, input: Any = DEVELOPER, dialect: str = "responses") -> str:
    """The message that the client gets for this message of the server."""
    request = decode_request(msgspec.json.encode({"model": "m", "input": input}))
    turn = UpstreamTurn(
        prepare_request(request, target(dialect).plan_translation()),
        target(dialect),
        Stamps(lambda prefix: f"{prefix}_1", lambda: 1),
        None,
    )
    body = msgspec.json.encode({"error": {"message": message}})
    with pytest.raises(ApiError) as caught:
        asyncio.run(turn.send_request(ScriptedTransport(ScriptedAnswer([body], JSON, status))))
    return caught.value.message


def test_diagnosis_follows_the_message_of_the_server() -> None:
    """C-6."""
    message = refused("Unknown role.")
    assert message.startswith("Unknown role. Diagnosis: input[0].role: not every server knows the role `developer`; ")
    assert "quirks: developer_as_system" in message


def test_message_without_a_diagnosis_is_unchanged() -> None:
    assert refused("Unknown role.", input="Hi") == "Unknown role."


def test_errors_that_refuse_no_body_are_not_diagnosed() -> None:
    assert refused("The role of this model is unknown.", 404) == "The role of this model is unknown."
    assert refused("Out of roles.", 500) == "Out of roles."
    assert (
        refused("This model's maximum context length is 9 tokens; role.")
        == "This model's maximum context length is 9 tokens; role."
    )


def test_refusal_of_reasoning_is_not_diagnosed() -> None:
    """RSN-3."""
    message = "The encrypted content of role x could not be verified."
    assert refused(message) == message


def test_very_long_body_is_not_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "MAX_DIAGNOSED_BYTES", 10)
    assert refused("Unknown role.") == "Unknown role."
