"""Requests that are refused before a model is asked, in every client dialect, over sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.api.askers import CHAT, GEMINI, MESSAGES
from tests.running import one_upstream, running

from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

RESPONSES_PATH = "/v1/responses"
RESPONSES_BODY = {"model": "mock-1", "input": "Say hello."}
RESPONSES_TOOLS = {"tools": [{"type": "function", "name": "get_weather"}]}
OTHER_TOOL = {"type": "function", "name": "get_time"}
CHAT_TOOL = {"type": "function", "function": {"name": "get_time"}}
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [OTHER_TOOL]}
CHAT_ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CHAT_TOOL]}}


def gemini_mode(*names: str) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": list(names)}}}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RESPONSES_PATH, {**RESPONSES_BODY, "tool_choice": "required"}),
        (RESPONSES_PATH, {**RESPONSES_BODY, **RESPONSES_TOOLS, "tool_choice": OTHER_TOOL}),
        (RESPONSES_PATH, {**RESPONSES_BODY, **RESPONSES_TOOLS, "tool_choice": ALLOWED}),
        (RESPONSES_PATH, {**RESPONSES_BODY, "tool_choice": {"type": "web_search"}}),
        (RESPONSES_PATH, {**RESPONSES_BODY, "tool_choice": "required", "background": True}),
        (RESPONSES_PATH, {**RESPONSES_BODY, **RESPONSES_TOOLS, "tool_choice": OTHER_TOOL, "background": True}),
        (CHAT.path, {**CHAT.asked, "tool_choice": "required"}),
        (CHAT.path, {**CHAT.asked, **CHAT.tools, "tool_choice": CHAT_TOOL}),
        (CHAT.path, {**CHAT.asked, **CHAT.tools, "tool_choice": CHAT_ALLOWED}),
        (CHAT.path, {**CHAT.asked, **CHAT.tools, "function_call": {"name": "get_time"}}),
        (MESSAGES.path, {**MESSAGES.asked, "tool_choice": {"type": "any"}}),
        (MESSAGES.path, {**MESSAGES.asked, **MESSAGES.tools, "tool_choice": {"type": "tool", "name": "get_time"}}),
        (GEMINI.path, {**GEMINI.asked, **gemini_mode()}),
        (GEMINI.path, {**GEMINI.asked, **GEMINI.tools, **gemini_mode("get_time")}),
        (GEMINI.path, {**GEMINI.asked, **GEMINI.tools, **gemini_mode("get_weather", "get_time")}),
    ],
)
def test_choice_of_a_tool_that_is_not_offered_is_refused(path: str, body: Any, is_stream: bool) -> None:
    """TOOL-2: 400 `invalid_value`, which SDKs do not retry."""
    if is_stream and path == GEMINI.path:
        path = GEMINI.stream_path
    elif is_stream:
        body = {**body, "stream": True}
    with ChatServer([]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(body, path)
        assert upstream.received == []
    error = answer.json()["error"]
    assert answer.status_code == 400
    if "details" in error:
        assert error["details"][0]["reason"] == "invalid_value"
        assert error["details"][0]["metadata"] == {"param": "tool_choice"}
        assert error["message"].startswith("toolConfig.functionCallingConfig")
    else:
        assert error["code"] == "invalid_value"
        assert error.get("param", "tool_choice") == "tool_choice"
        assert error["message"].startswith("tool_choice")
    assert ("'get_time' is not offered; expected one of 'get_weather'" in error["message"]) == ("tools" in body)


RESPONSES_MESSAGE = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "", "text": "Hi"}]}
RESPONSES_RESULT = {"type": "function_call_output", "call_id": "c", "output": [{"type": ""}]}
EMPTY_PART = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "", "text": "Hi"}]}
EMPTY_RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": ""}]}]}


@pytest.mark.parametrize("server", ["responses", "chat", "messages", "gemini", "ollama"])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (RESPONSES_PATH, {"model": "m", "input": [RESPONSES_MESSAGE]}, "input[0].content[1].type"),
        (RESPONSES_PATH, {"model": "m", "input": [RESPONSES_RESULT]}, "input[0].output[0].type"),
        (CHAT.path, {**CHAT.asked, "messages": [EMPTY_PART]}, "messages[0].content[1].type"),
        (MESSAGES.path, {**MESSAGES.asked, "messages": [EMPTY_PART]}, "messages[0].content[1].type"),
        (MESSAGES.path, {**MESSAGES.asked, "messages": [EMPTY_RESULT]}, "messages[0].content[0].content[0].type"),
    ],
)
def test_content_part_with_an_empty_type_is_refused(path: str, body: Any, param: str, server: str) -> None:
    """ERR-3: also if client and server speak the same dialect."""
    with running(one_upstream("http://127.0.0.1:9/v1", dialect=server)) as gateway:
        answer = gateway.post(body, path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_value")
    assert error["message"].startswith(f"{param}: expected ")
    assert error["message"].endswith('got ""')


@pytest.mark.parametrize("members", [{}, {"stream": False}, {"stream": None}])
@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_obfuscation": False}, {}])
@pytest.mark.parametrize("server", ["chat", "messages"])
def test_chat_stream_options_without_a_stream_are_refused(server: str, options: Any, members: Any) -> None:
    with running(one_upstream("http://127.0.0.1:9/v1", dialect=server)) as gateway:
        answer = gateway.post({**CHAT.asked, **members, "stream_options": options}, CHAT.path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "stream_options")
    assert error["message"] == "stream_options: allowed only with `stream: true`"


def hologram(kind: str = "hologram") -> dict[str, Any]:
    return {"type": kind, "depth": 3}


def typed_message(*parts: Any, **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts), **members}


RESPONSES_ITEMS = [
    {"type": "hologram", "depth": 2},  # an item of unknown type is not a part
    {"role": "assistant", "content": [hologram()]},
    typed_message({"type": "input_text", "text": "Hi"}, hologram()),
]
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
MESSAGES_CALL = {"type": "tool_use", "id": "c", "name": "get_weather", "input": {"content": [hologram()]}}
MESSAGES_RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [hologram()]}
GEMINI_PARTS = {"role": "user", "parts": [{"text": "Hi"}, {"hologram": {"depth": 3}}]}
UNKNOWN_PARTS = [
    (RESPONSES_PATH, {"model": "m", "input": RESPONSES_ITEMS}, "input[2].content[1].type"),
    (
        RESPONSES_PATH,
        {
            "model": "m",
            "input": [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [hologram()]},
            ],
        },
        "input[1].output[0].type",
    ),
    (
        CHAT.path,
        {**CHAT.asked, "messages": [typed_message(EMPTY_PART["content"][0], hologram())]},
        "messages[0].content[1].type",
    ),
    (
        CHAT.path,
        {
            **CHAT.asked,
            "messages": [
                *CHAT.asked["messages"],
                {"role": "assistant", "tool_calls": [CHAT_CALL]},
                {"role": "tool", "tool_call_id": "c", "content": [hologram()]},
            ],
        },
        "messages[2].content[0].type",
    ),
    (MESSAGES.path, {**MESSAGES.asked, "messages": [typed_message(hologram())]}, "messages[0].content[0].type"),
    (MESSAGES.path, {**MESSAGES.asked, "system": [hologram()]}, "system[0].type"),
    (
        MESSAGES.path,
        {
            **MESSAGES.asked,
            "messages": [
                typed_message({"type": "text", "text": "Hi"}),
                {"role": "assistant", "content": [MESSAGES_CALL]},
                typed_message(MESSAGES_RESULT),
            ],
        },
        "messages[2].content[0].content[0].type",
    ),
    (GEMINI.path, {"contents": [GEMINI_PARTS]}, "contents[0].parts[1].hologram"),
]
CLIENT_OF_PATH = {RESPONSES_PATH: "responses", CHAT.path: "chat", MESSAGES.path: "messages", GEMINI.path: "gemini"}


@pytest.mark.parametrize("server", ["responses", "chat", "messages", "gemini", "ollama"])
@pytest.mark.parametrize(("path", "body", "param"), UNKNOWN_PARTS)
def test_content_part_of_unknown_type_is_refused_where_it_would_be_translated(
    path: str, body: Any, param: str, server: str
) -> None:
    """ERR-3: a server of the client's dialect gets it."""
    with running(one_upstream("http://127.0.0.1:9/v1", dialect=server)) as gateway:
        answer = gateway.post(body, path)
    if CLIENT_OF_PATH[path] == server:
        assert answer.status_code == 502  # the request was sent
        return
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    if "details" in error:
        assert error["details"][0]["reason"] == "invalid_value"
        assert error["details"][0]["metadata"] == {"param": param}
    else:
        assert (error["code"], error.get("param", param)) == ("invalid_value", param)
    assert error["message"].startswith(f"{param}: expected one of '")
    assert "got 'hologram'" in error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RESPONSES_PATH, {"model": "m", "input": [typed_message({"type": "computer_screenshot", "file_id": "f"})]}),
        (RESPONSES_PATH, {"model": "m", "input": [typed_message(hologram("messages:container_upload"))]}),
        (CHAT.path, {**CHAT.asked, "messages": [typed_message({"type": "audio_url", "audio_url": {"url": "a"}})]}),
        (MESSAGES.path, {**MESSAGES.asked, "messages": [typed_message({"type": "container_upload", "file_id": "f"})]}),
        (GEMINI.path, {"contents": [{"role": "user", "parts": [{"toolResponse": {"id": "c"}}]}]}),
    ],
)
def test_content_part_of_a_type_that_other_dialects_lack_is_a_loss(path: str, body: Any) -> None:
    with running(one_upstream("http://127.0.0.1:9/v1", dialect="ollama")) as gateway:
        assert gateway.post(body, path).status_code == 502  # the request was sent


