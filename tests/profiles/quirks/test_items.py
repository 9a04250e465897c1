"""Items: ids, types, cache hints."""

from __future__ import annotations

import msgspec
import pytest
from tests.profiles.quirk_runs import run_quirk

from antiphon.profiles.quirks import QUIRKS
from antiphon.profiles.quirks.items import PARAM_TYPES, OnlyItemsOptions, StripCacheControlOptions
from antiphon.profiles.quirks.rewriting import NoOptions
from antiphon.protocol.codec import encode
from antiphon.protocol.content import OutputText
from antiphon.protocol.items import FunctionCall, ItemReference, Message
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.status import ItemStatus

USER = {"type": "message", "role": "user", "content": "hi"}
HINT = {"type": "ephemeral"}


def test_only_items_drops_and_reports_other_types() -> None:
    """D-1, F-4, ITEM-5."""
    sent, losses = run_quirk(
        "only_items",
        OnlyItemsOptions(types=["message", "acme:kept"]),
        input=[USER, {"type": "compaction", "encrypted_content": "x"}, {"type": "acme:kept"}, {"type": "acme:other"}],
    )
    assert sent["input"] == [USER, {"type": "acme:kept"}]
    assert losses == {
        "input[1]": "an item of type 'compaction'",
        "input[3]": "an item of type 'acme:other'",
    }


def test_only_items_refuses_an_unknown_type() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown item type 'mesage'"):
        msgspec.convert({"types": ["mesage"]}, OnlyItemsOptions)


def test_drop_item_ids_keeps_the_ids_of_references() -> None:
    """Also the ids of items that were output before."""
    request = Request(
        input=[
            ItemReference(id="msg_9"),
            Message(
                id="msg_1",
                status=ItemStatus.COMPLETED,
                role="assistant",
                content=[OutputText(text="a", annotations=[])],
            ),
            FunctionCall(id="fc_1", call_id="c", name="f", arguments="{}", status=ItemStatus.COMPLETED),
        ]
    )
    changed = QUIRKS["drop_item_ids"].apply(request, Losses(), NoOptions())
    assert msgspec.json.decode(encode(changed))["input"] == [
        {"type": "item_reference", "id": "msg_9"},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
    ]


def test_drop_item_ids_covers_hosted_and_client_items() -> None:
    sent, losses = run_quirk(
        "drop_item_ids", input=[{**USER, "id": "msg_1"}, {"type": "web_search_call", "id": "ws_1"}, USER]
    )
    assert sent["input"] == [USER, {"type": "web_search_call"}, USER]
    assert losses == {}


def test_every_item_type_has_a_param_type_with_the_same_members() -> None:
    for sent, taken in PARAM_TYPES.items():
        assert issubclass(sent, taken)
        assert {*taken.__struct_fields__} == {*sent.__struct_fields__}


def test_strip_cache_control_removes_hints_everywhere() -> None:
    """E-4: and no data of the user is removed."""
    block = {"type": "text", "text": "x"}
    parameters = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    sent, losses = run_quirk(
        "strip_cache_control",
        cache_control=HINT,
        metadata={"cache_control": "mine"},
        tools=[
            {"type": "function", "name": "f", "parameters": parameters, "cache_control": HINT},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g", "cache_control": HINT}]},
            {"type": "acme:tool", "cache_control": HINT},
        ],
        input=[
            {**USER, "cache_control": HINT, "kept": 1},
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "a", "cache_control": HINT}, {"type": "acme:part"}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{**block, "cache_control": HINT}]}],
            },
        ],
    )
    assert sent == {
        "metadata": {"cache_control": "mine"},
        "tools": [
            {"type": "function", "name": "f", "parameters": parameters},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
            {"type": "acme:tool"},
        ],
        "input": [
            {**USER, "kept": 1},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "a"}, {"type": "acme:part"}],
            },
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": [block]}],
            },
        ],
    }
    assert set(losses) == {
        "cache_control",
        "tools[0].cache_control",
        "tools[1].tools[0].cache_control",
        "tools[2].cache_control",
        "input[0].cache_control",
        "input[1].content[0].cache_control",
        "input[2].content[0].content[0].cache_control",
    }


def test_strip_cache_control_removes_the_named_fields() -> None:
    """E-4: a server may have a place for one of the two."""
    part = {"type": "input_text", "text": "a", "cache_control": HINT, "prompt_cache_breakpoint": {"mode": "explicit"}}
    items = [{"role": "user", "content": [part]}]
    sent, losses = run_quirk("strip_cache_control", StripCacheControlOptions(names=("cache_control",)), input=items)
    assert sent["input"][0]["content"][0].keys() == {"type", "text", "prompt_cache_breakpoint"}
    assert list(losses) == ["input[0].content[0].cache_control"]
    sent, losses = run_quirk("strip_cache_control", input=items)
    assert sent["input"][0]["content"][0].keys() == {"type", "text"}
    assert sorted(losses) == ["input[0].content[0].cache_control", "input[0].content[0].prompt_cache_breakpoint"]


def test_strip_cache_control_keeps_the_lifetime_of_a_whole_request() -> None:
    """E-4: it becomes the `ttl` of `prompt_cache_options`."""
    options = {"mode": "implicit", "cache_control": HINT}
    sent, losses = run_quirk("strip_cache_control", input="Hi", prompt_cache_options=options)
    assert sent["prompt_cache_options"] == options
    assert list(losses) == []
