"""Tests of the checks in `soak.kills`. `tests/faults/test_storage.py` runs a few rounds of kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import httpx2
import pytest
from msgspec.structs import replace
from soak.kills import AcknowledgedResponse, Answer, Round
from tests.running import one_upstream, running

from antiphon.config import StoreConfig
from antiphon.testing import ChatServer

pytestmark = pytest.mark.without_coverage


@pytest.mark.io
def test_find_losses_reports_missing_changed_and_broken_responses(tmp_path: Path) -> None:
    config = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
    with ChatServer() as upstream, running(replace(one_upstream(upstream.base_url), store=config)) as gateway:
        first, other = (gateway.post({"model": "m", "input": "Hello."}).json() for _ in range(2))
        second = gateway.post({"model": "m", "input": "And?", "previous_response_id": first["id"]}).json()
        acknowledged = [AcknowledgedResponse(first, None), AcknowledgedResponse(second, first["id"])]
        round = Round(gateway.port, Random(0))
        assert asyncio.run(round.find_losses(acknowledged)) == []
        assert len(upstream.received) == 4  # the check continued the chain once
        (missing_loss,) = asyncio.run(round.find_losses([AcknowledgedResponse({"id": "resp_never"}, None)]))
        assert missing_loss.startswith("resp_never: 404 ")
        (changed_loss,) = asyncio.run(round.find_losses([AcknowledgedResponse({**other, "status": "failed"}, None)]))
        assert changed_loss.startswith(f"{other['id']}: 200 ")
        with httpx2.Client() as client:
            client.delete(f"{gateway.url}/v1/responses/{first['id']}")
        (chain_loss,) = asyncio.run(round.find_losses([AcknowledgedResponse(second, first["id"])]))
        assert chain_loss.startswith(f"{second['id']} cannot be continued: 400 ")


def test_answer_is_complete_once_its_last_event_arrived() -> None:
    data = b'event: response.completed\ndata: {"response":{"id":"r"}}'
    assert Answer(200, data + b"\n\n", is_complete=False).response == {"id": "r"}
    assert Answer(200, data, is_complete=False).response is None
    assert Answer(200, b'{"id":"r"}', is_complete=True).response == {"id": "r"}
    assert Answer(200, b'{"id":"r"}', is_complete=False).response is None
    assert Answer(500, b'{"error":{}}', is_complete=True).response is None
