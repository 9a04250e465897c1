"""Items as turns: laws over conversations in any order, then every way in which items are separated and joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import UNSET, Raw
from tests.generate.conversations import conversations

from antiphon.dialects.common.history import (
    NO_RESULT,
    UNKNOWN_TOOL,
    AssistantTurn,
    OrphanPolicy,
    PlacedItem,
    build_history,
    call_from_block,
    output_from_block,
)
from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.errors import InvalidValue, OrphanToolOutput
from antiphon.protocol.content import (
    ContentParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    ToolResult,
    ToolUse,
    UnknownContent,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    ItemReference,
    MessageParam,
    MessageRole,
    ReasoningParam,
    ToolSearchCall,
    WebSearchCall,
)
from antiphon.protocol.losses import Losses


def call(call_id: str, name: str = "f") -> FunctionCallParam:
    return FunctionCallParam(call_id=call_id, name=name, arguments="{}")


def output(call_id: str, text: str = "", extra: Any = UNSET) -> FunctionCallOutputParam:
    return FunctionCallOutputParam(call_id=call_id, output=text or f"output of {call_id}", extra=extra)


def message(role: MessageRole, content: str | list[ContentParam]) -> MessageParam:
    return MessageParam(role=role, content=content)


def thought(text: str) -> ReasoningParam:
    return ReasoningParam(summary=[], content=[ReasoningText(text=text)])


USER, ANSWER = message("user", "user"), message("assistant", "said")


def turns_and_losses(items: Sequence[ItemParam], orphans: OrphanPolicy = "error") -> tuple[list[Any], list[str]]:
    """The turns in short form, and the paths of the losses: a message is its text, a turn its reasoning, texts and
    calls."""
    losses = Losses()
    return [_short(turn) for turn in build_history(list(items), losses, orphans).turns], [loss.path for loss in losses]


def _short(turn: PlacedItem[MessageParam] | AssistantTurn) -> Any:
    if isinstance(turn, PlacedItem):
        return turn.item.content
    thoughts = [
        part.text for one in turn.reasoning for part in one.item.content or () if isinstance(part, ReasoningText)
    ]
    return [
        *(f"({thought})" for thought in thoughts),
        *(one.item.content for one in turn.messages),
        *((one.call.item.call_id, one.output.item.output) for one in turn.calls),
    ]


# Laws.


def _places(turn: PlacedItem[MessageParam] | AssistantTurn) -> list[tuple[int, ...]]:
    """The indexes of the parts of a turn, without outputs."""
    if isinstance(turn, PlacedItem):
        return [_place(turn)]
    calls = [answered.call for answered in turn.calls]
    return [*map(_place, turn.reasoning), *map(_place, turn.messages), *map(_place, calls)]


def _place(one: PlacedItem[Any]) -> tuple[int, ...]:
    item, *part = (int(number) for number in re.findall(r"\[(\d+)\]", one.path))
    return (item, *(part or [one.first_part]))


def _given(items: list[ItemParam]) -> set[tuple[int, ...]]:
    """The indexes of everything that is part of a conversation, without outputs."""
    places: set[tuple[int, ...]] = set()
    for at, item in enumerate(items):
        match item:
            case MessageParam(content=list() as parts) if any(isinstance(part, ToolUse | ToolResult) for part in parts):
                blocks = [isinstance(part, ToolUse | ToolResult) for part in parts]
                begins = [of for of in range(len(parts)) if not blocks[of] and (of == 0 or blocks[of - 1])]
                places |= {(at, of) for of in begins} | {
                    (at, of) for of, part in enumerate(parts) if isinstance(part, ToolUse)
                }
            case MessageParam() | ReasoningParam() | FunctionCallParam() | CustomToolCallParam():
                places.add((at, 0))
    return places


@settings(max_examples=30)
@given(conversations())
def test_every_item_is_in_one_turn_and_turns_keep_the_order_E5(items: list[ItemParam]) -> None:
    turns = build_history(items, Losses()).turns
    places = [_places(turn) for turn in turns]
    assert sorted(place for turn in places for place in turn) == sorted(_given(items))
    assert all(max(turn) < min(after) for turn, after in pairwise(places))


@settings(max_examples=30)
@given(conversations(orphans=True))
def test_calls_have_the_output_of_their_id_and_ids_are_unique_in_a_turn(items: list[ItemParam]) -> None:
    for turn in build_history(items, Losses(), "synthesize").turns:
        if isinstance(turn, AssistantTurn):
            ids = [answered.call.item.call_id for answered in turn.calls]
            assert ids == [answered.output.item.call_id for answered in turn.calls]
            assert len(set(ids)) == len(ids)


@settings(max_examples=30)
@given(conversations(orphans=True))
def test_turns_are_stable_after_a_round_trip_to_items(items: list[ItemParam]) -> None:
    turns = build_history(items, Losses(), "text").turns
    losses = Losses()
    again = build_history([item for turn in turns for item in _items(turn)], losses).turns
    assert not list(losses)
    assert [_short(turn) for turn in again] == [_short(turn) for turn in turns]


def _items(turn: PlacedItem[MessageParam] | AssistantTurn) -> list[ItemParam]:
    if isinstance(turn, PlacedItem):
        return [turn.item]
    outputs = [answered.output.item for answered in turn.calls]
    items: list[ItemParam] = [*(one.item for one in turn.reasoning), *(one.item for one in turn.messages)]
    return (
        [*items, *(answered.call.item for answered in turn.calls), *outputs]
        if len(turn.messages) < 2
        else _between(turn)
    )


def _between(turn: AssistantTurn) -> list[ItemParam]:
    """Several texts are one turn only between calls and outputs."""
    first, *others = (one.item for one in turn.messages)
    calls = [answered.call.item for answered in turn.calls]
    return [
        *(one.item for one in turn.reasoning),
        first,
        *calls,
        *others,
        *(answered.output.item for answered in turn.calls),
    ]


# Which calls are one turn.


def test_parallel_calls_are_one_turn_E5() -> None:
    turns, losses = turns_and_losses([USER, call("a"), call("b"), output("a"), output("b")])
    assert turns == ["user", [("a", "output of a"), ("b", "output of b")]]
    assert not losses


def test_interleaved_pairs_stay_two_turns() -> None:
    turns, losses = turns_and_losses([USER, call("a"), output("a"), call("b"), output("b")])
    assert turns == ["user", [("a", "output of a")], [("b", "output of b")]]
    assert not losses


def test_results_are_ordered_like_their_calls() -> None:
    assert turns_and_losses([call("a"), call("b"), output("b"), output("a")]) == (
        [[("a", "output of a"), ("b", "output of b")]],
        [],
    )


def test_late_output_is_moved_to_its_turn() -> None:
    turns, losses = turns_and_losses([call("a"), USER, output("a")])
    assert turns == [[("a", "output of a")], "user"]
    assert not losses


def test_output_after_the_next_call_is_moved_to_its_turn() -> None:
    turns, _ = turns_and_losses([call("a"), call("b"), output("a"), call("c"), output("b"), output("c")])
    assert turns == [[("a", "output of a"), ("b", "output of b")], [("c", "output of c")]]


def test_output_before_its_call_is_paired_with_it() -> None:
    assert turns_and_losses([output("a"), USER, call("a"), ANSWER]) == (["user", [("a", "output of a")], ["said"]], [])


def test_outputs_of_custom_calls_are_paired() -> None:
    custom = CustomToolCallParam(call_id="a", name="patch", input="x")
    turns, losses = turns_and_losses([custom, CustomToolCallOutputParam(call_id="a", output="done")])
    assert turns == [[("a", "done")]]
    assert not losses


# Other parts of a turn.


def test_text_directly_before_calls_belongs_to_their_turn() -> None:
    assert turns_and_losses([ANSWER, call("a"), output("a")])[0] == [["said", ("a", "output of a")]]


def test_text_between_calls_and_outputs_belongs_to_their_turn() -> None:
    assert turns_and_losses([call("a"), ANSWER, output("a")])[0] == [["said", ("a", "output of a")]]


def test_text_after_the_outputs_is_the_next_turn() -> None:
    assert turns_and_losses([call("a"), call("b"), output("a"), ANSWER, output("b")])[0] == [
        [("a", "output of a"), ("b", "output of b")],
        ["said"],
    ]


def test_assistant_texts_stay_separate() -> None:
    assert turns_and_losses([ANSWER, message("assistant", "again"), call("a"), output("a")])[0] == [
        ["said"],
        ["again", ("a", "output of a")],
    ]


def test_reasoning_belongs_to_the_following_item() -> None:
    items: list[ItemParam] = [
        thought("1"),
        ANSWER,
        thought("2"),
        call("a"),
        thought("3"),
        call("b"),
        output("a"),
        output("b"),
        thought("4"),
        ANSWER,
    ]
    assert turns_and_losses(items)[0] == [
        ["(1)", "said"],
        ["(2)", "(3)", ("a", "output of a"), ("b", "output of b")],
        ["(4)", "said"],
    ]


def test_other_messages_between_call_and_output_follow_the_results() -> None:
    items: list[ItemParam] = [call("a"), message("system", "system"), USER, output("a"), ANSWER]
    assert turns_and_losses(items)[0] == [[("a", "output of a")], "system", "user", ["said"]]


# Items without a partner.


def test_call_without_output_gets_one_and_is_reported() -> None:
    turns, losses = turns_and_losses([call("a"), call("b"), output("b"), ANSWER, USER])
    assert turns == [[("a", NO_RESULT), ("b", "output of b")], ["said"], "user"]
    assert losses == ["input[0]"]


def test_text_after_an_unanswered_call_is_the_next_turn() -> None:
    assert turns_and_losses([call("a"), ANSWER])[0] == [[("a", NO_RESULT)], ["said"]]


def test_orphan_output_is_refused_with_its_id() -> None:
    with pytest.raises(OrphanToolOutput, match=r"input\[1\].*'?lost") as caught:
        turns_and_losses([USER, output("lost")])
    assert caught.value.param == "input[1].call_id"


def test_orphan_output_can_get_a_synthetic_call() -> None:
    losses = Losses()
    [turn, *_] = build_history([output("lost"), USER], losses, "synthesize").turns
    assert isinstance(turn, AssistantTurn)
    [answered] = turn.calls
    assert answered.call.item == FunctionCallParam(call_id="lost", name=UNKNOWN_TOOL, arguments="{}")
    assert answered.output.item == output("lost")
    assert [loss.path for loss in losses] == ["input[0]"]


def test_orphan_output_can_become_text_D2() -> None:
    image = InputImageParam(image_url="https://i")
    parts = FunctionCallOutputParam(call_id="x", output=[InputText(text="seen"), image])
    picture = FunctionCallOutputParam(call_id="y", output=[image])
    turns, losses = turns_and_losses([call("a"), output("lost"), output("a"), parts, picture], "text")
    assert turns == [
        [("a", "output of a")],
        [InputText(text="[Tool Result for lost]: output of lost")],
        [InputText(text="[Tool Result for x]: seen"), image],
        [InputText(text="[Tool Result for y]:"), image],
    ]
    assert losses == ["input[1]", "input[3]", "input[4]"]


# Repeated ids.


def test_output_belongs_to_the_nearest_unanswered_call_before_it() -> None:
    items: list[ItemParam] = [call("a"), output("a", "1"), USER, call("a"), output("a", "2")]
    assert turns_and_losses(items) == ([[("a", "1")], "user", [("a", "2")]], [])


def test_repeated_call_id_starts_a_turn() -> None:
    assert turns_and_losses([call("a"), call("a"), output("a", "1"), output("a", "2")])[0] == [
        [("a", "2")],
        [("a", "1")],
    ]


def test_surplus_outputs_are_joined_and_reported() -> None:
    turns, losses = turns_and_losses(
        [output("a", "0"), call("a"), output("a", "1"), output("a", "2"), call("b"), output("b")]
    )
    assert turns == [[("a", [InputText(text="0"), InputText(text="1"), InputText(text="2")])], [("b", "output of b")]]
    assert losses == ["input[2]", "input[3]"]


# Calls and results inside messages.


def test_blocks_inside_messages_become_calls_and_results_in_place_E1() -> None:
    use = ToolUse(id="a", name="f", input={"q": 1}, extra={"cache_control": Raw(b"1")})
    result = ToolResult(tool_use_id="a", content="done")
    items: list[ItemParam] = [
        message("assistant", [OutputTextParam(text="before"), use]),
        message("user", [result, InputText(text="after"), InputText(text="that")]),
    ]
    losses = Losses()
    turn, user = build_history(items, losses).turns
    assert _short(turn) == [[OutputTextParam(text="before")], ("a", "done")]
    assert isinstance(user, PlacedItem)
    assert (user.path, user.first_part, len(user.item.content)) == ("input[1]", 1, 2)
    assert [loss.path for loss in losses] == ["input[0].content[1].cache_control"]


def test_call_block_becomes_a_function_call() -> None:
    assert call_from_block(ToolUse(id="a", name="f", input={"q": 1})) == FunctionCallParam(
        call_id="a", name="f", arguments='{"q":1}'
    )


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (UNSET, ""),
        (None, ""),
        ("text", "text"),
        ([{"type": "text", "text": "text"}], "text"),
        (["a", {"type": "output_text", "text": "b"}], [InputText(text="a"), InputText(text="b")]),
        ({"json": 1}, '{"json":1}'),
        ([{"type": "image_url", "image_url": {"url": "https://i"}}], [InputImageParam(image_url="https://i")]),
        ([{"type": "input_image", "image_url": "https://i"}], [InputImageParam(image_url="https://i")]),
        (
            [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}],
            [InputImageParam(image_url="data:image/png;base64,AA")],
        ),
        ([{"type": "image", "source": {"type": "url", "url": "https://i"}}], [InputImageParam(image_url="https://i")]),
        ([{"type": "x"}], [UnknownContent(kind="x", raw=Raw(b'{"type":"x"}'))]),
        ([], []),
    ],
)
def test_result_block_becomes_an_output(content: Any, wanted: Any) -> None:
    assert output_from_block(ToolResult(tool_use_id="a", content=content)) == FunctionCallOutputParam(
        call_id="a", output=wanted
    )
    failed = output_from_block(ToolResult(tool_use_id="a", content=content, is_error=True))
    assert failed == FunctionCallOutputParam(call_id="a", output=wanted, extra=ERROR_MARK)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (ERROR_MARK, UNSET, [InputText(text="[tool error] one"), InputText(text="two")]),
        (UNSET, ERROR_MARK, [InputText(text="one"), InputText(text="[tool error] two")]),
        (ERROR_MARK, ERROR_MARK, [InputText(text="one"), InputText(text="two")]),
    ],
)
def test_joined_outputs_mark_which_failed(first: Any, second: Any, wanted: list[InputText]) -> None:
    """All of them by the mark, some of them by their texts."""
    outputs = [output("a", "one", extra=first), output("a", "two", extra=second)]
    [turn] = build_history([call("a"), *outputs], Losses()).turns
    assert isinstance(turn, AssistantTurn)
    joined = turn.calls[0].output.item
    assert (joined.output, joined.extra) == (wanted, ERROR_MARK if first == second else UNSET)


def test_orphan_output_as_text_marks_a_tool_error() -> None:
    """D-2."""
    [turn] = build_history([output("a", "no", extra=ERROR_MARK)], Losses(), "text").turns
    assert turn == PlacedItem(
        "input[0]", MessageParam(role="user", content=[InputText(text="[Tool Result for a]: [tool error] no")])
    )


# Items that are no part of a conversation.


def test_other_items_are_set_aside_and_separate_no_turns() -> None:
    search = WebSearchCall(status="completed")
    history = build_history([thought("1"), search, ANSWER], Losses())
    assert [_short(turn) for turn in history.turns] == [["(1)", "said"]]
    assert history.others == [PlacedItem("input[1]", search)]


def test_unresolved_reference_is_refused() -> None:
    with pytest.raises(InvalidValue, match="msg_1") as caught:
        turns_and_losses([ItemReference(id="msg_1")])
    assert caught.value.param == "input[0].id"


def test_output_of_a_tool_search_is_a_loss_and_no_orphan() -> None:
    items: list[ItemParam] = [
        MessageParam(role="user", content="hi"),
        ToolSearchCall(call_id="s1", arguments={}, execution="client"),
        FunctionCallOutputParam(call_id="s1", output="[]"),
    ]
    losses = Losses()
    history = build_history(items, losses)
    assert len(history.turns) == 1
    assert [loss.path for loss in losses] == ["input[2]"]
