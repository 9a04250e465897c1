"""Stored responses with the openai SDK: continued, fetched, listed, deleted, and over a WebSocket.

Over strict scripted servers of both dialects, and once from end to end over the embedded model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseInputMessageItem, ResponseOutputMessage
from openai.types.responses.response_function_tool_call_output_item import ResponseFunctionToolCallOutputItem
from tests.clients.blocks import block
from tests.running import BOUND, Running, one_upstream, running
from websockets.exceptions import InvalidStatus

from antiphon import testing
from antiphon.config import Config, KeyConfig, StoreConfig, TraceConfig
from antiphon.testing import ChatServer, Gate, ReceivedRequest, ResponsesServer, turn
from antiphon.trace.reader import list_traces, read_trace
from antiphon.upstream.embedded import EmbeddedModel

# The SDK opens a WebSocket in a way that the newest websockets, which it accepts, deprecates.
pytestmark = [
    pytest.mark.io,
    pytest.mark.without_coverage,
    pytest.mark.filterwarnings(r"ignore:connect\(\) must be used as a context manager:DeprecationWarning"),
]

HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
AGAIN = turn(testing.text("Hello ", "again."))
CALL = turn(testing.reasoning("I look."), testing.tool_call("c1", "look", '{"a":', "1}"))
ASKED: Any = {"model": "mock-1", "input": "Say hello."}
TOOLS: Any = [
    {
        "type": "function",
        "name": "look",
        "strict": False,
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    }
]
SEEN: Any = {"type": "function_call_output", "call_id": "c1", "output": "42"}
NEVER = "resp_0000000000000000000000000000000000000000"


class Meeting(NamedTuple):
    """A client, the gateway it calls, and the server behind."""

    client: OpenAI
    gateway: Running
    upstream: ChatServer | ResponsesServer

    def async_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.gateway.url + "/v1", api_key="any", max_retries=0, timeout=BOUND)


Meet = Callable[..., Any]


@pytest.fixture(params=["chat", "responses"])
def meet(request: pytest.FixtureRequest, tmp_path: Path) -> Meet:
    """A meeting over a server of each dialect with scripted answers. A request that the server refuses fails the
    test."""

    @contextmanager
    def meeting(
        *script: testing.Reply, keys: Any = (), environ: Any = None, trace: TraceConfig | None = None, **server: Any
    ) -> Iterator[Meeting]:
        made = {"chat": ChatServer, "responses": ResponsesServer}[request.param]
        with made(list(script)) as upstream:
            config = with_store(
                replace(one_upstream(upstream.base_url, dialect=request.param), keys=list(keys)), tmp_path
            )
            config = replace(config, server=replace(config.server, **server), trace=trace or config.trace)
            with running(config, environ=environ) as gateway, client_of(gateway) as client:
                yield Meeting(client, gateway, upstream)
            assert upstream.refusals == []

    return meeting


def with_store(config: Config, folder: Path) -> Config:
    return replace(config, store=StoreConfig(url=f"sqlite:///{folder}/antiphon.db"))


def client_of(gateway: Running, key: str = "any") -> OpenAI:
    return OpenAI(base_url=gateway.url + "/v1", api_key=key, max_retries=0, timeout=BOUND)


def sent_conversation(received: ReceivedRequest) -> list[tuple[str, str]]:
    """The conversation that an upstream received: pairs of role and content."""
    body = received.json
    if "messages" in body:
        return [(message["role"], _content_of(message)) for message in body["messages"]]
    return [(item.get("role") or item["type"], _content_of(item)) for item in body["input"]]


def _content_of(message: dict[str, Any]) -> str:
    """The text of a message, the name of a call, or the output of a tool."""
    content = message.get("content", message.get("output", message.get("name")))
    if message.get("tool_calls"):
        return str(message["tool_calls"][0]["function"]["name"])
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return str(content)


# Continuation


def test_sdk_continues_a_response(meet: Meet) -> None:
    """PREV-1."""
    with meet(HELLO, AGAIN, HELLO) as (client, _, upstream):
        first = client.responses.create(**ASKED)
        second = client.responses.create(model="mock-2", input="And again.", previous_response_id=first.id)
        with client.responses.stream(**ASKED, previous_response_id=second.id) as stream:
            third = stream.until_done().get_final_response()
    assert (second.output_text, second.previous_response_id) == ("Hello again.", first.id)
    assert (third.output_text, third.previous_response_id) == ("Hello.", second.id)
    assert [content for _, content in sent_conversation(upstream.received[2])] == [
        "Say hello.",
        "Hello.",
        "And again.",
        "Hello again.",
        "Say hello.",
    ]
    assert {received.json.get("previous_response_id") for received in upstream.received} == {None}


def test_sdk_tool_output_is_matched_with_its_stored_call(meet: Meet) -> None:
    """PREV-1; D-3: also where the client names no response at all."""
    with meet(CALL, HELLO, HELLO) as (client, _, upstream):
        called = client.responses.create(**ASKED, tools=TOOLS)
        continued = client.responses.create(model="mock-1", input=[SEEN], tools=TOOLS, previous_response_id=called.id)
        alone = client.responses.create(model="mock-1", input=[SEEN], tools=TOOLS)
    assert continued.output_text == alone.output_text == "Hello."
    assert [content for _, content in sent_conversation(upstream.received[1])][-2:] == ["look", "42"]
    assert [content for _, content in sent_conversation(upstream.received[2])] == ["look", "42"]


def test_sdk_references_an_item_by_id(meet: Meet) -> None:
    """ITEM-6."""
    with meet(HELLO, AGAIN) as (client, _, upstream):
        (item,) = client.responses.create(**ASKED).output
        referring: Any = [{"type": "item_reference", "id": item.id}, {"role": "user", "content": "Why?"}]
        assert client.responses.create(model="mock-1", input=referring).output_text == "Hello again."
    assert [words for _, words in sent_conversation(upstream.received[1])] == ["Hello.", "Why?"]


def test_sdk_unstored_response_is_not_found(meet: Meet) -> None:
    """PREV-4."""
    with meet(HELLO) as (client, _, _):
        unkept = client.responses.create(**ASKED, store=False)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(unkept.id)
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(**ASKED, previous_response_id=unkept.id)
    assert (raised.value.code, raised.value.param) == ("previous_response_not_found", "previous_response_id")


# Retrieval


def test_sdk_retrieves_a_response_unchanged(meet: Meet) -> None:
    """API-1."""
    with meet(CALL, HELLO) as (client, _, _):
        created = client.responses.create(**ASKED, tools=TOOLS, metadata={"a": "b"})
        with client.responses.stream(**ASKED) as stream:
            streamed = stream.until_done().get_final_response()
        assert client.responses.retrieve(created.id) == created
        assert client.responses.retrieve(streamed.id).to_dict() == streamed.to_dict() | {
            "output": _plain(streamed.output)
        }


def _plain(output: list[Any]) -> list[dict[str, Any]]:
    """Items without the fields that `.stream()` adds."""
    items: list[dict[str, Any]] = [item.to_dict() for item in output]
    for part in (part for item in items for part in item["content"]):
        part.pop("parsed", None)
    return items


def test_sdk_resumes_a_stored_stream_after_an_event(meet: Meet) -> None:
    """API-1."""
    with meet(HELLO) as (client, _, _):
        with client.responses.create(**ASKED, stream=True) as stream:
            first = list(stream)
        id = first[0].response.id
        with client.responses.retrieve(id, stream=True) as stream:
            again = list(stream)
        with client.responses.retrieve(id, stream=True, starting_after=3) as stream:
            rest = list(stream)
    assert "".join(event.delta for event in again if event.type == "response.output_text.delta") == "Hello."
    assert [event.sequence_number for event in again] == list(range(len(again)))
    assert again[-1].response == first[-1].response
    assert rest == again[4:]


def test_sdk_lists_input_items_page_by_page(meet: Meet) -> None:
    """API-1."""
    asked: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        {"role": "assistant", "content": "I will."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        SEEN,
        {"role": "user", "content": "And?"},
    ]
    with meet(HELLO, HELLO) as (client, _, _):
        first = client.responses.create(model="mock-1", input=asked, tools=TOOLS)
        later = client.responses.create(**ASKED, previous_response_id=first.id)
        whole = list(client.responses.input_items.list(first.id, order="asc"))
        page = client.responses.input_items.list(first.id, limit=4)
        backwards = list(client.responses.input_items.list(first.id, limit=1))
        (own,) = client.responses.input_items.list(later.id)
    kinds = [ResponseInputMessageItem, ResponseInputMessageItem, ResponseOutputMessage]
    kinds += [ResponseFunctionToolCall, ResponseFunctionToolCallOutputItem, ResponseInputMessageItem]
    for item, kind in zip(whole, kinds, strict=True):
        assert isinstance(item, kind)
        assert item.id
    assert whole[4].output == "42"
    assert [item.content[0].text for item in whole if item.type == "message"] == [
        "Be brief.",
        "Look.",
        "I will.",
        "And?",
    ]
    assert (len(page.data), page.has_more) == (4, True)
    assert [item.id for item in backwards] == [item.id for item in reversed(whole)]
    assert own.content[0].text == "Say hello."


def test_sdk_deleted_response_is_not_found(meet: Meet) -> None:
    """API-1, PREV-3."""
    with meet(HELLO) as (client, _, _):
        id = client.responses.create(**ASKED).id
        client.responses.delete(id)
        for gone in (id, NEVER):
            for ask in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
                with pytest.raises(openai.NotFoundError) as raised:
                    ask(gone)
                assert (raised.value.code, raised.value.param) == ("not_found", "id")
            with pytest.raises(openai.BadRequestError, match=gone):
                client.responses.create(**ASKED, previous_response_id=gone)


def test_documented_state_example_runs(meet: Meet, capsys: pytest.CaptureFixture[str]) -> None:
    """PREV-1, PREV-5, API-1."""
    with meet(HELLO, AGAIN) as (client, gateway, upstream):
        documented = block("previous_response_id", "state.md").replace("http://127.0.0.1:8080", gateway.url)
        names: dict[str, Any] = {}
        exec(compile(documented, "docs/state.md", "exec"), names)
        names["client"].close()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(names["first"].id)
    assert [received.json["model"] for received in upstream.received] == ["mock-1", "mock-2"]
    assert capsys.readouterr().out == "Hello again.\nTrue\nWhat is my name?\n"


def test_sdk_async_client_retrieves_lists_and_continues(meet: Meet) -> None:
    async def ask(client: AsyncOpenAI) -> tuple[Any, Any, list[Any], Any]:
        async with client:
            created = await client.responses.create(**ASKED)
            retrieved = await client.responses.retrieve(created.id)
            items = [item async for item in client.responses.input_items.list(created.id, limit=1)]
            continued = await client.responses.create(**ASKED, previous_response_id=created.id)
            await client.responses.delete(created.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(created.id)
            return created, retrieved, items, continued

    with meet(HELLO, AGAIN) as meeting:
        created, retrieved, items, continued = asyncio.run(ask(meeting.async_client()))
    assert created == retrieved
    assert [item.content[0].text for item in items] == ["Say hello."]
    assert continued.output_text == "Hello again."


# WebSocket


def turn_of(connection: Any) -> list[Any]:
    """The events of a turn, with the one that ends it."""
    events = []
    for event in connection:
        events.append(event)
        if event.type in {"response.completed", "response.failed", "response.incomplete", "error"}:
            break
    return events


@pytest.mark.parametrize("store", [False, True])
def test_sdk_websocket_runs_a_tool_loop(meet: Meet, store: bool) -> None:
    """WS-1, WS-3, WS-5, WS-8: the SDK has a class for every event; an unstored response exists only on its
    connection."""
    with meet(CALL, HELLO, AGAIN) as (client, _, upstream):
        with client.responses.connect() as connection:
            connection.response.create(**ASKED, tools=TOOLS, store=store)
            first = turn_of(connection)
            connection.response.create(
                model="mock-1", input=[SEEN], tools=TOOLS, store=store, previous_response_id=first[-1].response.id
            )
            second = turn_of(connection)
        with client.responses.connect() as connection:
            connection.response.create(**ASKED, store=store, previous_response_id=second[-1].response.id)
            last = turn_of(connection)[-1]
    assert all("Ws" in type(event).__name__ for event in first + second)
    assert [event.sequence_number for event in first] == list(range(len(first)))
    (call,) = [item for item in first[-1].response.output if isinstance(item, ResponseFunctionToolCall)]
    assert (call.name, call.call_id, call.arguments) == ("look", "c1", '{"a":1}')
    assert [event.delta for event in first if event.type == "response.reasoning_text.delta"] == ["I look."]
    assert [event.delta for event in second if event.type == "response.output_text.delta"] == ["Hel", "lo."]
    assert [content for _, content in sent_conversation(upstream.received[1])][-2:] == ["look", "42"]
    if store:
        assert last.response.output_text == "Hello again."
    else:
        assert (last.type, last.status, last.error.code) == ("error", 400, "previous_response_not_found")


def test_sdk_retrieves_a_websocket_response_over_http(meet: Meet) -> None:
    """WS-8, API-1."""
    with meet(HELLO, AGAIN) as (client, _, _):
        with client.responses.connect() as connection:
            connection.response.create(**ASKED)
            response = turn_of(connection)[-1].response
        assert client.responses.retrieve(response.id) == response
        assert client.responses.create(**ASKED, previous_response_id=response.id).output_text == "Hello again."


def test_sdk_websocket_stays_usable_after_errors(meet: Meet) -> None:
    """WS-1, WS-2, WS-10, ERR-2."""
    with meet(testing.error(429), HELLO) as (client, _, _), client.responses.connect() as connection:
        refused = []
        connection.response.create(**ASKED, previous_response_id=NEVER)
        refused.append(turn_of(connection)[-1])
        connection.response.create(**ASKED, background=True)
        refused.append(turn_of(connection)[-1])
        connection.response.steer(input="Hm.", previous_response_id=NEVER)
        refused.append(turn_of(connection)[-1])
        connection.response.create(**ASKED)
        refused.append(turn_of(connection)[-1])
        connection.response.create(**ASKED)
        assert turn_of(connection)[-1].response.output_text == "Hello."
    assert [(event.type, event.status, event.error.code, event.error.param) for event in refused] == [
        ("error", 400, "previous_response_not_found", "previous_response_id"),
        ("error", 400, "invalid_value", "background"),
        ("error", 400, "invalid_value", "type"),
        ("error", 429, "rate_limit_exceeded", None),
    ]


def test_websocket_turn_ignores_stream_and_background_false(meet: Meet) -> None:
    """WS-2: openai-agents sends `stream` with every frame."""
    with meet(HELLO, HELLO, HELLO) as (client, _, _), client.responses.connect() as connection:
        for fields in ({"stream": True}, {"stream": False}, {"background": False}):
            connection.response.create(**ASKED, **fields)
            assert turn_of(connection)[-1].response.output_text == "Hello."


def test_websocket_turns_are_traced_with_their_status(meet: Meet, tmp_path: Path) -> None:
    with (
        meet(HELLO, trace=TraceConfig(dir=str(tmp_path / "traces"))) as (client, _, _),
        client.responses.connect() as connection,
    ):
        connection.response.create(**ASKED)
        turn_of(connection)
        connection.response.create(**ASKED, previous_response_id=NEVER)
        turn_of(connection)
    good, bad = list_traces(tmp_path / "traces")
    assert (good.status, good.error, bad.status, bad.error) == (200, None, 400, "previous_response_not_found")
    (piece,) = read_trace(tmp_path / "traces", bad.id).client_pieces
    assert piece.data.raw.startswith(b'{"type":"error","status":400,')


def test_sdk_websocket_broken_turn_is_a_failed_response(meet: Meet) -> None:
    """WS-3."""
    with (
        meet(turn(testing.text("Hel"), testing.end("rst")), HELLO) as (client, _, _),
        client.responses.connect() as connection,
    ):
        connection.response.create(**ASKED)
        failed = turn_of(connection)[-1]
        connection.response.create(**ASKED)
        assert turn_of(connection)[-1].response.output_text == "Hello."
    assert (failed.type, failed.response.error.code) == ("response.failed", "upstream_disconnected")


def test_sdk_websocket_handlers_are_called(meet: Meet) -> None:
    """Messages that are sent before the connection is open are sent once it is."""
    with meet(HELLO) as (client, _, _):
        deltas: list[str] = []
        manager = client.responses.connect()
        manager.send({"type": "response.create", **ASKED})
        manager.on("response.output_text.delta", lambda event: deltas.append(event.delta))
        with manager as connection:
            connection.on("response.completed", lambda _: connection.close())
            connection.dispatch_events()
    assert deltas == ["Hel", "lo."]


def test_sdk_websocket_warm_up_makes_no_upstream_call_and_is_continued(meet: Meet) -> None:
    with meet(HELLO) as (client, _, upstream), client.responses.connect() as connection:
        connection.response.create(**ASKED, generate=False, store=False)
        warm = turn_of(connection)[-1].response
        assert upstream.received == []
        connection.response.create(model="mock-1", input="Now.", store=False, previous_response_id=warm.id)
        assert turn_of(connection)[-1].response.output_text == "Hello."
    assert warm.output == []
    assert [content for _, content in sent_conversation(upstream.received[0])] == ["Say hello.", "Now."]


def test_documented_websocket_example_runs(meet: Meet, capsys: pytest.CaptureFixture[str]) -> None:
    with meet(HELLO, AGAIN) as (_, gateway, upstream):
        documented = block("responses.connect()").replace("http://127.0.0.1:8080", gateway.url)
        names: dict[str, Any] = {}
        exec(compile(documented, "docs/clients.md", "exec"), names)
        names["client"].close()
        assert "Hello." in [content for _, content in sent_conversation(upstream.received[1])]
    assert capsys.readouterr().out.split("\n") == ["Hello.", "Hello again.", ""]


def test_sdk_async_client_uses_a_websocket(meet: Meet) -> None:
    async def ask(client: AsyncOpenAI) -> list[Any]:
        ends: list[Any] = []
        async with client, client.responses.connect() as connection:
            await connection.response.create(**ASKED, tools=TOOLS, store=False)
            async for event in connection:
                if event.type == "response.completed":
                    ends.append(event.response)
                    if len(ends) == 2:
                        break
                    await connection.response.create(
                        model="mock-1", input=[SEEN], tools=TOOLS, store=False, previous_response_id=event.response.id
                    )
        return ends

    with meet(CALL, HELLO) as meeting:
        first, second = asyncio.run(ask(meeting.async_client()))
    assert (first.output[-1].name, second.output_text) == ("look", "Hello.")


def test_sdk_closing_a_websocket_cancels_the_upstream(meet: Meet) -> None:
    """WS-12."""
    gate = Gate()
    with meet(turn(testing.text("Hel"), testing.wait(gate), testing.text("never"))) as (client, gateway, upstream):
        with client.responses.connect() as connection:
            connection.response.create(**ASKED)
            next(event for event in connection if event.type == "response.output_text.delta")
        upstream.wait_disconnected()
        (line,) = gateway.requests(1)
        assert line["client_left"]


def test_sdk_websocket_requires_the_key(meet: Meet) -> None:
    keys = [KeyConfig(name="alice", env="ALICE_KEY")]
    with meet(HELLO, keys=keys, environ={"ALICE_KEY": "sk-alice-0123456789"}) as (client, gateway, _):
        with pytest.raises(InvalidStatus, match="401"), client.responses.connect():
            pass
        with client_of(gateway, "sk-alice-0123456789") as right, right.responses.connect() as connection:
            connection.response.create(**ASKED)
            assert turn_of(connection)[-1].response.output_text == "Hello."


def test_sdk_websocket_is_refused_if_disabled_and_http_works(meet: Meet) -> None:
    with meet(HELLO, websocket=False) as (client, _, _):
        with pytest.raises(InvalidStatus, match="426"), client.responses.connect():
            pass
        assert client.responses.create(**ASKED).output_text == "Hello."


# The embedded model


def test_embedded_model_continues_stored_responses(tmp_path: Path) -> None:
    """PREV-1, API-1, WS-5: the same from end to end, with a real model and its own text."""
    model = EmbeddedModel(os.environ)
    model.start()
    try:
        config = one_upstream(model.base_url, profile="local", api_key_env="LOCAL_KEY")
        with (
            running(with_store(config, tmp_path), environ={"LOCAL_KEY": model.key}) as gateway,
            client_of(gateway) as client,
        ):
            _converse(client)
    finally:
        model.stop()


def _converse(client: OpenAI) -> None:
    asked: Any = {"model": "local", "max_output_tokens": 16, "temperature": 0}
    first = client.responses.create(**asked, input="My name is Ada.")
    second = client.responses.create(**asked, input="What is my name?", previous_response_id=first.id)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert client.responses.retrieve(second.id) == second
    (item,) = client.responses.input_items.list(second.id)
    assert isinstance(item, ResponseInputMessageItem)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with client.responses.connect() as connection:
        connection.response.create(**asked, input="Say hello.", store=False)
        response = turn_of(connection)[-1].response
        connection.response.create(**asked, input="Why?", store=False, previous_response_id=response.id)
        again = turn_of(connection)[-1].response
    assert again.previous_response_id == response.id
    assert again.usage.input_tokens > response.usage.input_tokens
