"""`messages/wire`: the thinking forms that a model accepts, and those that remain after the server refused one."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.dialects.messages.wire import MessagesWire, ModelThinking, model_thinking, wire_after_refusal

BOTH = ModelThinking(names=("both-*",), thinking=("adaptive", "enabled", "disabled"), efforts=("low", "max"))
ALWAYS = ModelThinking(names=("always-*", "b*"), thinking=("adaptive",), efforts=("low",))
ADAPTIVE = MessagesWire(thinking="adaptive", models=(BOTH, ALWAYS))
BUDGET = MessagesWire(models=(BOTH, ALWAYS))


def test_model_thinking_uses_the_first_matching_row() -> None:
    assert model_thinking(ADAPTIVE, "both-1") == BOTH
    assert model_thinking(ADAPTIVE, "big-1") == ALWAYS


@pytest.mark.parametrize(
    ("wire", "thinking", "efforts"),
    [(ADAPTIVE, ("adaptive", "disabled"), ("low", "medium", "high")), (BUDGET, ("enabled", "disabled"), ())],
)
def test_model_thinking_falls_back_to_the_server_default(wire: MessagesWire, thinking: Any, efforts: Any) -> None:
    row = model_thinking(wire, "m")
    assert (row.thinking, row.efforts) == (thinking, efforts)


def test_model_thinking_is_empty_for_a_server_without_thinking() -> None:
    assert model_thinking(MessagesWire(thinking="none", models=(BOTH,)), "both-1").thinking == ()


@pytest.mark.parametrize(
    ("wire", "model", "refused", "thinking", "efforts"),
    [
        (ADAPTIVE, "m", "thinking.adaptive", ("enabled", "disabled"), ()),
        (BUDGET, "m", "thinking.enabled", ("adaptive", "disabled"), ("low", "medium", "high")),
        (ADAPTIVE, "both-1", "thinking.adaptive", ("enabled", "disabled"), ()),
        (ADAPTIVE, "both-1", "thinking.enabled", ("adaptive", "disabled"), ("low", "max")),
        (ADAPTIVE, "both-1", "thinking.disabled", ("adaptive", "enabled"), ("low", "max")),
        (BUDGET, "always-1", "thinking.adaptive", ("enabled",), ()),
        (ADAPTIVE, "m", "thinking", (), ()),
        (BUDGET, "both-1", "thinking", (), ()),
    ],
)
def test_wire_after_refusal_uses_the_other_thinking_type(
    wire: MessagesWire, model: str, refused: Any, thinking: Any, efforts: Any
) -> None:
    after = wire_after_refusal(wire, model, refused)
    assert after is not None
    row = model_thinking(after, model)
    assert (row.thinking, row.efforts) == (thinking, efforts)


@pytest.mark.parametrize("refused", ["thinking.enabled", "thinking.between_tools", "encrypted_reasoning"])
def test_wire_after_refusal_ignores_types_that_are_not_sent(refused: Any) -> None:
    assert wire_after_refusal(ADAPTIVE, "m", refused) is None


def test_wire_after_refusal_of_all_thinking_changes_once() -> None:
    """RSN-3: a server that still refuses the request has another reason."""
    after = wire_after_refusal(ADAPTIVE, "m", "thinking")
    assert after is not None
    assert wire_after_refusal(after, "m", "thinking") is None


@pytest.mark.parametrize(("system", "after"), [("inline", "user"), ("kept", "user"), ("user", None), ("top", None)])
def test_wire_after_refusal_of_system_messages_sends_user_text(system: Any, after: str | None) -> None:
    wire = wire_after_refusal(MessagesWire(system=system), "m", "system_messages")
    assert (wire.system if wire else None) == after
