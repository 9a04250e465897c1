"""Overload: turns over the bounds are refused at once and in the client's own form, and open turns go on."""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from tests.running import Running, one_upstream, running, until
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.config import Config, KeyConfig, ServerConfig, StoreConfig
from antiphon.testing import ChatServer, Gate, turn

pytestmark = pytest.mark.io
BODY = {"model": "m", "input": "Hi", "store": False}


def config_with(base_url: str, *keys: str, **server: Any) -> Config:
    key_configs = [KeyConfig(name=key, sha256=sha256(f"key-of-{key}-0123456789".encode()).hexdigest()) for key in keys]
    return replace(one_upstream(base_url), server=ServerConfig(port=0, **server), keys=key_configs)


def authorization(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-of-{key}-0123456789"}


class OpenTurn(threading.Thread):
    """A turn whose upstream waits at a gate."""

    def __init__(self, gateway: Running, **headers: str) -> None:
        super().__init__()
        self._gateway = gateway
        self._headers = headers
        self.answer: httpx2.Response | None = None
        self.start()

    def run(self) -> None:
        self.answer = self._gateway.post(BODY, **self._headers)

    def status(self) -> int:
        self.join()
        assert self.answer is not None
        return self.answer.status_code


def test_turn_over_the_bound_of_the_process_is_a_503_and_open_turns_go_on() -> None:
    gate = Gate()
    script = turn(testing.wait(gate), testing.text("Hello."))
    with (
        ChatServer(lambda _: script) as server,
        running(config_with(server.base_url, max_open_turns=1)) as gateway,
    ):
        first = OpenTurn(gateway)
        server.wait_received(1)
        refused = gateway.post(BODY)
        chat = gateway.post({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "/v1/chat/completions")
        with open_websocket(gateway.port, "/v1/responses") as client:
            client.send({"type": "response.create", **BODY})
            message = client.receive_json()
        gate.open()
        assert first.status() == 200
        assert gateway.post(BODY).status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["code"] == chat.json()["error"]["code"] == "overloaded"
    assert (message["status"], message["error"]["code"]) == (503, "overloaded")


def test_turn_over_the_bound_of_a_key_is_a_429_for_this_key_only() -> None:
    gate = Gate()
    waiting, hello = turn(testing.wait(gate), testing.text("Hello.")), turn(testing.text("Hello."))
    with (
        ChatServer([waiting, hello]) as server,
        running(config_with(server.base_url, "alice", "bob", max_open_turns_per_key=1)) as gateway,
    ):
        first = OpenTurn(gateway, **authorization("alice"))
        server.wait_received(1)
        refused = gateway.post(BODY, **authorization("alice"))
        other = gateway.post(BODY, **authorization("bob"))
        gate.open()
        assert first.status() == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert other.status_code == 200


def test_bound_of_a_key_needs_keys() -> None:
    gate = Gate()
    waiting, hello = turn(testing.wait(gate), testing.text("Hello.")), turn(testing.text("Hello."))
    with (
        ChatServer([waiting, hello]) as server,
        running(config_with(server.base_url, max_open_turns_per_key=1)) as gateway,
    ):
        first = OpenTurn(gateway)
        server.wait_received(1)
        assert gateway.post(BODY).status_code == 200
        gate.open()
        assert first.status() == 200


def test_readiness_follows_the_store_and_the_stop_signal(tmp_path: Path) -> None:
    with ChatServer() as server:
        config = replace(one_upstream(server.base_url), store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"))
        with running(config) as gateway:
            assert gateway.get("/readyz").status_code == 200
            assert gateway.get("/livez").json()["status"] == "ok"
            gateway.services.readiness.set_problem("store", "the store cannot be read: it is gone")
            refused = gateway.get("/readyz")
            until(lambda: gateway.get("/readyz").status_code == 200)  # it is checked again and again
            gateway.services.stop_being_ready()
            stopping = gateway.get("/readyz")
            assert gateway.get("/livez").status_code == gateway.get("/health").status_code == 200
    assert refused.status_code == stopping.status_code == 503
    error = refused.json()["error"]
    assert (error["code"], error["message"]) == ("not_ready", "not ready: the store cannot be read: it is gone")
    assert stopping.json()["error"]["message"] == "not ready: the gateway is shutting down"


def unfinished_bytes(gateway: Running) -> float:
    lines = gateway.get("/metrics").text.splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("antiphon_unfinished_body_bytes "))


def test_bodies_over_the_memory_wait_and_are_refused() -> None:
    """Two bodies of a megabyte with room for one: the first does not end, so the second waits and is refused."""
    with ChatServer() as server, running(config_with(server.base_url, max_unfinished_mib=1)) as gateway:
        head = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        with gateway.connect() as slow:
            slow.sendall(head + b"content-length: 2000000\r\n\r\n" + b" " * 1_000_000)
            until(lambda: unfinished_bytes(gateway) > 900_000)
            answer = gateway.post(b" " * 900_000)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "overloaded"
