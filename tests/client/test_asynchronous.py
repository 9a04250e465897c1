"""`AsyncClient`: all of its calls, against strict servers of every dialect and a running gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.client.conversing import asked, client_of, gateway

from antiphon import testing
from antiphon.client import AsyncClient
from antiphon.errors import ClientFault, UnsupportedParameter, UpstreamFault
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, ResponsesServer, turn
from antiphon.testing.harness import FakeServer

pytestmark = pytest.mark.io
SERVERS: dict[str, type[Any]] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "messages": MessagesServer,
    "gemini": GeminiServer,
}
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))


def server_of(dialect: str, *script: Any) -> FakeServer:
    server: FakeServer = SERVERS[dialect](list(script))
    return server


@pytest.mark.parametrize("dialect", SERVERS)
def test_async_client_creates_and_streams_with_every_dialect(dialect: Any) -> None:
    """B-9: a server of any dialect as a backend, streaming and not."""

    async def work(client: AsyncClient) -> Response:
        whole = await client.create("Say hello.", max_output_tokens=100)
        assert (whole.status, whole.output_text) == ("completed", "Hello.")
        async with client.stream("Say hello.", max_output_tokens=100) as stream:
            events = [event async for event in stream]
        assert find_violations(events) == []
        assert stream.error is None
        assert stream.text == "Hello."
        return stream.response

    with server_of(dialect, HELLO, HELLO) as server:
        response = asked(server.origin, work, dialect=dialect, key="secret")
        assert not server.refusals
    assert response.usage is not None
    assert response.usage.output_tokens == 2


def test_create_accepts_request_fields_and_typed_or_untyped_items() -> None:
    """B-9."""

    async def work(client: AsyncClient) -> None:
        items: list[Any] = [
            MessageParam(role="user", content="Hi."),
            {"type": "message", "role": "assistant", "content": "Yes?"},
        ]
        await client.create([*items, {"role": "user", "content": "Go."}], instructions="Be brief.", temperature=0.5)

    with ResponsesServer([HELLO]) as server:
        asked(server.base_url, work)
        body = server.received[0].json
    assert (body["instructions"], body["temperature"], body["model"]) == ("Be brief.", 0.5, "mock-1")
    assert [item["role"] for item in body["input"]] == ["user", "assistant", "user"]
    assert server.received[0].path == "/v1/responses"


def test_create_sends_output_back_unchanged() -> None:
    """ITEM-6."""
    reply = turn(testing.text("One ", "moment."), testing.tool_call("call_1", "look", '{"at": "it"}'))
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    with ResponsesServer([reply, HELLO]) as server, client_of(server.base_url) as client:
        response = client.create("Look.", tools=[tool])
        call_output = {"type": "function_call_output", "call_id": "call_1", "output": "Seen."}
        client.create([{"role": "user", "content": "Look."}, *response.output, call_output], tools=[tool])
        sent = server.received[1].json["input"]
    assert response.output_text == "One moment."
    assert [(call.name, call.arguments, call.call_id) for call in response.function_calls] == [
        ("look", '{"at": "it"}', "call_1")
    ]
    assert [item["type"] for item in sent] == ["message", "message", "function_call", "function_call_output"]
    assert (sent[1]["content"][0]["text"], sent[2]["call_id"]) == ("One moment.", "call_1")


def test_create_sends_extra_fields_unchanged() -> None:
    """REQ-7."""
    with ResponsesServer([HELLO]) as server, client_of(server.base_url) as client:
        client.create("Hi.", extra_fields={"x_lab": {"mode": 1}})
        assert server.received[0].json["x_lab"] == {"mode": 1}
        assert "extra_fields" not in server.received[0].json


@pytest.mark.parametrize("dialect", SERVERS)
def test_models_lists_the_models_of_a_server(dialect: Any) -> None:
    """API-5."""
    with server_of(dialect) as server, client_of(server.base_url, dialect=dialect) as client:
        assert "mock-1" in [model.id for model in client.models()]


def test_create_refuses_an_invalid_setting_before_sending() -> None:
    """ERR-3."""

    async def work(client: AsyncClient) -> None:
        await client.create("Hi.", temperature="hot")  # type: ignore[arg-type]

    with ResponsesServer([]) as server, pytest.raises(ClientFault) as caught:
        asked(server.base_url, work)
    assert caught.value.param == "temperature"
    assert not server.received


def test_on_losses_reports_losses_of_create_and_stream() -> None:
    """F-4."""
    received: list[Losses] = []

    async def work(client: AsyncClient) -> None:
        await client.create("Hi.", tools=[{"type": "web_search"}])
        async with client.stream("Hi.", tools=[{"type": "web_search"}]) as stream:
            await stream.final()
            assert [loss.path for loss in stream.losses] == ["tools[0]"]

    with ChatServer([HELLO, HELLO]) as server:
        asked(server.base_url, work, dialect="chat", on_losses=received.append)
    assert [[loss.path for loss in losses] for losses in received] == [["tools[0]"], ["tools[0]"]]


def test_on_losses_reports_losses_of_the_gateway() -> None:
    """F-4."""
    received: list[Losses] = []
    lossy: dict[str, Any] = {"tools": [{"type": "web_search"}]}
    with gateway() as running, client_of(running.url, on_losses=received.append) as client:
        client.create("Hi.", **lossy)
        client.stream("Hi.", **lossy).final()
        client.create("Hi.")
    assert [[str(loss) for loss in losses] for losses in received] == [
        ["tools[0]: lost in the gateway (see the trace of the gateway)"]
    ] * 2


def test_client_reads_answers_in_the_other_form() -> None:
    """B-9: servers that ignore `stream`."""

    async def work(client: AsyncClient) -> None:
        assert (await client.create("Hi.")).output_text == "Hello."
        async with client.stream("Hi.") as stream:
            events = [event async for event in stream]
        assert find_violations(events) == []
        assert stream.text == "Hello."
        assert await stream.next_events() == []

    for dialect in ("chat", "responses"):
        script = [turn(testing.text("Hello."), stream=True), turn(testing.text("Hello."), stream=False)]
        with server_of(dialect, *script) as server:
            asked(server.base_url, work, dialect=dialect)


def test_stored_response_is_retrieved_continued_and_deleted(tmp_path: Path) -> None:
    """B-9."""

    async def work(client: AsyncClient) -> None:
        made = await client.create("Say hello.")
        stored = await client.retrieve(made.id)
        assert (stored.id, stored.output_text, stored.store) == (made.id, "Hello.", True)
        again = await client.create("And again.", previous_response_id=made.id)
        assert again.previous_response_id == made.id
        await client.delete(made.id)
        with pytest.raises(ClientFault) as caught:
            await client.retrieve(made.id)
        assert (caught.value.type, caught.value.status) == ("not_found", 404)

    with gateway([HELLO, HELLO], store=f"sqlite:///{tmp_path}/store.db") as running:
        asked(running.url, work)


def test_stored_state_is_refused_for_dialects_without_it() -> None:
    async def work(client: AsyncClient) -> None:
        with pytest.raises(UnsupportedParameter, match="stores no responses"):
            await client.retrieve("resp_1")
        with pytest.raises(UnsupportedParameter) as caught:
            await client.create("Hi.", previous_response_id="resp_1")
        assert caught.value.param == "previous_response_id"
        with pytest.raises(UnsupportedParameter):
            client.stream("Hi.", background=True)

    with ChatServer([]) as server:
        asked(server.base_url, work, dialect="chat")
        assert not server.received


@pytest.mark.parametrize("id", ["", "../models", "a b", "é"])
def test_response_id_cannot_change_the_path(id: str) -> None:
    async def work(client: AsyncClient) -> None:
        with pytest.raises(ClientFault) as caught:
            await client.delete(id)
        assert caught.value.param == "id"

    asked("http://127.0.0.1:9", work)


def test_failed_response_is_raised_with_its_error() -> None:
    body: dict[str, Any] = {
        "id": "r",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": "rate_limit_exceeded", "message": "Slow."},
    }

    async def work(client: AsyncClient) -> None:
        with pytest.raises(UpstreamFault) as caught:
            await client.create("Hi.")
        assert (caught.value.code, caught.value.message) == ("rate_limit_exceeded", "Slow.")
        with pytest.raises(UpstreamFault):
            await client.stream("Hi.").final()

    with ResponsesServer([testing.whole(body), testing.whole(body)]) as server:
        asked(server.base_url, work)


def test_failed_stream_ends_with_one_terminal_event_and_its_error() -> None:
    """STR-8."""
    broken = turn(testing.text("Hel"), testing.end("rst"))

    async def work(client: AsyncClient) -> None:
        async with client.stream("Hi.") as stream:
            events = [event async for event in stream]
        assert find_violations(events) == []
        assert stream.response.status == "failed"
        assert stream.text == "Hel"
        assert stream.error is not None
        assert "the server closed the connection" in stream.error.message
        pieces = client.stream("Hi.").texts()
        assert await anext(pieces) == "Hel"
        with pytest.raises(UpstreamFault):
            await anext(pieces)

    with ResponsesServer([broken, broken]) as server:
        asked(server.base_url, work)


def test_client_without_url_reads_url_and_key_from_the_environment() -> None:
    with ResponsesServer([HELLO]) as server, ResponsesServer([HELLO]) as other:
        environ = {"ANTIPHON_URL": server.origin, "ANTIPHON_API_KEY": "of-the-gateway"}
        for url in (None, other.origin):
            with client_of(url, environ=environ) as client:  # type: ignore[arg-type]
                client.create("Hi.")
        assert server.received[0].headers["authorization"] == "Bearer of-the-gateway"
        assert "authorization" not in other.received[0].headers, "a key was sent where it does not belong"
