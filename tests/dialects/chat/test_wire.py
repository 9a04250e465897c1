"""`chat/wire`: the options after a server refused a part of a request."""

from __future__ import annotations

from antiphon.dialects.chat.wire import ChatWire, wire_after_refusal


def test_wire_after_refusal_has_no_reasoning_settings() -> None:
    wire = ChatWire(fields=("temperature", "reasoning_effort"), reasoning_budget=True)
    without_reasoning = ChatWire(fields=("temperature",))
    assert wire_after_refusal(wire, "m", "thinking") == without_reasoning
    assert wire_after_refusal(without_reasoning, "m", "thinking") is None
    assert wire_after_refusal(wire, "m", "reasoning") is None
