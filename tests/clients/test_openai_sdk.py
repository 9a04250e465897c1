"""API-6: the openai SDK, unmodified, against a running gateway over strict scripted servers of both dialects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import (
    ParsedResponse,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from pydantic import BaseModel
from tests.clients.blocks import block
from tests.running import BOUND, Running, running

from antiphon import testing
from antiphon.config import Config, KeyConfig, UpstreamConfig
from antiphon.testing import ChatServer, Gate, ResponsesServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
ASKED: Any = {"model": "mock-1", "input": "Say hello."}
TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "strict": False,
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    }
    for name in ("first", "second")
]


class Meeting(NamedTuple):
    """A client, the gateway it calls, and the server behind."""

    client: OpenAI
    gateway: Running
    upstream: ChatServer | ResponsesServer

    def async_client(self, **settings: Any) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.gateway.url + "/v1", api_key="any", max_retries=0, **settings)


Meet = Callable[..., Any]


@pytest.fixture(params=["chat", "responses"])
def meet(request: pytest.FixtureRequest) -> Meet:
    """A meeting over a server of each dialect with scripted answers. A request that the server refuses fails the
    test."""

    @contextmanager
    def meeting(*script: testing.Reply, key: str = "any", environ: Any = None, **settings: Any) -> Iterator[Meeting]:
        server = {"chat": ChatServer, "responses": ResponsesServer}[request.param]
        with server(list(script)) as upstream:
            config = configured(upstream.base_url, request.param, **settings)
            with running(config, environ=environ) as gateway, client_of(gateway, key) as client:
                yield Meeting(client, gateway, upstream)
            assert upstream.refusals == []

    return meeting


def configured(base_url: str, dialect: Any, *, models: Any = ("*",), keys: Any = ()) -> Config:
    upstream = UpstreamConfig(name="lab", dialect=dialect, base_url=base_url, models=list(models))
    return Config(upstreams=[upstream], keys=list(keys))


def client_of(gateway: Running, key: str = "any", **settings: Any) -> OpenAI:
    return OpenAI(base_url=gateway.url + "/v1", api_key=key, max_retries=0, timeout=BOUND, **settings)


# Answers


def test_openai_sdk_reads_a_plain_answer(meet: Meet) -> None:
    with meet(HELLO) as (client, _, _):
        response = client.responses.create(**ASKED)
    assert (response.output_text, response.status, response.model) == ("Hello.", "completed", "mock-1")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 2)


def test_documented_streaming_example_runs(meet: Meet, capsys: pytest.CaptureFixture[str]) -> None:
    with meet(HELLO) as (_, gateway, _):
        documented = block("responses.stream(").replace("http://127.0.0.1:8080", gateway.url)
        names: dict[str, Any] = {}
        exec(compile(documented, "docs/clients.md", "exec"), names)
        names["client"].close()
    assert capsys.readouterr().out == names["response"].output_text == "Hello."


def test_openai_sdk_reads_a_stream_of_events(meet: Meet) -> None:
    with meet(HELLO) as (client, _, _), client.responses.create(**ASKED, stream=True) as stream:
        events = list(stream)
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Hel", "lo."]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello."


def test_openai_sdk_final_response_equals_the_streamed_deltas(meet: Meet) -> None:
    """API-6: text, reasoning and interleaved calls, each under its own index."""
    calls = testing.interleaved(
        testing.tool_call("c1", "first", '{"a":', "1}"), testing.tool_call("c2", "second", '{"a"', ":2", "}")
    )
    reply = turn(testing.reasoning("Well", "…"), testing.text("Hel", "lo."), calls, testing.usage(7, 9, reasoning=3))
    with meet(reply) as (client, _, _):
        with client.responses.stream(**ASKED, tools=TOOLS) as stream:
            arguments: dict[int, str] = {}
            snapshots: dict[int, str] = {}
            for event in stream:
                match event.type:
                    case "response.output_text.delta" | "response.function_call_arguments.delta":
                        arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
                        snapshots[event.output_index] = event.snapshot
                    case "response.reasoning_text.delta":
                        arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
            final = stream.get_final_response()
    reasoning, message, first, second = final.output
    assert arguments == {0: "Well…", 1: "Hello.", 2: '{"a":1}', 3: '{"a":2}'}
    assert snapshots == {index: arguments[index] for index in (1, 2, 3)}
    assert isinstance(reasoning, ResponseReasoningItem)
    assert reasoning.content is not None
    assert [part.text for part in reasoning.content] == ["Well…"]
    assert isinstance(message, ResponseOutputMessage)
    assert final.output_text == "Hello."
    for call, name, call_id in ((first, "first", "c1"), (second, "second", "c2")):
        assert isinstance(call, ResponseFunctionToolCall)
        assert (call.name, call.call_id, call.arguments) == (name, call_id, arguments[final.output.index(call)])
    assert final.usage.output_tokens_details.reasoning_tokens == 3


def test_openai_sdk_reads_a_refusal(meet: Meet) -> None:
    with meet(turn(testing.refusal("I ", "will not."))) as (client, _, _):
        with client.responses.stream(**ASKED) as stream:
            deltas = [event.delta for event in stream if event.type == "response.refusal.delta"]
            final = stream.get_final_response()
    (message,) = final.output
    (part,) = message.content
    assert (part.type, part.refusal, deltas) == ("refusal", "I will not.", ["I ", "will not."])


def test_openai_sdk_reads_an_incomplete_answer(meet: Meet) -> None:
    with meet(turn(testing.text("Hel"), testing.finish("length"))) as (client, _, _):
        with client.responses.stream(**ASKED, max_output_tokens=16) as stream:
            events = list(stream)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"


def test_openai_sdk_output_is_accepted_as_input(meet: Meet) -> None:
    """The SDK's own output items are the history of the next turn."""
    called = turn(testing.reasoning("Hm."), testing.text("One moment."), testing.tool_call("c1", "first", '{"a":1}'))
    with meet(called, HELLO) as (client, _, upstream):
        before = [{"role": "user", "content": "Say hello."}]
        response = client.responses.create(model="mock-1", input=before, tools=TOOLS)
        answer = {"type": "function_call_output", "call_id": "c1", "output": "42"}
        final = client.responses.create(model="mock-1", input=[*before, *response.output, answer], tools=TOOLS)
        assert final.output_text == "Hello."
        assert b'"42"' in upstream.received[1].body
        assert b"One moment." in upstream.received[1].body


