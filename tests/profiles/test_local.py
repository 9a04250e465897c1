"""The profile of the embedded model: what it receives for any client request. The answers of the model:
`upstream/test_embedded`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from tests.generate.chat_rules import assert_chat_accepts
from tests.generate.conversations import requests

from antiphon.dialects import chat
from antiphon.dialects.chat.wire import ChatWire
from antiphon.profiles import load_profile
from antiphon.protocol.codec import decode_request
from antiphon.protocol.request import Request

LOCAL = load_profile("local")


def sent(request: Request) -> tuple[dict[str, Any], list[str]]:
    prepared, losses = LOCAL.apply_quirks(request)
    assert isinstance(LOCAL.wire, ChatWire)
    body, more = chat.request_from_hub(prepared, LOCAL.wire)
    return assert_chat_accepts(body), [loss.path for loss in [*losses, *more]]


@settings(max_examples=30)
@given(requests(orphans=True))
def test_local_profile_sends_only_text_in_three_roles(request: Request) -> None:
    """F-4: its template supports no tools, calls, results or parts, and llama.cpp answers 500 to media."""
    body, losses = sent(request)
    for message in body["messages"]:
        assert message.keys() <= {"role", "content", "refusal"}
        assert message["role"] in ("system", "user", "assistant")
        assert isinstance(message["content"], str)
    assert not {"tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "user", "metadata"} & set(body)
    assert not request.tools or losses


def test_local_profile_describes_media_calls_and_results_in_words() -> None:
    body, losses = sent(
        decode_request(
            json.dumps(
                {
                    "input": [
                        {"role": "developer", "content": "Be brief."},
                        {"role": "user", "content": [{"type": "input_image", "image_url": "https://e.x/cat.png"}]},
                        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                        {"type": "function_call_output", "call_id": "c", "output": "a cat"},
                    ],
                    "top_k": 3,
                }
            ).encode()
        )
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "[image omitted: https://e.x/cat.png]"},
        {"role": "assistant", "content": "[Tool Call: look({}) -> call_id: c]"},
        {"role": "user", "content": "[Tool Result for c]: a cat"},
    ]
    assert body["top_k"] == 3
    assert losses == ["input[1].content[0]"]
