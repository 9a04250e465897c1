"""`losses = "strict"`: a turn that cannot be translated without loss is refused before its upstream receives any of it,
on every transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running, until
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.config import ServerConfig, StoreConfig
from antiphon.protocol.losses import MAX_LISTED_LOSSES
from antiphon.testing import ChatServer, turn

pytestmark = pytest.mark.io
ASKED: dict[str, Any] = {"model": "mock-1", "input": "Say hello.", "store": False}
LOSSY: dict[str, Any] = {**ASKED, "tools": [{"type": "web_search"}], "metadata": {"a": "b"}}
HELLO = turn(testing.text("Hello."), testing.usage(5, 2))


def test_strict_error_names_every_loss_with_path_and_reason() -> None:
    """REQ-6, F-4."""
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url, losses="strict")) as gateway:
        for body in (LOSSY, {**LOSSY, "stream": True}):
            answer = gateway.post(body)
            error = answer.json()["error"]
            assert (answer.status_code, error["type"], error["code"]) == (400, "invalid_request", "lossy_translation")
            assert error["param"] == "tools[0]"
            assert "tools[0]: " in error["message"]
            assert "metadata: " in error["message"]
        assert gateway.post(LOSSY, "/v1/responses/input_tokens").json()["error"]["code"] == "lossy_translation"
        assert gateway.post(ASKED).status_code == 200
        assert len(upstream.received) == 1


def test_strict_error_names_at_most_20_losses() -> None:
    body = {**ASKED, "tools": [{"type": f"acme:tool_{number}"} for number in range(50)]}
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        response = gateway.post(body, antiphon_losses="strict").json()["error"]["message"]
    assert response.endswith("; …")
    assert "tools[19]" in response
    assert "tools[20]" not in response


def test_losses_over_the_list_limit_are_counted_and_refused() -> None:
    """Faults: the list is bounded, the header says that there are more, and strict mode refuses the turn."""
    body = {**ASKED, "tools": [{"type": f"acme:tool_{number}"} for number in range(MAX_LISTED_LOSSES + 500)]}
    limits = ServerConfig(port=0, max_tools=MAX_LISTED_LOSSES + 500)
    with (
        ChatServer(lambda _: HELLO) as upstream,
        running(replace(one_upstream(upstream.base_url), server=limits)) as gateway,
    ):
        warned = gateway.post(body)
        event = gateway.post({**body, "stream": True}, antiphon_extensions="losses").text
        refused = gateway.post(body, antiphon_losses="strict").json()["error"]
    assert warned.status_code == 200
    assert warned.headers["antiphon-losses"].startswith(f"{MAX_LISTED_LOSSES + 1}; tools[0], ")
    assert "up to 500 more losses, which are not listed" in event
    assert (refused["code"], refused["param"]) == ("lossy_translation", "tools[0]")
    assert len(upstream.received) == 2


def test_truncation_by_the_client_is_not_refused_in_strict_mode() -> None:
    """REQ-2."""
    items = [{"role": "user", "content": f"{number} " * 200} for number in range(30)]
    body = {**ASKED, "input": items, "truncation": "auto"}
    with (
        ChatServer(lambda _: HELLO) as upstream,
        running(one_upstream(upstream.base_url, losses="strict", context=1024)) as gateway,
    ):
        answer = gateway.post(body)
    assert answer.status_code == 200
    assert "input" in answer.headers["antiphon-losses"]


def test_losses_header_of_a_websocket_applies_to_all_its_turns() -> None:
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        with open_websocket(gateway.port, "/v1/responses", ("antiphon-losses", "strict")) as socket:
            socket.send({"type": "response.create", **LOSSY})
            answer = socket.receive_json()
        assert (answer["type"], answer["error"]["code"]) == ("error", "lossy_translation")
        assert upstream.received == []


def test_background_turn_is_checked_for_losses_when_queued(tmp_path: Path) -> None:
    """API-2: the client's header overrides the setting, also for the worker that runs the turn later."""
    with ChatServer(lambda _: HELLO) as upstream:
        config = one_upstream(upstream.base_url, losses="strict")
        config = replace(config, store=StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db"))
        body = {**LOSSY, "store": True, "background": True}
        with running(config) as gateway:
            assert gateway.post(body).json()["error"]["code"] == "lossy_translation"
            queued = gateway.post(body, antiphon_losses="warn").json()
            until(lambda: gateway.get(f"/v1/responses/{queued['id']}").json()["status"] == "completed")
        assert len(upstream.received) == 1
