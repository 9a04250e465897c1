"""A chat client's messages as hub items: every role and every part, and the errors of refused ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from antiphon.dialects.chat.request_in import request_to_hub
from antiphon.errors import ApiError, InvalidValue, MissingField
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    UnknownContent,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
)
from antiphon.protocol.request import input_items

Json = dict[str, Any]
HI: Json = {"role": "user", "content": "hi"}
USER = MessageParam(role="user", content=[InputText(text="hi")])
CACHED: Json = {"cache_control": {"type": "ephemeral"}}
MARK = {"prompt_cache_breakpoint": Raw(b'{"mode":"explicit","cache_control":{"type":"ephemeral"}}')}
CALL: Json = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def taken(*messages: Json) -> tuple[list[ItemParam], list[str]]:
    """The items, and the paths of the losses."""
    request, losses = request_to_hub(json.dumps({"messages": messages}).encode())
    return input_items(request), [loss.path for loss in losses]


def instructions(*messages: Json) -> tuple[Any, list[ItemParam], list[str]]:
    request, losses = request_to_hub(json.dumps({"messages": messages}).encode())
    return request.instructions, input_items(request), [loss.path for loss in losses]


def assistant(*texts: str) -> MessageParam:
    return MessageParam(role="assistant", content=[OutputTextParam(text=text) for text in texts])


# System text.


def test_leading_system_text_becomes_instructions_E4() -> None:
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c", "cache_control": None}]
    instructions_text, items, losses = instructions(
        {"role": "system", "content": "a"}, {"role": "system", "content": parts}, HI
    )
    assert instructions_text == "a\n\nb\nc"
    assert items == [USER]
    assert losses == []


def test_leading_system_text_with_a_cache_mark_stays_a_message_E4() -> None:
    marked = {"type": "text", "text": "b", **CACHED}
    instructions_text, items, losses = instructions(
        {"role": "system", "content": "a"},
        {"role": "system", "content": [marked]},
        {"role": "system", "content": "c", **CACHED},
        HI,
    )
    assert instructions_text == "a"
    assert items == [
        MessageParam(role="system", content=[InputText(text="b", extra=MARK)]),
        MessageParam(role="system", content=[InputText(text="c", extra=MARK)]),
        USER,
    ]
    assert losses == []


def test_system_text_in_the_middle_keeps_its_place_E4() -> None:
    instructions_text, items, _ = instructions(HI, {"role": "system", "content": "later"})
    assert instructions_text is UNSET
    assert items == [USER, MessageParam(role="system", content=[InputText(text="later")])]


def test_leading_developer_messages_keep_their_role() -> None:
    instructions_text, items, _ = instructions(
        {"role": "developer", "content": "a"}, {"role": "system", "content": "b"}
    )
    assert instructions_text is UNSET
    assert [item.role for item in items if isinstance(item, MessageParam)] == ["developer", "system"]


def test_system_message_with_media_stays_a_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://i"}}
    instructions_text, items, losses = instructions({"role": "system", "content": [image]}, HI)
    assert instructions_text is UNSET
    assert items[0] == MessageParam(role="system", content=[InputText(text="[image omitted: https://i]")])
    assert losses == ["messages[0].content[0]"]


# Parts.


@pytest.mark.parametrize(
    ("part", "made"),
    [
        ({"type": "text", "text": "a"}, InputText(text="a")),
        ({"type": "input_text", "text": "a"}, InputText(text="a")),
        ({"type": "output_text", "text": "a"}, InputText(text="a")),
        ({"type": "refusal", "refusal": "no"}, InputText(text="no")),
        (
            {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
            InputImageParam(image_url="u", detail="low"),
        ),
        ({"type": "image_url", "image_url": "u"}, InputImageParam(image_url="u")),
        ({"type": "file", "file": {"file_data": "AA", "filename": "f"}}, InputFileParam(file_data="AA", filename="f")),
        ({"type": "file", "file": {"file_id": "file_1"}}, InputFileParam(file_id="file_1")),
        (
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            InputAudio(input_audio=InputAudioData(data="AA", format="wav")),
        ),
        (
            {"type": "acme:part", "x": 1},
            UnknownContent(kind="chat:acme:part", raw=Raw(b'{"type": "acme:part", "x": 1}')),
        ),
    ],
)
def test_user_parts_are_translated_E1_C2(part: Json, made: Any) -> None:
    assert taken({"role": "user", "content": [part]}) == ([MessageParam(role="user", content=[made])], [])


def test_assistant_parts_are_translated_E1_C2() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "refusal", "refusal": "no"}]
    image = {"type": "image_url", "image_url": {"url": "https://i"}}
    items, losses = taken(HI, {"role": "assistant", "content": [*parts, image]})
    content: list[ContentParam] = [OutputTextParam(text="a"), OutputTextParam(text="b"), Refusal(refusal="no")]
    assert items[1] == MessageParam(
        role="assistant", content=[*content, OutputTextParam(text="[image omitted: https://i]")]
    )
    assert losses == ["messages[1].content[3]"]


def test_cache_control_becomes_a_mark_where_the_hub_has_a_place_E4() -> None:
    items, losses = taken(
        {
            **HI,
            "content": [
                {"type": "text", "text": "a", **CACHED},
                {"type": "acme:part", **CACHED},
                {"type": "tool_result", "tool_use_id": "a", "content": "x", **CACHED},
                {"type": "image_url", "image_url": {"url": "u", **CACHED}},
                {"type": "file", "file": {"file_id": "f", **CACHED}},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav", **CACHED}},
                {"type": "text", "text": "b", "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "text", "text": "c", "prompt_cache_breakpoint": True},
            ],
        },
        {"role": "assistant", "tool_calls": [{**CALL, **CACHED}]},
    )
    assert losses == [
        "messages[0].content[1].cache_control",
        "messages[0].content[3].image_url.cache_control",
        "messages[0].content[4].file.cache_control",
        "messages[0].content[5].input_audio.cache_control",
        "messages[0].content[7].prompt_cache_breakpoint",
        "messages[1].tool_calls[0].cache_control",
    ]
    assert items[0] == MessageParam(
        role="user",
        content=[
            InputText(text="a", extra=MARK),
            UnknownContent(kind="chat:acme:part", raw=Raw(b'{"type":"acme:part"}')),
        ],
    )
    assert items[1] == FunctionCallOutputParam(call_id="a", output="x", extra=MARK)
    assert isinstance(items[2], MessageParam)
    assert items[2].content[3] == InputText(text="b", extra={"prompt_cache_breakpoint": Raw(b'{"mode":"explicit"}')})


def test_cache_control_of_a_message_marks_its_end_E4() -> None:
    unknown = {"type": "acme:part"}
    items, losses = taken(
        {"role": "user", "content": "a", **CACHED},
        {"role": "user", "content": [unknown], **CACHED},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "b", **CACHED},
        {"role": "assistant", "content": None, **CACHED},
    )
    assert items[0] == MessageParam(role="user", content=[InputText(text="a", extra=MARK)])
    assert items[1] == MessageParam(
        role="user", content=[UnknownContent(kind="chat:acme:part", raw=Raw(b'{"type": "acme:part"}'))]
    )
    assert items[3] == FunctionCallOutputParam(call_id=CALL["id"], output="b", extra=MARK)
    assert losses == ["messages[1].prompt_cache_breakpoint", "messages[4].prompt_cache_breakpoint"]


def test_annotations_of_user_text_are_a_loss() -> None:
    part = {"type": "output_text", "text": "a", "annotations": [{"type": "acme:note"}]}
    assert taken({"role": "user", "content": [part]})[1] == ["messages[0].content[0]"]


def test_calls_and_results_inside_messages_become_items_in_place_E1() -> None:
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "done"}]}
    text = {"type": "text", "text": "and"}
    items, losses = taken(
        HI,
        {"role": "assistant", "content": [text, use, text]},
        {"role": "user", "content": [result, text]},
        {"role": "user", "content": [result]},
    )
    called = FunctionCallParam(call_id="a", name="f", arguments='{"q":1}')
    returned = FunctionCallOutputParam(call_id="a", output="done")
    user = MessageParam(role="user", content=[InputText(text="and")])
    assert items == [USER, assistant("and"), called, assistant("and"), returned, user, returned]
    assert not losses


def test_empty_content_is_accepted() -> None:
    items, losses = taken(
        {"role": "user", "content": ""}, {"role": "user", "content": []}, {"role": "assistant", "content": ""}
    )
    empty = MessageParam(role="user", content=[InputText(text="")])
    assert items == [empty, MessageParam(role="user", content=[]), assistant("")]
    assert not losses


# Assistant messages.


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_turn_with_only_calls_has_no_message_E2(content: Json) -> None:
    items, losses = taken(HI, {"role": "assistant", **content, "tool_calls": [CALL]})
    assert items == [USER, FunctionCallParam(call_id="a", name="f", arguments="{}")]
    assert not losses


def test_calls_follow_the_text_in_order_E2() -> None:
    custom = {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "x"}}
    as_object = {"id": "c", "index": 2, "function": {"name": "g", "arguments": {"q": 1}}}
    items, losses = taken(HI, {"role": "assistant", "content": "so", "tool_calls": [CALL, custom, as_object]})
    assert items[1:] == [
        assistant("so"),
        FunctionCallParam(call_id="a", name="f", arguments="{}"),
        CustomToolCallParam(call_id="b", name="patch", input="x"),
        FunctionCallParam(call_id="c", name="g", arguments='{"q":1}'),
    ]
    assert not losses


def test_null_assistant_message_gives_no_item() -> None:
    assert taken(HI, {"role": "assistant", "content": None}) == ([USER], [])


def test_reasoning_precedes_the_text_RSN1() -> None:
    thought = ReasoningParam(summary=[], content=[ReasoningText(text="hm")])
    for field in ("reasoning_content", "reasoning"):
        assert taken(HI, {"role": "assistant", "content": "so", field: "hm"}) == ([USER, thought, assistant("so")], [])
    both = {"role": "assistant", "content": "so", "reasoning": "hm", "reasoning_content": "hm"}
    assert taken(HI, both) == ([USER, thought, assistant("so")], [])


def test_reasoning_in_a_second_form_is_a_loss() -> None:
    two = {"role": "assistant", "content": "so", "reasoning_content": "hm", "reasoning": {"text": "hm"}}
    other = {"role": "assistant", "content": "so", "reasoning": {"text": "hm"}}
    assert taken(HI, two)[1] == ["messages[1].reasoning"]
    assert taken(HI, other) == ([USER, assistant("so")], ["messages[1].reasoning"])


def test_refusals_are_parts_of_the_message() -> None:
    refused = Refusal(refusal="no")
    for content in (None, "no"):
        items, _ = taken(HI, {"role": "assistant", "content": content, "refusal": "no"})
        assert items[1] == MessageParam(role="assistant", content=[refused])
    items, _ = taken(HI, {"role": "assistant", "content": "well", "refusal": "no"})
    assert items[1] == MessageParam(role="assistant", content=[OutputTextParam(text="well"), refused])


# Results.


def test_tool_messages_become_outputs_of_the_kind_of_their_call_E2_TOOL6() -> None:
    custom = {"id": "b", "type": "custom", "custom": {"name": "patch", "input": "x"}}
    image = {"type": "image_url", "image_url": {"url": "u"}}
    items, losses = taken(
        HI,
        {"role": "assistant", "tool_calls": [CALL, custom]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}, image]},
        {"role": "tool", "tool_call_id": "b", "content": "done"},
        {"role": "tool", "tool_call_id": "c", "content": None},
    )
    assert items[3:] == [
        FunctionCallOutputParam(call_id="a", output=[InputText(text="see"), InputImageParam(image_url="u")]),
        CustomToolCallOutputParam(call_id="b", output="done"),
        FunctionCallOutputParam(call_id="c", output=""),
    ]
    assert not losses


def test_unsupported_output_parts_become_notes() -> None:
    parts = [
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "tool_use", "id": "x", "name": "f", "input": {}},
    ]
    items, losses = taken({"role": "tool", "tool_call_id": "a", "content": parts})
    assert items == [
        FunctionCallOutputParam(
            call_id="a", output=[InputText(text="[audio omitted: wav]"), InputText(text="[tool_use omitted]")]
        )
    ]
    assert losses == ["messages[0].content[0]", "messages[0].content[1]"]


def test_legacy_function_calls_get_ids() -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    result = {"role": "function", "name": "f", "content": "done"}
    items, losses = taken(HI, called, result, called, result, result)
    assert [item.call_id for item in items[1:] if not isinstance(item, MessageParam) and hasattr(item, "call_id")] == [
        "call_1",
        "call_1",
        "call_3",
        "call_3",
        "call_5",
    ]
    assert not losses


# Losses and errors.


def test_names_and_misplaced_fields_are_losses() -> None:
    odd = {
        **HI,
        "name": "ann",
        "tool_calls": [CALL],
        "tool_call_id": "a",
        "refusal": "no",
        "reasoning": "hm",
        "audio": None,
        "x": 1,
    }
    assert taken(odd)[1] == [
        "messages[0].x",
        "messages[0].name",
        "messages[0].tool_call_id",
        "messages[0].tool_calls",
        "messages[0].refusal",
        "messages[0].reasoning",
    ]


@pytest.mark.parametrize(
    ("message", "kind", "param"),
    [
        ({"content": "hi"}, MissingField, "messages[0].role"),
        ({"role": "robot", "content": "hi"}, InvalidValue, "messages[0].role"),
        ({"role": "user"}, MissingField, "messages[0].content"),
        ({"role": "user", "content": None}, MissingField, "messages[0].content"),
        ({"role": "system", "content": None}, MissingField, "messages[0].content"),
        ({"role": "user", "content": 1}, InvalidValue, "messages[0].content"),
        ({"role": "user", "content": [{"text": "hi"}]}, MissingField, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, MissingField, "messages[0].content[0].text"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": 1}}]},
            InvalidValue,
            "messages[0].content[0].image_url.url",
        ),
        ({"role": "tool", "content": "x"}, MissingField, "messages[0].tool_call_id"),
        ({"role": "function", "content": "x"}, MissingField, "messages[0].name"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, MissingField, "messages[0].tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]},
            MissingField,
            "messages[0].tool_calls[0].id",
        ),
    ],
)
def test_errors_name_the_path_and_the_expected_value_ERR3(message: Json, kind: type[ApiError], param: str) -> None:
    with pytest.raises(kind) as caught:
        taken(message)
    assert caught.value.param == param
    assert param in caught.value.message
    assert "expected" in caught.value.message


def test_name_in_a_tool_result_is_no_loss() -> None:
    """It repeats the name of the call."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x"},
    ]
    _, losses = request_to_hub(json.dumps({"model": "m", "messages": messages}).encode())
    assert not losses
