"""An answer of whole calls that a server ends with an unknown reason: clients of every dialect get the calls (REQ-3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon import sse, translate
from antiphon.dialects.dialect import ServerDialectName

CALL = {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": '{"zone":"UTC"}'}}
#: The end of the answer in each client dialect, which makes clients run calls.
ENDS: dict[ServerDialectName, list[str]] = {
    "chat": ['"finish_reason":"tool_calls"'],
    "messages": ['"stop_reason":"tool_use"'],
    "gemini": ['"finishReason":"STOP"'],
    "ollama": ['"done_reason":"stop"'],
    "responses": ['"status":"incomplete"', '"incomplete_details":{"reason":"tired"}'],
}


def choice(member: str, message: dict[str, Any], reason: str | None) -> dict[str, Any]:
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [{"index": 0, member: message, "finish_reason": reason}]}


@pytest.mark.parametrize("client", ENDS)
def test_whole_calls_behind_an_unknown_reason_reach_every_client(client: ServerDialectName) -> None:
    answer = choice("message", {"role": "assistant", "content": None, "tool_calls": [CALL]}, "tired")
    translation = translate.response(answer, from_="chat", to=client)
    text = json.dumps(translation.json, separators=(",", ":"))
    assert [end for end in ENDS[client] if end not in text] == []
    assert '"name":"get_time"' in text
    assert [loss.path for loss in translation.losses] == (
        [] if client == "responses" else ["incomplete_details.reason"]
    )


@pytest.mark.parametrize("client", ENDS)
def test_streamed_whole_calls_behind_an_unknown_reason_reach_every_client(client: ServerDialectName) -> None:
    chunks = [choice("delta", {"tool_calls": [{"index": 0, **CALL}]}, None), choice("delta", {}, "tired")]
    stream = b"".join([sse.encode_data(json.dumps(each).encode()) for each in chunks]) + sse.DONE_FRAME
    text = b"".join(translate.stream([stream], from_="chat", to=client)).decode().replace('": ', '":')
    assert [end for end in ENDS[client] if end not in text] == []
    assert '"name":"get_time"' in text
