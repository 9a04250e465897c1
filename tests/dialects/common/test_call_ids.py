"""Call ids that are too long for servers."""

from __future__ import annotations

import json

import pytest

from antiphon.dialects.common.call_ids import mark_call_id, shorten_call_id
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
)
from antiphon.protocol.request import Request

LONG = ["c" * 80 + end for end in ("1", "2")]


def test_short_call_id_is_unchanged() -> None:
    assert shorten_call_id("c" * 64) == "c" * 64


def test_long_call_ids_stay_distinct() -> None:
    """REQ-8."""
    short = [shorten_call_id(id) for id in LONG]
    assert [len(id) for id in short] == [64, 64]
    assert short[0] != short[1]
    assert short == [shorten_call_id(id) for id in LONG]


def test_marked_call_id_keeps_its_start() -> None:
    assert mark_call_id("abc", "x").startswith("abc_")
    assert mark_call_id("abc", "x") != mark_call_id("abc", "y")


@pytest.mark.parametrize("server", ["chat", "responses", "messages"])
@pytest.mark.parametrize("is_custom", [False, True])
def test_servers_get_short_ids_in_calls_and_results(server: ServerDialectName, is_custom: bool) -> None:
    """REQ-8."""
    items: list[ItemParam] = [MessageParam(role="user", content="hi")]
    for id in LONG:
        items.append(
            CustomToolCallParam(call_id=id, name="f", input="x")
            if is_custom
            else FunctionCallParam(call_id=id, name="f", arguments="{}")
        )
    for id in LONG:
        items.append(
            CustomToolCallOutputParam(call_id=id, output="ok")
            if is_custom
            else FunctionCallOutputParam(call_id=id, output="ok")
        )
    dialect = SERVER_DIALECTS[server]
    body, losses = dialect.request_from_hub(Request(model="m", input=items), dialect.wire_type())
    text = body.decode()
    assert list(losses) == []
    assert all(id not in text for id in LONG)
    assert [text.count(json.dumps(shorten_call_id(id))) for id in LONG] == [2, 2]
