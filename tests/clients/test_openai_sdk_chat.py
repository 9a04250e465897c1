"""The openai SDK's chat calls through a gateway, over servers that answer in forms of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from tests.running import BOUND, one_upstream, running

from antiphon import fakes
from antiphon.fakes import ChatServer

SAID: Any = [{"role": "user", "content": "Say hello."}]


@contextmanager
def sdk_over(*script: fakes.Reply) -> Iterator[openai.OpenAI]:
    with ChatServer(list(script)) as server, running(one_upstream(server.base_url)) as gateway:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, timeout=BOUND) as sdk:
            yield sdk


def completion(message: dict[str, Any], **members: Any) -> fakes.Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **members}
    return fakes.whole({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@pytest.mark.parametrize("stream", [False, True])
def test_text_of_a_server_that_sends_an_empty_delta_with_the_message_arrives(stream: bool) -> None:
    """Perplexity's whole answers have both."""
    with sdk_over(completion({"content": "Hello."}, delta={"role": "assistant", "content": ""})) as sdk:
        if stream:
            chunks = sdk.chat.completions.create(model="sonar", messages=SAID, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        else:
            text = sdk.chat.completions.create(model="sonar", messages=SAID).choices[0].message.content or ""
        assert text == "Hello."


def test_a_call_of_a_server_that_sends_an_empty_custom_member_arrives() -> None:
    """Snowflake's calls have a member for each form."""
    function = {"name": "look", "arguments": '{"at": 1}'}
    call = {"id": "call_1", "type": "function", "function": function, "custom": {"name": "", "input": ""}}
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    with sdk_over(completion({"content": "", "tool_calls": [call]})) as sdk:
        calls = sdk.chat.completions.create(model="m", messages=SAID, tools=tools).choices[0].message.tool_calls or []
        found = [(each.id, each.function.name, each.function.arguments) for each in calls if each.type == "function"]
        assert found == [("call_1", "look", '{"at": 1}')]
