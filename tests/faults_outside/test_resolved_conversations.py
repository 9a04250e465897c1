"""Requests that reference far more than they contain: references, chains and conversations, measured from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober
from tests.store import postgres_server

from antiphon.testing import ChatServer

pytestmark = pytest.mark.timed

MIB = 1024 * 1024
REFUSED = 0.3  # seconds that `/health` may take while a history is refused
RESOLVED = 1.0  # and while one of almost 64 MiB is read, sent and answered with as much
MEMORY = 200  # MiB allowed beyond the gateway's base: the limit once as bytes, once as items, once as a body


@pytest.fixture(params=["sqlite", "postgres"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with the default limit, 64 MiB."""
    store = f"sqlite:///{tmp_path}/antiphon.db" if request.param == "sqlite" else postgres_server.fresh_url()
    with (
        ChatServer() as upstream,
        gateway_process(tmp_path, upstream.base_url, store=store, memory_limit_mib=4096) as running,
    ):
        yield running


@contextmanager
def measured(gateway: GatewayProcess, wanted: float = REFUSED) -> Iterator[None]:
    before = gateway.resident_mib()
    gateway.reset_peak()
    with health_prober(gateway) as health:
        yield
        peak = gateway.peak_resident_mib()
    print(f"/health at most {health.worst_seconds:.2f} s, memory {before:.0f} → {peak:.0f} MiB")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * wanted
    assert peak - before < LOAD_FACTOR * MEMORY


def store_response(gateway: GatewayProcess, *items: dict[str, Any], **fields: Any) -> str:
    answer = gateway.post({"model": "mock-1", "input": list(items), **fields})
    assert answer.status_code == 200, answer.text
    id: str = answer.json()["id"]
    return id


def message(size: int, **members: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": "x" * size, **members}


def is_too_long(answer: httpx2.Response, param: str) -> None:
    assert answer.status_code == 400, answer.text[:500]
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)


def test_thousand_references_to_one_stored_message_are_refused_quickly(gateway: GatewayProcess) -> None:
    store_response(gateway, message(2 * MIB, id="msg_large"))
    with measured(gateway):
        for _ in range(5):
            is_too_long(
                gateway.post({"model": "mock-1", "input": [{"type": "item_reference", "id": "msg_large"}] * 1000}),
                "input[31].id",
            )


def test_references_to_many_items_of_a_large_response_read_it_once(gateway: GatewayProcess) -> None:
    store_response(gateway, *[message(9 * MIB)] * 3, *(message(100, id=f"msg_{number}") for number in range(1000)))
    with measured(gateway):
        store_response(gateway, *({"type": "item_reference", "id": f"msg_{number}"} for number in range(1000)))


def test_chain_over_the_limit_is_refused_or_truncated_quickly(gateway: GatewayProcess) -> None:
    previous: dict[str, Any] = {}
    for _ in range(4):  # the server repeats all of it
        previous = {"previous_response_id": store_response(gateway, message(9 * MIB), **previous)}
    with measured(gateway):
        for _ in range(3):
            is_too_long(gateway.post({"model": "mock-1", "input": "Go on.", **previous}), "previous_response_id")
    with measured(gateway, RESOLVED):
        store_response(gateway, message(1), truncation="auto", **previous)


def test_conversation_over_the_limit_is_refused_quickly(gateway: GatewayProcess) -> None:
    id = gateway.post({}, "/v1/conversations").json()["id"]
    for _ in range(4):
        store_response(gateway, message(9 * MIB), conversation=id, truncation="auto")
    with measured(gateway):
        for _ in range(3):
            is_too_long(gateway.post({"model": "mock-1", "input": "Go on.", "conversation": id}), "conversation")