def with_limit(path: str, value: Any) -> dict[str, Any]:
    match path:
        case "/v1/responses":
            return {**RESPONSES_BODY, "max_output_tokens": value}
        case CHAT.path:
            return {**CHAT.asked, "max_tokens": value}
        case MESSAGES.path:
            return {**MESSAGES.asked, "max_tokens": value}
        case GEMINI.path:
            return {**GEMINI.asked, "generationConfig": {"maxOutputTokens": value}}
        case _:
            message = {"role": "user", "content": "Hi"}
            return {"model": "mock-1", "messages": [message], "stream": False, "options": {"num_predict": value}}


FIELD_OF_LIMIT = {
    RESPONSES_PATH: "max_output_tokens",
    CHAT.path: "max_tokens",
    MESSAGES.path: "max_tokens",
    GEMINI.path: "generationConfig.maxOutputTokens",
    "/api/chat": "options.num_predict",
}
REFUSED_LIMITS = [
    *((path, value) for path in FIELD_OF_LIMIT for value in (1.5, "9", True, 2**31, 10**30, 0, -3)),
    *((path, value) for path in (RESPONSES_PATH, MESSAGES.path, GEMINI.path) for value in (-1, -2)),
    (CHAT.path, -2),
]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("path", "value"), REFUSED_LIMITS)
def test_wrong_output_limit_is_refused_with_field_value_and_range(path: str, value: Any, is_stream: bool) -> None:
    """REQ-8."""
    body = with_limit(path, value)
    field = FIELD_OF_LIMIT[path]
    if is_stream and path == GEMINI.path:
        path = GEMINI.stream_path
    elif is_stream:
        body["stream"] = True
    with running(one_upstream("http://127.0.0.1:9/v1")) as gateway:
        answer = gateway.post(body, path)
    error = answer.json()["error"]
    message = error if isinstance(error, str) else error["message"]
    assert answer.status_code == 400
    assert message.startswith(f"{field}: expected ")
    assert f", got {json.dumps(value)}" in message


