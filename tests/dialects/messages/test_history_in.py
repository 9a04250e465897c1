"""A Messages client's conversation as items of the hub."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.messages.client_asking import read

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.messages.wire import block_from_item
from antiphon.errors import MissingField
from antiphon.protocol.content import (
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    UnknownAnnotation,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)

CACHED = {"cache_control": {"type": "ephemeral"}}
CACHE_EXTRA = {"prompt_cache_breakpoint": Raw(b'{"mode":"explicit","cache_control":{"type":"ephemeral"}}')}


def items_of(messages: list[dict[str, Any]], **members: Any) -> list[ItemParam]:
    request, losses = read(messages, **members)
    assert list(losses) == []
    assert isinstance(request.input, list)
    return request.input


def assistant_items(*blocks: dict[str, Any]) -> list[ItemParam]:
    return items_of([{"role": "assistant", "content": list(blocks)}])


def user_parts(*blocks: dict[str, Any]) -> Any:
    """The parts of one user message."""
    (message,) = items_of([{"role": "user", "content": list(blocks)}])
    assert isinstance(message, MessageParam)
    return message.content


def test_system_string_becomes_instructions() -> None:
    """E-4."""
    assert read(system="be brief")[0].instructions == "be brief"
    assert read(system="")[0].instructions is UNSET


def test_system_blocks_keep_their_cache_control() -> None:
    """E-4: cache marks are sent unchanged to a server of this dialect."""
    first, _ = items_of(
        [{"role": "user", "content": "x"}],
        system=[{"type": "text", "text": "a"}, {"type": "text", "text": "b", **CACHED}],
    )
    assert first == MessageParam(role="system", content=[InputText(text="a"), InputText(text="b", extra=CACHE_EXTRA)])


def test_system_message_may_have_only_settings() -> None:
    """E-5: such a message changes the effort of the following turns."""
    config = {"output_config": {"effort": "low"}}
    items = items_of([{"role": "user", "content": "x"}, {"role": "system", **config}])
    extra = {"messages:output_config": Raw(b'{"effort": "low"}'), "messages:system": Raw(b"true")}
    assert items[1] == MessageParam(role="system", content=[], extra=extra)


def test_messages_of_other_roles_must_have_content() -> None:
    with pytest.raises(MissingField) as raised:
        read([{"role": "user"}])
    assert raised.value.param == "messages[0].content"


def test_system_messages_in_the_middle_keep_their_place() -> None:
    """E-5."""
    added = {"type": "tool_addition", "tool": {"name": "t"}}
    items = items_of(
        [
            {"role": "user", "content": "x"},
            {"role": "system", "content": [added], "clear_at": "never"},
            {"role": "user", "content": "y"},
        ]
    )
    middle = items[1]
    assert isinstance(middle, MessageParam)
    assert middle.role == "system"
    assert middle.extra == {"messages:clear_at": Raw(b'"never"'), "messages:system": Raw(b"true")}
    assert middle.content == [UnknownContent(kind="messages:tool_addition", raw=Raw(json.dumps(added).encode()))]


def test_assistant_message_is_split_into_items_in_order() -> None:
    """E-1, RSN-1: thoughts, text and calls, each a separate item; interleaved thinking keeps its place."""
    items = assistant_items(
        {"type": "thinking", "thinking": "hm", "signature": "sig-1"},
        {"type": "redacted_thinking", "data": "sealed"},
        {"type": "text", "text": "I look."},
        {"type": "text", "text": "Twice."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "ä"}, **CACHED},
        {"type": "thinking", "thinking": "", "signature": "sig-2"},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        {"type": "text", "text": "So."},
    )
    first, second, redacted = (
        seal_reasoning("any-messages", content)
        for content in (
            {"thinking": "hm", "signature": "sig-1"},
            {"thinking": "", "signature": "sig-2"},
            {"redacted": "sealed"},
        )
    )
    assert items == [
        ReasoningParam(summary=[], content=[ReasoningText(text="hm")], encrypted_content=first),
        ReasoningParam(summary=[], encrypted_content=redacted),
        MessageParam(role="assistant", content=[OutputTextParam(text="I look."), OutputTextParam(text="Twice.")]),
        FunctionCallParam(call_id="toolu_1", name="look", arguments='{"at":"ä"}', extra=CACHE_EXTRA),
        ReasoningParam(summary=[], encrypted_content=second),
        FunctionCallParam(call_id="toolu_2", name="look", arguments="{}"),
        MessageParam(role="assistant", content=[OutputTextParam(text="So.")]),
    ]


def test_envelope_is_the_seal_as_it_is() -> None:
    """RSN-2: a signature or redacted data that this gateway wrote."""
    sealed = seal_reasoning("lab", {"x": 1})
    assert assistant_items(
        {"type": "thinking", "thinking": "hm", "signature": sealed}, {"type": "redacted_thinking", "data": sealed}
    ) == [
        ReasoningParam(summary=[], content=[ReasoningText(text="hm")], encrypted_content=sealed),
        ReasoningParam(summary=[], encrypted_content=sealed),
    ]


def test_unsigned_thinking_has_no_seal() -> None:
    """RSN-3."""
    assert assistant_items({"type": "thinking", "thinking": "hm", "signature": ""}) == [
        ReasoningParam(summary=[], content=[ReasoningText(text="hm")])
    ]


def test_tool_results_are_separated_from_user_text() -> None:
    """E-2: several in one message, in order, images kept, with the mark of a failed tool."""
    items = items_of(
        [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "one", "is_error": True, **CACHED},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [
                            {"type": "text", "text": "two"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
                            {"type": "tool_reference", "tool_name": "t"},
                        ],
                    },
                    {"type": "tool_result", "tool_use_id": "c"},
                    {"type": "text", "text": "go on"},
                ],
            }
        ]
    )
    assert items == [
        FunctionCallOutputParam(call_id="a", output="one", extra={**CACHE_EXTRA, "is_error": Raw(b"true")}),
        FunctionCallOutputParam(
            call_id="b",
            output=[
                InputText(text="two"),
                InputImageParam(image_url="data:image/png;base64,iVBO"),
                UnknownContent(
                    kind="messages:tool_reference", raw=Raw(b'{"type": "tool_reference", "tool_name": "t"}')
                ),
            ],
        ),
        FunctionCallOutputParam(call_id="c", output=""),
        MessageParam(role="user", content=[InputText(text="go on")]),
    ]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (
            {"type": "base64", "media_type": "image/png", "data": "iVBO"},
            InputImageParam(image_url="data:image/png;base64,iVBO"),
        ),
        ({"type": "url", "url": "https://x/y.png"}, InputImageParam(image_url="https://x/y.png")),
        ({"type": "file", "file_id": "file_1"}, InputImageParam(file_id="file_1")),
    ],
)
def test_images_are_decoded_from_three_sources(source: dict[str, Any], part: InputImageParam) -> None:
    assert user_parts({"type": "image", "source": source}) == [part]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (
            {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            InputFileParam(file_data="data:application/pdf;base64,JVBE", filename="t"),
        ),
        ({"type": "url", "url": "https://x/y.pdf"}, InputFileParam(file_url="https://x/y.pdf", filename="t")),
        ({"type": "file", "file_id": "file_1"}, InputFileParam(file_id="file_1", filename="t")),
    ],
)
def test_documents_are_decoded_from_three_sources(source: dict[str, Any], part: InputFileParam) -> None:
    assert user_parts({"type": "document", "source": source, "title": "t"}) == [part]


def test_document_of_text_is_its_text_with_the_block_beside_it() -> None:
    block = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "wörds"},
        "title": "t",
        "context": "c",
        "citations": {"enabled": True},
    }
    (part,) = user_parts({**block, **CACHED})
    assert isinstance(part, InputText)
    assert part.text == "t\nc\nwörds"
    assert part.extra
    assert json.loads(bytes(part.extra["messages:document"])) == block
    assert part.extra.keys() == {"messages:document", "messages:citations", *CACHE_EXTRA}


def test_document_members_are_kept_with_the_document() -> None:
    (part,) = user_parts(
        {
            "type": "document",
            "source": {"type": "url", "url": "u"},
            "citations": {"enabled": True},
            "context": "c",
            **CACHED,
        }
    )
    assert part == InputFileParam(
        file_url="u",
        extra={**CACHE_EXTRA, "messages:citations": Raw(b'{"enabled": true}'), "messages:context": Raw(b'"c"')},
    )


@pytest.mark.parametrize(
    "block",
    [
        {"type": "search_result", "source": "s", "title": "t", "content": []},
        {"type": "image", "source": {"type": "newer", "x": 1}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}, "title": "t"},
    ],
)
def test_native_blocks_are_passed_through(block: dict[str, Any]) -> None:
    """ITEM-5."""
    (part,) = user_parts(block)
    assert isinstance(part, UnknownContent)
    assert (part.kind, json.loads(bytes(part.raw))) == (f"messages:{block['type']}", block)


def test_blocks_of_hosted_tools_become_items_in_place() -> None:
    """ITEM-5: calls that the server ran itself, between the model's texts before and after."""
    used = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    result_block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    before, use, result, after = assistant_items(
        {"type": "text", "text": "a"}, used, result_block, {"type": "text", "text": "b"}
    )
    assert isinstance(before, MessageParam)
    assert isinstance(after, MessageParam)
    assert isinstance(use, UnknownItem)
    assert isinstance(result, UnknownItem)
    assert (use.kind, result.kind) == ("messages:server_tool_use", "messages:web_search_tool_result")
    assert [json.loads(bytes(block_from_item(item) or b"")) for item in (use, result)] == [used, result_block]


