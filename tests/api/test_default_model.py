"""Requests without a model, over sockets: the gateway uses the default model, in every dialect that names it in the
body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running, until
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.config import Config, ServerConfig, StoreConfig
from antiphon.testing import ChatServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

HELLO = turn(testing.text("Hello."), testing.usage(5, 2))
MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Hi"},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 100},
    "/api/chat": {"messages": MESSAGES, "stream": False},
    "/api/generate": {"prompt": "Hi", "stream": False},
}


def with_default(config: Config, model: str) -> Config:
    return replace(config, server=ServerConfig(default_model=model))


@pytest.mark.parametrize("members", [{}, {"model": ""}, {"model": None}], ids=["absent", "empty", "null"])
@pytest.mark.parametrize("path", BODIES)
def test_answer_names_the_default_model(path: str, members: dict[str, Any]) -> None:
    with ChatServer([HELLO]) as upstream:
        with running(with_default(one_upstream(upstream.base_url), "mock-1")) as gateway:
            answer = gateway.post({**BODIES[path], **members}, path)
            [line] = gateway.requests(1)
        assert [received.json["model"] for received in upstream.received] == ["mock-1"]
    assert (answer.status_code, answer.json()["model"], line["model"]) == (200, "mock-1", "mock-1")


@pytest.mark.parametrize("members", [{}, {"model": ""}, {"model": None}], ids=["absent", "empty", "null"])
def test_websocket_uses_the_default_model(members: dict[str, Any]) -> None:
    with ChatServer([HELLO]) as upstream:
        with running(with_default(one_upstream(upstream.base_url), "mock-1")) as gateway:
            with open_websocket(gateway.port, "/v1/responses") as client:
                client.send({"type": "response.create", "input": "Hi", **members})
                event = client.receive_json()
                while event["type"] != "response.completed":
                    event = client.receive_json()
        assert [received.json["model"] for received in upstream.received] == ["mock-1"]
    assert event["response"]["model"] == "mock-1"


@pytest.mark.parametrize("path", BODIES)
def test_only_listed_model_needs_no_setting(path: str) -> None:
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url, models=["mock-1"])) as gateway:
        answer = gateway.post(BODIES[path], path)
    assert (answer.status_code, answer.json()["model"]) == (200, "mock-1")


@pytest.mark.parametrize("path", BODIES)
def test_without_a_default_model_the_request_is_refused(path: str) -> None:
    with ChatServer([]) as upstream, running(one_upstream(upstream.base_url, models=["a", "b"])) as gateway:
        answer = gateway.post(BODIES[path], path)
        assert upstream.received == []
    assert answer.status_code == 400
    assert "model is missing: expected the name of a model, such as 'a', 'b'" in answer.text


def test_background_response_keeps_the_default_model(tmp_path: Path) -> None:
    store = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
    with ChatServer([HELLO]) as upstream:
        config = replace(with_default(one_upstream(upstream.base_url), "mock-1"), store=store)
        with running(config) as gateway:
            queued = gateway.post({"input": "Hi", "background": True}).json()
            until(lambda: gateway.get(f"/v1/responses/{queued['id']}").json()["status"] == "completed")
            ended = gateway.get(f"/v1/responses/{queued['id']}").json()
    assert (queued["model"], ended["model"]) == ("mock-1", "mock-1")
