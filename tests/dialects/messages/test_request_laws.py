"""Law (d) for requests: a Messages server gets a Messages client's request unchanged, other servers with losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.generate.conversations import requests

from antiphon.dialects import chat, responses
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.messages.request_in import request_to_hub
from antiphon.dialects.messages.request_out import request_from_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.errors import ApiError
from antiphon.protocol.request import Request

Draw = Callable[[st.SearchStrategy[Any]], Any]

# A server that supports everything.
WIRE = MessagesWire(
    system="inline",
    thinking="adaptive",
    efforts=("low", "medium", "high", "xhigh", "max"),
    json_output="output_config",
    strict_tools=True,
    fields=("temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "context_management"),
)
WORDS = st.sampled_from(["a", "Hello.", "wörld \u2028", '{"x": 1}', "two\n\nlines"])
MARKS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
)
TEXTS = st.builds(lambda text, mark: {"type": "text", "text": text, **mark}, WORDS, MARKS)
IMAGES = st.sampled_from(
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    ]
)
DOCUMENTS = st.sampled_from(
    [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "title": "t",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "wörds"},
            "citations": {"enabled": True},
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}, "context": "c"},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
    ]
)
CITED = {
    "type": "text",
    "text": "as they say",
    "citations": [
        {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "c", "encrypted_index": "e"},
        {"type": "char_location", "cited_text": "c", "document_index": 0},
    ],
}
SERVED: list[dict[str, Any]] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]
TOOLS = [
    {"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}},
    {"name": "patch", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
SETTINGS = st.fixed_dictionaries(
    {"model": st.just("m"), "max_tokens": st.sampled_from([1, 4096]), "tools": st.just(TOOLS)},
    optional={
        "system": st.lists(TEXTS, min_size=1, max_size=2),
        "stream": st.booleans(),
        "top_k": st.just(5),
        "stop_sequences": st.just(["END"]),
        "temperature": st.just(1),
        "metadata": st.just({"user_id": "u"}),
        "service_tier": st.sampled_from(["auto", "standard_only"]),
        "tool_choice": st.sampled_from(
            [{"type": "auto"}, {"type": "auto", "disable_parallel_tool_use": True}, {"type": "none"}]
        ),
        "thinking": st.just({"type": "disabled"}),
        "output_config": st.sampled_from(
            [
                {"effort": "low"},
                {"effort": "max", "task_budget": {"total": 9}},
                {"format": {"type": "json_schema", "schema": SCHEMA}},
            ]
        ),
        "context_management": st.just({"edits": []}),
    },
)


@st.composite
def bodies(draw: Draw) -> dict[str, Any]:
    """Conversations that the API accepts: results directly after calls, thoughts first, roles alternate."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": draw(st.lists(TEXTS | IMAGES | DOCUMENTS, min_size=1, max_size=3))}
    ]
    for turn in range(draw(st.integers(0, 3))):
        blocks: list[dict[str, Any]] = []
        if draw(st.booleans()):
            blocks.append(_thought(f"thought {turn}"))
        if draw(st.booleans()):
            blocks.append({"type": "redacted_thinking", "data": seal_reasoning("messages", {"redacted": "r"})})
        blocks += draw(st.lists(TEXTS | st.just(CITED), min_size=1, max_size=2))
        if draw(st.booleans()):
            blocks += SERVED
        calls = [f"toolu_{turn}_{number}" for number in range(draw(st.integers(0, 2)))]
        blocks += [{"type": "tool_use", "id": id, "name": "look", "input": {"at": id}, **draw(MARKS)} for id in calls]
        messages.append({"role": "assistant", "content": blocks})
        results: list[dict[str, Any]] = [_result(draw, id) for id in calls]
        results += draw(st.lists(TEXTS | IMAGES, min_size=0 if calls else 1, max_size=2))
        messages.append({"role": "user", "content": results})
        if draw(st.booleans()):
            messages.append({"role": "system", "content": [draw(TEXTS)]})
            messages.append({"role": "assistant", "content": [draw(TEXTS)]})
            messages.append({"role": "user", "content": [draw(TEXTS)]})
    return {**draw(SETTINGS), "messages": messages}


def _thought(text: str) -> dict[str, Any]:
    return {
        "type": "thinking",
        "thinking": text,
        "signature": seal_reasoning("messages", {"thinking": text, "signature": "s"}),
    }


def _result(draw: Draw, id: str) -> dict[str, Any]:
    content = draw(WORDS | st.lists(TEXTS, min_size=1, max_size=2) | st.lists(IMAGES, min_size=1, max_size=1))
    is_error = not isinstance(content, list) and draw(st.booleans())
    return {
        "type": "tool_result",
        "tool_use_id": id,
        "content": content,
        **({"is_error": True} if is_error else {}),
        **draw(MARKS),
    }


def opened(body: dict[str, Any]) -> dict[str, Any]:
    """The body for the server that sealed the thoughts."""
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] in OPENED:
                block |= OPENED[block["type"]]
    return body


def texts_in(value: Any) -> set[str]:
    match value:
        case {"type": "text", "text": str(text)}:
            return {text}
        case dict():
            return {text for member in value.values() for text in texts_in(member)}
        case list():
            return {text for member in value for text in texts_in(member)}
        case _:
            return set()


@given(bodies())
def test_request_of_a_messages_client_reaches_a_messages_server_unchanged(body: dict[str, Any]) -> None:
    """Law (d), RSN-2, E-4: cache marks, signatures, hosted blocks and settings are unchanged, and nothing is lost."""
    request, losses = request_to_hub(json.dumps(body).encode())
    sent, more = request_from_hub(request, WIRE)
    assert [*losses, *more] == []
    assert json.loads(sent) == opened(body)


@given(bodies())
def test_other_servers_get_every_text_or_a_loss_names_it(body: dict[str, Any]) -> None:
    """Law (d), F-4, RSN-3."""
    request, losses = request_to_hub(json.dumps(body).encode())
    assert list(losses) == []
    asked = [
        text for message in body["messages"] for text in texts_in(message["content"]) if message["role"] != "system"
    ]
    for dialect in (chat, responses):
        sent, lost = dialect.request_from_hub(request)
        texts = texts_of(json.loads(sent))
        assert [text for text in asked if text not in texts and text != "x"] == []
        if b"cache_control" in json.dumps(body).encode() and b"prompt_cache_breakpoint" not in sent:
            assert any("prompt_cache_breakpoint" in loss.path for loss in lost)
        if b"srvtoolu" in json.dumps(body["messages"]).encode():
            assert b"srvtoolu" in sent or any("server_tool_use" in loss.what for loss in lost)


@given(requests())
def test_server_body_survives_reading_and_writing(request: Request) -> None:
    """Law (d), hub → messages → hub → messages: the second time nothing is left to lose."""
    try:
        body, _ = request_from_hub(request, WIRE)
    except ApiError:
        assume(False)
    again, losses = request_to_hub(body)
    sent, more = request_from_hub(again, WIRE)
    assert [*losses, *more] == []
    assert json.loads(sent) == json.loads(body)


def texts_of(value: Any) -> str:
    """All texts of the body, joined."""
    match value:
        case str():
            return value
        case dict():
            return "\n".join(map(texts_of, value.values()))
        case list():
            return "\n".join(map(texts_of, value))
        case _:
            return ""


OPENED = {"thinking": {"signature": "s"}, "redacted_thinking": {"data": "r"}}