TOOL_OUTPUT = {"type": "function_call_output", "call_id": "none", "output": "x"}
REFUSALS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    # The field, what came, and what is allowed.
    "choice": (
        CHAT.path,
        {**CHAT.asked, **CHAT.tools, "tool_choice": CHAT_TOOL},
        ["tool_choice", "get_time", "'get_weather'"],
    ),
    "required": (
        CHAT.path,
        {**CHAT.asked, "tool_choice": "required"},
        ["tool_choice", "no tools", "at least one tool"],
    ),
    "part": (
        CHAT.path,
        {**CHAT.asked, "messages": [typed_message(hologram())]},
        ["messages[0].content[0].type", "'hologram'", "'image_url'"],
    ),
    "system part": (
        GEMINI.path,
        {**GEMINI.asked, "systemInstruction": {"parts": [{"hologram": {}}]}},
        ["systemInstruction.parts[0].hologram", "'hologram'", "'inlineData'"],
    ),
    "stream options": (CHAT.path, {**CHAT.asked, "stream_options": {}}, ["stream_options", "only with `stream: true`"]),
    "output": (RESPONSES_PATH, {"model": "m", "input": [TOOL_OUTPUT]}, ["input[0]", "'none'", "call"]),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal_names_the_field_what_came_and_what_is_allowed(name: str) -> None:
    """ERR-3."""
    path, body, words = REFUSALS[name]
    with running(one_upstream("http://127.0.0.1:9/v1", dialect="messages")) as gateway:
        answer = gateway.post(body, path)
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400, answer.text
    assert message.startswith(words[0])
    assert [word for word in words if word not in message] == []
