"""An agent behind the gateway: every dialect of clients, state, background work, a WebSocket, cancellation, slow
readers (F-5)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.producer.served import serving
from tests.running import until
from tests.websocket_client import open_websocket

from antiphon import sse
from antiphon.config import Config, StoreConfig, Timeouts
from antiphon.errors import ApiError, InvalidValue
from antiphon.producer import Agent, Turn, agent
from antiphon.producer.transport import MAX_PENDING_BYTES, AgentTransport
from antiphon.testing import ChatServer, text, turn
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import UpstreamResponse

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@agent(model="echo")
async def echo(turn: Turn) -> None:
    async with turn.reasoning() as thought:
        await thought.write("Hm.")
    await turn.extension("acme:look", {"items": len(turn.input)})
    async with turn.message() as out:
        for word in turn.text.split():
            await out.write(f"{word}! ")
    turn.usage(input_tokens=3, output_tokens=2)


def body(**members: Any) -> dict[str, Any]:
    return {"model": "echo", "input": "Hello there", **members}


ASKED: dict[str, dict[str, Any]] = {
    "/v1/responses": body(),
    "/v1/chat/completions": {"model": "echo", "messages": [{"role": "user", "content": "Hello there"}]},
    "/v1/messages": {"model": "echo", "max_tokens": 99, "messages": [{"role": "user", "content": "Hello there"}]},
    "/v1beta/models/echo:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hello there"}]}]},
}


@pytest.mark.parametrize("path", ASKED)
def test_agent_answers_clients_of_every_dialect(path: str) -> None:
    """F-5, F-1."""
    with serving(echo) as gateway:
        answer = gateway.post(ASKED[path], path)
    assert answer.status_code == 200
    assert "Hello! there! " in answer.text


def test_agent_stream_has_the_events_of_the_agent() -> None:
    """F-5, B-2: with the gateway's own ids and numbers, checked by the grammar."""
    with serving(echo) as gateway:
        answer = gateway.post(body(stream=True))
    frames = sse.Decoder().feed(answer.content)
    events = [msgspec.json.decode(frame.data) for frame in frames[:-1]]
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == [
        "Hello! ",
        "there! ",
    ]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "acme:look", "message"]
    assert events[-1]["response"]["usage"]["total_tokens"] == 5
    assert frames[-1].data == b"[DONE]"


def test_agent_is_listed_as_a_model_and_tokens_are_estimated() -> None:
    with serving(echo) as gateway:
        assert [model["id"] for model in gateway.get("/v1/models").json()["data"]] == ["echo"]
        assert gateway.post(body(), "/v1/responses/input_tokens").json()["input_tokens"] > 0


def test_agent_gets_the_whole_stored_conversation(tmp_path: Path) -> None:
    """F-5, F-2: `previous_response_id`, and background responses that are fetched later."""

    @agent(model="count")
    async def count(turn: Turn) -> None:
        async with turn.message() as out:
            await out.write(str(len(turn.input)))

    store = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
    with serving(count, Config(store=store)) as gateway:
        first = gateway.post(body(model="count")).json()
        second = gateway.post(body(model="count", previous_response_id=first["id"])).json()
        assert second["output"][0]["content"][0]["text"] == "3"
        behind = gateway.post(body(model="count", background=True)).json()
        until(lambda: gateway.get(f"/v1/responses/{behind['id']}").json()["status"] == "completed")


def test_cancelling_a_background_response_cancels_the_agent(tmp_path: Path) -> None:
    """F-5: cancellation arrives as `CancelledError`."""
    waiter, started, ended = _waiting()
    store = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
    with serving(waiter, Config(store=store)) as gateway:
        behind = gateway.post(body(model="wait", background=True)).json()
        assert started.wait(60)
        cancelled = gateway.post({}, f"/v1/responses/{behind['id']}/cancel").json()
        assert ended.wait(60)
    assert cancelled["status"] == "cancelled"


def test_client_disconnect_cancels_the_agent() -> None:
    waiter, started, ended = _waiting()
    with serving(waiter) as gateway:
        with gateway.connect() as connection:
            asked = msgspec.json.encode(body(model="wait", stream=True))
            head = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(head % len(asked) + asked)
            assert started.wait(60)
        assert ended.wait(60)


def _waiting() -> tuple[Agent, threading.Event, threading.Event]:
    started, ended = threading.Event(), threading.Event()

    @agent(model="wait")
    async def wait(turn: Turn) -> None:
        async with turn.message() as out:
            await out.write("Wait")
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.set()
                raise

    return wait, started, ended


def test_agent_answers_over_a_websocket() -> None:
    """F-5."""
    with serving(echo) as gateway, open_websocket(gateway.port) as socket:
        socket.send(msgspec.json.encode({"type": "response.create", **body()}).decode())
        kinds: list[str] = []
        while not kinds or kinds[-1] != "response.completed":
            kinds.append(msgspec.json.decode(socket.receive())["type"])
    assert kinds.count("response.output_text.delta") == 2


