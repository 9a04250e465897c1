"""Which item a server's event belongs to, where the server does not identify it well."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dialects.responses.upstreams import read_events, stable_fields

from antiphon.dialects.responses.item_tracker import TextKind, UpstreamItem
from antiphon.protocol.grammar import find_violations

COMPLETED = {"type": "response.completed", "response": {"status": "completed"}}
CALL = {"type": "function_call", "call_id": "c_1", "name": "look", "arguments": ""}
MESSAGE = {"type": "message", "role": "assistant", "content": []}
THOUGHT = {"type": "reasoning", "summary": []}


def output_of(*events: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    read = read_events([*events, COMPLETED])
    assert find_violations(read.events) == []
    return stable_fields(read.response)["output"], [loss.path for loss in read.losses]


def added(item: dict[str, Any], **where: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", **where, "item": item}


def done(item: dict[str, Any], **where: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", **where, "item": item}


def text(delta: str, **where: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "delta": delta, **where}


def test_calls_without_added_events_are_separated_by_their_ids() -> None:
    """STR-9: interleaved, without an index."""
    delta = {"type": "response.function_call_arguments.delta"}
    output, losses = output_of(
        {**delta, "item_id": "fc_1", "delta": '{"a"'},
        {**delta, "item_id": "fc_2", "delta": '{"b"'},
        {**delta, "item_id": "fc_1", "delta": ":1}"},
        {**delta, "item_id": "fc_2", "delta": ":2}"},
        done({**CALL, "id": "fc_1", "arguments": '{"a":1}'}),
        done({**CALL, "id": "fc_2", "call_id": "c_2", "arguments": '{"b":2}'}),
    )
    assert [item["arguments"] for item in output] == ['{"a":1}', '{"b":2}']
    assert losses == []


def test_texts_without_added_events_are_separated_by_their_ids() -> None:
    output, _ = output_of(text("a", item_id="m_1"), text("b", item_id="m_2"), text("c", item_id="m_1"))
    assert [item["content"][0]["text"] for item in output] == ["ac", "b"]


def test_index_of_an_item_of_another_kind_is_ignored() -> None:
    """This server numbers every item as the first, and its deltas have no ids."""
    output, losses = output_of(
        added({**THOUGHT, "id": "rs_1"}, output_index=0),
        added({**MESSAGE, "id": "m_1"}, output_index=0),
        text("a", output_index=0),
        {"type": "response.reasoning.delta", "delta": "b", "output_index": 0},
        text("c", output_index=0),
    )
    assert [item["content"][0]["text"] for item in output] == ["b", "ac"]
    assert losses == []


def test_item_that_is_added_twice_is_one_item() -> None:
    """ITEM-6"""
    output, _ = output_of(added({**MESSAGE, "id": "m_1"}), text("a", item_id="m_1"), added({**MESSAGE, "id": "m_1"}))
    assert [item["content"][0]["text"] for item in output] == ["a"]


def test_late_added_event_belongs_to_the_open_item() -> None:
    output, _ = output_of(
        text("a", output_index=0), added({**MESSAGE, "id": "m_1"}, output_index=0), text("b", item_id="m_1")
    )
    assert [item["content"][0]["text"] for item in output] == ["ab"]


def test_item_that_is_done_twice_is_done_once() -> None:
    """ITEM-4"""
    final = {**MESSAGE, "content": [{"type": "output_text", "text": "a"}]}
    output, losses = output_of(done({**final, "id": "m_1"}), done({**final, "id": "m_1"}), done(final, output_index=0))
    assert len(output) == 1
    assert losses == []


def test_final_item_without_an_id_belongs_to_the_open_item() -> None:
    """STR-6: one item with a loss is better than two items."""
    output, losses = output_of(
        text("a", item_id="m_1"), done({**MESSAGE, "content": [{"type": "output_text", "text": "b"}]})
    )
    assert [item["content"][0]["text"] for item in output] == ["a"]
    assert losses == ["output[0].content[0]"]


def test_repeated_id_of_another_item_is_another_item() -> None:
    """ITEM-6: the second gets its own id."""
    one = {**MESSAGE, "id": "x", "content": [{"type": "output_text", "text": "a"}]}
    read = read_events(
        [added({**one, "content": []}), done(one), added({**one, "content": []}), text("b", item_id="x"), COMPLETED]
    )
    assert find_violations(read.events) == []
    assert [item["content"][0]["text"] for item in stable_fields(read.response)["output"]] == ["a", "b"]


@pytest.mark.parametrize(
    "late",
    [
        text("b", item_id="m_1"),
        {"type": "response.output_text.annotation.added", "item_id": "m_1", "annotation": {"type": "x"}},
        {"type": "response.content_part.done", "item_id": "m_1", "part": {"type": "output_text", "text": "b"}},
        {"type": "response.output_text.done", "item_id": "m_1", "text": "b"},
    ],
)
def test_output_after_the_end_of_an_item_is_a_loss(late: dict[str, Any]) -> None:
    """ITEM-4"""
    final = {**MESSAGE, "id": "m_1", "content": [{"type": "output_text", "text": "a"}]}
    output, losses = output_of(done(final), late)
    assert output[0]["content"][0]["text"] == "a"
    assert losses == ["output[0]"]


@pytest.mark.parametrize(
    "late",
    [
        text("b", item_id="m_1", content_index=0),
        {
            "type": "response.output_text.annotation.added",
            "item_id": "m_1",
            "content_index": 0,
            "annotation": {"type": "x"},
        },
    ],
)
def test_output_after_the_end_of_a_part_is_a_loss(late: dict[str, Any]) -> None:
    """STR-3"""
    end = {
        "type": "response.content_part.done",
        "item_id": "m_1",
        "content_index": 0,
        "part": {"type": "output_text", "text": "a"},
    }
    output, losses = output_of(text("a", item_id="m_1", content_index=0), end, end, late)
    assert output[0]["content"] == [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]
    assert losses == ["output[0].content[0]"]


def test_parts_with_the_same_index_are_several_parts() -> None:
    """STR-3"""
    part = {"item_id": "m_1", "content_index": 0, "part": {"type": "output_text"}}
    begin, end = {"type": "response.content_part.added", **part}, {"type": "response.content_part.done", **part}
    final = {
        **MESSAGE,
        "id": "m_1",
        "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
    }
    output, losses = output_of(
        begin,
        text("a", item_id="m_1", content_index=0),
        end,
        begin,
        text("b", item_id="m_1", content_index=0),
        end,
        done(final),
    )
    assert [one["text"] for one in output[0]["content"]] == ["a", "b"]
    assert losses == []


def test_sealed_reasoning_in_the_added_event_is_kept() -> None:
    """RSN-1"""
    output, _ = output_of(added({**THOUGHT, "id": "rs_1", "encrypted_content": "sealed"}))
    assert output[0]["encrypted_content"] == "sealed"


def test_call_without_a_call_id_uses_its_id() -> None:
    call = {name: member for name, member in CALL.items() if name != "call_id"}
    read = read_events([added({**call, "id": "fc_1"}), done({**call, "id": "fc_1", "arguments": "{}"}), COMPLETED])
    assert find_violations(read.events) == []
    assert [getattr(item, "call_id", None) for item in read.response.output] == ["fc_1"]


def test_final_call_under_another_id_belongs_to_the_call_with_its_prefix() -> None:
    """STR-9: two calls are open, there is no index, and the ends name neither id nor call id."""
    delta = {"type": "response.function_call_arguments.delta"}
    nameless = {"type": "function_call", "name": "look"}
    output, losses = output_of(
        added({**CALL, "id": "a"}),
        added({**CALL, "id": "b", "call_id": "c_2"}),
        {**delta, "item_id": "a", "delta": '{"a"'},
        {**delta, "item_id": "b", "delta": '{"b"'},
        done({**nameless, "id": "y", "arguments": '{"b":2}'}),
        done({**nameless, "id": "x", "arguments": '{"a":1}'}),
    )
    assert [item["arguments"] for item in output] == ['{"a":1}', '{"b":2}']
    assert losses == []


def test_call_without_a_name_is_dropped_and_blocks_no_other_item() -> None:
    """TOOL-3: later items are delivered anyway, and in order."""
    output, losses = output_of(
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"}, text("a", item_id="m_1")
    )
    assert [item["type"] for item in output] == ["message"]
    assert losses == ["output"]


def test_unfinished_call_gets_a_call_id() -> None:
    call = {name: member for name, member in CALL.items() if name != "call_id"}
    read = read_events([added(call), COMPLETED])
    assert find_violations(read.events) == []
    assert [getattr(item, "call_id", None) for item in read.response.output] == ["call_1"]


@pytest.mark.parametrize(("kind", "beside"), [("text", "refusal"), ("summary", "summary"), ("reasoning", "text")])
def test_part_without_an_index_gets_the_next_one(kind: TextKind, beside: TextKind) -> None:
    item = UpstreamItem(0, "message", "message", None)
    assert item.add_part(kind, None).index == 0
    assert item.add_part(beside, 4).index == 4
    assert item.add_part(kind, None).index == 5
