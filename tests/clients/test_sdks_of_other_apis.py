"""API-6: the SDKs of Messages and Gemini, unmodified, against a running gateway over a strict chat server.

The turns of every pair of client and server are tested in the matrix; these tests cover the other calls, and silence in
a stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types
from tests.running import BOUND, Running, one_upstream, running

from antiphon import testing
from antiphon.testing import ChatServer, Gate, GeminiServer, MessagesServer, ResponsesServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
CONVERSATION: Any = [{"role": "user", "content": "Say hello."}]


@contextmanager
def over(script: Any, **settings: Any) -> Iterator[Running]:
    with (
        ChatServer(script, models=["mock-1"]) as upstream,
        running(one_upstream(upstream.base_url), **settings) as gateway,
    ):
        yield gateway


def of_messages(gateway: Running) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0, timeout=BOUND)


def of_gemini(gateway: Running) -> genai.Client:
    return genai.Client(api_key="any", http_options=genai_types.HttpOptions(base_url=gateway.url))


def test_messages_sdk_counts_tokens_lists_models_and_raises_errors() -> None:
    """API-3, API-5, ERR-1, HTTP-8."""
    with over(lambda _: HELLO) as gateway, of_messages(gateway) as client:
        assert client.messages.count_tokens(model="mock-1", messages=CONVERSATION).input_tokens > 3
        assert [model.id for model in client.models.list()] == ["mock-1"]
        assert client.models.retrieve("mock-1").display_name == "mock-1"
        message = client.messages.create(model="mock-1", max_tokens=10, messages=CONVERSATION)
        assert message._request_id in [line["request_id"] for line in gateway.requests(4)]
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(model="mock-1", max_tokens=10, messages=[])
        assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


def test_gemini_sdk_counts_tokens_lists_models_and_raises_errors() -> None:
    """API-3, API-5, ERR-1."""
    with over(lambda _: HELLO) as gateway:
        client = of_gemini(gateway)
        assert (client.models.count_tokens(model="mock-1", contents="Say hello.").total_tokens or 0) > 3
        assert [model.name for model in client.models.list()] == ["models/mock-1"]
        assert client.models.get(model="mock-1").name == "models/mock-1"
        with pytest.raises(genai_errors.ClientError) as caught:
            client.models.generate_content(model="mock-1", contents="Hi", config={"candidate_count": 3})
        assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
        client.close()


def test_interactions_of_the_gemini_sdk_get_an_error_that_names_what_to_use() -> None:
    """ERR-2."""
    with over(lambda _: HELLO) as gateway:
        client = of_gemini(gateway)
        with pytest.raises(Exception, match=r"use models\.generate_content") as caught:
            client.interactions.create(model="mock-1", input="Say hello.")
        assert getattr(caught.value, "status_code", None) == 404
        assert [line["status"] for line in gateway.requests(1)] == [404]
        client.close()


@pytest.mark.parametrize("api", ["messages", "gemini"])
def test_failed_tool_of_an_sdk_is_accepted_by_a_responses_server(api: str) -> None:
    """F-4: the server refuses unknown members."""
    script = [turn(testing.tool_call("call_1", "look", '{"path": "/none"}')), turn(testing.text("There is none."))]
    with ResponsesServer(script, strict_fields=True) as upstream:
        served = one_upstream(upstream.base_url, dialect="responses", profile="openai")
        with running(served) as gateway:
            if api == "messages":
                with of_messages(gateway) as client:
                    asked: Any = {"model": "mock-1", "max_tokens": 100, "tools": [anthropic.beta_tool(look).to_dict()]}
                    calling = client.messages.create(messages=CONVERSATION, **asked)
                    result = {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": "no such file",
                        "is_error": True,
                    }
                    more: Any = [
                        {"role": "assistant", "content": calling.content},
                        {"role": "user", "content": [result]},
                    ]
                    message = client.messages.create(messages=[*CONVERSATION, *more], **asked)
                    answer = message.content[0].text
            else:
                gemini = of_gemini(gateway)
                answer = gemini.models.generate_content(model="mock-1", contents="Look.", config={"tools": [look]}).text
                gemini.close()
            # The Gemini SDK sends the schema of the function's result too, for which the server's API has no field.
            assert {line["losses"] for line in gateway.requests(2)} == {1 if api == "gemini" else 0}
        assert upstream.refusals == []
        results = [item for item in upstream.received[-1].json["input"] if item["type"] == "function_call_output"]
    assert answer == "There is none."
    assert [(item["call_id"], item["output"][:13]) for item in results] == [("call_1", "[tool error] ")]
    assert "no such file" in results[0]["output"]


@pytest.mark.parametrize("server", ["chat", "responses", "messages", "gemini"])
def test_gemini_sdk_schemas_with_types_in_capitals_are_accepted(server: str) -> None:
    """REQ-1, TOOL-1: in every field for a schema; strict servers accept the converted schemas."""
    make: Any = {"chat": ChatServer, "responses": ResponsesServer, "messages": MessagesServer, "gemini": GeminiServer}[
        server
    ]
    schema = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
    profile = {"messages": "anthropic", "gemini": "google"}.get(server)
    with make(lambda _: turn(testing.text('{"city": "Rome"}'))) as upstream:
        with running(one_upstream(upstream.base_url, dialect=server, profile=profile)) as gateway:
            client = of_gemini(gateway)
            for field in ("response_schema", "response_json_schema"):
                asked: Any = {"response_mime_type": "application/json", field: schema}
                assert (
                    client.models.generate_content(model="mock-1", contents="Where?", config=asked).text
                    == '{"city": "Rome"}'
                )
            for field in ("parameters", "parameters_json_schema"):
                offered: Any = {"tools": [{"function_declarations": [{"name": "find", field: schema}]}]}
                client.models.generate_content(model="mock-1", contents="Where?", config=offered)
            client.close()
            assert {line["status"] for line in gateway.requests(4)} == {200}
        assert upstream.refusals == []


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
)
def test_failed_call_of_a_gemini_server_is_an_answer_to_every_sdk(reason: str) -> None:
    """REQ-3, F-4: a text and a complete call, then a call that the server could not use; plain answers and streams."""
    reply = turn(
        testing.text("Let me look."), testing.tool_call("call_1", "find", '{"path": "/here"}'), testing.finish(reason)
    )
    with GeminiServer(lambda _: reply) as upstream:
        with running(one_upstream(upstream.base_url, dialect="gemini", profile="google")) as gateway:
            ends = [*_of_openai(gateway), *_of_messages(gateway), *_of_gemini(gateway)]
            lines = gateway.requests(8)
        assert upstream.refusals == []
    assert ends == [
        *[("Let me look.", ["call_1"], reason.lower())] * 2,
        *[("Let me look.", ["call_1"], "length")] * 2,
        *[("Let me look.", ["call_1"], "max_tokens")] * 2,
        *[("Let me look.", ["call_1"], reason)] * 2,
    ]
    assert {line["status"] for line in lines} == {200}
    why = int(reason == "MALFORMED_FUNCTION_CALL")  # of which the server gives more than one word
    assert [line["losses"] for line in lines] == [why, why, *[1 + why] * 4, 0, 0]


End = tuple[str, list[str], str]


def _of_openai(gateway: Running) -> Iterator[End]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, timeout=BOUND) as client:
        asked: Any = {
            "model": "mock-1",
            "input": "Find it.",
            "tools": [{"type": "function", "name": "find", "parameters": PATH}],
        }
        whole = client.responses.create(**asked)
        *_, last = client.responses.create(**asked, stream=True)
        for response in (whole, last.response):
            calls = [item.call_id for item in response.output if item.type == "function_call"]
            yield response.output_text, calls, response.incomplete_details.reason
        tools = [{"type": "function", "function": {"name": "find", "parameters": PATH}}]
        chatted: Any = {"model": "mock-1", "messages": [{"role": "user", "content": "Find it."}], "tools": tools}
        choice = client.chat.completions.create(**chatted).choices[0]
        yield choice.message.content or "", [call.id for call in choice.message.tool_calls or ()], choice.finish_reason
        pieces = [piece.choices[0] for piece in client.chat.completions.create(**chatted, stream=True)]
        text = "".join(piece.delta.content or "" for piece in pieces)
        ids = [call.id for piece in pieces for call in piece.delta.tool_calls or () if call.id]
        yield text, ids, str(pieces[-1].finish_reason)


def _of_messages(gateway: Running) -> Iterator[End]:
    with of_messages(gateway) as client:
        asked: Any = {
            "model": "mock-1",
            "max_tokens": 100,
            "messages": CONVERSATION,
            "tools": [{"name": "find", "input_schema": PATH}],
        }
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        for message in (whole, streamed):
            content: list[Any] = [*message.content]
            texts = [block.text for block in content if block.type == "text"]
            yield "".join(texts), [block.id for block in content if block.type == "tool_use"], str(message.stop_reason)


def _of_gemini(gateway: Running) -> Iterator[End]:
    client = of_gemini(gateway)
    offered = [{"function_declarations": [{"name": "find", "parameters_json_schema": PATH}]}]
    asked: Any = {"model": "mock-1", "contents": "Find it.", "config": {"tools": offered}}
    for answers in ([client.models.generate_content(**asked)], list(client.models.generate_content_stream(**asked))):
        candidates = [answer.candidates[0] for answer in answers if answer.candidates]
        parts = [part for candidate in candidates for part in (candidate.content and candidate.content.parts) or ()]
        calls = [part.function_call.id or "" for part in parts if part.function_call]
        yield "".join(part.text or "" for part in parts), calls, str(candidates[-1].finish_reason.value)  # type: ignore[union-attr]
    client.close()


PATH = {"type": "object", "properties": {"path": {"type": "string"}}}


@pytest.mark.parametrize("streams", [False, True])
def test_tool_runner_of_the_messages_sdk_continues_without_threads(streams: bool) -> None:
    """Its first request has a `thread`, which is refused with the error it expects; from then on it sends whole
    histories."""
    script = [turn(testing.tool_call("call_1", "find", '{"path": "/here"}')), turn(testing.text("It is there."))]
    with ChatServer(script, models=["mock-1"]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        with of_messages(gateway) as client:
            asked: Any = {
                "model": "mock-1",
                "max_tokens": 100,
                "messages": CONVERSATION,
                "tools": [anthropic.beta_tool(find)],
            }
            if streams:
                for stream in client.beta.messages.tool_runner(**asked, stream=True):
                    message = stream.get_final_message()
            else:
                message = client.beta.messages.tool_runner(**asked).until_done()
            with pytest.raises(anthropic.BadRequestError) as caught:
                client.beta.messages.count_tokens(
                    model="mock-1", messages=CONVERSATION, extra_body={"thread": {"type": "create"}}
                )
            client.beta.messages.count_tokens(model="mock-1", messages=CONVERSATION, extra_body={"thread": None})
        assert [line["status"] for line in gateway.requests(5)] == [400, 200, 200, 400, 200]
        assert upstream.refusals == []
    assert message.content[0].text == "It is there."
    assert [each["role"] for each in upstream.received[-1].json["messages"]] == ["user", "assistant", "tool"]
    assert caught.value.body["error"]["details"] == {  # type: ignore[index]
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


def find(path: str) -> str:
    """Finds a file.

    Args:
        path: Where it is.
    """
    return f"found {path}"


def look(path: str) -> str:
    """Looks at a file.

    Args:
        path: Where it is.
    """
    raise FileNotFoundError(f"no such file: {path}")


@pytest.mark.parametrize("api", ["messages", "gemini"])
def test_sdk_streams_continue_after_keepalives(api: str) -> None:
    """HTTP-7: each SDK ignores the keepalive."""
    gate = Gate()
    script = [turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]
    with over(script, first_byte_timeout=0.01, keepalive_interval=0.01) as gateway:
        timer = threading.Timer(0.1, gate.open)
        timer.start()
        if api == "messages":
            with (
                of_messages(gateway) as client,
                client.messages.stream(model="mock-1", max_tokens=10, messages=CONVERSATION) as stream,
            ):
                text = "".join(stream.text_stream)
        else:
            gemini = of_gemini(gateway)
            chunks = gemini.models.generate_content_stream(model="mock-1", contents="Say hello.")
            text = "".join(chunk.text or "" for chunk in chunks)
            gemini.close()
        timer.join()
    assert text == "Hello."
