"""`responses/wire`: what is left out once the server has refused it."""

from __future__ import annotations

from antiphon.dialects.responses.wire import ResponsesWire, wire_after_refusal


def test_after_a_refusal_encrypted_reasoning_is_asked_of_no_model() -> None:
    wire = ResponsesWire(sealed_reasoning=True)
    assert wire_after_refusal(wire, "m", "encrypted_reasoning") == ResponsesWire(
        sealed_reasoning=True, no_reasoning_models=("*",)
    )
    assert wire_after_refusal(wire, "m", "reasoning") is None
