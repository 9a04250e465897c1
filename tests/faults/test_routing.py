"""A first target that fails: the second answers before the first content, and never after it. This is a sample of all
cases; `make test-faults` runs them all."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from tests.collecting import nothing_to_collect
from tests.faults.routing_lab import (
    ANSWER,
    CLIENTS,
    FAULTS,
    SERVERS,
    STREAMING_CLIENTS,
    RoutingLab,
    new_text,
    routing_lab,
)
from tests.running import BOUND, one_upstream, running

from antiphon import testing
from antiphon.testing import ChatServer, Gate, error, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HTTP_CLIENTS = [client for client in CLIENTS if client not in ("websocket", "background")]
#: Every client with every fault, and every server with every fault; the other dialect changes with the case.
SAMPLE = [
    (client, [*SERVERS][(number + place) % len(SERVERS)], fault)
    for number, client in enumerate(CLIENTS)
    for place, fault in enumerate(FAULTS)
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutingLab]:
    with routing_lab(tmp_path_factory.mktemp("store")) as running_lab:
        yield running_lab


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(("client", "server", "fault"), SAMPLE)
def test_failed_first_target_is_replaced_before_its_first_content(
    lab: RoutingLab, client: str, server: str, fault: str, stream: bool
) -> None:
    check_case(lab, client, server, fault, stream=stream)


def check_case(
    lab: RoutingLab, client: str, server: str, fault: str, *, stream: bool, second: str | None = None
) -> None:
    answer = lab.ask(client, server, fault, stream=stream, second=second)
    is_streamed = stream or client in STREAMING_CLIENTS
    if fault == "cut_after_content" and is_streamed:
        assert (answer.status, answer.text) == ("failed", "First "), answer
        assert lab.turns(server, second) == (1, 0)
        return
    assert (answer.status, answer.text) == ("completed", "Second."), answer
    assert lab.turns(server, second) == (0 if fault == "refused" else 1, 1)
    if client not in ("websocket", "background"):
        assert answer.headers["antiphon-upstream"] == f"second-{second or server}"
        assert answer.headers["antiphon-attempts"] == "2"
    assert answer.usage == (7, 3)  # of the second only


def test_failover_leaves_nothing_to_collect(lab: RoutingLab) -> None:
    for fault in FAULTS:
        for stream in (True, False):
            with nothing_to_collect():
                lab.ask("responses", "chat", fault, stream=stream)


@pytest.fixture(scope="module")
def impatient_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoutingLab]:
    """A gateway that sends the head of a stream after a tenth of a second without content, in place of ten seconds."""
    store = tmp_path_factory.mktemp("store")
    with routing_lab(store, rounds=1, first_byte_timeout=0.1, keepalive_interval=0.1) as running_lab:
        yield running_lab


@pytest.mark.parametrize("client", HTTP_CLIENTS)
def test_head_that_is_sent_before_the_first_content_names_no_target(impatient_lab: RoutingLab, client: str) -> None:
    """Another target may still answer."""
    answer = impatient_lab.ask(client, "messages", "timeout", stream=True)
    assert (answer.status, answer.text, answer.usage) == ("completed", "Second.", (7, 3))
    assert "antiphon-upstream" not in answer.headers
    assert "antiphon-losses" not in answer.headers


@pytest.mark.parametrize("client", HTTP_CLIENTS)
def test_total_failure_after_the_head_ends_the_stream_with_one_error(impatient_lab: RoutingLab, client: str) -> None:
    impatient_lab.second_reply = error(500)
    try:
        answer = impatient_lab.ask(client, "chat", "timeout", stream=True)
    finally:
        impatient_lab.second_reply = ANSWER
    assert (answer.http_status, answer.status, answer.text) == (200, "failed", "")
    assert impatient_lab.turns("chat") == (1, 1)


def test_opening_of_background_work_is_not_held_back(lab: RoutingLab) -> None:
    """The client gets it although no target has answered."""
    gate = Gate()
    lab.reply = turn(testing.wait(gate), testing.text("First."))
    body = {"model": "chat+chat", "input": new_text(), "background": True, "stream": True}
    with httpx2.stream("POST", f"{lab.gateway.url}/v1/responses", json=body, timeout=BOUND) as response:
        events = (line.removeprefix("event: ") for line in response.iter_lines() if line.startswith("event: "))
        assert [next(events), next(events)] == ["response.created", "response.queued"]
        gate.open()
        assert [*events][-1] == "response.completed"


def test_opening_of_a_lone_target_is_not_delayed() -> None:
    gate = Gate()
    with ChatServer(lambda _: turn(testing.text(""), testing.wait(gate), testing.text("First."))) as server:
        with running(one_upstream(server.base_url)) as gateway:
            body = {"model": "m", "input": "Hi.", "stream": True}
            with httpx2.stream("POST", f"{gateway.url}/v1/responses", json=body, timeout=BOUND) as response:
                assert next(response.iter_lines()) == "event: response.created"
                gate.open()
