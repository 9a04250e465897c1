"""The openai SDK's chat calls through a gateway, over servers with unusual answer forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from tests.running import BOUND, one_upstream, running

from antiphon import testing
from antiphon.testing import ChatServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
CONVERSATION: Any = [{"role": "user", "content": "Say hello."}]


@contextmanager
def sdk_over(*script: testing.Reply) -> Iterator[openai.OpenAI]:
    with ChatServer(list(script)) as server, running(one_upstream(server.base_url)) as gateway:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, timeout=BOUND) as sdk:
            yield sdk


def completion(message: dict[str, Any], **members: Any) -> testing.Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **members}
    return testing.whole({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@pytest.mark.parametrize("stream", [False, True])
def test_answer_with_message_and_empty_delta_keeps_its_text(stream: bool) -> None:
    """Perplexity's plain answers have both."""
    with sdk_over(completion({"content": "Hello."}, delta={"role": "assistant", "content": ""})) as sdk:
        if stream:
            chunks = sdk.chat.completions.create(model="sonar", messages=CONVERSATION, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        else:
            text = sdk.chat.completions.create(model="sonar", messages=CONVERSATION).choices[0].message.content or ""
        assert text == "Hello."


def test_tool_call_with_an_empty_custom_member_is_read() -> None:
    """Snowflake's calls have a member for each form."""
    function = {"name": "look", "arguments": '{"at": 1}'}
    call = {"id": "call_1", "type": "function", "function": function, "custom": {"name": "", "input": ""}}
    tools: Any = [
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    ]
    with sdk_over(completion({"content": "", "tool_calls": [call]})) as sdk:
        calls = (
            sdk.chat.completions.create(model="m", messages=CONVERSATION, tools=tools).choices[0].message.tool_calls
            or []
        )
        functions = [
            (each.id, each.function.name, each.function.arguments) for each in calls if each.type == "function"
        ]
        assert functions == [("call_1", "look", '{"at": 1}')]


def cited(number: int) -> dict[str, Any]:
    place = {
        "start_index": number,
        "end_index": number + 1,
        "url": f"https://example.org/{number}",
        "title": f"page {number}",
    }
    return {"type": "url_citation", "url_citation": place}


def chunk(**delta: Any) -> Any:
    return testing.raw(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n")


def test_streamed_citations_are_accumulated_by_the_sdk() -> None:
    """TOOL-7, STR-14: all of them, whether the server sends them together or one by one."""
    pieces = [chunk(annotations=[cited(0)]), testing.text("lo."), chunk(annotations=[cited(1), cited(2)])]
    with (
        sdk_over(turn(testing.text("Hel"), *pieces)) as sdk,
        sdk.chat.completions.stream(model="m", messages=CONVERSATION) as stream,
    ):
        message = stream.get_final_completion().choices[0].message
        assert message.content == "Hello."
        citations = [each.url_citation.model_dump() for each in message.annotations or []]
        assert citations == [cited(number)["url_citation"] for number in range(3)]