# Shapes


class Person(BaseModel):
    name: str
    age: int


class GetWeather(BaseModel):
    """The weather of a town."""

    town: str


def test_openai_sdk_parses_text_into_a_model(meet: Meet) -> None:
    reply = turn(testing.text('{"name":', '"Ada","age":36}'))
    with meet(reply, reply) as (client, _, upstream):
        response = client.responses.parse(**ASKED, text_format=Person)
        with client.responses.stream(**ASKED, text_format=Person) as stream:
            streamed: ParsedResponse[Person] = stream.until_done().get_final_response()
    assert response.output_parsed == streamed.output_parsed == Person(name="Ada", age=36)
    for received in upstream.received:
        format = received.json.get("response_format", {}).get("json_schema") or received.json["text"]["format"]
        assert (format["name"], format["strict"], format["schema"]["required"]) == ("Person", True, ["name", "age"])


def test_openai_sdk_parses_function_calls_into_models(meet: Meet) -> None:
    tools = [openai.pydantic_function_tool(GetWeather)]
    reply = turn(testing.tool_call("c1", "GetWeather", '{"town":', '"Oslo"}'))
    with meet(reply, reply) as (client, _, _):
        response = client.responses.parse(**ASKED, tools=tools)
        with client.responses.stream(**ASKED, tools=tools) as stream:
            streamed = stream.until_done().get_final_response()
    for (call,) in (response.output, streamed.output):
        assert call.parsed_arguments == GetWeather(town="Oslo")


# Errors


def test_openai_sdk_raises_authentication_error_for_a_wrong_key(meet: Meet) -> None:
    """ERR-2, HTTP-8."""
    keys = [KeyConfig(name="alice", env="ALICE_KEY")]
    environ = {"ALICE_KEY": "sk-alice-0123456789"}
    with meet(HELLO, keys=keys, environ=environ, key="sk-wrong") as (client, gateway, _):
        with pytest.raises(openai.AuthenticationError) as raised:
            client.responses.create(**ASKED)
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
        right = client.with_options(api_key="sk-alice-0123456789")
        assert right.responses.create(**ASKED).output_text == "Hello."
        refused, _, answered = gateway.requests(3)
    assert raised.value.code == "invalid_api_key"
    assert raised.value.request_id == refused["request_id"]
    assert answered["owner"] == "alice"


def test_openai_sdk_raises_not_found_error_for_an_unserved_model(meet: Meet) -> None:
    """ERR-2, HTTP-8."""
    with meet(models=["mock-*"]) as (client, gateway, _):
        with pytest.raises(openai.NotFoundError) as raised:
            client.responses.create(model="other", input="Hi")
        (line,) = gateway.requests(1)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert raised.value.request_id == line["request_id"]


