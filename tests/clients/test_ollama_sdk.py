"""API-6: the official `ollama` package, unmodified: through a gateway over strict servers of other APIs, and directly
against the strict Ollama server, which shows that this server is right."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import ollama
import pytest
from pydantic import BaseModel
from tests.running import BOUND, one_upstream, running

from antiphon import testing
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, OllamaServer, ResponsesServer, turn
from antiphon.testing.harness import FakeServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
SERVERS: dict[str, Any] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "messages": MessagesServer,
    "gemini": GeminiServer,
    "ollama": OllamaServer,
}
PROFILES = {"messages": "anthropic", "gemini": "google", "responses": "openai"}
#: Behind a gateway, a server of each dialect; and the Ollama server without a gateway.
PLACES = [*SERVERS, "direct"]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
USER = {"role": "user", "content": "Hi."}
every_place = pytest.mark.parametrize("place", PLACES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


class Weather(BaseModel):
    city: str
    degrees: int


def get_weather(city: str) -> str:
    """Tells the weather in a city.

    Args:
        city: The name of the city.
    """
    return f"Rain in {city}."


@contextmanager
def client_of(place: str, *replies: Any) -> Iterator[tuple[ollama.Client, FakeServer]]:
    """The package as a client, and the server that answers it."""
    make = OllamaServer if place == "direct" else SERVERS[place]
    with make(list(replies), models=["mock-1"]) as server:
        if place == "direct":
            with ollama.Client(host=server.origin, timeout=BOUND) as client:
                yield client, server
            return
        upstream = one_upstream(server.base_url, dialect=place, profile=PROFILES.get(place), models=["mock-1"])
        with running(upstream) as gateway, ollama.Client(host=gateway.url, timeout=BOUND) as client:
            yield client, server


def chat(client: ollama.Client, *, stream: bool, **settings: Any) -> ollama.ChatResponse:
    """The answer; the pieces of a stream are joined, as users of the package do."""
    if not stream:
        return client.chat("mock-1", stream=False, **settings)
    parts = list(client.chat("mock-1", stream=True, **settings))
    whole = parts[-1]
    whole.message.content = "".join(part.message.content or "" for part in parts)
    whole.message.thinking = "".join(part.message.thinking or "" for part in parts) or None
    whole.message.tool_calls = [call for part in parts for call in part.message.tool_calls or ()]
    assert [part.done for part in parts] == [*[False] * (len(parts) - 1), True]
    return whole


@streaming
@every_place
def test_sdk_chats(place: str, stream: bool) -> None:
    reply = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
    with client_of(place, reply) as (client, server):
        answer = chat(client, stream=stream, messages=[USER], options={"temperature": 0.5, "num_predict": 50})
    assert (answer.message.content, answer.done_reason, answer.model) == ("Hello.", "stop", "mock-1")
    assert (answer.prompt_eval_count, answer.eval_count) == (5, 2)
    assert server.refusals == []


@streaming
@every_place
def test_sdk_calls_a_function_and_sends_its_result(place: str, stream: bool) -> None:
    replies = [
        turn(testing.tool_call("call_1", "get_weather", '{"city":', '"Oslo"}')),
        turn(testing.text("It rains.")),
    ]
    messages: list[Any] = [USER]
    with client_of(place, *replies) as (client, server):
        answer = chat(client, stream=stream, messages=messages, tools=[get_weather])
        [call] = answer.message.tool_calls or ()
        assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Oslo"})
        result = get_weather(**call.function.arguments)
        messages += [answer.message, {"role": "tool", "tool_name": call.function.name, "content": result}]
        answer = chat(client, stream=stream, messages=messages, tools=[get_weather])
    assert answer.message.content == "It rains."
    assert "Rain in Oslo." in str(server.received[-1].json)
    assert server.refusals == []


@streaming
@pytest.mark.parametrize("place", ["chat", "responses", "messages", "ollama", "direct"])
def test_sdk_shows_thinking(place: str, stream: bool) -> None:
    reply = turn(testing.reasoning("Think", " twice."), testing.text("Four."))
    with client_of(place, reply) as (client, server):
        answer = chat(client, stream=stream, messages=[USER], think="high")
    assert (answer.message.thinking, answer.message.content) == ("Think twice.", "Four.")
    assert server.refusals == []


@every_place
def test_sdk_sends_an_image(place: str) -> None:
    message = {**USER, "images": [base64.b64decode(PIXEL)]}
    with client_of(place, turn(testing.text("A pixel."))) as (client, server):
        assert chat(client, stream=False, messages=[message]).message.content == "A pixel."
    assert PIXEL in str(server.received[-1].json)
    assert server.refusals == []


@every_place
def test_sdk_gets_output_by_a_schema(place: str) -> None:
    reply = turn(testing.text('{"city": "Oslo", "degrees": 4}'))
    with client_of(place, reply) as (client, server):
        answer = chat(client, stream=False, messages=[USER], format=Weather.model_json_schema())
    assert Weather.model_validate_json(answer.message.content or "") == Weather(city="Oslo", degrees=4)
    assert "degrees" in str(server.received[-1].json)
    assert server.refusals == []


@streaming
@every_place
def test_sdk_generates(place: str, stream: bool) -> None:
    with client_of(place, turn(testing.text("Bl", "ue."), testing.usage(5, 2))) as (client, server):
        settings: dict[str, Any] = {"prompt": "Why?", "system": "Be brief.", "keep_alive": "5m"}
        if stream:
            parts = list(client.generate("mock-1", stream=True, **settings))
            assert "".join(part.response or "" for part in parts) == "Blue."
            last = parts[-1]
        else:
            last = client.generate("mock-1", stream=False, **settings)
            assert last.response == "Blue."
    assert (last.done, last.done_reason, last.eval_count) == (True, "stop", 2)
    assert "Be brief." in str(server.received[-1].json)
    assert server.refusals == []


@pytest.mark.parametrize("place", ["chat", "messages", "direct"])
def test_sdk_lists_and_shows_models(place: str) -> None:
    """API-5."""
    with client_of(place) as (client, _):
        assert [model.model for model in client.list().models] == ["mock-1"]
        assert "tools" in (client.show("mock-1").capabilities or ())
        with pytest.raises(ollama.ResponseError) as caught:
            client.show("mock-2")
    assert caught.value.status_code == 404


@streaming
@every_place
def test_sdk_raises_errors(place: str, stream: bool) -> None:
    """ERR-1: the error of the first line is the status of the answer."""
    with client_of(place) as (client, _):
        with pytest.raises(ollama.ResponseError) as caught:
            list(client.chat("mock-2", messages=[USER], stream=stream))  # type: ignore[call-overload]
    assert caught.value.status_code == 404
    assert "mock-2" in caught.value.error


@pytest.mark.parametrize("place", ["ollama", "direct"])
def test_sdk_raises_an_error_in_the_stream(place: str) -> None:
    """STR-8."""
    gate = testing.Gate()
    fault = testing.raw(b'{"error":"the runner stopped"}\n')
    reply = turn(testing.text("Half"), testing.wait(gate), fault, omit=["finish"])
    with client_of(place, reply) as (client, _):
        parts = client.chat("mock-1", messages=[USER], stream=True)
        assert next(parts).message.content == "Half"
        gate.open()
        with pytest.raises(ollama.ResponseError, match="the runner stopped"):
            next(parts)


def test_silence_in_a_stream_is_no_blank_line() -> None:
    """The package decodes every line, so a line that keeps the connection alive must not be empty."""
    gate = testing.Gate()
    with (
        ChatServer([turn(testing.head(), testing.wait(gate), testing.text("Hello."))]) as server,
        running(one_upstream(server.base_url), first_byte_timeout=0.01, keepalive_interval=0.01) as gateway,
        httpx2.stream("POST", f"{gateway.url}/api/chat", json={"model": "mock-1", "messages": [USER]}) as answer,
    ):
        pieces = answer.iter_bytes()
        assert next(pieces).strip(b" ") == b""
        gate.open()
        lines = b"".join(pieces).splitlines()
    assert [line for line in lines if not line.strip()] == []
    assert json.loads(lines[0])["message"]["content"] == "Hello."


def test_asynchronous_sdk_streams() -> None:
    async def read(url: str) -> str:
        async with ollama.AsyncClient(host=url, timeout=BOUND) as client:
            stream = await client.chat("mock-1", messages=[USER], stream=True)
            return "".join([part.message.content or "" async for part in stream])

    with ChatServer([turn(testing.text("Hel", "lo."))]) as server, running(one_upstream(server.base_url)) as gateway:
        assert asyncio.run(read(gateway.url)) == "Hello."
