"""An editor's messages as items, by the rows of the document on it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.vscode.reading import ASSISTANT, CALL, RESULT, SYSTEM, USER, data, items_of, message, read

from antiphon.errors import InvalidValue, MissingField
from antiphon.profiles import load_profile
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, MessageParam, ReasoningParam
from antiphon.protocol.request import input_items

PNG = b"\x89PNG"
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
CACHE_MARK = {"mode": "explicit", "cache_control": {"type": "ephemeral"}}


def message_item(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def test_roles_are_numbers_and_content_is_a_string_or_parts() -> None:
    """A-1, A-2, C-2: the content's type follows from the role."""
    assert items_of(
        message(USER, "a", "b"), message(ASSISTANT, "c"), {"role": 1, "content": "d"}, {"role": 1, "content": ["e"]}
    ) == [
        message_item("user", "a", "b"),
        message_item("assistant", "c"),
        {"type": "message", "role": "user", "content": "d"},
        message_item("user", "e"),
    ]


@pytest.mark.parametrize("role", [0, 7, "robot", None])
def test_unknown_role_is_the_user_role(role: Any) -> None:
    """A-1."""
    request, loss_paths = read(message(role, "hi"))
    [item] = input_items(request)
    assert isinstance(item, MessageParam)
    assert (item.role, loss_paths) == ("user", ["messages[0].role"])


def test_name_is_dropped_with_a_loss() -> None:
    """A-1."""
    request, loss_paths = read({**message(USER, "hi"), "name": "ann"})
    assert loss_paths == ["messages[0].name"]
    assert b"ann" not in repr(request).encode()


def test_user_data_becomes_image_text_or_file_by_its_media_type() -> None:
    """A-3."""
    pdf = base64.b64encode(b"%PDF").decode()
    [item] = items_of(
        message(
            USER,
            data(PNG, "image/png"),
            data("é".encode(), "text/plain; charset=utf-8"),
            data(b"%PDF", "application/pdf"),
        )
    )
    assert item["content"] == [
        {"type": "input_image", "image_url": PNG_URL},
        {"type": "input_text", "text": "é"},
        {"type": "input_file", "file_data": f"data:application/pdf;base64,{pdf}"},
    ]


@pytest.mark.parametrize("mime_type", ["application/json", "application/ld+json", "Application/JSON"])
def test_json_data_is_text_or_a_file_by_choice(mime_type: str) -> None:
    """A-3."""
    part = message(USER, data(b'{"a":1}', mime_type))
    file = base64.b64encode(b'{"a":1}').decode()
    assert items_of(part)[0]["content"] == [{"type": "input_text", "text": '{"a":1}'}]
    [item] = items_of(part, choices={"json": "file"})
    assert item["content"] == [{"type": "input_file", "file_data": f"data:{mime_type};base64,{file}"}]


def test_assistant_data_becomes_text_or_a_note() -> None:
    """A-3."""
    request, loss_paths = read(
        message(USER, "draw"),
        message(ASSISTANT, data(b"ok", "text/plain"), data(b"{}", "application/json"), data(PNG, "image/png")),
    )
    assert loss_paths == ["messages[1].content[2]"]
    item = input_items(request)[1]
    assert isinstance(item, MessageParam)
    assert [getattr(part, "text", part) for part in item.content] == ["ok", "{}", "[Binary data: image/png]"]


@pytest.mark.parametrize("form", [[104, 105], {"0": 104, "1": 105}, {"type": "Buffer", "data": [104, 105]}, "aGk="])
def test_data_bytes_are_decoded_from_base64_or_javascript_arrays(form: Any) -> None:
    """A-3."""
    [item] = items_of(message(USER, {"mimeType": "text/plain", "data": form}))
    assert item["content"] == [{"type": "input_text", "text": "hi"}]


@pytest.mark.parametrize("form", ["a", "%%%%", [256], ["a"], {"1": 1}, 5, None])
def test_invalid_data_bytes_are_refused_with_their_path(form: Any) -> None:
    """ERR-3."""
    with pytest.raises(InvalidValue) as caught:
        read(message(USER, {"mimeType": "text/plain", "data": form}))
    assert caught.value.param == "messages[0].content[0].data"


def test_invalid_utf8_text_is_a_loss() -> None:
    """A-3, F-4."""
    request, loss_paths = read(message(USER, data(b"a\xffb", "text/plain"), data("\ufffd".encode(), "text/plain")))
    assert loss_paths == ["messages[0].content[0].data"]
    assert "a\ufffdb" in repr(request.input)


