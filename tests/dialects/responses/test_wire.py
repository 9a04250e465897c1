"""`responses/wire`: what is omitted after the server has refused it."""

from __future__ import annotations

from antiphon.dialects.responses.wire import ResponsesWire, wire_after_refusal


def test_wire_after_refusal_requests_no_encrypted_reasoning() -> None:
    wire = ResponsesWire(sealed_reasoning=True)
    assert wire_after_refusal(wire, "m", "encrypted_reasoning") == ResponsesWire(
        sealed_reasoning=True, no_reasoning_models=("*",)
    )
    assert wire_after_refusal(wire, "m", "reasoning") is None
