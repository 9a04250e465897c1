"""Schemas that the server enforces: narrowed, or not enforced at all."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.dialects.messages.schemas import enforceable_schema
from antiphon.protocol.losses import Losses

STRING = {"type": "string"}
CLOSED: dict[str, Any] = {"type": "object", "properties": {"a": STRING}, "additionalProperties": False}


def test_what_the_server_knows_is_kept() -> None:
    losses = Losses()
    schema = {**CLOSED, "$defs": {"x": STRING}, "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"type": "array", "items": STRING}}}
    assert enforceable_schema(schema, "s", losses) == schema
    assert not list(losses)


def test_what_it_does_not_know_is_left_out_with_a_loss() -> None:
    """F-4."""
    losses = Losses()
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    assert enforceable_schema(schema, "s", losses) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert [loss.path for loss in losses] == ["s.properties.a.minimum"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"title": "anything"},
        {"type": ["object", "null"], "properties": {"a": STRING}},
        {"enum": [{"a": 1}]},
        {"type": "array", "items": {}},
        {"type": "object", "properties": ["a"]},
        {"anyOf": "one of them"},
        {"allOf": [{"$ref": "#/$defs/x"}]},
        {"$ref": 7},
        {"$ref": "https://example.com/schema"},
        {"$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}}}, "$ref": "#/$defs/x"},
    ],
)
def test_what_leaves_open_what_a_value_is_cannot_be_enforced(schema: dict[str, Any]) -> None:
    losses = Losses()
    assert enforceable_schema(schema, "s", losses) is None
    assert not list(losses)
