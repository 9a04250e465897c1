"""A new configuration in a serving process: turns under way end with the old one, the next ones begin with the new one,
whatever the connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from tests.running import BOUND, Running, running, until
from tests.websocket_client import Closed, open_websocket

from antiphon import testing
from antiphon.config import (
    Config,
    HealthConfig,
    KeyConfig,
    ModelConfig,
    RetryConfig,
    ServerConfig,
    StoreConfig,
    TargetConfig,
    UpstreamConfig,
)
from antiphon.errors import ProfileError
from antiphon.gateway.upstreams import UpstreamAddress
from antiphon.testing import ChatServer, Gate, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
ENVIRON = {"ALICE_KEY": "alice-key", "BOB_KEY": "bob-key"}
TOOL: dict[str, Any] = {"type": "function", "name": "a", "parameters": {"type": "object", "properties": {}}}
TWO_TOOLS = {"model": "m", "input": "Go.", "tools": [TOOL, {**TOOL, "name": "b"}]}
FOREIGN_HOST = b"GET /health HTTP/1.1\r\nHost: gate.example\r\nConnection: close\r\n\r\n"
UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bm90aGluZy1zcGVjaWFsIQ==\r\n\r\n"
)
ALICE, BOB = KeyConfig(name="alice", env="ALICE_KEY"), KeyConfig(name="bob", env="BOB_KEY")


def upstream(server: ChatServer, name: str = "lab", **settings: Any) -> UpstreamConfig:
    return UpstreamConfig(name=name, dialect="chat", base_url=server.base_url, **{"models": ["m"], **settings})


def text_of(answer: httpx2.Response) -> str:
    content = answer.json()["output"][0]["content"]
    return str(content[0]["text"])


def status_line(gateway: Running, request: bytes) -> bytes:
    """The first line of the answer. An accepted WebSocket stays open after it."""
    with gateway.connect() as connection, connection.makefile("rb") as answer:
        connection.sendall(request)
        return answer.readline()


@pytest.fixture
def two_servers() -> Any:
    with ChatServer([turn(testing.text("old"))] * 9) as old, ChatServer([turn(testing.text("new"))] * 9) as new:
        yield old, new


def test_stream_under_way_ends_with_the_old_configuration(two_servers: Any) -> None:
    gate, answers = Gate(), list[httpx2.Response]()
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as slow:
        with running(Config(upstreams=[upstream(slow)])) as gateway:
            stream = {"model": "m", "input": "Go.", "stream": True}
            client = threading.Thread(target=lambda: answers.append(gateway.post(stream)))
            client.start()
            gate.wait_reached()
            gateway.app.apply_config(Config(upstreams=[upstream(two_servers[1], "other")]))
            assert text_of(gateway.post({"model": "m", "input": "Go."})) == "new"
            gate.open()
            client.join(BOUND)
    assert "event: response.completed" in answers[0].text
    assert '"text":"Hello."' in answers[0].text


def test_connection_stays_open_and_its_next_request_has_the_new_configuration(two_servers: Any) -> None:
    old, new = two_servers
    with running(Config(upstreams=[upstream(old)])) as gateway, httpx2.Client(timeout=BOUND) as client:
        ports: list[object] = []

        def ask() -> str:
            answer = client.post(f"{gateway.url}/v1/responses", json={"model": "m", "input": "Go."})
            ports.append(answer.extensions["network_stream"].get_extra_info("client_addr"))
            return text_of(answer)

        assert ask() == "old"
        gateway.app.apply_config(Config(upstreams=[upstream(new)]))
        assert ask() == "new"
        assert ports[0] == ports[1]


def test_websocket_has_the_new_configuration_from_its_next_turn_on(two_servers: Any) -> None:
    old, new = two_servers
    with running(Config(upstreams=[upstream(old)])) as gateway, open_websocket(gateway.port) as socket:
        assert socket_text(socket) == "old"
        gateway.app.apply_config(Config(upstreams=[upstream(new)]))
        assert socket_text(socket) == "new"


def socket_text(socket: Any) -> str:
    socket.send({"type": "response.create", "model": "m", "input": "Go."})
    while (event := socket.receive_json())["type"] != "response.completed":
        assert event["type"] != "error", event
    return str(event["response"]["output"][0]["content"][0]["text"])


def test_background_job_has_the_configuration_at_its_start(two_servers: Any, tmp_path: Path) -> None:
    gate = Gate()
    store = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
    body = {"model": "m", "input": "Go.", "background": True}
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as slow:
        with running(Config(upstreams=[upstream(slow)], store=store)) as gateway:
            first = gateway.post(body).json()["id"]
            gate.wait_reached()
            gateway.app.apply_config(Config(upstreams=[upstream(two_servers[1], "other")], store=store))
            second = gateway.post(body).json()["id"]
            until(lambda: gateway.get(f"/v1/responses/{second}").json()["status"] == "completed")
            gate.open()
            until(lambda: gateway.get(f"/v1/responses/{first}").json()["status"] == "completed")
            assert text_of(gateway.get(f"/v1/responses/{first}")) == "Hello."
            assert text_of(gateway.get(f"/v1/responses/{second}")) == "new"


def test_removed_key_is_refused_at_once(two_servers: Any) -> None:
    config = Config(upstreams=[upstream(two_servers[0])], keys=[ALICE, BOB])
    headers = [("Authorization", "Bearer bob-key")]
    with running(config, environ=ENVIRON) as gateway:
        with open_websocket(gateway.port, "/v1/responses", *headers) as socket:
            assert socket_text(socket) == "old"
            assert gateway.get("/v1/models", authorization="Bearer bob-key").status_code == 200
            gateway.app.apply_config(replace(config, keys=[ALICE]))
            assert gateway.get("/v1/models", authorization="Bearer bob-key").status_code == 401
            assert gateway.get("/v1/models", authorization="Bearer alice-key").status_code == 200
            socket.send({"type": "response.create", "model": "m", "input": "Go."})
            error = socket.receive_json()
            assert (error["type"], error["status"], error["error"]["code"]) == ("error", 401, "invalid_api_key")
            assert socket.end() == Closed(1008, "invalid_api_key")


def test_key_of_another_owner_ends_its_websocket(two_servers: Any) -> None:
    config = Config(upstreams=[upstream(two_servers[0])], keys=[BOB])
    with running(config, environ=ENVIRON) as gateway:
        with open_websocket(gateway.port, "/v1/responses", ("Authorization", "Bearer bob-key")) as socket:
            gateway.app.apply_config(replace(config, keys=[replace(BOB, name="carol")]))
            socket.send({"type": "response.create", "model": "m", "input": "Go."})
            assert "another owner" in socket.receive_json()["error"]["message"]
            assert socket.end() == Closed(1008, "invalid_api_key")


def test_added_model_and_removed_model(two_servers: Any) -> None:
    config = Config(upstreams=[upstream(two_servers[0])])
    with running(config) as gateway:
        gateway.app.apply_config(Config(upstreams=[upstream(two_servers[1], models=["n"])]))
        assert gateway.post({"model": "m", "input": "Go."}).json()["error"]["code"] == "model_not_found"
        assert text_of(gateway.post({"model": "n", "input": "Go."})) == "new"
        assert [model["id"] for model in gateway.get("/v1/models").json()["data"]] == ["n"]


def failing_pair(failing: ChatServer, working: ChatServer, **settings: Any) -> Config:
    """A model whose first target fails, and rests after one failure."""
    targets = [TargetConfig(upstream="a", model="m"), TargetConfig(upstream="b", model="m", priority=2)]
    return Config(
        upstreams=[upstream(failing, "a"), upstream(working, "b")],
        models=[ModelConfig(name="m", targets=targets)],
        retry=RetryConfig(rounds=1),
        health=HealthConfig(min_requests=1, rest=3600.0),
        **settings,
    )


def rests(gateway: Running) -> bool:
    targets = gateway.get("/v1/upstreams").json()["data"]
    return any(target["upstream"] == "a" and target["health"] == "resting" for target in targets)


def test_health_of_targets_that_stay_is_kept(two_servers: Any) -> None:
    with ChatServer([testing.error(500, "broken")] * 3) as failing:
        config = failing_pair(failing, two_servers[1])
        with running(config) as gateway:
            assert text_of(gateway.post({"model": "m", "input": "Go."})) == "new"
            assert rests(gateway)
            gateway.app.apply_config(replace(config, server=ServerConfig(max_tools=5)))
            assert rests(gateway)
            assert gateway.post({"model": "m", "input": "Go."}).headers["antiphon-attempts"] == "1"
            assert len(failing.received) == 1
            assert 'antiphon_resting_targets{upstream="a"} 1' in gateway.get("/metrics").text


def test_health_of_another_server_with_the_same_name_is_new(two_servers: Any) -> None:
    old, new = two_servers
    with ChatServer([testing.error(500, "broken")] * 3) as failing:
        with running(failing_pair(failing, new)) as gateway:
            gateway.post({"model": "m", "input": "Go."})
            assert rests(gateway)
            gateway.app.apply_config(failing_pair(old, new))
            assert not rests(gateway)
            assert text_of(gateway.post({"model": "m", "input": "Another conversation."})) == "old"


@pytest.mark.parametrize(
    ("server", "is_refused"),
    [
        (ServerConfig(max_tools=1), lambda gateway: gateway.post(TWO_TOOLS).status_code == 400),
        (ServerConfig(websocket=False), lambda gateway: b" 426 " in status_line(gateway, UPGRADE)),
        (ServerConfig(default_model="m"), lambda gateway: gateway.post({"input": "Go."}).status_code == 200),
        (ServerConfig(allowed_hosts=["gate.example"]), lambda gateway: b" 200 " in gateway.raw(FOREIGN_HOST)),
        (ServerConfig(public_metrics=True), lambda gateway: gateway.get("/metrics").status_code == 200),
    ],
)
def test_settings_of_the_server_take_effect(
    two_servers: Any, server: ServerConfig, is_refused: Callable[[Running], bool]
) -> None:
    config = Config(upstreams=[upstream(two_servers[0], models=["m", "n"])])
    keys = [ALICE] if server.public_metrics else []
    with running(replace(config, keys=keys), environ=ENVIRON) as gateway:
        assert not is_refused(gateway)
        gateway.app.apply_config(replace(config, keys=keys, server=server))
        assert is_refused(gateway)


def test_configuration_that_cannot_be_used_changes_nothing(two_servers: Any, tmp_path: Path) -> None:
    with running(Config(upstreams=[upstream(two_servers[0])])) as gateway:
        with pytest.raises(ProfileError):
            gateway.app.apply_config(Config(upstreams=[upstream(two_servers[1], profile=str(tmp_path / "no.toml"))]))
        assert text_of(gateway.post({"model": "m", "input": "Go."})) == "old"


def test_server_with_the_name_of_an_embedded_model_is_asked_itself(two_servers: Any) -> None:
    old, new = two_servers
    embedded = UpstreamConfig(name="local", dialect="chat", models=["m"], embedded=True)
    addresses = {"local": UpstreamAddress(base_url=old.base_url)}
    with running(Config(upstreams=[embedded]), addresses=addresses) as gateway:
        gateway.app.apply_config(Config(upstreams=[embedded], server=ServerConfig(max_tools=5)))
        assert text_of(gateway.post({"model": "m", "input": "Go."})) == "old"
        gateway.app.apply_config(Config(upstreams=[upstream(new, "local")]))
        assert text_of(gateway.post({"model": "m", "input": "Go."})) == "new"
