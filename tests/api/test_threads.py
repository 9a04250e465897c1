"""Threads of Messages clients: the server keeps the conversation, and the client sends only new messages (API-7).

The anthropic SDK's own tool runner asks for threads by itself. The servers are strict and keep nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError, beta_tool
from msgspec.structs import replace
from tests.api.stateful import ALICE, BOB, Lab, lab
from tests.running import until

from antiphon import testing
from antiphon.config import Config, StoreConfig, UpstreamConfig
from antiphon.testing import (
    ChatServer,
    GeminiServer,
    MessagesServer,
    OllamaServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    turn,
)
from antiphon.testing.script import ScriptedTurn

pytestmark = pytest.mark.io
SERVERS: dict[str, Any] = {
    "chat": (ChatServer, "chat"),
    "responses": (ResponsesServer, "responses"),
    "messages": (MessagesServer, "messages"),
    "gemini": (GeminiServer, "gemini"),
    "ollama": (OllamaServer, "ollama"),
}
BETA = "message-threads-2026-07-01"


def answer(received: ReceivedRequest) -> ScriptedTurn:
    """Calls the tool until it has a result."""
    if "sunny" in received.body.decode() or "get_weather" not in received.body.decode():
        return turn(testing.text("It is sunny."))
    return turn(testing.tool_call("call_1", "get_weather", '{"city":"Bonn"}'))


@contextmanager
def meeting(*, store: bool = True) -> Iterator[tuple[Lab, dict[str, Any]]]:
    servers = {name: make(answer) for name, (make, _) in SERVERS.items()}
    for server in servers.values():
        server.__enter__()
    try:

        def placed(config: Config) -> Config:
            upstreams = [
                UpstreamConfig(name=name, dialect=dialect, base_url=servers[name].base_url, models=[f"{name}-1"])
                for name, (_, dialect) in SERVERS.items()
            ]
            config = replace(config, upstreams=upstreams)
            return config if store else replace(config, store=StoreConfig(url=None))

        with lab(config=placed) as here:
            yield here, servers
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Lab, dict[str, Any]]]:
    with meeting() as running:
        yield running


@pytest.fixture(scope="module")
def without_store() -> Iterator[tuple[Lab, dict[str, Any]]]:
    with meeting(store=False) as running:
        yield running


@beta_tool
def get_weather(city: str) -> str:
    """The weather.

    Args:
        city: The city.
    """
    return f"It is sunny in {city}."


def runner_texts(here: Lab, model: str, **settings: Any) -> list[str]:
    with Anthropic(base_url=here.url, api_key=ALICE, max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=100,
            system="Be brief.",
            tools=[get_weather],
            messages=[{"role": "user", "content": "What is the weather in Bonn?"}],
            **settings,
        )
        messages = [step.get_final_message() for step in runner] if settings.get("stream") else list(runner)
    return ["".join(block.text for block in message.content if block.type == "text") for message in messages]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("stream", [False, True])
def test_tool_runner_of_the_sdk_continues_its_thread(shared: Any, server: str, stream: bool) -> None:
    """API-7: the server gets the system text, the tools and each message once."""
    here, servers = shared
    upstream = servers[server]
    upstream.received.clear()
    before = here.count()
    assert runner_texts(here, f"{server}-1", stream=stream) == ["", "It is sunny."]
    assert here.count() == before + 2
    last = upstream.received[-1].body.decode()
    assert [last.count(text) for text in ("What is the weather in Bonn?", "Be brief.", "It is sunny in Bonn.")] == [
        1
    ] * 3
    assert upstream.received[-1].json.get("thread") is None
    assert len(upstream.received) == 2
    assert upstream.refusals == []


def post(here: Lab, body: dict[str, Any], key: str = ALICE) -> Any:
    return here.call("POST", "/v1/messages", key=key, json={"model": "chat-1", "max_tokens": 9, **body})


def test_thread_continues_with_only_new_messages(shared: Any) -> None:
    """API-7: three turns; the middle one may be continued again."""
    here, servers = shared
    first = post(here, {"thread": {"type": "create"}, "messages": [{"role": "user", "content": "One."}]}).json()
    continued = {"type": "continue", "previous_message_id": first["id"]}
    second = post(here, {"thread": continued, "messages": [{"role": "user", "content": "Two."}]}).json()
    again = {"type": "continue", "previous_message_id": second["id"]}
    assert post(here, {"thread": again, "messages": [{"role": "user", "content": "Three."}]}).status_code == 200
    sent = servers["chat"].received[-1].json["messages"]
    assert [entry["content"] for entry in sent if entry["role"] == "user"] == ["One.", "Two.", "Three."]
    assert here.kept(f"resp_{second['id'].removeprefix('msg_')}")["status"] == "completed"


def is_unsupported(reply: Any) -> bool:
    error = reply.json()["error"]
    return bool(reply.status_code == 400 and error["details"]["error_code"] == "thread_unsupported_request")


def test_thread_of_another_owner_or_an_unknown_one_is_unsupported(shared: Any) -> None:
    """API-7, PREV-3: the SDK then sends the whole conversation."""
    here, _ = shared
    messages = [{"role": "user", "content": "One."}]
    first = post(here, {"thread": {"type": "create"}, "messages": messages}).json()
    plain = post(here, {"messages": messages}).json()
    for id, key in ((first["id"], BOB), ("msg_unknown", ALICE), (plain["id"], ALICE)):
        thread = {"type": "continue", "previous_message_id": id}
        assert is_unsupported(post(here, {"thread": thread, "messages": messages}, key=key))


def continued(id: str, **members: Any) -> dict[str, Any]:
    thread = {"type": "continue", "previous_message_id": id}
    return {"thread": thread, "messages": [{"role": "user", "content": "Two."}], **members}


def test_thread_expires_like_other_responses(shared: Any) -> None:
    """API-7, PREV-3: after the retention time, after a deletion, and of another gateway."""
    here, _ = shared
    first, deleted = (create(here)["id"] for _ in range(2))
    assert post(here, continued(first)).status_code == 200
    assert here.delete(f"resp_{deleted.removeprefix('msg_')}").status_code == 200
    here.run(here.store.prune(before=int(time.time()) + 100, keep=None, batch_size=10_000))
    until(lambda: here.count() == 0)
    with meeting() as (other, _):
        elsewhere = create(other)["id"]
    for id in (first, deleted, elsewhere, "msg_01XFDUDYJgAACzvnptvVoYEL"):
        refused = post(here, continued(id))
        assert is_unsupported(refused)
        error = refused.json()["error"]
        assert error["param"] == "thread.previous_message_id"
        assert error["message"].startswith(f"thread.previous_message_id: no message with the id '{id}' is stored here")


def create(here: Lab) -> Any:
    return post(here, {"thread": {"type": "create"}, "messages": [{"role": "user", "content": "One."}]}).json()


@pytest.mark.parametrize("field", [{"system": "New."}, {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}])
def test_continued_thread_keeps_its_system_text_and_tools(shared: Any, field: dict[str, Any]) -> None:
    """API-7: a request that repeats or changes them is refused, as the API does, and not changed silently."""
    here, servers = shared
    first = create(here)
    before = len(servers["chat"].received)
    refused = post(here, continued(first["id"], **field))
    [name] = field
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, name, "invalid_value")
    assert error["message"].startswith(f"{name}: expected none")
    assert len(servers["chat"].received) == before


@pytest.mark.parametrize("thread", [{}, {"type": "fork"}, {"type": "continue"}])
def test_malformed_thread_is_refused(shared: Any, thread: Any) -> None:
    here, _ = shared
    assert is_unsupported(post(here, {"thread": thread, "messages": [{"role": "user", "content": "One."}]}))


def test_paused_turn_of_a_thread_continues_without_messages() -> None:
    """API-7: the SDKs send no message after `pause_turn`. Without a thread, no message is an error."""
    replies: list[Reply] = [turn(testing.text("Half"), testing.finish("pause_turn")), turn(testing.text(" whole."))]
    with MessagesServer(lambda _: replies.pop(0)) as upstream:

        def placed(config: Config) -> Config:
            served = UpstreamConfig(name="lab", dialect="messages", base_url=upstream.base_url, models=["*"])
            return replace(config, upstreams=[served])

        with lab(config=placed) as here:
            first = create(here)
            assert first["stop_reason"] == "pause_turn"
            second = post(here, continued(first["id"], messages=[]))
            assert (second.status_code, second.json()["content"][0]["text"]) == (200, " whole.")
            refused = post(here, {"thread": {"type": "create"}, "messages": []})
        sent = [(message["role"], message["content"]) for message in upstream.received[-1].json["messages"]]
    assert [role for role, _ in sent] == ["user", "assistant"]
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


def test_gateway_without_a_store_has_no_threads(without_store: Any) -> None:
    """API-7: a direct call gets the error, and the tool runner continues without threads."""
    here, _ = without_store
    messages: Any = [{"role": "user", "content": "One."}]
    assert is_unsupported(post(here, {"thread": {"type": "create"}, "messages": messages}))
    with Anthropic(base_url=here.url, api_key=ALICE, max_retries=0) as client, pytest.raises(APIStatusError) as caught:
        client.beta.messages.create(
            model="chat-1", max_tokens=9, messages=messages, thread={"type": "create"}, betas=[BETA]
        )
    assert caught.value.status_code == 400
    assert runner_texts(here, "chat-1") == ["", "It is sunny."]
