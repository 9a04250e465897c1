"""What only other APIs know, over sockets to a strict server with the profile `openai`: its nearest form, or a loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.running import one_upstream, running

from antiphon import testing
from antiphon.testing import ResponsesServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

MESSAGES, CHAT, GEMINI, RESPONSES = (
    "/v1/messages",
    "/v1/chat/completions",
    "/v1beta/models/m:generateContent",
    "/v1/responses",
)
HELLO = turn(testing.text("Hello."))
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
IMAGE = {"mimeType": "image/png", "data": "iVBORw0KGgo="}
WEB_CITATION = {
    "type": "web_search_result_location",
    "url": "https://a.example/",
    "title": "A",
    "cited_text": "text",
    "encrypted_index": "x",
}
URL_CITATION = {"type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 5}


def messages(*blocks: Any, **members: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": list(blocks) or "Hi"}], **members}


def with_tools(*tools: Any, **members: Any) -> dict[str, Any]:
    return messages(tools=list(tools), **members)


def with_result(*blocks: Any) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": list(blocks)}
    asked = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [call]}]
    return with_tools(TOOL, messages=[*asked, {"role": "user", "content": [result]}])


def gemini(*parts: Any, **members: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "Hi"}, *parts]}], **members}


def declared(**members: Any) -> dict[str, Any]:
    return gemini(tools=[{"functionDeclarations": [{"name": "look", **members}]}])


def chat(*parts: Any, **members: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, *parts]}],
        **members,
    }


def responses(*parts: Any) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}, *parts]}]}


DOCUMENT = {"type": "document", "source": {"type": "url", "url": "https://a.example/a.pdf"}, "context": "c"}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://a.example/",
    "title": "A",
    "content": [{"type": "text", "text": "Found."}],
}
CITED = {"role": "assistant", "content": [{"type": "text", "text": "Hello", "citations": [WEB_CITATION]}]}
CITED_CHAR = {
    "role": "assistant",
    "content": [{"type": "text", "text": "Hello", "citations": [{"type": "char_location", "cited_text": "x"}]}],
}
TOOL_SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
# (path of the endpoint, body, words of losses, members that the server gets)
CASES: dict[str, tuple[str, dict[str, Any], list[str], dict[str, Any]]] = {
    "eager_input_streaming": (
        MESSAGES,
        with_tools({**TOOL, "eager_input_streaming": True}),
        ["tools[0].eager_input_streaming"],
        {},
    ),
    "input_examples": (
        MESSAGES,
        with_tools({**TOOL, "input_examples": [{}, {"a": 1}]}),
        ["tools[0].input_examples"],
        {},
    ),
    "unknown member of a tool": (MESSAGES, with_tools({**TOOL, "next": 1}), ["tools[0].next"], {}),
    "allowed_callers": (
        MESSAGES,
        with_tools({**TOOL, "allowed_callers": ["code_execution_20250825"]}),
        ["tools[0].allowed_callers"],
        {},
    ),
    "citations of a document": (
        MESSAGES,
        messages({**DOCUMENT, "context": None, "citations": {"enabled": True}}),
        ["input[0].content[0].citations"],
        {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_file", "file_url": "https://a.example/a.pdf"}],
                }
            ]
        },
    ),
    "context": (MESSAGES, messages(DOCUMENT), ["input[0].content[0].context"], {}),
    "tool_reference": (
        MESSAGES,
        with_result({"type": "tool_reference", "tool_name": "look"}),
        ["input[2].output[0]"],
        {},
    ),
    "search_result in a result": (MESSAGES, with_result(SEARCH_RESULT), [], {}),
    "search_result": (
        MESSAGES,
        messages(SEARCH_RESULT),
        [],
        {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "A\nhttps://a.example/\nFound."}],
                }
            ]
        },
    ),
    "cited_text and encrypted_index": (
        MESSAGES,
        messages(messages=[{"role": "user", "content": "Hi"}, CITED, {"role": "user", "content": "More"}]),
        ["annotations[0].cited_text", "annotations[0].encrypted_index"],
        {},
    ),
    "char_location": (
        MESSAGES,
        messages(messages=[{"role": "user", "content": "Hi"}, CITED_CHAR, {"role": "user", "content": "More"}]),
        ["annotations[0]"],
        {},
    ),
    "citations that a Responses client sends back": (
        RESPONSES,
        {
            "model": "m",
            "input": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [
                        {
                            "type": "output_text",
                            "text": "Hello",
                            "annotations": [{**URL_CITATION, "cited_text": "text", "encrypted_index": "x"}],
                        }
                    ],
                },
                {"role": "user", "content": "More"},
            ],
        },
        ["annotations[0].cited_text", "annotations[0].encrypted_index"],
        {},
    ),
    "defer_loading without its search": (
        MESSAGES,
        with_tools(TOOL_SEARCH, {**TOOL, "defer_loading": True}),
        ["tools[0]", "tools[1].defer_loading"],
        {},
    ),
    "defer_loading of a Responses client": (
        RESPONSES,
        {"model": "m", "input": "Hi", "tools": [{"type": "function", "name": "look", "defer_loading": True}]},
        ["tools[0].defer_loading"],
        {},
    ),
    "tool search without a version": (
        MESSAGES,
        with_tools({"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"}, TOOL),
        ["tools[0]"],
        {},
    ),
    "choice of a tool that was lost": (
        MESSAGES,
        with_tools(
            {"type": "web_fetch_20250910", "name": "web_fetch"},
            TOOL,
            tool_choice={"type": "tool", "name": "web_fetch"},
        ),
        ["tools[0]", "tool_choice"],
        {"tool_choice": None},
    ),
    "required call of a tool of Gemini": (
        GEMINI,
        gemini(tools=[{"codeExecution": {}}], toolConfig={"functionCallingConfig": {"mode": "ANY"}}),
        ["tools[0]", "tool_choice"],
        {"tool_choice": None, "tools": None},
    ),
    "response": (GEMINI, declared(response={"type": "STRING"}), ["tools[0].response"], {}),
    "behavior": (GEMINI, declared(behavior="BLOCKING"), ["tools[0].behavior"], {}),
    "video of Gemini": (GEMINI, gemini({"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}), ["content[1]"], {}),
    "mediaResolution": (
        GEMINI,
        gemini({"inlineData": IMAGE, "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}}),
        ["content[1].mediaResolution"],
        {},
    ),
    "videoMetadata": (
        GEMINI,
        gemini(
            {"fileData": {"fileUri": "https://a.example/a.mp4", "mimeType": "video/mp4"}, "videoMetadata": {"fps": 1}}
        ),
        ["input[0].content[1]"],
        {},
    ),
    "video_url": (
        CHAT,
        chat({"type": "video_url", "video_url": {"url": "https://a.example/a.mp4"}}),
        ["input[0].content[1]"],
        {},
    ),
    "input_video": (
        RESPONSES,
        responses({"type": "input_video", "video_url": "https://a.example/a.mp4"}),
        ["input[0].content[1]"],
        {},
    ),
    "input_audio": (
        CHAT,
        chat({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        ["input[0].content[1]"],
        {},
    ),
    "empty system message of a chat client": (
        CHAT,
        {"model": "m", "messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]},
        [],
        {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            "instructions": None,
        },
    ),
    "empty system blocks of a Messages client": (
        MESSAGES,
        messages(system=[{"type": "text", "text": ""}]),
        [],
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
    ),
    "system message with only settings": (
        MESSAGES,
        messages(messages=[{"role": "user", "content": "Hi"}, {"role": "system", "output_config": {"effort": "low"}}]),
        ["input[1].output_config"],
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
    ),
    "result without content": (MESSAGES, with_result(), [], {}),
}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_openai_gets_only_members_that_it_knows(name: str, is_stream: bool) -> None:
    path, body, losses, members = CASES[name]
    if is_stream and path == GEMINI:
        path = "/v1beta/models/m:streamGenerateContent?alt=sse"
    elif is_stream:
        body = {**body, "stream": True}
    with ResponsesServer([HELLO], strict_fields=True) as upstream:
        config = one_upstream(upstream.base_url, dialect="responses", profile="openai")
        with running(config) as gateway:
            answer = gateway.post(body, path)
        [received] = upstream.received
    assert answer.status_code == 200, answer.text
    assert "Hello." in answer.text
    reported = answer.headers.get("antiphon-losses", "")
    assert [loss for loss in losses if loss not in reported] == [], reported
    assert bool(reported) == bool(losses), reported
    sent = received.json
    assert {member: sent.get(member) for member in members} == members, json.dumps(sent)
