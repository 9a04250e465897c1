"""`ollama/wire`: what is omitted after the server has refused it."""

from __future__ import annotations

from antiphon.dialects.ollama.wire import OllamaWire, wire_after_refusal


def test_wire_after_refusal_requests_no_thinking() -> None:
    without_thinking = OllamaWire(levels=("high",), thinking=False)
    assert wire_after_refusal(OllamaWire(levels=("high",)), "m", "thinking") == without_thinking
    assert wire_after_refusal(without_thinking, "m", "thinking") is None
    assert wire_after_refusal(OllamaWire(), "m", "reasoning") is None
