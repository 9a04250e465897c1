"""The conversation for a Messages server: turns, calls and results, system texts, thoughts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from tests.dialects.messages.asking import RICH, ask
from tests.dialects.messages.reading import REQUEST, frames_of, read_frames
from tests.dialects.messages.test_server_recordings import of

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.dialects.messages import request_from_hub, request_to_hub
from antiphon.dialects.messages.history_out import outgoing_call_id
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.errors import InvalidValue
from antiphon.protocol import codec
from antiphon.protocol.content import InputImageParam, InputText, OutputTextParam, ReasoningText
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
    WebSearchCall,
)
from antiphon.protocol.request import Request

PLAIN = MessagesWire()
TOP = MessagesWire(system="top")
PICTURE = InputImageParam(image_url="https://i/1.png")
SHOWN = {"type": "image", "source": {"type": "url", "url": "https://i/1.png"}}


def user(text: str) -> MessageParam:
    return MessageParam(role="user", content=text)


def assistant(text: str) -> MessageParam:
    return MessageParam(role="assistant", content=text)


def system(text: str) -> MessageParam:
    return MessageParam(role="system", content=text)


def call(id: str, arguments: str = "{}", **fields: Any) -> FunctionCallParam:
    return FunctionCallParam(call_id=id, name="look", arguments=arguments, **fields)


def output(id: str, text: Any = "ok", **fields: Any) -> FunctionCallOutputParam:
    return FunctionCallOutputParam(call_id=id, output=text, **fields)


def thought(text: str, signature: str = "s", maker: str = "messages") -> ReasoningParam:
    sealed = seal_reasoning(maker, {"thinking": text, "signature": signature})
    return ReasoningParam(summary=[], content=[ReasoningText(text=text)], encrypted_content=sealed)


def sent(*items: ItemParam, wire: MessagesWire = RICH) -> tuple[list[str], list[str]]:
    """A line for each message, and the paths of the losses."""
    body, losses = ask(Request(model="m", input=list(items)), wire)
    return [f"{message['role']}: {', '.join(map(_block, message['content']))}" for message in body["messages"]], [
        loss.path for loss in losses
    ]


def _block(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": text}:
            return str(text)
        case {"type": "tool_use", "id": id, "input": input}:
            return f"{id}({input or ''})"
        case {"type": "tool_result", "tool_use_id": id, "content": content}:
            return f"{id}={content if isinstance(content, str) else list(map(_block, content))}"
        case {"type": "thinking", "thinking": thinking, "signature": signature}:
            return f"<{thinking}|{signature}>"
        case {"type": "redacted_thinking", "data": data}:
            return f"<{data}>"
        case _:
            return str(block["type"])


# Turns.


def test_consecutive_messages_of_one_role_are_one_turn() -> None:
    """E-5."""
    assert sent(user("a"), user("b"), assistant("c"), assistant("d"), user("e")) == (
        ["user: a, b", "assistant: c, d", "user: e"],
        [],
    )


def test_parallel_calls_are_one_turn_and_results_start_the_next() -> None:
    """E-2: interleaved pairs are regrouped; the next user message follows."""
    lines, lost = sent(user("q"), call("a"), call("b"), output("b", "2"), output("a", "1"), user("and?"))
    assert (lines, lost) == (["user: q", "assistant: a(), b()", "user: a=1, b=2, and?"], [])


def test_calls_follow_the_text_of_their_turn() -> None:
    """E-2."""
    lines, _ = sent(user("q"), call("a"), assistant("wait"), output("a"))
    assert lines == ["user: q", "assistant: wait, a()", "user: a=ok"]


def test_conversation_that_starts_with_the_assistant_gets_a_user_message() -> None:
    """F-4."""
    lines, lost = sent(assistant("Hello"), user("Hi"))
    assert lines == ["user: [earlier messages omitted]", "assistant: Hello", "user: Hi"]
    assert lost == ["input"]


def test_system_text_alone_gets_a_user_message() -> None:
    """F-4."""
    body, losses = ask(Request(model="m", input=[system("Be brief.")]))
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert [loss.path for loss in losses] == ["input"]


def test_empty_input_is_refused() -> None:
    with pytest.raises(InvalidValue):
        ask(Request(model="m", input=[]))


def test_blank_texts_are_omitted_with_a_loss() -> None:
    """F-4."""
    assert sent(user("a"), assistant(""), user(" \n")) == (["user: a"], ["input[1].content", "input[2].content"])


def test_trailing_white_space_of_the_last_assistant_text_is_removed() -> None:
    """F-4."""
    assert sent(user("a"), assistant("b \n")) == (["user: a", "assistant: b"], ["input"])


def test_unsupported_fields_and_items_are_losses() -> None:
    """F-4."""
    message = MessageParam(role="assistant", content="x", phase="commentary", extra={"note": Raw(b"1")})
    _, lost = sent(
        user("a"),
        message,
        MessageParam(role="assistant", content="y", phase="final_answer"),
        WebSearchCall(),
        user("b"),
    )
    assert lost == ["input[1].note", "input[1].phase", "input[3]"]


# System.


def test_leading_system_texts_become_system_blocks() -> None:
    body, losses = ask(
        Request(
            model="m", instructions="I", input=[system("S"), MessageParam(role="developer", content="D"), user("u")]
        )
    )
    assert [block["text"] for block in body["system"]] == ["I", "S", "D"]
    assert not list(losses)


SYSTEM_IN_THE_MIDDLE = [
    {"role": "user", "content": [{"type": "text", "text": "one"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
    {"role": "system", "content": [{"type": "text", "text": "rules"}], "clear_at": "never"},
    {"role": "system", "output_config": {"effort": "low"}},
    {"role": "user", "content": [{"type": "text", "text": "three"}]},
]


@pytest.mark.parametrize("messages", [SYSTEM_IN_THE_MIDDLE, SYSTEM_IN_THE_MIDDLE[:-1]])
@pytest.mark.parametrize("wire", [MessagesWire(), MessagesWire(system="inline")])
def test_system_messages_of_a_messages_client_stay_in_their_place(
    wire: MessagesWire, messages: list[dict[str, Any]]
) -> None:
    """E-5: with their own members, and without content; also at the end."""
    request, losses = request_to_hub(json.dumps({"max_tokens": 1, "messages": messages}).encode())
    assert list(losses) == []
    sent, losses = request_from_hub(request, wire)
    assert (json.loads(sent)["messages"], list(losses)) == (messages, [])


def test_system_messages_of_a_messages_client_move_if_the_profile_says_so() -> None:
    body = {"max_tokens": 1, "messages": SYSTEM_IN_THE_MIDDLE}
    request, _ = request_to_hub(json.dumps(body).encode())
    sent, losses = request_from_hub(request, TOP)
    assert [message["role"] for message in json.loads(sent)["messages"]] == ["user", "assistant", "user"]
    assert [loss.path for loss in losses] == ["input[2].clear_at", "input[2]", "input[3].output_config", "input[3]"]


@pytest.mark.parametrize(
    ("wire", "lines", "lost"),
    [
        (RICH, ["user: a", "system: S, T", "assistant: b", "user: c"], []),
        (
            PLAIN,
            ["user: a, <system>\nS\n</system>, <system>\nT\n</system>", "assistant: b", "user: c"],
            ["input[1]", "input[2]"],
        ),
        (TOP, ["user: a", "assistant: b", "user: c"], ["input[1]", "input[2]"]),
    ],
)
def test_system_text_in_the_middle_is_placed_by_the_wire_option(
    wire: MessagesWire, lines: list[str], lost: list[str]
) -> None:
    """E-5, F-4."""
    assert sent(user("a"), system("S"), system("T"), assistant("b"), user("c"), wire=wire) == (lines, lost)


def test_blank_system_text_is_not_marked() -> None:
    lines, _ = sent(user("a"), system(" "), assistant("b"), user("c"), wire=PLAIN)
    assert lines == ["user: a", "assistant: b", "user: c"]


def test_system_message_is_moved_after_the_next_user_message() -> None:
    """It must precede an assistant message, or be at the end."""
    assert sent(user("a"), system("S"), user("b")) == (["user: a, b", "system: S"], ["input[2]"])


def test_system_message_without_a_preceding_user_becomes_user_text() -> None:
    """F-4."""
    lines, lost = sent(user("a"), assistant("b"), system("S"), assistant("c"), user("d"))
    assert lines == ["user: a", "assistant: b", "user: <system>\nS\n</system>", "assistant: c", "user: d"]
    assert lost == ["input"]


# Calls and results.


def test_unsupported_call_ids_are_mapped_for_calls_and_results() -> None:
    """REQ-8: a pure function of the id."""
    body, losses = ask(Request(model="m", input=[user("q"), call("a:b/c"), output("a:b/c")]))
    id = body["messages"][1]["content"][0]["id"]
    assert id == outgoing_call_id("a:b/c") != "a:b/c"
    assert body["messages"][2]["content"][0]["tool_use_id"] == id
    assert not list(losses)
    assert len(outgoing_call_id("x" * 70)) <= 64


def test_repeated_call_id_in_a_later_turn_is_replaced() -> None:
    """Ids are unique over the whole conversation there."""
    lines, _ = sent(user("q"), call("a"), output("a", "1"), call("a"), output("a", "2"), call("a"), output("a", "3"))
    results = [line.partition("=")[2] for line in lines if "=" in line]
    calls = [line for line in lines if line.startswith("assistant")]
    assert results == ["1", "2", "3"]
    assert len(set(calls)) == 3


def test_arguments_are_always_an_object() -> None:
    """F-4."""
    items: list[ItemParam] = [
        user("q"),
        call("a", ""),
        call("b", '{"x": 1}'),
        call("c", "[1]"),
        call("d", '{"x": '),
        *map(output, "abcd"),
    ]
    lines, lost = sent(*items)
    assert lines[1] == "assistant: a(), b({'x': 1}), c({'arguments': '[1]'}), d({'arguments': '{\"x\": '})"
    assert lost == ["input[3].arguments", "input[4].arguments"]


def test_custom_call_has_one_string_as_input() -> None:
    """TOOL-1."""
    custom = CustomToolCallParam(call_id="a", name="patch", input="text")
    lines, lost = sent(user("q"), custom, CustomToolCallOutputParam(call_id="a", output="done"))
    assert (lines[1:], lost) == (["assistant: a({'input': 'text'})", "user: a=done"], [])


def test_images_in_results_are_kept() -> None:
    """TOOL-6."""
    lines, lost = sent(
        user("q"), call("a"), output("a", [InputText(text="see"), InputImageParam(image_url="https://i/1.png")])
    )
    assert (lines[-1], lost) == ("user: a=['see', 'image']", [])


@pytest.mark.parametrize(
    ("given", "is_error", "content"),
    [
        ("x", True, "x"),
        ([InputText(text="x")], True, [{"type": "text", "text": "x"}]),
        ("", True, "[tool error]"),
        (" \n", True, "[tool error]"),
        ([], True, "[tool error]"),
        ([PICTURE], None, [{"type": "text", "text": "[tool error]"}, SHOWN]),
        ([PICTURE, InputText(text="x")], None, [SHOWN, {"type": "text", "text": "[tool error] x"}]),
    ],
)
def test_failed_tool_is_marked_by_the_field_or_in_the_text(given: Any, is_error: bool | None, content: Any) -> None:
    """F-4: servers refuse the field together with other content than text, and without content."""
    body, losses = ask(Request(model="m", input=[user("q"), call("a"), output("a", given, extra=ERROR_MARK)]))
    [block] = body["messages"][2]["content"]
    assert (block.get("is_error"), block["content"]) == (is_error, content)
    assert list(losses) == []


def test_empty_result_has_no_content() -> None:
    body, _ = ask(Request(model="m", input=[user("q"), call("a"), output("a", [])]))
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


def test_cache_control_of_calls_and_results_is_sent() -> None:
    """E-4."""
    mark = {"cache_control": Raw(b'{"type":"ephemeral"}'), "note": Raw(b"1")}
    body, losses = ask(Request(model="m", input=[user("q"), call("a", extra=mark), output("a", extra=mark)]))
    assert [message["content"][0]["cache_control"] for message in body["messages"][1:]] == [{"type": "ephemeral"}] * 2
    assert [loss.path for loss in losses] == ["input[1].note", "input[2].note"]


# Thoughts.


def test_reasoning_of_this_server_is_unsealed_in_place_RSN2() -> None:
    redacted = ReasoningParam(summary=[], encrypted_content=seal_reasoning("messages", {"redacted": "data"}))
    dropped = ReasoningParam(
        summary=[], encrypted_content=seal_reasoning("messages", {"thinking": "kept", "signature": "t"})
    )
    items: list[ItemParam] = [user("q"), thought("one"), assistant("b"), redacted, dropped, call("a"), output("a")]
    lines, lost = sent(*items)
    assert (lines[1], lost) == ("assistant: <one|s>, b, <data>, <kept|t>, a()", [])


@pytest.mark.parametrize(
    "foreign",
    [
        thought("x", maker="another"),
        thought("x", signature=""),
        ReasoningParam(summary=[], content=[ReasoningText(text="x")]),
        ReasoningParam(summary=[], encrypted_content="gAAAAAB"),
        ReasoningParam(summary=[], encrypted_content=seal_reasoning("messages", {"signature": 7})),
        ReasoningParam(summary=[], encrypted_content=UNSET),
    ],
)
def test_foreign_or_unsigned_reasoning_is_omitted_RSN3(foreign: ReasoningParam) -> None:
    assert sent(user("q"), foreign, assistant("b"), user("c")) == (["user: q", "assistant: b", "user: c"], ["input[1]"])


def test_unsigned_thoughts_are_returned_if_supported_RSN2() -> None:
    wire = MessagesWire(unsigned_thinking=True)
    body, losses = _unjudged(Request(model="m", input=[user("q"), thought("x", signature=""), assistant("b")]), wire)
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "x", "signature": ""}
    assert losses == []


def test_thoughts_without_a_following_block_are_omitted_RSN3() -> None:
    """Servers refuse them at the end of a turn."""
    assert sent(user("q"), thought("x"), user("r"), assistant("b"), thought("y")) == (
        ["user: q, r", "assistant: b"],
        ["input[1]", "input[4]"],
    )
    lines, lost = sent(user("q"), call("a"), thought("x"), output("a"))
    assert (lines, lost) == (["user: q", "assistant: a()", "user: a=ok"], ["input[2]"])


def test_thoughts_precede_the_content_of_the_next_turn() -> None:
    lines, lost = sent(user("q"), assistant("a"), thought("x"), assistant("b"), user("r"))
    assert (lines[1], lost) == ("assistant: a, <x|s>, b", [])


# Blocks of this dialect alone.


@pytest.mark.parametrize(
    "name", ["web_search_with_citations", "interleaved_thinking", "redacted_thinking", "citations_of_documents"]
)
def test_server_content_returns_to_it_unchanged_RSN2(name: str) -> None:
    """Law (d): its own blocks, thoughts and citations too."""
    response = read_frames(frames_of(of(name).read_bytes())).response
    items: list[ItemParam] = [codec.decode_item_param(codec.encode(item)) for item in response.output]
    calls = [item.call_id for item in items if isinstance(item, FunctionCallParam)]
    body, losses = ask(
        Request(model="m", input=[user("q"), *items, *map(output, calls), user("r")], tools=REQUEST.tools)
    )
    written = msgspec.json.decode(of(name).with_suffix(".json").read_bytes())["content"]
    assert body["messages"][1]["content"] == written
    assert [loss.path for loss in losses] == []


def test_citation_of_another_server_is_a_loss() -> None:
    """F-4."""
    page = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "https://c", "title": "t"}
    place = {"type": "file_citation", "file_id": "f"}
    part = msgspec.json.encode({"type": "output_text", "text": "x", "annotations": [page, place]})
    message = MessageParam(role="assistant", content=[codec.decode_as(part, OutputTextParam)])
    assert sent(user("q"), message, user("r"))[1] == [
        "input[1].content[0].annotations[0]",
        "input[1].content[0].annotations[1]",
    ]


def _unjudged(request: Request, wire: MessagesWire) -> tuple[Any, list[str]]:
    body, losses = request_from_hub(request, wire)
    return msgspec.json.decode(body), [loss.path for loss in losses]