def test_citations_are_annotations_of_the_whole_text() -> None:
    web = {"type": "web_search_result_location", "url": "u", "title": None, "cited_text": "c", "encrypted_index": "e"}
    foreign = {"type": "web_search_result_location", "url": "v", "title": "t", "cited_text": "", "encrypted_index": ""}
    place = {"type": "char_location", "cited_text": "c", "document_index": 0}
    (message,) = assistant_items({"type": "text", "text": "abc", "citations": [web, foreign, place, {}]})
    assert isinstance(message, MessageParam)
    part = message.content[0]
    assert isinstance(part, OutputTextParam)
    assert part.annotations == [
        UrlCitation(
            start_index=0,
            end_index=3,
            url="u",
            title="",
            extra={"cited_text": Raw(b'"c"'), "encrypted_index": Raw(b'"e"')},
        ),
        UrlCitation(start_index=0, end_index=3, url="v", title="t"),
        UnknownAnnotation(
            kind="messages:char_location",
            raw=Raw(b'{"type":"messages:char_location","cited_text":"c","document_index":0}'),
        ),
        UnknownAnnotation(kind="messages:citation", raw=Raw(b'{"type":"messages:citation"}')),
    ]


def test_empty_content_is_an_empty_message() -> None:
    assert items_of([{"role": "user", "content": []}, {"role": "assistant", "content": ""}]) == [
        MessageParam(role="user", content=[]),
        MessageParam(role="assistant", content=""),
    ]


def test_message_field_without_message_item_is_a_loss() -> None:
    """F-4."""
    result = {"type": "tool_result", "tool_use_id": "a", "content": "one"}
    _, losses = read([{"role": "user", "content": [result], "acme": 1}])
    assert [loss.path for loss in losses] == ["messages[0].acme"]


def test_item_of_a_native_block_in_the_history_has_no_id() -> None:
    """Only items of an answer have an id and a status."""
    used = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    (item,) = assistant_items(used)
    assert isinstance(item, UnknownItem)
    assert json.loads(bytes(item.raw)) == {"type": "messages:server_tool_use", "block": used}