def test_openai_sdk_raises_bad_request_error_for_a_wrong_setting(meet: Meet) -> None:
    """ERR-2."""
    with meet() as (client, _, upstream):
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(**ASKED, extra_body={"temperature": "hot"})
        assert upstream.received == []
    assert (raised.value.param, raised.value.type) == ("temperature", "invalid_request")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reply", "error", "status", "code"),
    [
        (testing.error(429, headers={"retry-after": "7"}), openai.RateLimitError, 429, "rate_limit_exceeded"),
        (testing.error(400, code="context_length_exceeded"), openai.BadRequestError, 400, "context_length_exceeded"),
        (testing.error(500), openai.InternalServerError, 502, "upstream_error"),
        (testing.error(401), openai.InternalServerError, 502, "upstream_auth_failed"),
        (testing.error(503), openai.InternalServerError, 503, "overloaded"),
        (testing.exactly(testing.end("rst")), openai.InternalServerError, 502, "upstream_disconnected"),
    ],
)
def test_openai_sdk_raises_the_error_class_of_the_status(
    meet: Meet, stream: bool, reply: Any, error: type[openai.APIStatusError], status: int, code: str
) -> None:
    """ERR-2: the class by the status, streaming or not."""
    with meet(reply) as (client, gateway, _):
        with pytest.raises(error) as raised:
            client.responses.create(**ASKED, stream=stream)
        (line,) = gateway.requests(1)
    assert (type(raised.value), raised.value.status_code, raised.value.code) == (error, status, code)
    assert raised.value.request_id == line["request_id"]


def test_openai_sdk_waits_for_the_retry_after_of_the_upstream(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """ERR-2: `Retry-After` arrives in a form that the SDK obeys."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async def ask(client: AsyncOpenAI) -> Any:
        async with client.with_options(max_retries=1) as patient:
            return await patient.responses.create(**ASKED)

    monkeypatch.setattr("openai._base_client.anyio.sleep", wait)
    with meet(testing.error(429, headers={"retry-after": "7"}), HELLO) as meeting:
        assert asyncio.run(ask(meeting.async_client())).output_text == "Hello."
    assert waited == [7.0]


def test_broken_stream_raises_api_error_with_the_whole_error(meet: Meet) -> None:
    """API-6, STR-8: the SDK raises at an `error` event with an `error` object; one without it is an event like
    others."""
    broken = turn(testing.text("Hel"), testing.end("rst"))
    with meet(broken, broken, broken) as (client, _, _):
        with client.responses.create(**ASKED, stream=True) as stream, pytest.raises(openai.APIError) as raised:
            list(stream)
        with client.responses.stream(**ASKED) as accumulated, pytest.raises(openai.APIError) as raised_too:
            accumulated.get_final_response()
        older = client.with_options(default_headers={"antiphon-style": "older"})
        with older.responses.create(**ASKED, stream=True) as stream:
            *_, error, failed = stream
    assert raised.value.message == raised_too.value.message == error.message
    assert (raised.value.code, raised.value.type, raised.value.param) == ("upstream_disconnected", "server_error", None)
    assert (error.type, failed.type) == ("error", "response.failed")
    assert error.code == failed.response.error.code == "upstream_disconnected"


# Ids, models, disconnects


def test_openai_sdk_request_id_is_in_the_log(meet: Meet) -> None:
    """HTTP-8."""
    with meet(HELLO, HELLO) as (client, gateway, _):
        response = client.responses.create(**ASKED)
        with client.responses.with_streaming_response.create(**ASKED, stream=True) as answer:
            streamed = answer.request_id
            answer.read()
        plain, second = gateway.requests(2)
    assert (response._request_id, streamed) == (plain["request_id"], second["request_id"])
    assert response.id == plain["response_id"]


def test_openai_sdk_lists_models(meet: Meet) -> None:
    """API-5."""
    with meet(models=["mock-1", "mock-2"]) as (client, _, _):
        models = list(client.models.list())
    assert [(model.id, model.object) for model in models] == [("mock-1", "model"), ("mock-2", "model")]


def test_openai_sdk_async_client_creates_and_streams(meet: Meet) -> None:
    async def ask(client: AsyncOpenAI) -> tuple[Any, Any, list[str]]:
        async with client:
            plain = await client.responses.create(**ASKED)
            async with client.responses.stream(**ASKED) as stream:
                deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
                return plain, await stream.get_final_response(), deltas

    with meet(HELLO, HELLO) as meeting:
        plain, streamed, deltas = asyncio.run(ask(meeting.async_client()))
    assert plain.output_text == streamed.output_text == "".join(deltas) == "Hello."


def test_openai_sdk_closing_a_stream_cancels_the_upstream(meet: Meet) -> None:
    gate = Gate()
    with meet(turn(testing.text("Hel"), testing.wait(gate), testing.text("never"))) as (client, gateway, upstream):
        with client.responses.create(**ASKED, stream=True) as stream:
            next(event for event in stream if event.type == "response.output_text.delta")
        upstream.wait_disconnected()
        (line,) = gateway.requests(1)
        assert line["client_left"]


def test_openai_sdk_cancelled_task_cancels_the_upstream(meet: Meet) -> None:
    gate = Gate()

    async def ask(client: AsyncOpenAI) -> None:
        async with client:
            task = asyncio.create_task(client.responses.create(**ASKED))
            await asyncio.to_thread(gate.wait_reached)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    with meet(turn(testing.wait(gate), testing.text("never"))) as meeting:
        asyncio.run(ask(meeting.async_client()))
        meeting.upstream.wait_disconnected()