def test_call_becomes_an_item_with_its_input_as_arguments() -> None:
    """A-4: and the text around it keeps its place."""
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"path":"a.py"}'}
    assert items_of(message(USER, "x"), message(ASSISTANT, "before", CALL, "after", {**CALL, "input": None})) == [
        message_item("user", "x"),
        message_item("assistant", "before"),
        call,
        message_item("assistant", "after"),
        {**call, "arguments": "{}"},
    ]


def test_calls_become_text_for_servers_without_calls() -> None:
    """A-4, D-2: the same conversation, prepared by a profile."""
    request, _ = read(message(USER, "x"), message(ASSISTANT, "Looking.", CALL), message(USER, RESULT))
    prepared, _ = load_profile("vercel-ai-gateway-2026-01").apply_quirks(request)
    sent_input = repr(prepared.input)
    assert '[Tool Call: look({"path":"a.py"}) -> call_id: call_1]' in sent_input
    assert "[Tool Result for call_1]: done" in sent_input
    assert not any(isinstance(item, FunctionCallParam | FunctionCallOutputParam) for item in input_items(prepared))


def test_result_is_a_separate_item_between_the_texts() -> None:
    """A-5."""
    result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    items = items_of(message(USER, "x"), message(ASSISTANT, CALL), message(USER, "before", RESULT, "after"))
    assert items[2:] == [message_item("user", "before"), result, message_item("user", "after")]


def test_result_parts_are_joined_by_their_rules() -> None:
    """A-5: text, JSON, binary, a tree of prompt-tsx, a plain string, any value."""
    tree = {
        "node": {
            "type": 1,
            "ctor": 2,
            "children": [
                {"type": 2, "text": "one", "lineBreakBefore": False},
                {"type": 1, "ctor": 1, "children": [{"type": 2, "text": "two", "lineBreakBefore": True}]},
                {"type": 1, "ctor": 3, "props": {"src": "…"}},
                {"type": 3, "value": {}},
            ],
        }
    }
    content = [
        {"$mid": 21, "value": "text"},
        data("é".encode(), "text/x"),
        data(b"[1]", "application/json"),
        data(b"\x00", "application/zip"),
        {"value": tree},
        {"value": {"no": "tree"}},
        "bare",
        {"value": "x", "unit": "C"},
        [1, None],
    ]
    request, loss_paths = read(
        message(USER, "x"), message(ASSISTANT, CALL), message(USER, {"callId": "call_1", "content": content})
    )
    result = input_items(request)[2]
    assert isinstance(result, FunctionCallOutputParam)
    assert result.output == "\n".join(
        [
            *("text", "é", "[1]", "[Binary data: application/zip]", "one\ntwo[Binary data: image]", '{"no":"tree"}'),
            *("bare", '{"value":"x","unit":"C"}', "[1,null]"),
        ]
    )
    assert loss_paths == ["messages[2].content[0].content[3]"]


def test_image_in_a_result_is_kept_or_noted_by_choice() -> None:
    """A-5, TOOL-6."""
    result = {"callId": "call_1", "content": ["a", {"value": "b"}, data(PNG, "image/png"), "c"], "isError": True}
    conversation = (message(USER, "x"), message(ASSISTANT, CALL), message(USER, result))
    assert items_of(*conversation)[2]["output"] == [
        {"type": "input_text", "text": "a\nb"},
        {"type": "input_image", "image_url": PNG_URL},
        {"type": "input_text", "text": "c"},
    ]
    request, _ = read(*conversation, choices={"imagesInResults": "note"})
    noted = input_items(request)[2]
    assert isinstance(noted, FunctionCallOutputParam)
    assert noted.output == "a\nb\n[Binary data: image/png]\nc"
    assert {name: bytes(raw) for name, raw in (noted.extra or {}).items()} == {"is_error": b"true"}


def test_deep_tree_is_flattened_without_recursion() -> None:
    """A-5."""
    tree: dict[str, Any] = {"type": 2, "text": "leaf"}
    for _ in range(120):
        tree = {"type": 1, "children": [tree]}
    result = {"callId": "call_1", "content": [{"value": {"node": tree}}]}
    assert items_of(message(USER, "x"), message(ASSISTANT, CALL), message(USER, result))[2]["output"] == "leaf"


def test_thinking_pieces_are_one_item_with_their_seal() -> None:
    """RSN-2: pieces of one id are one thought."""
    items = items_of(
        message(USER, "x"),
        message(
            ASSISTANT,
            {"value": "I ", "id": "rs_1"},
            {"value": ["think", "."], "id": "rs_1", "metadata": {"signature": "sealed"}},
            {"type": "thinking", "value": "Other.", "id": "rs_2"},
            {"type": "thinking", "value": 5, "metadata": {"signature": 5}},
            {"type": "thinking", "metadata": {"signature": "only"}},
            {"type": "thinking", "value": "more"},
            "So.",
            {"type": "thinking", "value": "again"},
        ),
    )
    assert items[1:] == [
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "I think."}],
            "encrypted_content": "sealed",
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Other."}]},
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "more"}],
            "encrypted_content": "only",
        },
        message_item("assistant", "So."),
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "again"}]},
    ]


