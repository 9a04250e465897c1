"""Turns as chat messages: the form of each, for servers of each habit."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from tests.generate.chat_rules import assert_chat_accepts

from antiphon.dialects.chat.request_out import request_from_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import InvalidValue, OrphanToolOutput
from antiphon.protocol.content import (
    ContentParam,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    ToolOutputContentParam,
    UnknownContent,
    UrlCitationParam,
)
from antiphon.protocol.items import (
    AdditionalTools,
    CompactionParam,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    MessageRole,
    ReasoningParam,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.request import Request

Json = dict[str, Any]


def sent(
    items: list[ItemParam], wire: ChatWire | None = None, instructions: str | None = None
) -> tuple[list[Json], list[str]]:
    """The messages, and the paths of the losses."""
    body, losses = request_from_hub(Request(model="m", input=items, instructions=instructions), wire or ChatWire())
    return assert_chat_accepts(body)["messages"], [loss.path for loss in losses]


def message(role: MessageRole, *content: ContentParam | str) -> MessageParam:
    return MessageParam(
        role=role, content=[InputText(text=part) if isinstance(part, str) else part for part in content]
    )


def call(call_id: str = "a", arguments: str = '{"q":1}') -> FunctionCallParam:
    return FunctionCallParam(call_id=call_id, name="f", arguments=arguments)


def output(*parts: ToolOutputContentParam, call_id: str = "a") -> FunctionCallOutputParam:
    return FunctionCallOutputParam(call_id=call_id, output=list(parts) if parts else "done")


USER = MessageParam(role="user", content="hi")
ANSWER = message("assistant", OutputTextParam(text="said"))
PICTURE = InputImageParam(image_url="https://i/1")
THOUGHT = ReasoningParam(summary=[SummaryText(text="short")], content=[ReasoningText(text="long")])
# System text.


def test_instructions_are_the_first_message_E4() -> None:
    assert sent([USER], instructions="be brief")[0] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize(("option", "role"), [("developer", "developer"), ("system", "system"), ("kept", "system")])
def test_developer_role_follows_the_wire_option(option: Any, role: str) -> None:
    messages, losses = sent([message("developer", "rules"), USER], ChatWire(developer=option))
    assert messages[0] == {"role": role, "content": "rules"}
    assert not losses


def test_system_text_keeps_its_place_by_default() -> None:
    assert [m["role"] for m in sent([USER, message("system", "now"), USER])[0]] == ["user", "system", "user"]


def test_system_text_is_moved_first_if_required_and_reported() -> None:
    items: list[ItemParam] = [message("developer", "one"), USER, message("system", "two"), message("system", ""), USER]
    messages, losses = sent(items, ChatWire(system="first", developer="developer"), "zero")
    assert [m["content"] for m in messages] == ["zero\n\none\n\ntwo", "hi", "hi"]
    assert losses == ["input[2]"]


def test_empty_system_text_is_not_sent() -> None:
    assert sent([message("system", ""), USER]) == ([{"role": "user", "content": "hi"}], [])


def test_media_in_a_system_message_become_notes() -> None:
    messages, losses = sent([message("system", "see", PICTURE), USER])
    assert messages[0]["content"] == "see\n[image omitted: https://i/1]"
    assert losses == ["input[0].content[1]"]


# User messages.


def test_text_parts_are_one_string_or_parts_by_wire_option() -> None:
    items: list[ItemParam] = [message("user", "a", "b"), MessageParam(role="user", content=[])]
    assert [m["content"] for m in sent(items)[0]] == ["a\nb", ""]
    assert [m["content"] for m in sent(items, ChatWire(text_content="parts"))[0]] == [
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [{"type": "text", "text": ""}],
    ]


def test_string_input_is_one_user_message_ITEM8() -> None:
    body, _ = request_from_hub(Request(input="hi"))
    assert json.loads(body) == {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("content", [None, UNSET, []])
def test_request_without_messages_is_refused(content: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        request_from_hub(Request(input=content))
    assert caught.value.param == "input"


# Assistant turns.


def test_text_and_calls_are_one_message_E2() -> None:
    messages, losses = sent([USER, ANSWER, call(), output()])
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": "said",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"q":1}'}}],
        },
        {"role": "tool", "content": "done", "tool_call_id": "a"},
    ]
    assert not losses


@pytest.mark.parametrize(
    ("habit", "content"), [("null", {"content": None}), ("empty", {"content": ""}), ("absent", {})]
)
def test_content_of_a_turn_with_only_calls_follows_the_wire_option(habit: Any, content: Json) -> None:
    turn = sent([USER, call(), output()], ChatWire(empty_content=habit))[0][1]
    assert {name: turn[name] for name in turn if name == "content"} == content


def test_call_without_arguments_gets_an_empty_object() -> None:
    [called] = sent([USER, call(arguments=""), output()])[0][1]["tool_calls"]
    assert called["function"]["arguments"] == "{}"


def test_empty_assistant_message_is_not_sent() -> None:
    items: list[ItemParam] = [
        USER,
        message("assistant", OutputTextParam(text="")),
        MessageParam(role="assistant", content=""),
        USER,
    ]
    assert sent(items) == ([{"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}], [])


def test_assistant_messages_stay_separate_and_parts_are_joined() -> None:
    items: list[ItemParam] = [USER, ANSWER, message("assistant", OutputTextParam(text="a"), OutputTextParam(text="b"))]
    assert [m["content"] for m in sent(items)[0]] == ["hi", "said", "a\nb"]


def test_refusal_has_its_own_field_and_replaces_missing_content() -> None:
    only = message("assistant", Refusal(refusal="no"))
    beside_empty_text = message("assistant", OutputTextParam(text=""), Refusal(refusal="no"))
    both = message("assistant", OutputTextParam(text="well"), Refusal(refusal="no"), Refusal(refusal="never"))
    messages, losses = sent([USER, only, beside_empty_text, both])
    assert messages[1:] == [
        {"role": "assistant", "content": "no", "refusal": "no"},
        {"role": "assistant", "content": "no", "refusal": "no"},
        {"role": "assistant", "content": "well", "refusal": "no\nnever"},
    ]
    assert not losses


def test_citations_and_log_probabilities_of_earlier_text_are_losses() -> None:
    citation = UrlCitationParam(start_index=0, end_index=1, url="https://c", title="c")
    cited = OutputTextParam(text="x", annotations=[citation], logprobs=[Raw(b"1")])  # type: ignore[list-item]  # never looked into
    assert sent([USER, message("assistant", cited)])[1] == [
        "input[1].content[0].annotations",
        "input[1].content[0].logprobs",
    ]


def test_phase_is_reported_once_ITEM7() -> None:
    messages: list[ItemParam] = [MessageParam(role="assistant", content="x", phase="commentary") for _ in range(3)]
    assert sent([USER, *messages])[1] == ["input[1].phase"]


# Custom tools.


def test_custom_calls_are_functions_or_native() -> None:
    items: list[ItemParam] = [
        USER,
        CustomToolCallParam(call_id="a", name="patch", input='say "hi"'),
        CustomToolCallOutputParam(call_id="a", output="done"),
    ]
    [called] = sent(items)[0][1]["tool_calls"]
    assert called == {
        "id": "a",
        "type": "function",
        "function": {"name": "patch", "arguments": '{"input":"say \\"hi\\""}'},
    }
    [called] = sent(items, ChatWire(custom_tools="native"))[0][1]["tool_calls"]
    assert called == {"id": "a", "type": "custom", "custom": {"name": "patch", "input": 'say "hi"'}}


def test_calls_of_a_namespace_have_flattened_names() -> None:
    item = FunctionCallParam(call_id="a", name="read", arguments="{}", namespace="files")
    [called] = sent([USER, item, output()])[0][1]["tool_calls"]
    assert called["function"]["name"] == "files__read"


# Reasoning.


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_returned_in_the_tool_loop_if_configured_RSN1(field: Any) -> None:
    items: list[ItemParam] = [USER, THOUGHT, ANSWER, USER, THOUGHT, call(), output()]
    messages, losses = sent(items, ChatWire(reasoning_field=field))
    assert [m.get(field) for m in messages] == [None, None, None, "long", None]
    assert losses == ["input[1]", "input[4].summary"]


def test_reasoning_of_the_whole_history_is_returned_if_configured() -> None:
    summary = ReasoningParam(summary=[SummaryText(text="a"), SummaryText(text="b")])
    wire = ChatWire(reasoning_field="reasoning", reasoning_history="all")
    messages, losses = sent([THOUGHT, ANSWER, USER, summary, ANSWER], wire)
    assert [m.get("reasoning") for m in messages] == ["long", None, "a\nb"]
    assert losses == ["input[0].summary"]


def test_reasoning_without_a_user_message_is_in_the_tool_loop() -> None:
    wire = ChatWire(reasoning_field="reasoning")
    assert sent([message("system", "go"), THOUGHT, ANSWER], wire)[0][1]["reasoning"] == "long"


def test_unwanted_reasoning_is_one_loss_per_item() -> None:
    empty = ReasoningParam(summary=[])
    sealed = ReasoningParam(summary=[], encrypted_content="x")
    messages, losses = sent([THOUGHT, empty, sealed, ANSWER, USER])
    assert [set(m) for m in messages] == [{"role", "content"}] * 2
    assert losses == ["input[0]", "input[2]"]


def test_encrypted_reasoning_is_never_sent() -> None:
    sealed = ReasoningParam(summary=[], encrypted_content="x", extra={"y": Raw(b"1")})
    messages, losses = sent([USER, sealed, ANSWER], ChatWire(reasoning_field="reasoning"))
    assert "reasoning" not in messages[1]
    assert losses == ["input[1].y", "input[1]"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_call_with_missing_reasoning_gets_a_blank_if_required_RSN3(field: Any) -> None:
    """Calls that another model made, or whose reasoning the client dropped."""
    foreign = ReasoningParam(summary=[], encrypted_content="x")
    items: list[ItemParam] = [
        USER,
        foreign,
        call("a"),
        output(call_id="a"),
        ANSWER,
        USER,
        THOUGHT,
        call("b"),
        output(call_id="b"),
    ]
    wire = ChatWire(reasoning_field=field, reasoning_history="all", missing_reasoning="blank")
    messages, losses = sent(items, wire)
    assert [m.get(field) for m in messages if m["role"] == "assistant"] == [" ", None, "long"]
    assert losses == ["input[1]", "input[6].summary"]
    in_loop = ChatWire(reasoning_field=field, missing_reasoning="blank")
    assert [m.get(field) for m in sent(items, in_loop)[0] if m["role"] == "assistant"] == [None, None, "long"]


def test_reasoning_alone_is_dropped() -> None:
    messages, losses = sent([USER, THOUGHT], ChatWire(reasoning_field="reasoning"))
    assert messages == [{"role": "user", "content": "hi"}]
    assert losses == ["input[1]"]


# Tool outputs.


def test_texts_of_an_output_are_joined_TOOL6() -> None:
    assert sent([USER, call(), output(InputText(text="a"), InputText(text="b"))])[0][2]["content"] == "a\nb"


def test_media_of_outputs_are_moved_after_the_tool_messages_TOOL6() -> None:
    items: list[ItemParam] = [
        USER,
        call("a"),
        call("b"),
        output(InputText(text="see"), PICTURE, InputFileParam(file_data="AA", filename="f.txt"), call_id="a"),
        output(PICTURE, call_id="b"),
        USER,
    ]
    messages, losses = sent(items)
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert (
        messages[2]["content"] == "see\n[image 1 of this result follows below]\n[file 2 of this result follows below]"
    )
    assert messages[3]["content"] == "[image 1 of this result follows below]"
    image = {"type": "image_url", "image_url": {"url": "https://i/1"}}
    assert messages[4]["content"] == [
        {"type": "text", "text": "Image 1 of the result of call a:"},
        image,
        {"type": "text", "text": "File 2 of the result of call a:"},
        {"type": "file", "file": {"file_data": "AA", "filename": "f.txt"}},
        {"type": "text", "text": "Image 1 of the result of call b:"},
        image,
    ]
    assert not losses


def test_media_of_outputs_stay_if_supported_TOOL6() -> None:
    messages, _ = sent([USER, call(), output(InputText(text="see"), PICTURE)], ChatWire(tool_images="keep"))
    image = {"type": "image_url", "image_url": {"url": "https://i/1"}}
    assert messages[2:] == [{"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}, image]}]


def test_orphan_outputs_follow_the_wire_option() -> None:
    items: list[ItemParam] = [USER, output()]
    with pytest.raises(OrphanToolOutput):
        sent(items)
    assert [m["role"] for m in sent(items, ChatWire(orphan_outputs="synthesize"))[0]] == ["user", "assistant", "tool"]
    assert sent(items, ChatWire(orphan_outputs="text"))[0][1]["content"] == "[Tool Result for a]: done"


# Unsupported items.


def test_unsupported_items_are_losses_F4() -> None:
    others: list[ItemParam] = [
        WebSearchCall(status="completed"),
        CompactionParam(encrypted_content="x"),
        UnknownItem(kind="acme:thing", raw=Raw(b"{}")),
        CompactionTrigger(),
    ]
    messages, losses = sent([USER, *others])
    assert len(messages) == 1
    assert losses == ["input[1]", "input[2]", "input[3]", "input[4]"]


def test_additional_tools_give_no_message() -> None:
    assert sent([AdditionalTools(tools=[], extra={"x": Raw(b"1")}), USER])[1] == ["input[0].x"]


def test_unknown_fields_of_items_are_losses_E4() -> None:
    extra = {"cache_control": Raw(b"1")}
    items: list[ItemParam] = [
        MessageParam(role="user", content="hi", extra=extra),
        FunctionCallParam(call_id="a", name="f", arguments="{}", extra=extra),
        FunctionCallOutputParam(call_id="a", output="x", extra=extra),
        MessageParam(
            role="user", content=[UnknownContent(kind="acme:part", raw=Raw(b"{}")), InputText(text="x", extra=extra)]
        ),
    ]
    assert sent(items)[1] == [
        "input[0].cache_control",
        "input[1].cache_control",
        "input[2].cache_control",
        "input[3].content[0]",
        "input[3].content[1].cache_control",
    ]


def test_refusal_after_a_plain_text_of_the_same_turn_is_sent() -> None:
    """The text before a call needs no parts; the message between the call and its output is a refusal."""
    text = MessageParam(role="assistant", content="one")
    messages, losses = sent([USER, text, call(), message("assistant", Refusal(refusal="no")), output()])
    assert (messages[1]["content"], messages[1]["refusal"]) == ("one", "no")
    assert losses == []


def test_reasoning_after_reasoning_of_another_server_is_sent() -> None:
    """RSN-3: only the first item is a loss."""
    foreign = ReasoningParam(summary=[], encrypted_content="opaque")
    messages, losses = sent(
        [USER, foreign, THOUGHT, ANSWER], ChatWire(reasoning_field="reasoning", reasoning_history="all")
    )
    assert messages[1]["reasoning"] == "long"
    assert losses == ["input[1]", "input[2].summary"]


def test_assistant_message_of_a_chat_client_keeps_parts_of_other_types() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
    part = UnknownContent(kind="thinking", raw=Raw(msgspec.json.encode(thinking)))
    items: list[ItemParam] = [USER, message("assistant", part, OutputTextParam(text="said")), USER]
    body, losses = request_from_hub(Request(model="m", input=items), ChatWire(native_types=True))
    assert msgspec.json.decode(body)["messages"][1]["content"] == [thinking, {"type": "text", "text": "said"}]
    assert len(losses) == 0
    assert sent(items)[0][1]["content"] == "[thinking omitted]\nsaid"
    plain, _ = request_from_hub(Request(model="m", input=[USER, ANSWER, USER]), ChatWire(native_types=True))
    assert msgspec.json.decode(plain)["messages"][1]["content"] == "said"
