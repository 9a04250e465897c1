"""Calls that can be sent back: valid names, unique ids."""

from __future__ import annotations

import itertools

import pytest

from antiphon.dialects.common.tool_names import PLAIN_NAMES, SendableCalls, ToolNames, ToolRef
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import CustomTool, FunctionToolParam

NAMES = ToolNames([CustomTool(name="a b"), FunctionToolParam(name="x" * 100)], PLAIN_NAMES)


def calls_of(losses: Losses) -> SendableCalls:
    numbers = itertools.count(1)
    return SendableCalls("calls", NAMES, losses, lambda prefix: f"{prefix}_{next(numbers)}")


@pytest.mark.parametrize(
    ("sent_name", "called", "lost"),
    [
        ("look", ToolRef("function", "look"), []),
        (NAMES.wire_name(("custom", "a b", None)), ToolRef("custom", "a b"), []),
        (NAMES.wire_name(("function", "x" * 100, None)), ToolRef("function", "x" * 100), []),
        ("look at.this", ToolRef("function", "look_at_this"), ["calls.name"]),
        ("x" * 70, ToolRef("function", "x" * 64), ["calls.name"]),
    ],
)
def test_offered_name_is_mapped_back_and_another_one_is_normalized(
    sent_name: str, called: ToolRef, lost: list[str]
) -> None:
    """TOOL-1, F-4."""
    losses = Losses()
    assert calls_of(losses).tool(sent_name) == called
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