def test_cache_mark_is_put_on_the_preceding_part() -> None:
    """E-4: only servers that support it receive it."""
    mark = data(b"ephemeral", "cache_control")
    items = items_of(message(USER, "a", "b", mark), message(ASSISTANT, "c", CALL, mark))
    assert items[0]["content"][1]["prompt_cache_breakpoint"] == CACHE_MARK
    assert "prompt_cache_breakpoint" not in items[0]["content"][0]
    assert items[2]["prompt_cache_breakpoint"] == CACHE_MARK


def test_unsupported_editor_marks_are_losses() -> None:
    """F-4."""
    marks = [data(b"x", "stateful_marker"), data(b"forever", "cache_control"), data(b"ephemeral", "cache_control")]
    _, loss_paths = read(message(USER, *marks), message(USER, {"type": "thinking", "value": "t"}, marks[2]))
    assert loss_paths == [
        "messages[0].content[0]",
        "messages[0].content[1]",
        "messages[0].content[2]",
        "messages[1].content[1]",
    ]


def test_unknown_parts_are_losses_with_their_paths() -> None:
    """F-4, REQ-7."""
    parts = [{"type": "hologram"}, {"uri": "x"}, {"value": "a", "new": 1}, {"value": {"no": "text"}}]
    _, loss_paths = read({**message(USER, *parts), "mood": "good"}, future=1, choices={"odd": 1}, options={"odd": 1})
    expected = ["messages[0].mood", *(f"messages[0].content[{at}]" for at in (0, 1)), "messages[0].content[2].new"]
    assert loss_paths == ["body.future", "choices.odd", *expected, "messages[0].content[3]", "options.odd"]


def test_part_with_type_text_is_text() -> None:
    assert items_of(message(USER, {"type": "text", "value": {"a": 1}}, "")) == [message_item("user", '{"a":1}')]


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({"type": "text"}, "value"),
        ({"type": "data", "data": ""}, "mimeType"),
        ({"mimeType": "text/plain"}, "data"),
        ({"callId": "c"}, "name"),
        ({"type": "tool_call", "name": "n"}, "callId"),
        ({"type": "tool_result", "content": []}, "callId"),
        ({"type": "tool_result", "callId": "c"}, "content"),
    ],
)
def test_missing_members_of_parts_are_refused_with_their_paths(part: Any, path: str) -> None:
    """ERR-3."""
    with pytest.raises(MissingField) as caught:
        read(message(USER, part))
    assert caught.value.param == f"messages[0].content[0].{path}"


def test_assistant_data_without_bytes_is_refused() -> None:
    """ERR-3."""
    for part in ({"mimeType": "text/plain"}, {"mimeType": "cache_control"}):
        with pytest.raises(MissingField):
            read(message(ASSISTANT, part))


# A-6, C-1: system prompts

PROMPT = "You are an expert programmer.\nFollow the instructions."
TURN = message(USER, "hi")


def test_leading_system_messages_become_instructions() -> None:
    """A-6, C-1: all leading ones, joined."""
    request, loss_paths = read(
        message(SYSTEM, "One ", "prompt."), {"role": 3, "content": ["Two."]}, {"role": 3, "content": "Three."}, TURN
    )
    assert (request.instructions, loss_paths) == ("One prompt.\n\nTwo.\n\nThree.", [])
    assert len(input_items(request)) == 1


def test_later_system_message_keeps_its_place() -> None:
    """C-1, E-5: the order is kept."""
    request, _ = read(message(SYSTEM, "First."), TURN, message(SYSTEM, "Later."), TURN)
    assert request.instructions == "First."
    assert [getattr(item, "role", "") for item in input_items(request)] == ["user", "system", "user"]


def test_system_prompt_with_media_stays_a_message() -> None:
    """C-1: none of its content is lost."""
    items = items_of(message(SYSTEM, "Look:", data(PNG, "image/png")), message(SYSTEM, "First."), TURN)
    assert [item["role"] for item in items] == ["system", "system", "user"]


def test_cache_mark_in_a_system_prompt_is_a_loss() -> None:
    """A-6, E-4."""
    request, loss_paths = read(message(SYSTEM, PROMPT, data(b"ephemeral", "cache_control")), TURN)
    assert (request.instructions, loss_paths) == (PROMPT, ["messages[0].content[1]"])


