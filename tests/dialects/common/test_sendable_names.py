"""Calls that can be sent back: valid names, unique ids."""

from __future__ import annotations

import itertools

import pytest

from antiphon.dialects.common.tool_names import SendableCalls, ToolRef
from antiphon.protocol.losses import Losses


def calls_of(losses: Losses) -> SendableCalls:
    numbers = itertools.count(1)
    return SendableCalls("calls", losses, lambda prefix: f"{prefix}_{next(numbers)}")


@pytest.mark.parametrize(
    ("called", "name", "lost"),
    [
        (ToolRef("function", "look"), "look", []),
        (ToolRef("custom", "a b"), "a b", []),  # it was offered under another name, and is mapped to this one
        (ToolRef("function", "look at.this"), "look_at_this", ["calls.name"]),
        (ToolRef("function", "x" * 70), "x" * 64, ["calls.name"]),
    ],
)
def test_invalid_call_name_is_normalized(called: ToolRef, name: str, lost: list[str]) -> None:
    """TOOL-1, F-4."""
    losses = Losses()
    assert calls_of(losses).name(called) == name
    assert [loss.path for loss in losses] == lost


def test_call_ids_are_unique_and_not_too_long() -> None:
    """REQ-8."""
    losses = Losses()
    calls = calls_of(losses)
    assert [calls.id(id) for id in ("a", "", "a", "b" * 64, "b" * 65)] == ["a", "call_1", "call_2", "b" * 64, "call_3"]
    assert [loss.what for loss in losses] == [
        "the id 'a'",
        "an id of 65 characters",
    ]
