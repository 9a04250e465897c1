"""Requests that are refused before a model is asked, in every client dialect, over sockets."""

from __future__ import annotations

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