@pytest.mark.parametrize(
    "prompt",
    [
        PROMPT,
        "You are the assistant.",
        "You are Ada, a helpful assistant.",
        "You are a careful and thorough AI, made to help.",
        "# System\n\nYou are a model.",
        "<instructions>\nYou are an agent.",
        "Your task is to help.",
        "Follow the user's requirements carefully.",
    ],
)
def test_leading_assistant_message_with_a_prompt_becomes_instructions(prompt: str) -> None:
    """C-1."""
    request, loss_paths = read(message(ASSISTANT, prompt), TURN)
    assert (request.instructions, loss_paths) == (prompt, [])
    assert len(input_items(request)) == 1


@pytest.mark.parametrize(
    "conversation",
    [
        [message(ASSISTANT, "Hello! How can I help you today?"), TURN],
        [message(ASSISTANT, "You are right, that was wrong."), TURN],
        [message(ASSISTANT, "You are welcome!"), TURN],
        [message(ASSISTANT, "You are a genius!"), TURN],
        [message(ASSISTANT, "You are Ann, and you live in Rome."), TURN],
        [message(ASSISTANT, PROMPT)],
        [message(ASSISTANT, PROMPT), message(ASSISTANT, "x"), TURN],
        [message(ASSISTANT, PROMPT, CALL), message(USER, RESULT)],
        [message(ASSISTANT, PROMPT, data(PNG, "image/png")), TURN],
        [TURN, message(ASSISTANT, PROMPT), TURN],
        [message(ASSISTANT, PROMPT), TURN, message(SYSTEM, "Be kind.")],
    ],
)
def test_real_assistant_turn_is_no_system_prompt(conversation: list[Any]) -> None:
    """C-1."""
    request, _ = read(*conversation)
    assert not request.instructions
    assert any(getattr(item, "role", "") == "assistant" for item in input_items(request))


@pytest.mark.parametrize("first", [message(ASSISTANT, ""), {"role": 2, "content": ""}])
def test_assistant_turn_without_text_is_no_system_prompt(first: Any) -> None:
    """C-1."""
    assert not read(first, TURN, choices={"leadingAssistant": "system"})[0].instructions


def test_prompt_detection_is_fast_for_any_text() -> None:
    """C-1: a pattern with many possible matches would take years for these."""
    for text in ("##\n" * 5000, "<a>" * 5000, "You are a " + "very " * 5000, "\n" * 5000 + "You are Ann" * 500):
        assert not read(message(ASSISTANT, text), TURN)[0].instructions


def test_choice_overrides_the_role_of_a_leading_assistant_message() -> None:
    """C-1."""
    terse = message(ASSISTANT, "Be brief.")
    assert read(terse, TURN, choices={"leadingAssistant": "system"})[0].instructions == "Be brief."
    assert not read(message(ASSISTANT, PROMPT), TURN, choices={"leadingAssistant": "turn"})[0].instructions


PIECES = st.sampled_from(["a", "b", CALL, RESULT, {"value": "t", "id": "rs"}, data(b"x", "text/plain")])


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.lists(PIECES, min_size=1, max_size=4)), min_size=1, max_size=6)
)
def test_all_content_is_kept_in_order(conversation: list[tuple[int, list[Any]]]) -> None:
    """E-5, A-5: the order is kept exactly, no content is lost; instructions come from the start."""
    request, loss_paths = read(*(message(role, *parts) for role, parts in conversation))
    assert loss_paths == []
    contents: list[str] = list((request.instructions or "").replace("\n\n", ""))
    for item in input_items(request):
        match item:
            case MessageParam(content=content):
                contents += [getattr(part, "text", "") for part in content]
            case FunctionCallParam():
                contents.append("call")
            case FunctionCallOutputParam():
                contents.append("result")
            case ReasoningParam():
                contents += [letter for part in item.content or () for letter in getattr(part, "text", "")]
    assert contents == [_name(part) for _, parts in conversation for part in parts]


def _name(part: str | dict[str, Any]) -> str:
    if isinstance(part, str):
        return part
    if "callId" in part:
        return "result" if "content" in part else "call"
    return "x" if "data" in part else "t"


def test_members_of_the_editor_beside_a_result_part_are_left_out() -> None:
    """A-5: a part with every member that the editor writes is still text or data."""
    beside = {"type": "text", "$mid": 21, "audience": ["user"]}
    content = [{"value": "text", **beside}, {**data(b"[1]", "application/json"), **beside}]
    request, loss_paths = read(
        message(USER, "x"), message(ASSISTANT, CALL), message(USER, {"callId": "call_1", "content": content})
    )
    result = input_items(request)[2]
    assert isinstance(result, FunctionCallOutputParam)
    assert (result.output, loss_paths) == ("text\n[1]", [])