def test_client_fault_of_an_agent_has_its_status() -> None:
    """B-6: a client that waits for a plain answer gets the status."""

    @agent(model="picky")
    async def picky(turn: Turn) -> None:
        del turn
        raise InvalidValue("input: got a greeting, wanted a question", param="input")

    with serving(picky) as gateway:
        answer = gateway.post(body(model="picky"))
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "input: got a greeting, wanted a question"


async def _ask(
    transport: AgentTransport, asked: Any = None, method: str = "POST", path: str = "responses"
) -> UpstreamResponse:
    data = msgspec.json.encode(asked or body())
    return await transport.send(method, f"agent:lab:agent/{path}", {}, data, Timeouts())


async def _all(answer: UpstreamResponse) -> bytes:
    return b"".join([piece async for piece in answer.pieces()])


@pytest.mark.parametrize("kind", ["output_text", "reasoning_text"])
def test_agent_waits_for_a_slow_reader(kind: str) -> None:
    """Little is buffered in memory, however much the agent writes."""
    written = 0

    @agent(model="long")
    async def long(turn: Turn) -> None:
        nonlocal written
        async with turn.message() if kind == "output_text" else turn.reasoning() as out:
            for _ in range(1000):
                await out.write("x" * 1000)
                written += 1000

    async def read() -> bytes:
        answer = await _ask(AgentTransport({"lab:agent": long}, HttpTransport({})))
        for _ in range(100):
            await asyncio.sleep(0)
        assert written < 2 * MAX_PENDING_BYTES
        return await _all(answer)

    assert asyncio.run(read()).count(f"response.{kind}.delta".encode()) == 2000  # the name of the event, and its type
    assert written == 1_000_000


def test_agent_without_awaits_yields_to_the_event_loop() -> None:
    """The text of an agent that computes between its writes is delivered meanwhile, not at the end."""
    received: list[int] = []

    @agent(model="busy")
    async def busy(turn: Turn) -> None:
        loop = asyncio.get_running_loop()
        async with turn.message() as out:
            for _ in range(5):
                end = loop.time() + 0.002
                while loop.time() < end:
                    pass
                await out.write("x")

    async def read() -> None:
        answer = await _ask(AgentTransport({"lab:agent": busy}, HttpTransport({})))
        async for piece in answer.pieces():
            received.append(piece.count(b"event: response.output_text.delta"))

    asyncio.run(read())
    assert sum(received) == 5
    assert max(received) < 5


def test_agent_can_clean_up_after_its_end() -> None:
    away: list[str] = []

    @agent(model="tidy")
    async def tidy(turn: Turn) -> None:
        turn.incomplete()
        await asyncio.sleep(0)
        away.append("all")

    async def read() -> None:
        answer = await _ask(AgentTransport({"lab:agent": tidy}, HttpTransport({})))
        async for _ in answer.pieces():
            break
        answer.abort()
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(read())
    assert away == ["all"]


@pytest.mark.parametrize(
    ("method", "path", "asked", "status"), [("GET", "models", None, 404), ("POST", "responses", {"input": 7}, 400)]
)
def test_agent_transport_refuses_requests_that_are_no_turns(method: str, path: str, asked: Any, status: int) -> None:
    async def read() -> tuple[int, bytes]:
        answer = await _ask(AgentTransport({"lab:agent": echo}, HttpTransport({})), asked, method, path)
        answer.abort()
        return answer.status, await _all(answer)

    answer_status, answer_body = asyncio.run(read())
    assert answer_status == status
    assert b'"error"' in answer_body


def test_agent_transport_forwards_other_addresses_and_close_cancels_agents() -> None:
    waiter, _, ended = _waiting()

    async def read(base_url: str) -> bytes:
        transport = AgentTransport({"lab:agent": waiter}, HttpTransport({}))
        await _ask(transport, body(model="wait"))
        asked = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
        answer = await transport.send(
            "POST", f"{base_url}/chat/completions", {"content-type": "application/json"}, asked, Timeouts()
        )
        answer_body = await _all(answer)
        await transport.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return answer_body

    with ChatServer([turn(text("From afar."))]) as server:
        assert b"From afar." in asyncio.run(read(server.base_url))
    assert ended.is_set()


def test_agent_failure_fails_the_stream() -> None:
    @agent(model="poor")
    async def poor(turn: Turn) -> None:
        async with turn.message() as out:
            await out.write("I")
            raise ApiError("no more", type="too_many_requests", code="rate_limit_exceeded")

    async def read() -> bytes:
        return await _all(await _ask(AgentTransport({"lab:agent": poor}, HttpTransport({}))))

    failed = msgspec.json.decode(sse.Decoder().feed(asyncio.run(read()))[-1].data)
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "rate_limit_exceeded", "message": "no more"}
